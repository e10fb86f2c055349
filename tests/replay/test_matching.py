# SPDX-License-Identifier: Apache-2.0
"""Which recorded call answers a live one: by id and proposal, never by arrival; and where that cannot be told, none."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans import Making, answered, calls, failure, retrievals, says, user

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay.block import Replaying, replaying
from genai_processor.replay.live import Prompt, parts_of
from genai_processor.replay.parts import EMPTY, PartKind, Role, part_list
from genai_processor.replay.plan import plan
from genai_processor.replay.records import EdgeKind, Ending, Node, Outcome, State
from genai_processor.replay.session import Session
from genai_processor.replay.stopping import Stop
from genai_processor.replay.values import text_part

TWO = "cd" * 16
NOTHING = Outcome(Ending.UNKNOWN, State.NOT_RECORDED, EMPTY)


def session(made: Making, **options: Any) -> Session:
    return Session(made.plan(), "r", models=True, **options)


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def asked(one: Session, *messages: Any, **more: Any) -> Node:
    node = one.asked(Prompt(parts_of(messages), **more))
    one.answers(node)
    return node


def value(one: Session, call_id: str | None, arguments: Any = None, **more: Any) -> Any:
    answer = one.called("search", call_id, {"query": "q"} if arguments is None else arguments, **more)
    return answer.outcome.parts[0].value if answer.outcome.ending is Ending.VALUE else answer.outcome.error_message


def refused(one: Session, *args: Any, **more: Any) -> str:
    with pytest.raises(Stop):
        value(one, *args, **more)
    assert isinstance(one.stopped, ReplayRefusedError)
    return str(one.stopped)


def twins(count: int, *results: str) -> Making:
    """One turn with equal calls, which came to what is given; spans' ids say nothing of the order."""
    made = Making()
    proposed = [calls("search", {"query": "q"}, f"c{n}") for n in range(count)]
    made.chat("01" * 8, [user("u")], proposed)
    for n in reversed(range(count)):
        made.tool(f"{100 - n:016x}", proposed[n], results[n])
    history = [user("u"), *proposed, *(answered(call, result) for call, result in zip(proposed, results, strict=True))]
    made.chat("ff" * 8, history, [says("end")])
    return made


@given(st.permutations(range(5)))
@settings(deadline=None)
def test_equal_calls_in_one_turn_get_their_own_results_in_any_order_of_arrival(order: list[int]) -> None:
    one = session(twins(5, *"abcde"))
    asked(one, said("user", "u"))
    assert {n: value(one, f"c{n}") for n in order} == dict(enumerate("abcde"))


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=8), st.data())
@settings(max_examples=40, deadline=None)
def test_the_schedule_of_real_threads_changes_no_answer(turn: list[tuple[int, str]], data: st.DataObject) -> None:
    made = Making()
    proposed = [calls("search", {"query": f"q{kind}"}, f"c{n}") for n, (kind, _) in enumerate(turn)]
    made.chat("01" * 8, [user("u")], proposed)
    for n, (_, result) in enumerate(turn):
        made.tool(f"{100 - n:016x}", proposed[n], f"{result}{n}")
    one, found = session(made), dict[int, Any]()
    asked(one, said("user", "u"))
    together = threading.Barrier(len(turn))

    def call(n: int) -> None:
        together.wait(30)
        found[n] = value(one, f"c{n}", {"query": f"q{turn[n][0]}"})

    order = data.draw(st.permutations(range(len(turn))))
    threads = [threading.Thread(target=call, args=(n,)) for n in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: f"{result}{n}" for n, (_, result) in enumerate(turn)}


def test_equal_calls_without_ids_are_answered_if_they_ended_alike_and_refused_if_not() -> None:
    one = session(twins(2, "same", "same"))
    asked(one, said("user", "u"))
    assert [value(one, None), value(one, None)] == ["same", "same"]
    one = session(twins(2, "a", "b"))
    asked(one, said("user", "u"))
    assert "nothing tells which of them is meant" in refused(one, None)


def attempted(*outcomes: Any, delivered: Any = "found") -> Making:
    """One call, run several times under its id, by spans whose ids say nothing of the order."""
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    tools = [made.tool(f"{100 - n:016x}", call, outcome) for n, outcome in enumerate(outcomes)]
    tools.append(made.tool("50" * 8, call, delivered))
    keys = [tool.key for tool in tools]
    for at, node in enumerate(made.nodes):
        if node.key in keys:
            made.nodes[at] = node._replace(attempts=tuple(sorted(key for key in keys if key != node.key)))
    made.chat("ff" * 8, [user("u"), call, answered(call, delivered)], [says("end")])
    return made


def test_attempts_that_came_to_the_same_are_interchangeable_and_what_was_delivered_comes_last() -> None:
    down = failure("TimeoutError", "slow")
    one = session(attempted(down, down))
    asked(one, said("user", "u"))
    assert [value(one, "c1") for _ in range(3)] == ["slow", "slow", "found"]


def test_attempts_whose_order_nothing_tells_are_refused_and_taken_as_they_come_only_if_that_is_allowed() -> None:
    different = failure("TimeoutError", "slow"), failure("ConnectionError", "down")
    one = session(attempted(*different))
    asked(one, said("user", "u"))
    assert "which attempt came first" in refused(one, "c1")
    one = session(attempted(*different), allow_unverified=True)
    asked(one, said("user", "u"))
    assert sorted([value(one, "c1"), value(one, "c1")]) == ["down", "slow"]
    assert value(one, "c1") == "found"


def test_an_attempt_in_the_trace_of_the_response_comes_before_one_in_another_trace() -> None:
    made = attempted(failure("GraphInterrupt", "ask", Ending.PAUSED), failure("TimeoutError", "slow"))
    for at in (2, 3):
        made.nodes[at] = made.nodes[at]._replace(trace_id=TWO)
    one = session(made)
    asked(one, said("user", "u"))
    assert [value(one, "c1"), value(one, "c1"), value(one, "c1")] == ["ask", "slow", "found"]


def pending() -> Making:
    """A call that waited for an approval; it was run in another trace, where it lost its id, and failed, and once more."""
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    waiting = made.tool("02" * 8, call, "x")
    made.nodes[1] = waiting._replace(outcome=NOTHING)
    lost = call._replace(call_id=None)
    other = Making(TWO)
    other.tool("03" * 8, lost, failure("RuntimeError", "502"))
    other.tool("04" * 8, lost, "paid")
    other.chat("05" * 8, [user("u"), call, answered(call, "paid")], [says("end")])
    other.decisions[other.nodes[2].key] = other.decisions[other.nodes[2].key]._replace(edges=())
    other.edge(kind=EdgeKind.RESULT, producer=other.nodes[1], consumer=other.nodes[2], slot=2)
    made.nodes += other.nodes
    made.decisions |= other.decisions
    return made


def test_an_approved_call_is_answered_by_what_ran_after_the_approval() -> None:
    one = session(pending())
    with one.frame():
        asked(one, said("user", "u"))
    with one.frame():
        assert value(one, "c1", again=True) == "502"
    with one.frame():
        assert value(one, "c1", again=True) == "paid"


def test_a_call_that_never_returned_waits_unless_it_was_approved() -> None:
    one = session(pending())
    asked(one, said("user", "u"))
    assert one.called("search", "c1", {"query": "q"}).outcome.ending is Ending.WAITS


def test_whether_a_call_returned_is_not_guessed_where_its_run_went_on() -> None:
    """Somebody has read what it came to, and that is not recorded: it is no call that was cancelled."""
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    node = made.tool("02" * 8, call, "x")
    made.chat("03" * 8, [user("u"), call], [says("end")])
    made.nodes[1] = node._replace(outcome=NOTHING)
    with pytest.raises(ReplayRefusedError, match="does not hold what it takes"):
        session(made)


def test_a_run_that_goes_on_elsewhere_finds_its_calls_and_none_of_another_run() -> None:
    made = Making()
    call = calls("search", {"query": "q"}, "call_1")
    for n in range(2):
        other = Making()
        other.chat(f"{n + 1:02x}" * 8, [user(f"u{n}")], [call])
        other.tool(f"{n + 3:02x}" * 8, call, f"found {n}")
        made.nodes += other.nodes
        made.decisions |= other.decisions
    one = session(made)
    with one.frame():
        asked(one, said("user", "u0"))
        assert value(one, "call_1") == "found 0"
    with one.frame():
        asked(one, said("user", "u1"))
    with one.frame():  # where nothing was proposed
        assert value(one, "call_1") == "found 1"
    one = session(made)
    for n in range(2):
        with one.frame():
            asked(one, said("user", f"u{n}"))
    with one.frame():
        assert "nothing tells which" in refused(one, "call_1")


def test_an_id_that_is_used_again_means_the_newest_call() -> None:
    """The first was never run: its arguments were refused, say."""
    made = Making()
    call = calls("search", {"query": "q"}, "call_1")
    one_ = made.chat("01" * 8, [user("u")], [call])
    history = [user("u"), call, answered(call, "try again")]
    two = made.chat("02" * 8, history, [call])
    made.nodes[1] = two._replace(structure=two.structure._replace(extends=one_.key, begins=2))
    node = made.tool("03" * 8, call, "found")
    edges = tuple(edge for edge in made.decisions[node.key].edges if edge.producer == two.key)
    made.decisions[node.key] = made.decisions[node.key]._replace(edges=edges)
    one = session(made, allow_unverified=True)
    asked(one, said("user", "u"))
    echo = {"type": "tool_call", "id": "call_1", "name": "search", "arguments": {"query": "q"}}
    response = {"type": "tool_call_response", "id": "call_1", "result": "try again"}
    asked(one, said("user", "u"), {"role": "assistant", "parts": [echo]}, {"role": "tool", "parts": [response]})
    assert value(one, "call_1") == "found"


def test_a_prompt_whose_record_does_not_say_which_call_a_result_answers_is_found_all_the_same() -> None:
    made = twins(2, "a", "b")
    last = made.nodes[-1]
    parts = part_list(part._replace(position=-1) if part.kind is PartKind.RESULT else part for part in last.inputs.parts)
    made.nodes[-1] = last._replace(inputs=last.inputs._replace(parts=parts))
    echoes = [{"type": "tool_call", "id": f"c{n}", "name": "search", "arguments": {"query": "q"}} for n in range(2)]
    results = [{"type": "tool_call_response", "id": f"c{n}", "result": "ab"[n]} for n in range(2)]

    def history(*order: int) -> list[Any]:
        return [
            said("user", "u"),
            {"role": "assistant", "parts": echoes},
            *({"role": "tool", "parts": [results[n]]} for n in order),
        ]

    assert asked(session(made), *history(0, 1)).key == last.key
    one = session(made)
    with pytest.raises(Stop):
        asked(one, *history(1, 0))  # the order of the list is recorded
    assert isinstance(one.stopped, ReplayDivergence)


def test_a_result_whose_call_is_recorded_has_to_answer_it_though_another_s_is_not() -> None:
    made = twins(3, "a", "b", "c")
    last = made.nodes[-1]
    parts = [part._replace(position=-1) if part.value == "c" else part for part in last.inputs.parts]
    made.nodes[-1] = last._replace(inputs=last.inputs._replace(parts=part_list(parts)))
    echoes = [{"type": "tool_call", "id": f"c{n}", "name": "search", "arguments": {"query": "q"}} for n in range(3)]

    def history(*answers: int) -> list[Any]:
        results = [{"type": "tool_call_response", "id": f"c{n}", "result": "abc"[at]} for at, n in enumerate(answers)]
        return [said("user", "u"), {"role": "assistant", "parts": echoes}, {"role": "tool", "parts": results}]

    assert asked(session(made), *history(0, 1, 2)).key == last.key
    one = session(made)
    with pytest.raises(Stop):
        asked(one, *history(1, 0, 2))
    assert isinstance(one.stopped, ReplayDivergence)


@pytest.mark.parametrize(
    ("recorded", "instructions", "left_out"),
    [
        ((), (), False),
        ((), ("be brief",), True),
        (("be brief",), ("be brief",), False),
        (("be brief",), ("be brief", "b"), True),
    ],
)
def test_instructions_that_the_record_lacks_are_named(recorded: Any, instructions: Any, left_out: bool) -> None:
    made = Making()
    system = [text_part(text, Role.SYSTEM) for text in recorded]
    node = made.chat("01" * 8, [*system, user("u")], [says("a")])
    one = session(made)
    asked(one, said("user", "u"), instructions=instructions)
    assert Replaying(one).instructions_not_compared == ({node.key} if left_out else set())


def test_a_record_without_values_or_without_a_run_is_refused_before_anything_runs() -> None:
    made = retrievals()
    for at, node in enumerate(made.nodes):
        bare = [part._replace(value=None) for part in node.outcome.parts]
        told = [part._replace(value=None) for part in node.inputs.parts]
        made.nodes[at] = node._replace(
            outcome=node.outcome._replace(parts=part_list(bare)), inputs=node.inputs._replace(parts=part_list(told))
        )
    for recorded, told_of in ((made.plan(), "keep_values=True"), (plan([]), "nothing is recorded")):
        with pytest.raises(ReplayRefusedError, match=told_of), replaying(recorded):
            pytest.fail("the block has run")


def test_instructions_that_differ_are_shown() -> None:
    made = Making()
    made.chat("01" * 8, [user("u")], [says("a")])
    from genai_processor.replay.digests import content_digest

    node = made.nodes[0]
    made.nodes[0] = node._replace(
        inputs=node.inputs._replace(system=content_digest([{"type": "text", "content": "be brief"}]))
    )
    one = session(made)
    with pytest.raises(Stop):
        asked(one, said("user", "u"), instructions=("be long",))
    found = one.stopped
    assert isinstance(found, ReplayDivergence)
    assert (found.node, found.where) == (node.key, "input")
    assert found.expected
    assert found.expected != found.got
    assert "now ['be long']" in found.difference
