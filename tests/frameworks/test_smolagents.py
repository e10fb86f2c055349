# SPDX-License-Identifier: Apache-2.0
"""The guard in front of smolagents, on real agents with scripted models."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("smolagents")

import smolagents
from smolagents import local_python_executor
from support.hooked import entries, hooked, installing_tests, states
from support.incidents import incident_tests, refusal
from support.telling import effects_when_stopped, released_intent, telling_tests, turns_of

from benchmarks.incidents import scripts
from benchmarks.incidents import smolagents as stories
from benchmarks.incidents.bodies import only_o9_works
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import AGAIN, FIRST, ORDER, SECOND, once
from benchmarks.incidents.smolagents import agent, coder, refund_that_fails, refund_that_works, tool_of
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks.smolagents import HOOK

POOLS = (smolagents.agents, *([local_python_executor] if stories.CODE_HAS_DEADLINES else []))

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(stories.INCIDENTS)
test_a_success_is_completed_and_the_turn_is_noted, test_the_latest_guard_is_asked_and_only_it = telling_tests(stories)


def test_the_model_is_told_in_our_words_and_nothing_asks_it_to_try_again() -> None:
    made = agent(AGAIN, refund_that_fails(World()))
    with hooked() as guard, guard.run("o1"):
        assert made.run("Refund order o1") == "done"
    (entry,) = entries(guard, "o1", "refund", **ORDER)
    assert entry.state.value == "quarantined"
    assert entry.reason == "ConnectionError"
    before, after = made.model.seen[-2:]
    assert after.count(refusal(entry)) == 1
    assert after.count("try again") == before.count("try again")
    assert after.count("let's retry") == before.count("let's retry")


def test_code_is_stopped_where_it_asks_and_the_model_is_told_in_our_words() -> None:
    world = World()
    refund = refund_that_fails(world)
    made = coder(['refund("o1")', 'refund("o1")\nrefund("o8")', 'final_answer("done")'], refund)
    with hooked() as guard, guard.run("o1"):
        made.run("Refund order o1")
    (entry,) = entries(guard, "o1", "refund", **ORDER)
    assert refusal(entry) in made.model.seen[-1]
    assert world.effects == ["o1"]


def test_a_refusal_lets_the_siblings_finish_and_be_told() -> None:
    world = World()
    works = refund_that_works(world)
    works.name = "works"
    turns = [
        [scripts.refund(FIRST)],
        [scripts.refund(SECOND), ("toolu_c3", "works", {"order": "o8"})],
        "done",
    ]
    made = agent(turns, refund_that_fails(world), works)
    with hooked() as guard, guard.run("o1"):
        made.run("Refund order o1")
    assert states(guard, "o1", "works", order="o8") == ["completed"]
    assert "done: o8" in made.model.seen[-1]
    assert world.effects == ["o1", "o8"]


def test_a_guard_that_raises_stops_the_run() -> None:
    assert effects_when_stopped(stories.new_id) == ["o1"]


@pytest.mark.parametrize("code", ['refund("o1")', 'try:\n    refund("o1")\nexcept Exception:\n    pass'])
def test_a_guard_that_raises_stops_code_whatever_it_catches(code: str) -> None:
    made = coder(['refund("o1")', code, 'final_answer("done")'], refund_that_fails(World()))
    with hooked(on_refusal="raise"), pytest.raises(ToolSpanCommitmentError, match="may have committed"):
        made.run("Refund order o1")


def test_a_guard_that_raises_stops_the_run_of_the_manager_too() -> None:
    assert effects_when_stopped(stories.delegated_again) == ["o1"]


@pytest.mark.parametrize("story", [stories.later_turn, stories.later_code], ids=["later_turn", "later_code"])
def test_each_response_is_a_turn_of_its_own(story: Any) -> None:
    first, second = turns_of(story)
    assert first is not None
    assert first != second


def test_twins_that_refer_to_the_agents_state_are_twins() -> None:
    world = World()
    calls = [scripts.refund("toolu_a1", "it"), scripts.refund("toolu_b2", "it")]
    with hooked() as guard, guard.run("o1"):
        agent([calls, "done"], refund_that_works(world)).run("Refund it", additional_args={"it": "o1"})
    assert world.effects == ["o1", "o1"]
    assert {entry.call_id for entry in entries(guard, "o1", "refund", **ORDER)} == {"toolu_a1", "toolu_b2"}


def test_code_may_do_again_what_worked_and_not_what_failed() -> None:
    world = World()
    outcomes = iter([world.commit, world.commit, world.commit_then_fail, world.commit])
    loop = """
for attempt in range(4):
    try:
        refund("o1")
    except Exception as error:
        print(error)
"""
    with hooked() as guard, guard.run("o1"):
        coder([loop, 'final_answer("done")'], tool_of(lambda order: next(outcomes)(order))).run("Refund order o1")
    assert world.effects == ["o1", "o1", "o1"]


@pytest.mark.parametrize("kind", ["class", "function"])
@pytest.mark.parametrize("code", ['refund(ordr="o1")', "refund()", 'refund("o1", "o8")'])
def test_arguments_that_do_not_fit_are_no_attempt(kind: str, code: str) -> None:
    world = World()
    with hooked(not_started_on={}) as guard, guard.run("o1"):
        coder([code, 'final_answer("done")'], refund_that_works(world, kind)).run("Refund order o1")
    assert {state.value for state, number in guard.ledger.counts().items() if number} == {"not_started"}
    assert world.effects == []


@pytest.mark.parametrize("kind", ["class", "function"])
@pytest.mark.parametrize("code", ['refund("o1")', 'refund(order="o1")', 'refund({"order": "o1"})'])
def test_however_arguments_are_written_they_are_one_action(kind: str, code: str) -> None:
    def body(order: str) -> str:
        raise TypeError("missing 1 required positional argument: 'order'")

    with hooked() as guard, guard.run("o1"):
        coder([code, 'final_answer("done")'], tool_of(body, kind)).run("Refund order o1")
    assert states(guard, "o1", "refund", **ORDER) == ["quarantined"]


def test_arguments_that_the_agent_rejects_are_not_claimed() -> None:
    with hooked() as guard:
        stories.bad_arguments(World())
    assert guard.ledger.by_call("o1", "toolu_a1") == ()


def test_a_final_answer_is_not_claimed() -> None:
    with hooked() as guard, guard.run("o1"):
        agent(["done"]).run("Say something")
        coder(['final_answer("done")']).run("Say something")
    assert not any(guard.ledger.counts().values())


def test_a_tool_may_say_that_it_did_nothing() -> None:
    def body(order: str) -> str:
        raise LookupError("no such order")

    with hooked(not_started_on={"refund": (LookupError,)}) as guard, guard.run("o1"):
        agent(once(FIRST), tool_of(body)).run("Refund order o1")
    assert states(guard, "o1", "refund", **ORDER) == ["not_started"]


def test_a_tool_that_calls_a_tool_is_not_taken_for_it() -> None:
    world = World()
    inner = refund_that_works(world)
    outer = tool_of(lambda order: str([inner(order=order), inner(order="o8")]))
    outer.name = "refund_all"
    with hooked() as guard, guard.run("o1"):
        agent([[("toolu_a1", "refund_all", ORDER)], "done"], outer).run("Refund all")
    (parent,) = entries(guard, "o1", "refund_all", **ORDER)
    (child,) = entries(guard, "o1", "refund", **ORDER)
    assert (parent.call_id, child.call_id, child.turn) == ("toolu_a1", None, None)
    assert child.parent == parent.entry_id


def test_code_of_a_managed_agent_has_no_part_in_the_managers_call() -> None:
    world = World()
    managed = coder(
        ['refund("o1")\nrefund("o1")', 'final_answer("done")'], refund_that_works(world), name="coder", description="Codes."
    )
    turns = [[("toolu_a1", "coder", {"task": "refund o1", "additional_args": {}})], "done"]
    with hooked() as guard, guard.run("o1"):
        agent(turns, managed_agents=[managed]).run("Refund order o1")
    assert [entry.call_id for entry in entries(guard, "o1", "refund", **ORDER)] == [None, None]


def test_what_a_dead_run_has_paid_is_undelivered() -> None:
    made = agent([[scripts.refund("call_9sd7a", "o9")], ConnectionError("the model is gone")], refund_that_works(World()))
    with hooked() as guard, guard.run("o1"):
        with pytest.raises(smolagents.AgentError, match="the model is gone"):
            made.run("Refund order o9")
        assert states(guard, "o1", "refund", order="o9") == ["undelivered"]


def test_what_a_lost_sibling_has_paid_is_handed_back() -> None:
    made: list[Any] = []
    with hooked() as guard, guard.run("o1"):
        made = agent([scripts.both("a1"), scripts.both("b2"), "done"], tool_of(only_o9_works(World())))
        made.run("Refund orders o9 and oX")
    (entry,) = entries(guard, "o1", "refund", order="o9")
    assert [change.after.value for change in entry.history] == ["completed", "undelivered", "completed"]
    assert "done: o9" in made.model.seen[-1]


def test_code_that_cannot_be_read_leaves_what_was_delivered_alone() -> None:
    made = coder(['print(refund("o1"))', "not code", 'final_answer("done")'], refund_that_works(World()))
    generate = made.model.generate

    def unreadable(messages: Any, **kwargs: Any) -> Any:
        message = generate(messages)
        if "not code" in message.content:
            message.content = "I would rather not write code."
        return message

    made.model.generate = unreadable
    with hooked() as guard, guard.run("o1"):
        made.run("Refund order o1")
    assert "regex pattern" in made.model.seen[-1]
    (entry,) = entries(guard, "o1", "refund", **ORDER)
    assert [change.after.value for change in entry.history] == ["completed"]


@pytest.mark.parametrize("kind", ["class", "function"])
@pytest.mark.parametrize("code", [True, False])
def test_the_body_gets_the_key_of_its_intent_and_a_released_retry_the_same(kind: str, code: bool) -> None:
    world = World()
    refund = refund_that_fails(world, kind)

    def pay(call_id: str) -> None:
        if code:
            coder(['refund("o1")', 'final_answer("done")'], refund).run("Refund order o1")
        else:
            agent(once(call_id), refund).run("Refund order o1")

    intent = released_intent(pay)
    assert world.keys == [intent] * 2


def test_uninstalling_gives_the_pools_back() -> None:
    with hooked():
        assert all(module.ThreadPoolExecutor is not ThreadPoolExecutor for module in POOLS)
    assert all(module.ThreadPoolExecutor is ThreadPoolExecutor for module in POOLS)


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, stories.INCIDENTS)
