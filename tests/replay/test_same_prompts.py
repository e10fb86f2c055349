# SPDX-License-Identifier: Apache-2.0
"""Which of several recorded model calls that were asked the same is meant; where nothing tells it, none."""

from __future__ import annotations

from typing import Any

import pytest
from support.plans import Making, answered, calls, failure, says, user

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.decisions import Container
from genai_processor.replay.live import Prompt, parts_of
from genai_processor.replay.parts import EMPTY
from genai_processor.replay.records import EdgeKind, Ending, Inputs, Node, OrderEvidence, Outcome, State
from genai_processor.replay.session import Session
from genai_processor.replay.stopping import Stop

NOTHING = Outcome(Ending.UNKNOWN, State.NOT_RECORDED, EMPTY)


def session(made: Making, **options: Any) -> Session:
    return Session(made.plan(), "r", models=True, **options)


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asked(one: Session, *messages: Any, **more: Any) -> Node:
    node = one.asked(Prompt(parts_of(messages), **more))
    one.answers(node)
    return node


@pytest.mark.parametrize(
    ("more", "first"),
    [({"agent": "boss"}, "02"), ({"agent": "clerk"}, "01"), ({"tools": frozenset({"ask"})}, "02")],
)
def test_equal_prompts_are_told_apart_by_who_asks_and_what_may_be_called(more: Any, first: str) -> None:
    made = Making()
    for name, span_id, tool in (("clerk", "01", "pay"), ("boss", "02", "ask")):
        node = made.chat(span_id * 8, [user("u")], [calls(tool, {}, "c")])
        made.nodes[-1] = node._replace(agent_name=name)
    assert asked(session(made), said("user", "u"), **more).span_ids == (first * 8,)


def equal_prompts(*agents: str | None) -> Making:
    """One prompt, asked by agents whose model ended it, called something, and failed."""
    made = Making()
    ended = [says("end")], [calls("search", {}, "c")], failure("RateLimitError", "slow down")
    for n, (agent, outcome) in enumerate(zip(agents, ended, strict=True)):
        made.chat(f"0{n + 1}" * 8, [user("u")], outcome, agent=agent)
    return made


def step(key: str, name: str, parent: str | None, *, failed: bool) -> Container:
    nothing = Inputs(State.NOT_RECORDED, EMPTY, OrderEvidence.NOT_RECORDED)
    return Container(key, name, None, None, (), parent, nothing, NOTHING, failed=failed)


def test_of_what_one_agent_asked_a_failure_comes_first_and_what_ends_a_run_last() -> None:
    made = equal_prompts("a", "a", "a").plan(containers={"a": step("a", "run", None, failed=False)})
    one = Session(made, "r", models=True)
    assert [asked(one, said("user", "u")).span_ids[0][:2] for _ in range(3)] == ["03", "02", "01"]


@pytest.mark.parametrize("agents", [("a", "b", "c"), ("a", "a", "b"), (None, None, None)])
def test_of_branches_side_by_side_none_comes_first_though_it_failed(agents: Any) -> None:
    made = equal_prompts(*agents).plan(containers={key: step(key, "run", None, failed=False) for key in "abc"})
    one = Session(made, "r", models=True)
    with pytest.raises(Stop):
        asked(one, said("user", "u"))
    assert isinstance(one.stopped, ReplayRefusedError)


@pytest.mark.parametrize(
    ("failed", "name", "parent", "told"),
    [
        (True, "ask", "graph", True),
        (False, "ask", "graph", False),  # the step went on: it was no attempt
        (True, "other", "graph", False),
        (True, "ask", "graph2", False),
        (True, "ask", None, False),
    ],
)
def test_attempts_at_one_step_come_in_their_order(failed: bool, name: str, parent: str | None, told: bool) -> None:
    made = Making()
    made.chat("01" * 8, [user("u")], [says("end")], agent="second")
    made.chat("02" * 8, [user("u")], failure("RateLimitError", "slow down"), agent="first")
    held = [step("graph", "graph", None, failed=False), step("graph2", "graph", None, failed=False)]
    held += [step("first", "ask", "graph" if parent else None, failed=failed), step("second", name, parent, failed=False)]
    one = Session(made.plan(containers={container.key: container for container in held}), "r", models=True)
    if told:
        assert [asked(one, said("user", "u")).span_ids[0][:2] for _ in range(2)] == ["02", "01"]
    else:
        with pytest.raises(Stop):
            asked(one, said("user", "u"))


def branches(*ends: str, ids: str = "") -> Making:
    """Branches that ask the same, are told to ask the same, and end as is given."""
    made = Making()
    for n, end in enumerate(ends):
        call = calls("search", {"query": "q"}, f"{ids}{n}" if ids else "c")
        made.chat(f"{3 * n + 1:016x}", [user("u")], [call])
        made.tool(f"{3 * n + 2:016x}", call, "found")
        made.chat(f"{3 * n + 3:016x}", [user("u"), call, answered(call, "found")], [says(end)])
    return made


def read(call_id: str) -> list[Any]:
    call = {"type": "tool_call", "id": call_id, "name": "search", "arguments": {"query": "q"}}
    result = {"type": "tool_call_response", "id": call_id, "result": "found"}
    return [said("user", "u"), {"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [result]}]


@pytest.mark.parametrize("ends", [("a", "b"), ("a", "a", "b"), ("a", "b", "c")])
def test_branches_that_asked_the_same_and_went_on_differently_are_not_guessed(ends: tuple[str, ...]) -> None:
    one = session(branches(*ends, ids="c"))
    with pytest.raises(Stop):
        asked(one, said("user", "u"))
    assert isinstance(one.stopped, ReplayRefusedError)
    assert "nothing tells which" in str(one.stopped)
    assert len(one.stopped.nodes) == len(ends)
    made = Making()
    for n, end in enumerate(ends):
        made.chat(f"{n + 1:016x}", [user("u")], [says(end)])
    with pytest.raises(Stop):
        asked(session(made), said("user", "u"))
    assert asked(session(made, allow_unverified=True), said("user", "u")).span_ids == (f"{1:016x}",)


def test_branches_that_asked_the_same_and_went_on_alike_are_interchangeable() -> None:
    one = session(branches("a", "a", ids="c"))
    assert len({asked(one, said("user", "u")).key for _ in range(2)}) == 2


@pytest.mark.parametrize("second", [("a", "b"), ("b", "a")])
def test_branches_that_came_to_the_same_things_in_another_arrangement_are_not_alike(second: tuple[str, str]) -> None:
    made = Making()
    for n, found in enumerate((("a", "b"), second)):
        proposed = [calls("search", {"query": q}, f"{n}{q}") for q in ("x", "y")]
        made.chat(f"{9 * n + 1:016x}", [user("u")], proposed)
        for at, call in enumerate(proposed):
            made.tool(f"{9 * n + 2 + at:016x}", call, found[at])
    one = session(made)
    if second == ("a", "b"):
        assert len({asked(one, said("user", "u")).key for _ in range(2)}) == 2
    else:
        with pytest.raises(Stop):
            asked(one, said("user", "u"))


def test_a_prompt_is_of_the_branch_whose_call_it_holds() -> None:
    one = session(branches("a", "b", ids="c"), allow_unverified=True)
    for _ in range(2):
        asked(one, said("user", "u"))
    assert asked(one, *read("c1")).outcome.parts[0].value == "b"
    assert asked(one, *read("c0")).outcome.parts[0].value == "a"


def test_of_equal_prompts_what_comes_of_another_is_not_first() -> None:
    made = Making()
    last = made.chat("01" * 8, [user("u")], [says("after")])
    first = made.chat("02" * 8, [user("u")], [says("before")])
    made.edge(EdgeKind.LINK, first, last, -1)
    one = session(made)
    assert [asked(one, said("user", "u")).key for _ in range(2)] == [first.key, last.key]
