# SPDX-License-Identifier: Apache-2.0
"""Over runs of any shape: a replay against itself never diverges, the schedule changes nothing, and one change is found."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans import Making, answered, calls, says, user

from genai_processor.errors import ReplayDivergence
from genai_processor.replay.asked import NodeRun
from genai_processor.replay.decisions import Choice, Mode, Plan, Reason
from genai_processor.replay.parts import Part
from genai_processor.replay.replayer import areplay, replay, resume
from genai_processor.replay.results import Done

turns = st.lists(st.integers(0, 4), min_size=1, max_size=4)
"""How many calls each turn of an agent makes."""


@st.composite
def runs(draw: st.DrawFn) -> Plan:
    """Up to three agents, each with some turns of parallel calls, of which some may be recomputed."""
    made = Making()
    for agent, shape in enumerate(draw(st.lists(turns, min_size=1, max_size=3))):
        history: list[Part] = [user(f"question {agent}")]
        for turn, count in enumerate(shape):
            spans = (agent + 1) * 256 + turn * 16
            said: list[Part] = [calls("look", {"n": n % 2}, f"c{agent}_{turn}_{n}") for n in range(count)]
            said = said or [says(f"so {agent} {turn}")]
            made.chat(f"{spans:016x}", history, said, choice=draw(st.sampled_from((Choice.RECOMPUTE, Choice.INJECT))))
            history = [*history, *said]
            for n in range(count):
                result = draw(st.sampled_from(("ok", "true", '{"a": 1}', "")))
                may = draw(st.booleans())
                made.tool(
                    f"{spans + n + 1:016x}",
                    said[n],
                    result,
                    choice=Choice.RECOMPUTE if may else Choice.INJECT,
                    modes=(Mode.OUTPUT, Mode.INPUTS) if may else (Mode.OUTPUT,),
                    reasons=(Reason.SINGLE_CHAIN,),
                )
                history.append(answered(said[n], result))
    return made.plan()


def as_recorded(run: NodeRun) -> Any:
    return run.node.outcome


@given(runs())
@settings(max_examples=60, deadline=None)
def test_a_run_against_itself_never_diverges(plan: Plan) -> None:
    for functions in (None, as_recorded):
        result = replay(plan, functions)
        assert not result.diverged
        assert set(result.outcomes) == {node.key for node in plan.nodes}
        assert all(result.outcomes[node.key].digest == node.outcome.digest for node in plan.nodes)


@given(runs(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_schedule_changes_nothing(plan: Plan, data: st.DataObject) -> None:
    wrong = set(data.draw(st.lists(st.sampled_from([node.key for node in plan.nodes]), max_size=3)))
    rng = data.draw(st.randoms(use_true_random=False))
    turn = threading.Lock()

    def function(run: NodeRun) -> Any:
        with turn:
            spins = rng.randrange(200)
        sum(range(spins))
        return "wrong" if run.node.key in wrong else run.node.outcome

    async def coroutine(run: NodeRun) -> Any:
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        return "wrong" if run.node.key in wrong else run.node.outcome

    found = []
    for workers in (1, 2, 5):
        found.append(replay(plan, function, workers=workers, raise_on_divergence=False))
        found.append(asyncio.run(areplay(plan, coroutine, workers=workers, raise_on_divergence=False)))
    told = {(tuple(one.nodes.items()), tuple(error.args for error in one.divergences), tuple(one.outcomes)) for one in found}
    assert len({(nodes, errors, frozenset(keys)) for nodes, errors, keys in told}) == 1
    raised = set()
    for workers in (1, 2, 5):
        try:
            replay(plan, function, workers=workers)
        except ReplayDivergence as error:
            raised.add((error.node, error.where, frozenset(error.last_valid_boundary.outcomes)))
        else:
            raised.add(None)
    assert len(raised) == 1


@given(runs(), st.data())
@settings(max_examples=60, deadline=None)
def test_one_change_is_found_at_its_node_and_resuming_ends_well(plan: Plan, data: st.DataObject) -> None:
    runs_something = [key for key, done in replay(plan, as_recorded).nodes.items() if done is not Done.INJECTED]
    if not runs_something:
        return
    wrong = data.draw(st.sampled_from(runs_something))
    result = replay(
        plan, lambda run: "something else" if run.node.key == wrong else run.node.outcome, raise_on_divergence=False
    )
    assert [error.node for error in result.divergences] == [wrong]
    assert wrong not in result.boundary.outcomes
    within = set(result.boundary.outcomes)
    assert all(edge.producer in within for key in within for edge in plan.decisions[key].edges)
    again = resume(result.boundary, as_recorded)
    assert set(again.outcomes) == {node.key for node in plan.nodes}
    assert again.count(Done.RESUMED) == len(within)


@given(runs(), st.integers())
@settings(max_examples=60, deadline=None)
def test_a_list_in_another_order_is_found_before_the_node_gets_it(plan: Plan, seed: int) -> None:
    rng = random.Random(seed)
    shuffled: dict[str, bool] = {}

    def arrange(node: Any, parts: tuple[Part, ...]) -> list[Part]:
        found = list(parts)
        rng.shuffle(found)
        before, after = [(part.digest, part.position) for part in parts], [(part.digest, part.position) for part in found]
        shuffled[node.key] = before != after
        return found

    result = replay(plan, arrange={"inference": arrange}, raise_on_divergence=False)
    assert {error.node for error in result.divergences} == {key for key, differs in shuffled.items() if differs}
