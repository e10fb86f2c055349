# SPDX-License-Identifier: Apache-2.0
"""The guard in front of CrewAI, on real agents with scripted models."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("crewai.agents.agent_executor")

from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure
from support.hooked import entries, hooked, installing_tests, states
from support.incidents import incident_tests, refusal, release
from support.telling import effects_when_stopped, released_intent, telling_tests, turns_of

from benchmarks.incidents import crewai as stories
from benchmarks.incidents import scripts
from benchmarks.incidents.crewai import ACTION, ANSWER, agent, crew, refund_that_fails, refund_that_works, run, tool_of
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import AGAIN, FIRST, ORDER, SECOND, THIRD, once
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks.crewai import HOOK

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(stories.INCIDENTS)
test_a_success_is_completed_and_the_turn_is_noted, test_the_latest_guard_is_asked_and_only_it = telling_tests(stories)


def told(made: Any) -> list[str]:
    """The texts of all results that the model has been told, in order."""
    return [message["content"] for message in made.llm.seen[-1] if message["role"] == "tool"]


def test_the_model_is_told_in_our_words_and_nothing_asks_it_to_try_again() -> None:
    world = World()
    made = agent(AGAIN, refund_that_fails(world))
    with hooked() as guard, guard.run("o1"):
        assert run(made) == "done"
    (entry,) = entries(guard, "o1", "refund", **ORDER)
    assert entry.state.value == "quarantined"
    assert entry.reason == "ConnectionError"
    assert told(made)[1:] == [refusal(entry)]


def test_a_model_that_writes_is_told_in_our_words() -> None:
    world = World()
    made = agent([ACTION, ANSWER], refund_that_fails(world), native=False)
    with hooked() as guard, guard.run("o1"):
        assert run(made) == "done"
    (entry,) = entries(guard, "o1", "refund", **ORDER)
    assert entry.state.value == "quarantined"
    said = json.dumps(made.llm.seen[-1])
    assert refusal(entry, why="the action has been run as often as it was asked for") in said
    assert "Moving on then" not in said


def test_a_refusal_is_not_kept_as_the_tools_result() -> None:
    """The framework caches results: after a person has settled the call, the tool must run."""
    world = World()
    refund = refund_that_fails(world)
    turns = [*AGAIN[:2], "asking", [scripts.refund("toolu_d4")], "done"]
    made = agent(turns, refund)
    same = crew(made)
    with hooked() as guard, guard.run("o1"):
        same.kickoff()
        release(guard)
        same.kickoff()
    assert world.effects == ["o1", "o1"]


def test_a_refusal_lets_the_siblings_finish() -> None:
    world = World()
    turns = [
        [scripts.refund(FIRST)],
        [scripts.refund(SECOND), scripts.refund(THIRD, "o8")],
        "done",
    ]
    with hooked() as guard, guard.run("o1"):
        run(agent(turns, refund_that_fails(world)))
    assert world.effects == ["o1", "o8"]


@pytest.mark.parametrize("native", [True, False])
def test_a_guard_that_raises_stops_the_run(native: bool) -> None:
    world = World()
    made = agent(AGAIN if native else [ACTION, ACTION, ANSWER], refund_that_fails(world), native=native)
    with (
        hooked(on_refusal="raise") as guard,
        guard.run("o1"),
        pytest.raises(ToolSpanCommitmentError, match="refund was not run") as raised,
    ):
        run(made)
    assert raised.value.tool == "refund"
    assert raised.value.reason is not None
    assert world.effects == ["o1"]


def test_a_guard_that_raises_stops_the_run_that_delegated_too() -> None:
    assert effects_when_stopped(stories.delegated_again) == ["o1"]


@pytest.mark.parametrize("story", [stories.later_turn, stories.later_text], ids=["later_turn", "later_text"])
def test_each_response_is_a_turn_of_its_own(story: Any) -> None:
    first, second = turns_of(story)
    assert first is not None
    assert first != second


@pytest.mark.parametrize("native", [True, False])
def test_arguments_that_do_not_fit_are_no_attempt(native: bool) -> None:
    with hooked() as guard, guard.run("o1"):
        stories.bad_arguments(World(), native=native)
    assert set(states(guard, "o1", "refund", ordr="o1") + states(guard, "o1", "refund")) == {"not_started"}


def test_a_tool_that_may_not_be_used_any_more_is_no_attempt() -> None:
    world = World()
    refund = refund_that_works(world)
    refund.max_usage_count = 1
    with hooked() as guard, guard.run("o1"):
        refund.run(order="o1")
        assert isinstance(refund.run(order="o8"), ToolFailure)
    assert states(guard, "o1", "refund", order="o8") == ["not_started"]
    assert world.effects == ["o1"]


def test_a_failure_that_a_tool_reports_is_a_failure() -> None:
    class Refund(BaseTool):
        name: str = "refund"
        description: str = "Refund an order."

        def _run(self, order: str) -> Any:
            return ToolFailure(message="502")

    with hooked() as guard, guard.run("o1"):
        Refund().run(order="o1")
    assert states(guard, "o1", "refund", order="o1") == ["quarantined"]


def test_a_tool_may_say_that_it_did_nothing() -> None:
    def body(order: str) -> str:
        raise LookupError("no such order")

    with hooked(not_started_on={"refund": (LookupError,)}) as guard, guard.run("o1"):
        run(agent(once(FIRST), tool_of(body)))
    assert states(guard, "o1", "refund", **ORDER) == ["not_started"]


def test_arguments_that_the_framework_leaves_out_make_no_other_action() -> None:
    """ReAct tries again with what it had left out, which changes nothing for the tool."""
    world = World()
    action = ACTION.replace('{"order": "o1"}', '{"order": "o1", "mood": "cross"}')

    def body(order: str) -> str:
        return world.commit_then_fail(order)

    with hooked() as guard, guard.run("o1"):
        run(agent([action, ANSWER], tool_of(body), native=False))
    assert world.effects == ["o1"]


def test_a_tool_that_calls_a_tool_is_not_taken_for_it() -> None:
    world = World()
    inner = refund_that_works(world)

    def body(order: str) -> str:
        return str([inner.run(order=order), inner.run(order="o8")])

    outer = tool_of(body)
    outer.name = "refund_all"
    with hooked() as guard, guard.run("o1"):
        run(agent([[("toolu_a1", "refund_all", ORDER)], "done"], outer))
    (parent,) = entries(guard, "o1", "refund_all", **ORDER)
    (child,) = entries(guard, "o1", "refund", **ORDER)
    assert (parent.call_id, child.call_id, child.turn) == ("toolu_a1", None, None)
    assert child.parent == parent.entry_id
    assert world.effects == ["o1", "o8"]


def test_what_a_dead_run_has_paid_is_undelivered() -> None:
    made = agent(
        [[scripts.refund("call_9sd7a", "o9")], ValueError("the model is gone")],
        refund_that_works(World()),
        max_retry_limit=0,
    )
    with hooked() as guard, guard.run("o1"):
        with pytest.raises(ValueError, match="the model is gone"):
            run(made)
        assert states(guard, "o1", "refund", order="o9") == ["undelivered"]


def test_what_was_paid_when_time_was_over_is_undelivered_until_it_is_handed_back() -> None:
    with hooked() as guard:
        stories.timed_out(World())
    (entry,) = entries(guard, "o1", "refund", **ORDER)
    assert [change.after.value for change in entry.history] == ["completed", "undelivered", "completed"]


def test_what_a_run_that_ends_well_has_paid_is_delivered() -> None:
    with hooked() as guard, guard.run("o1"):
        stories.later_turn(World())
        with pytest.raises(ValueError, match="the model is gone"):
            run(agent([ValueError("the model is gone")], max_retry_limit=0))
    assert states(guard, "o1", "refund", **ORDER) == ["completed", "completed"]


@pytest.mark.parametrize("kind", ["class", "function", "coroutine"])
def test_the_body_gets_the_key_of_its_intent_and_a_released_retry_the_same(kind: str) -> None:
    world = World()
    refund = refund_that_fails(world, kind)
    intent = released_intent(lambda call_id: run(agent(once(call_id), refund)))
    assert world.keys == [intent] * 2


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, stories.INCIDENTS)
