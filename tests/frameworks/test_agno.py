# SPDX-License-Identifier: Apache-2.0
"""The guard in front of agno."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("agno")

from agno.run.base import RunStatus
from agno.tools.function import Function, FunctionCall
from support.hooked import installing_tests
from support.incidents import Install, did_nothing_first, incident_tests, refusal, release, states

from benchmarks.incidents.agno import INCIDENTS, Scripted, agent, approval, late, team
from benchmarks.incidents.bodies import pays, pays_in_thread
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import AGAIN, FIRST, SECOND, once, refund
from genai_processor.guard.context import idempotency_key
from genai_processor.guard.hooks.agno import HOOK
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)
EXECUTE = "_execute" if hasattr(FunctionCall, "_execute") else "execute"


def test_the_model_is_told_and_the_other_calls_finish(guarded: Install) -> None:
    guard, world = guarded(), World()
    model = Scripted([refund("c1")], [refund("c2"), refund("c3", "o2")], "done")
    asyncio.run(agent(model, pays(world, once=True)).arun("refund o1"))
    [entry] = guard.ledger.pending().entries
    assert model.heard == [
        "502 Bad Gateway",
        refusal(entry),
        "done: o2",
    ]
    assert world.effects == ["o1", "o2"]
    assert states(guard) == {State.QUARANTINED: 1, State.COMPLETED: 1}
    assert (entry.scope, entry.call_id, entry.reason) == ("conversation-1", "c1", "failure")


@pytest.mark.parametrize("tool", [pays, pays_in_thread])
@pytest.mark.parametrize("retries", [0, 3])
def test_a_run_can_be_stopped_instead(tool: Any, retries: int, guarded: Install) -> None:
    guarded(on_refusal="raise")
    world, model = World(), Scripted(*AGAIN)
    one = agent(model, tool(world, once=True), retries=retries, delay_between_retries=0)
    result = asyncio.run(one.arun("refund o1"))
    assert result.status is RunStatus.error
    assert "refund was not run" in str(result.content)
    assert world.effects == ["o1"]
    assert model.script == ["done"]


@pytest.mark.parametrize("tool", [pays, pays_in_thread])
def test_the_body_has_the_key_of_its_intent_which_a_released_attempt_keeps(tool: Any, guarded: Install) -> None:
    guard, world = guarded(), World()
    asyncio.run(agent(Scripted(*once(FIRST)), tool(world, once=True)).arun("refund o1"))
    entry = release(guard)
    asyncio.run(agent(Scripted(*once(SECOND)), tool(world)).arun("refund o1"))
    assert world.keys == [entry.intent] * 2


def test_generators_have_a_key_too(guarded: Install) -> None:
    guarded()
    keys = []

    def refund_(order: str) -> Iterator[str]:
        keys.append(idempotency_key())
        yield "paying"
        keys.append(idempotency_key())

    async def arefund(order: str) -> AsyncIterator[str]:
        keys.append(idempotency_key())
        yield "paying"
        keys.append(idempotency_key())

    agent(Scripted([("c1", "refund_", {"order": "o1"})], "done"), refund_).run("refund o1")
    asyncio.run(agent(Scripted([("c2", "arefund", {"order": "o1"})], "done"), arefund).arun("refund o1"))
    assert keys[0] == keys[1] is not None
    assert keys[2] == keys[3] is not None
    assert keys[0] != keys[2]


def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
    guard, world = guarded(), World()
    agent(Scripted(*AGAIN), did_nothing_first(world)).run("refund o1")
    assert world.effects == ["o1"]
    assert states(guard) == {State.NOT_STARTED: 1, State.COMPLETED: 1}


@pytest.mark.parametrize("kind", ["plain", "async", "async generator"])
def test_arguments_that_do_not_fit_were_never_started(kind: str, guarded: Install) -> None:
    guard = guarded()

    def plain(cents: int) -> str:
        raise AssertionError

    async def coroutine(cents: int) -> str:
        raise AssertionError

    async def generator(cents: int) -> AsyncIterator[str]:
        raise AssertionError
        yield ""

    tool = {"plain": plain, "async": coroutine, "async generator": generator}[kind]
    model = Scripted([("c1", tool.__name__, {"cents": "many"})], "done")
    asyncio.run(agent(model, tool).arun("refund"))
    assert "valid integer" in model.heard[0]
    assert states(guard) == {State.NOT_STARTED: 1}


def test_a_tool_hook_that_does_not_let_a_call_run(guarded: Install) -> None:
    guard, world = guarded(), World()

    def forbids(function_name: str, function_call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        raise PermissionError("not on a Sunday")

    agent(Scripted(*once(FIRST)), pays_in_thread(world), tool_hooks=[forbids]).run("refund o1")
    assert states(guard) == {State.NOT_STARTED: 1}


def test_a_tool_that_was_made_before_the_guard_is_never_taken_for_one_that_did_not_start(guarded: Install) -> None:
    world = World()
    one = agent(Scripted("hello", [refund("c1")], [refund("c2")], "done"), pays_in_thread(world, once=True))
    one.run("hello")
    guard = guarded()
    one.run("refund o1")
    assert world.effects == ["o1"]
    assert states(guard) == {State.QUARANTINED: 1}


def test_a_confirmed_call_that_is_gone_on_with_twice_is_answered_with_its_result(guarded: Install) -> None:
    guard, world = guarded(), World()
    approval(world, times=2)
    assert world.effects == ["o1"]
    assert states(guard) == {State.COMPLETED: 1}


def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
    guard, world = guarded(), World()
    agent(Scripted([refund("c1")], ConnectionError("the model is down")), pays_in_thread(world)).run("refund o1")
    assert states(guard) == {State.UNDELIVERED: 1}
    again = Scripted(*once(SECOND))
    agent(again, pays_in_thread(world)).run("refund o1")
    assert again.heard == ["done: o1"]
    assert world.effects == ["o1"]
    assert states(guard) == {State.COMPLETED: 1}


def test_what_a_thread_returns_to_a_run_that_was_given_up_is_undelivered(guarded: Install) -> None:
    guard, world = guarded(), World()
    late(world)
    assert world.effects == ["o1"]
    assert states(guard) == {State.UNDELIVERED: 1}


def test_a_team_is_told_that_its_member_may_have_paid(guarded: Install) -> None:
    guard, world = guarded(), World()
    leading, model = team(world)
    leading.run("refund o1")
    assert states(guard)[State.QUARANTINED] >= 1
    assert len(model.heard) == 2
    assert world.effects == ["o1"]


def test_a_generator_that_nobody_takes_anything_from_was_never_claimed(guarded: Install) -> None:
    guard = guarded()

    def refund(order: str) -> Iterator[str]:
        raise AssertionError
        yield ""

    call = FunctionCall(function=Function.from_callable(refund), arguments={"order": "o1"}, call_id="c1")
    call.execute().result.close()
    assert states(guard) == {}


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
