# SPDX-License-Identifier: Apache-2.0
"""What functions make that is no fit outcome, or was made of something else: it is compared as what it is, or has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.plans import Making, answered, calls, failure, says, user

from genai_processor.errors import ReplayDivergence
from genai_processor.replay.asked import NodeRun
from genai_processor.replay.decisions import Choice, Mode, Plan, Reason
from genai_processor.replay.parts import part_list
from genai_processor.replay.records import Node
from genai_processor.replay.replayer import areplay, replay
from genai_processor.replay.results import Done, ReplayResult

SECONDS = 20
FOUND = {"found": [1]}


def waited(plan: Plan, functions: Any, **more: Any) -> ReplayResult:
    return asyncio.run(asyncio.wait_for(areplay(plan, functions, **more), SECONDS))


REPLAYS: list[Callable[..., ReplayResult]] = [replay, waited]


def searching() -> Plan:
    """A model, a tool that may run, and a model that reads what it found."""
    made = Making()
    call = calls("search", {"query": "q"}, "c")
    made.chat("01" * 8, [user("u")], [call], reasons=(Reason.CONSTANT_INPUTS,))
    made.tool("02" * 8, call, FOUND, choice=Choice.RECOMPUTE, modes=(Mode.OUTPUT, Mode.INPUTS))
    made.chat("03" * 8, [user("u"), call, answered(call, FOUND)], [says("end")])
    return made.plan()


class Unsayable(Exception):
    """One that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("cannot")


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError("cannot")


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize("run", REPLAYS)
@pytest.mark.parametrize(
    "error", [StopIteration("over"), StopAsyncIteration("over"), Unsayable(), ExceptionGroup("two", [ValueError()])]
)
def test_whatever_a_function_raises_is_its_outcome(run: Callable[..., ReplayResult], error: Exception) -> None:
    made = Making()
    said = "" if isinstance(error, Unsayable) else str(error)
    made.chat("01" * 8, [user("u")], failure(type(error).__name__, said), reasons=(Reason.CONSTANT_INPUTS,))
    made.chat("02" * 8, [user("v")], [says("a")], reasons=(Reason.CONSTANT_INPUTS,))

    def function(run: NodeRun) -> Any:
        raise error

    result = run(made.plan(), function, raise_on_divergence=False)
    assert list(result.nodes.values()) == [Done.RECOMPUTED, Done.DIVERGED]


@pytest.mark.parametrize("run", REPLAYS)
@pytest.mark.parametrize(
    "value", [circle(), deep(), Unshowable(), {Unshowable(): 1}, {(1, 2): 1}, 10**5_000], ids=lambda value: str(type(value))
)
def test_what_has_no_canonical_form_has_diverged_where_it_was_made(run: Callable[..., ReplayResult], value: Any) -> None:
    plan = searching()
    for node in plan.nodes[:2]:
        with pytest.raises(ReplayDivergence) as caught:
            run(plan, {node.key: lambda _: value})
        assert (caught.value.node, caught.value.where) == (node.key, "output")


@pytest.mark.parametrize("run", REPLAYS)
def test_a_part_that_was_made_of_a_recorded_one_is_compared_by_what_it_says_now(run: Callable[..., ReplayResult]) -> None:
    plan = searching()
    tool = plan.nodes[1]
    part = tool.outcome.parts[0]._replace(value={"found": [2]})
    for made in (part, [part], part_list([part]), tool.outcome._replace(parts=part_list([part]))):
        with pytest.raises(ReplayDivergence) as caught:
            run(plan, {"search": lambda _, made=made: made})
        assert (caught.value.node, caught.value.where) == (tool.key, "output")
    assert run(plan, {"search": lambda _: part._replace(value=dict(FOUND))}).nodes[tool.key] is Done.RECOMPUTED


def never(run: NodeRun) -> Any:
    raise AssertionError(f"{run.node.key} was run")


def replaced(node: Node, parts: Any) -> Any:
    return [*parts[:-1], parts[-1]._replace(value={"found": [2]})]


def changed(node: Node, parts: Any) -> Any:
    parts[-1].value.update(found=[2])
    return parts


@pytest.mark.parametrize("arrange", [replaced, changed])
def test_what_an_application_arranges_is_compared_by_what_it_says_and_changes_nothing_in_the_record(arrange: Any) -> None:
    plan = searching()
    last = plan.nodes[2]
    with pytest.raises(ReplayDivergence) as caught:
        replay(plan, {last.key: never}, arrange={last.key: arrange})
    assert (caught.value.node, caught.value.where) == (last.key, "input")
    assert last.inputs.parts[-1].value == FOUND
    assert replay(plan).count(Done.INJECTED) == 3


def test_what_a_function_changes_afterwards_is_not_what_it_returned() -> None:
    plan = searching()
    kept = {"found": [1]}

    def function(run: NodeRun) -> Any:
        if run.node.key == plan.nodes[1].key:
            return kept
        if run.node.key == plan.nodes[2].key:
            kept["found"].append(2)
        return run.node.outcome

    result = replay(plan, function)
    assert result.outcomes[plan.nodes[1].key].parts[0].value == FOUND
    assert kept["found"] == [1, 2]
