# SPDX-License-Identifier: Apache-2.0
"""The guard in front of CrewAI before 1.13, whose agents write what they want to do."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

try:
    OLD = tuple(int(part) for part in version("crewai").split(".")[:2]) < (1, 9)
except PackageNotFoundError:
    OLD = False
if not OLD:
    pytest.skip("no crewai before 1.9", allow_module_level=True)

from support.hooked import hooked, installing_tests, states
from support.incidents import release

from benchmarks.incidents import crewai as stories
from benchmarks.incidents.crewai import ACTION, ANSWER, OTHER, agent, crew, refund_that_fails, run, tool_of
from benchmarks.incidents.kit import World
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks.crewai_0 import HOOK


@pytest.mark.parametrize(("mode", "effects"), [("observe", 6), ("enforce", 1)])
@pytest.mark.parametrize("kind", ["class", "function"])
def test_a_tool_whose_answer_is_lost_is_not_run_six_times(mode: str, effects: int, kind: str) -> None:
    world = World()
    with hooked(mode):
        stories.written(world, kind=kind)
    assert len(world.effects) == effects


def test_what_worked_may_be_done_again() -> None:
    world = World()
    with hooked() as guard, guard.run("o1"):
        stories.later_text(world)
    assert len(world.effects) == 3


def test_another_run_is_refused_and_told_in_our_words() -> None:
    world = World()
    refund = refund_that_fails(world)
    made = agent([ACTION, ANSWER], refund, native=False)
    with hooked() as guard, guard.run("o1"):
        run(agent([ACTION, ANSWER], refund, native=False))
        run(made)
    assert world.effects == ["o1"]
    assert "refund was not run: an earlier attempt at the same action may have committed." in str(made.llm.seen[-1])


def test_a_refusal_is_not_kept_as_the_tools_result() -> None:
    world = World()
    made = agent([ACTION, ANSWER, OTHER, ACTION, ANSWER], refund_that_fails(world), native=False)
    same = crew(made)
    with hooked() as guard, guard.run("o1"):
        same.kickoff()
        entry = release(guard)
        same.kickoff()
    assert world.effects == ["o1", "o8", "o1"]
    assert world.keys[0] == world.keys[2] == entry.intent


def test_a_guard_that_raises_stops_the_run() -> None:
    world = World()
    made = agent([ACTION] * 9, refund_that_fails(world), native=False)
    with hooked(on_refusal="raise"), pytest.raises(ToolSpanCommitmentError, match="refund was not run"):
        run(made)
    assert world.effects == ["o1"]


def test_arguments_that_do_not_fit_are_no_attempt() -> None:
    with hooked() as guard, guard.run("o1"):
        stories.bad_arguments(World(), native=False)
    assert {state.value for state, number in guard.ledger.counts().items() if number} == {"not_started"}


def test_a_body_that_fails_is_an_attempt_whoever_calls_it() -> None:
    def body(order: str) -> str:
        raise ConnectionError("502")

    with hooked() as guard, guard.run("o1"):
        for kind in ("class", "function"):
            with pytest.raises(ConnectionError):
                tool_of(body, kind).run(order=kind)
            assert states(guard, "o1", "refund", order=kind) == ["quarantined"]


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    _,
) = installing_tests(HOOK, stories.INCIDENTS)
