# SPDX-License-Identifier: Apache-2.0
"""Replaying plans: what runs, on what, what is compared when, and where it stops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.plans import Making, answered, calls, failure, retrievals, says, user

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay.asked import NodeRun
from genai_processor.replay.decisions import Choice, Mode, Plan, Reason
from genai_processor.replay.records import EdgeKind, Ending, Outcome, State
from genai_processor.replay.replayer import areplay, aresume, replay, resume
from genai_processor.replay.results import Done
from genai_processor.replay.values import outcome_of

PLANNER, SYNTHESIS = "01" * 8, "ff" * 8


def key(plan: Plan, span_id: str) -> str:
    node = plan.node_of(span_id)
    assert node is not None
    return node.key


def as_recorded(run: NodeRun) -> Outcome:
    return run.node.outcome


def never(run: NodeRun) -> Any:
    raise AssertionError(f"{run.node.key} was run")


def test_without_functions_everything_is_taken_from_the_record() -> None:
    result = replay(retrievals().plan())
    assert set(result.nodes.values()) == {Done.INJECTED}
    assert not result.diverged
    assert set(result.boundary.outcomes) == set(result.nodes)


def test_a_recomputed_node_gets_what_came_from_upstream_and_an_injected_one_its_recorded_input() -> None:
    plan = retrievals().plan()
    seen: dict[str, NodeRun] = {}

    def function(run: NodeRun) -> Outcome:
        seen[run.node.key] = run
        return run.node.outcome

    result = replay(plan, {"chat": function})
    assert result.nodes[key(plan, PLANNER)] is Done.RECOMPUTED
    assert result.nodes[key(plan, SYNTHESIS)] is Done.RAN_ON_RECORD
    assert list(seen[key(plan, SYNTHESIS)].parts) == list(plan.node(key(plan, SYNTHESIS)).inputs.parts)


def test_an_output_that_differs_stops_the_replay_at_its_node() -> None:
    plan = retrievals().plan()
    with pytest.raises(ReplayDivergence) as caught:
        replay(plan, {key(plan, SYNTHESIS): lambda run: "another answer"})
    found = caught.value
    assert (found.node, found.where) == (key(plan, SYNTHESIS), "output")
    assert found.expected == plan.node(key(plan, SYNTHESIS)).outcome.digest.hex() != found.got
    assert "'the answer'" in found.difference
    assert "'another answer'" in found.difference
    assert set(found.last_valid_boundary.outcomes) == {node.key for node in plan.nodes} - {found.node}


def test_an_input_in_another_order_is_found_before_the_node_gets_it() -> None:
    plan = retrievals().plan()

    def swapped(node: Any, parts: Any) -> Any:
        return [*parts[:-2], parts[-1], parts[-2]]

    for function in (never, None):
        with pytest.raises(ReplayDivergence) as caught:
            replay(
                plan, None if function is None else {key(plan, SYNTHESIS): function}, arrange={key(plan, SYNTHESIS): swapped}
            )
        assert (caught.value.node, caught.value.where) == (key(plan, SYNTHESIS), "input")
        assert caught.value.difference.startswith("the same parts in another order")


def test_the_input_of_an_injected_tool_is_compared_too() -> None:
    plan = retrievals().plan()
    tool = key(plan, f"{17:016x}")
    with pytest.raises(ReplayDivergence) as caught:
        replay(plan, arrange={tool: lambda node, parts: [calls("search", {"query": "other"})]})
    assert (caught.value.node, caught.value.where) == (tool, "input")


def test_a_tool_wrongly_declared_deterministic_diverges_where_it_ran() -> None:
    made = retrievals()
    for node in made.nodes[1:4]:
        made.decisions[node.key] = made.decisions[node.key]._replace(
            choice=Choice.RECOMPUTE, modes=(Mode.OUTPUT, Mode.INPUTS), reasons=(Reason.SINGLE_CHAIN,)
        )
    plan = made.plan()
    result = replay(
        plan,
        {"search": lambda run: {"q0": "found 0", "q1": "found 1"}.get(run.arguments["query"], "compacted")},
        raise_on_divergence=False,
    )
    assert [error.node for error in result.divergences] == [key(plan, f"{18:016x}")]
    assert result.nodes[key(plan, SYNTHESIS)] is Done.NOT_REACHED


def test_what_differs_upstream_reaches_nobody() -> None:
    made = retrievals()
    plan = made.plan()
    result = replay(plan, {key(plan, PLANNER): lambda run: [calls("search", {"query": "q9"})]}, raise_on_divergence=False)
    assert result.nodes[key(plan, PLANNER)] is Done.DIVERGED
    assert [done for one, done in result.nodes.items() if one != key(plan, PLANNER)] == [Done.NOT_REACHED] * 4
    assert result.boundary.outcomes == {}


def test_collecting_goes_on_beside_a_divergence() -> None:
    made = Making()
    for n in range(3):
        made.chat(f"{n + 1:016x}", [user(f"u{n}")], [says(f"a{n}")], reasons=(Reason.CONSTANT_INPUTS,))
    plan = made.plan()
    result = replay(plan, lambda run: "a1", raise_on_divergence=False)
    assert list(result.nodes.values()) == [Done.DIVERGED, Done.RECOMPUTED, Done.DIVERGED]
    with pytest.raises(ReplayDivergence) as caught:
        replay(plan, lambda run: "a1")
    assert caught.value.node == plan.nodes[0].key
    assert caught.value.last_valid_boundary.outcomes == {}


def test_resuming_keeps_what_was_valid_and_runs_the_rest() -> None:
    plan = retrievals().plan()
    with pytest.raises(ReplayDivergence) as caught:
        replay(plan, {"chat": lambda run: "no" if run.node.key == key(plan, SYNTHESIS) else run.node.outcome})
    ran: list[str] = []

    def function(run: NodeRun) -> Outcome:
        ran.append(run.node.key)
        return run.node.outcome

    result = resume(caught.value.last_valid_boundary, {"chat": function})
    assert ran == [key(plan, SYNTHESIS)]
    assert result.count(Done.RESUMED) == 4
    again = asyncio.run(aresume(caught.value.last_valid_boundary, {"chat": function}))
    assert again.nodes == result.nodes


def test_what_could_not_be_compared_is_run_again_when_a_replay_is_resumed() -> None:
    made = Making()
    call = calls("search", {"query": "q"}, "c")
    made.chat("01" * 8, [user("u")], [call], reasons=(Reason.CONSTANT_INPUTS,))
    made.tool("02" * 8, call, "found")
    made.chat("03" * 8, [user("v")], [says("a")], reasons=(Reason.CONSTANT_INPUTS,))
    withheld = made.nodes[0].outcome._replace(ending=Ending.UNKNOWN, state=State.WITHHELD)
    made.nodes[0] = made.nodes[0]._replace(outcome=withheld)
    plan = made.plan()
    first, tool, other = (node.key for node in plan.nodes)
    said = {first: calls("search", {"query": "other"}, "c"), other: says("a")}
    result = replay(plan, {"chat": lambda run: said[run.node.key]}, raise_on_divergence=False)
    assert [(error.node, error.where) for error in result.divergences] == [(tool, "input")]
    assert set(result.boundary.outcomes) == {other}
    said[first] = call
    again = resume(result.boundary, {"chat": lambda run: said[run.node.key]})
    assert list(again.nodes.values()) == [Done.RECOMPUTED, Done.INJECTED, Done.RESUMED]
    assert set(again.boundary.outcomes) == {other}  # what follows from it stands and falls with it


def test_unsound_modes_are_refused_before_anything_runs() -> None:
    plan = retrievals().plan()
    for modes in ({"search": "inputs"}, {"search": Mode.INPUTS}):
        with pytest.raises(ReplayRefusedError, match="nothing has run") as caught:
            replay(plan, {"*": never}, modes=modes)
        assert len(caught.value.nodes) == 3
    with pytest.raises(ReplayRefusedError, match="no function is given"):
        replay(plan, modes={"chat": "inputs"})


def test_asking_for_the_output_runs_nothing() -> None:
    plan = retrievals().plan()
    assert set(replay(plan, never, modes="output").nodes.values()) == {Done.INJECTED}


def refused(modes: tuple[Mode, ...]) -> Plan:
    made = retrievals()
    tool = made.nodes[1]
    made.decisions[tool.key] = made.decisions[tool.key]._replace(
        choice=Choice.REFUSE, modes=modes, reasons=(Reason.ARGUMENTS_WITHHELD,)
    )
    return made.plan()


def test_a_refused_node_is_left_alone_and_what_descends_from_it_keeps_its_recorded_input() -> None:
    plan = refused(())
    result = replay(plan, {"chat": as_recorded})
    assert result.nodes[plan.nodes[1].key] is Done.REFUSED
    assert result.nodes[key(plan, SYNTHESIS)] is Done.RAN_ON_RECORD
    assert plan.nodes[1].key not in result.boundary.outcomes


def test_unverified_outcomes_are_taken_only_if_allowed_and_recorded() -> None:
    plan = refused((Mode.OUTPUT,))
    assert replay(plan).nodes[plan.nodes[1].key] is Done.REFUSED
    assert replay(plan, allow_unverified=True).nodes[plan.nodes[1].key] is Done.INJECTED_UNVERIFIED
    assert replay(refused(()), allow_unverified=True).nodes[plan.nodes[1].key] is Done.REFUSED


def test_a_failure_is_an_outcome_that_is_compared() -> None:
    made = Making()
    made.chat("01" * 8, [user("u")], failure("openai.RateLimitError", "slow down"), reasons=(Reason.CONSTANT_INPUTS,))
    plan = made.plan()

    class RateLimitError(Exception):
        pass

    def fails(run: NodeRun) -> Any:
        raise RateLimitError("slow down")

    assert replay(plan, fails).nodes[plan.nodes[0].key] is Done.RECOMPUTED
    for other in (lambda run: "well", lambda run: 1 / 0):
        with pytest.raises(ReplayDivergence, match="slow down"):
            replay(plan, other)


def composite() -> Making:
    made = Making()
    call = calls("ask_expert", {"question": "why"}, "c")
    made.chat("01" * 8, [user("u")], [call], reasons=(Reason.CONSTANT_INPUTS,))
    tool = made.tool(
        "02" * 8,
        call,
        "because",
        composite=True,
        choice=Choice.RECOMPUTE,
        modes=(Mode.OUTPUT,),
        reasons=(Reason.SINGLE_CHAIN,),
    )
    made.chat("04" * 8, [user("u"), call, answered(call, "because")], [says("so")])
    inside = made.chat("03" * 8, [user("why")], [says("because")], agent=tool.key)
    made.edge(EdgeKind.DELEGATE, tool, inside, 0)
    made.edge(EdgeKind.RETURN, inside, tool, -1)
    return made


def test_a_composite_tool_is_replayed_by_what_is_inside() -> None:
    plan = composite().plan()
    order: list[str] = []

    def function(run: NodeRun) -> Outcome:
        order.append(run.node.span_ids[0][:2])
        return run.node.outcome

    result = replay(plan, {"chat": function})
    assert order == ["01", "03", "04"]
    assert set(result.nodes.values()) == {Done.RECOMPUTED}
    with pytest.raises(ReplayDivergence) as caught:
        replay(plan, {"03" * 8: never, "chat": lambda run: "hm" if run.node.span_ids[0] == "03" * 8 else run.node.outcome})
    assert caught.value.node == key(plan, "03" * 8)


def test_what_is_inside_an_injected_composite_is_covered() -> None:
    made = composite()
    tool, inside = made.nodes[1], made.nodes[3]
    made.decisions[tool.key] = made.decisions[tool.key]._replace(choice=Choice.INJECT)
    made.decisions[inside.key] = made.decisions[inside.key]._replace(covered_by=tool.key)
    result = replay(made.plan(), {"chat": lambda run: never(run) if run.node.key == inside.key else run.node.outcome})
    assert result.nodes[inside.key] is Done.COVERED
    assert result.nodes[tool.key] is Done.INJECTED


@pytest.mark.parametrize("count", [2, 40])
def test_branches_run_side_by_side(count: int) -> None:
    made = Making()
    for n in range(count):
        made.chat(f"{n + 1:016x}", [user(f"u{n}")], [says("a")], reasons=(Reason.CONSTANT_INPUTS,))
    together = threading.Barrier(count, timeout=20)

    def at_once(run: NodeRun) -> str:
        together.wait()
        return "a"

    assert replay(made.plan(), at_once, workers=count).count(Done.RECOMPUTED) == count
    assert asyncio.run(areplay(made.plan(), at_once, workers=count)).count(Done.RECOMPUTED) == count


def test_coroutine_functions_need_areplay() -> None:
    plan = retrievals().plan()

    async def function(run: NodeRun) -> Outcome:
        await asyncio.sleep(0)
        return run.node.outcome

    assert asyncio.run(areplay(plan, {"chat": function})).nodes == replay(plan, {"chat": as_recorded}).nodes
    assert asyncio.run(areplay(plan, {"chat": as_recorded})).count(Done.RECOMPUTED) == 1
    with pytest.raises(TypeError, match="areplay"):
        replay(plan, {"chat": function})


def test_nodes_that_wait_for_each_other_are_refused_before_anything_runs() -> None:
    made = Making()
    one = made.chat("01" * 8, [user("u")], [says("a")])
    two = made.chat("02" * 8, [says("a")], [says("b")])
    made.edge(EdgeKind.ECHO, two, one, 0)
    with pytest.raises(ReplayRefusedError, match="wait for each other"):
        replay(made.plan(), never)


def test_what_a_function_returns_is_taken_for_what_the_node_makes() -> None:
    made = retrievals()
    tool = made.nodes[1]
    assert outcome_of(tool, {"result": "found 0"}).digest == tool.outcome.digest
    assert outcome_of(tool, "found 1").digest != tool.outcome.digest
    assert outcome_of(made.nodes[-1], "the answer").digest == made.nodes[-1].outcome.digest
    assert outcome_of(made.nodes[0], list(made.nodes[0].outcome.parts)).digest == made.nodes[0].outcome.digest
    assert outcome_of(tool, tool.outcome).ending is Ending.VALUE
