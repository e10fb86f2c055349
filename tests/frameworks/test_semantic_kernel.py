# SPDX-License-Identifier: Apache-2.0
"""The guard in front of Semantic Kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("semantic_kernel")

from semantic_kernel.contents import AuthorRole, ChatHistory, ChatMessageContent
from semantic_kernel.exceptions import KernelInvokeException
from semantic_kernel.filters import FilterTypes
from support.hooked import installing_tests
from support.incidents import Install, incident_tests, paying_tests, states

from benchmarks.incidents import semantic_kernel as stories
from benchmarks.incidents.bodies import pays, pays_in_thread
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import AGAIN, FIRST, SECOND, once, refund
from benchmarks.incidents.semantic_kernel import INCIDENTS, Scripted, agent, function_call, kernel, late, run
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.context import idempotency_key
from genai_processor.guard.hooks.semantic_kernel import HOOK, _turn
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)
(
    test_the_body_has_the_key_of_its_intent_which_a_released_attempt_keeps,
    test_a_tool_that_did_nothing_may_be_called_again,
    test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered,
) = paying_tests(stories)


def test_the_model_is_told_and_the_other_calls_finish(guarded: Install) -> None:
    guard, world = guarded(), World()
    model = Scripted([refund("c1")], [refund("c2"), refund("c3", "o2")], "done")
    run(world, agent(model, pays(world, once=True)))
    [entry] = guard.ledger.pending().entries
    assert sorted(model.heard) == [
        "An error occurred while invoking the function shop-refund: 502 Bad Gateway",
        "done: o2",
        "shop-refund was not run: an earlier attempt at the same action may have committed. Do not call it again with these "
        f"arguments; report this instead. A person has to settle entry {entry.entry_id} first.",
    ]
    assert world.effects == ["o1", "o2"]
    assert states(guard) == {State.QUARANTINED: 1, State.COMPLETED: 1}
    assert (entry.scope, entry.call_id, entry.reason) == ("conversation-1", "c1", "ConnectionError")


@pytest.mark.parametrize("tool", [pays, pays_in_thread])
def test_a_run_can_be_stopped_instead(tool: Any, guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    with pytest.raises(ToolSpanCommitmentError) as caught:
        run(world, agent(Scripted(*AGAIN), tool(world, once=True)))
    assert (caught.value.tool, caught.value.call_id, caught.value.reason) == ("shop-refund", SECOND, "action_quarantined")
    assert world.effects == ["o1"]


def test_a_function_that_the_application_calls_is_refused_with_an_exception(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    own = kernel(pays(world, once=True))

    async def call() -> Any:
        return await own.invoke(plugin_name="shop", function_name="refund", order="o1")

    with world.scope("conversation-1"):
        with pytest.raises(KernelInvokeException) as failed:
            asyncio.run(call())
        with pytest.raises(KernelInvokeException) as refused:
            asyncio.run(call())
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert isinstance(refused.value.__cause__, ToolSpanCommitmentError)
    assert world.effects == ["o1"]


def test_arguments_that_do_not_fit_were_never_started(guarded: Install) -> None:
    guard = guarded()

    def refund(cents: int) -> str:
        raise AssertionError

    model = Scripted([("c1", "refund", {"cents": "many"})], "done")
    run(World(), agent(model, refund))
    assert "cents is expected to be parsed" in model.heard[0]
    assert states(guard) == {State.NOT_STARTED: 1}


def test_a_function_that_a_tool_calls_is_a_call_of_its_own(guarded: Install) -> None:
    guard, world, keys = guarded(), World(), list[str | None]()
    inner = kernel(pays(world))

    async def refund_all(order: str) -> str:
        keys.append(idempotency_key())
        return str(await inner.invoke(plugin_name="shop", function_name="refund", order=order))

    run(world, agent(Scripted([("c1", "refund_all", {"order": "o1"})], "done"), refund_all))
    assert world.effects == ["o1"]
    assert states(guard) == {State.COMPLETED: 2}
    assert world.keys != keys


def test_a_tool_may_call_itself_as_often_as_it_wants(guarded: Install) -> None:
    guarded()
    world = World()

    async def refund(order: str) -> str:
        if order != "both":
            return world.commit(order)
        return "".join([str(await own.invoke(plugin_name="shop", function_name="refund", order="o1")) for _ in range(2)])

    own = kernel(refund)
    model = Scripted([("call_Vq3ZkPw8sT", "refund", {"order": "both"})], "done")
    run(world, agent(model, refund))
    assert world.effects == ["o1", "o1"]


def test_a_filter_that_tries_again_after_success_gets_the_result_again(guarded: Install) -> None:
    guard, world = guarded(), World()

    async def twice(context: Any, next: Callable[[Any], Awaitable[None]]) -> None:
        await next(context)
        context.result = None
        await next(context)

    model = Scripted(*once(FIRST))
    one = agent(model, pays(world))
    one.kernel.add_filter(FilterTypes.FUNCTION_INVOCATION, twice)
    run(world, one)
    assert world.effects == ["o1"]
    assert model.heard == ["done: o1"]
    assert states(guard) == {State.COMPLETED: 1}


def test_what_was_cancelled_in_a_thread_is_quarantined(guarded: Install) -> None:
    guard, world = guarded(), World()
    late(world)
    assert world.effects == ["o1"]
    assert states(guard) == {State.QUARANTINED: 1}


def test_a_turn_is_the_same_in_a_chat_history_that_was_stored() -> None:
    history = ChatHistory()
    calls = [function_call(*refund("call_Vq3ZkPw8sT"))]
    history.add_message(ChatMessageContent(role=AuthorRole.ASSISTANT, items=calls, metadata={"id": "chatcmpl-B7"}))
    restored = ChatHistory.restore_chat_history(history.serialize()).messages[0]
    assert _turn(restored, restored.items) == _turn(history.messages[0], calls)


def test_messages_whose_calls_are_only_counted_are_turns_of_their_own() -> None:
    one, other = (ChatMessageContent(role=AuthorRole.ASSISTANT, items=[function_call(*refund("call_0"))]) for _ in range(2))
    assert _turn(one, one.items) == _turn(one, one.items) != _turn(other, other.items)


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
