# SPDX-License-Identifier: Apache-2.0
"""The guard in front of Google ADK."""

from __future__ import annotations

import asyncio
import contextlib
import importlib

import pytest

pytest.importorskip("google.adk")

from google.adk.plugins.reflect_retry_tool_plugin import ReflectAndRetryToolPlugin
from google.adk.tools import FunctionTool, ToolContext, exit_loop
from support.hooked import installing_tests
from support.incidents import Install, did_nothing_first, incident_tests, keeps_keys, refusal, release, states

from benchmarks.incidents.bodies import loses
from benchmarks.incidents.google_adk import IN_THREADS, INCIDENTS, Shop, paying, with_error_callback
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import WRONG, ask
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.google_adk import HOOK
from genai_processor.ledger import Entry, State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)
CALLER = importlib.import_module(HOOK.targets[0].module)
CALL = HOOK.targets[0].name


def entries(guard: Guard, shop: Shop) -> list[Entry]:
    return [entry for call_id in shop.model.asked for entry in guard.ledger.by_call(shop.session, call_id)]


def test_the_model_is_told_and_the_other_calls_finish(guarded: Install) -> None:
    guard, world = guarded(), World()
    shop = with_error_callback(world)
    shop.model.script = [[ask("o9")], [ask("o9"), ask("o2")]]
    asyncio.run(shop.run())
    [entry] = guard.ledger.pending().entries
    assert world.effects == ["o9", "o2"]
    assert shop.responses[0] == {"error": "the payment service said 502 Bad Gateway"}
    assert {
        "status": "refused",
        "error": refusal(entry),
    } in shop.responses


def test_a_run_can_be_stopped_though_a_plugin_asks_to_try_again(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    plugins = [ReflectAndRetryToolPlugin(max_retries=9)]
    shop = Shop([loses(world)], [[ask()] for _ in range(9)], plugins=plugins)
    with pytest.raises(Exception, match="was not run") as caught:
        asyncio.run(shop.run())
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, ToolSpanCommitmentError):
        error = error.__cause__ or error.__context__ or getattr(error, "error", None)
    assert error is not None
    assert (error.tool, error.reason) == ("refund", "action_quarantined")
    assert len(shop.model.script) == 7


def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install) -> None:
    guard, keys = guarded(), list[str | None]()
    shop = Shop([keeps_keys(keys)], [[ask()], [ask()]])
    for _ in range(2):
        with pytest.raises(Exception, match="no answer"):
            asyncio.run(shop.run())
        entry = release(guard)
    assert keys == [entry.intent] * 2


def test_each_of_parallel_calls_has_its_own_key(guarded: Install) -> None:
    guard, world = guarded(), World()
    shop = Shop([paying(world)], [[ask("o1"), ask("o2"), ask("o2")]])
    asyncio.run(shop.run())
    assert sorted(world.keys, key=str) == sorted(entry.intent for entry in entries(guard, shop))
    assert len(set(world.keys)) == 3


@pytest.mark.skipif(not IN_THREADS, reason="only in live sessions")
def test_a_tool_in_a_thread_has_its_key(guarded: Install) -> None:
    from google.adk.agents.run_config import RunConfig, ToolThreadPoolConfig

    guard, world = guarded(), World()
    config = RunConfig(tool_thread_pool_config=ToolThreadPoolConfig())
    shop = Shop([paying(world, sync=True)], [[ask()]], config=config)
    asyncio.run(shop.run())
    assert world.keys == [entry.intent for entry in entries(guard, shop)]


def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
    guard, world = guarded(), World()
    asyncio.run(Shop([did_nothing_first(world)], [[ask()], [ask()]]).until_it_ends())
    assert world.effects == ["o9"]
    assert states(guard) == {State.NOT_STARTED: 1, State.COMPLETED: 1}


def test_bad_arguments_have_not_started(guarded: Install) -> None:
    guard = guarded()
    shop = Shop([paying(World())], [WRONG])
    asyncio.run(shop.run())
    assert states(guard) == {State.NOT_STARTED: 1}
    assert "mandatory input parameters are not present" in str(shop.responses)


def test_a_call_that_a_person_declines_has_not_run(guarded: Install) -> None:
    from google.genai import types

    guard, world = guarded(), World()
    shop = Shop([FunctionTool(paying(world), require_confirmation=True)], [[ask()]])
    [asked] = [
        call
        for event in asyncio.run(shop.run())
        for call in event.get_function_calls()
        if call.name == "adk_request_confirmation"
    ]
    answer = types.FunctionResponse(id=asked.id, name=asked.name, response={"confirmed": False})
    asyncio.run(shop.run(types.Content(role="user", parts=[types.Part(function_response=answer)])))
    assert world.effects == []
    assert set(states(guard)) <= {State.NOT_STARTED}


def test_a_call_waits_for_a_person_without_being_quarantined(guarded: Install) -> None:
    guard = guarded()

    async def refund(order: str, tool_context: ToolContext) -> dict[str, str]:
        tool_context.request_confirmation(hint="really?")
        return {"status": "waits"}

    asyncio.run(Shop([refund], [[ask()]]).run())
    assert states(guard) == {State.PAUSED: 1}


def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
    guard, world = guarded(), World()

    async def refund(order: str) -> str:
        return world.commit(order) if order == "o8" else world.commit_then_fail(order)

    both = [ask("o8"), ask("o9")]
    shop = Shop([refund], [both, both])
    with pytest.raises(Exception, match="502"):
        asyncio.run(shop.run())
    assert states(guard) == {State.UNDELIVERED: 1, State.QUARANTINED: 1}
    asyncio.run(shop.run())
    assert {"result": "done: o8"} in shop.responses
    assert states(guard) == {State.COMPLETED: 1, State.QUARANTINED: 1}
    assert world.effects == ["o8", "o9"]


def test_a_cancelled_run_leaves_the_result_of_a_sync_tool_undelivered(guarded: Install) -> None:
    guard = guarded()

    async def story() -> None:
        def refund(order: str) -> str:
            running.cancel()
            return "done"

        running = asyncio.create_task(Shop([refund], [[ask()]]).run())
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
    assert states(guard) == {State.UNDELIVERED: 1}


def test_turns_are_the_events_of_the_session_and_scopes_its_id(guarded: Install) -> None:
    guard, world = guarded(), World()
    shop = Shop([paying(world)], [[ask()], [ask()]])
    events = asyncio.run(shop.run())
    assert {entry.turn for entry in entries(guard, shop)} == {event.id for event in events if event.get_function_calls()}
    assert {entry.scope for entry in entries(guard, shop)} == {shop.session}


def test_tools_that_only_steer_are_not_claimed(guarded: Install) -> None:
    guard = guarded()
    asyncio.run(Shop([exit_loop], [[("exit_loop", {})]]).run())
    assert states(guard) == {}


def test_a_sync_run_is_guarded(guarded: Install) -> None:
    from google.genai import types

    guarded()
    world = World()
    shop = Shop([loses(world)], [[ask()], [ask()]])
    message = types.Content(role="user", parts=[types.Part(text="go")])
    with contextlib.suppress(ConnectionError):
        list(shop.runner.run(user_id="u", session_id=shop.session, new_message=message))
    list(shop.runner.run(user_id="u", session_id=shop.session, new_message=message))
    assert world.effects == ["o9"]


def test_a_consumer_that_stops_early_leaves_nothing_undelivered(guarded: Install) -> None:
    guard, world = guarded(), World()

    async def story() -> None:
        from google.genai import types

        shop = Shop([paying(world)], [[ask()]])
        message = types.Content(role="user", parts=[types.Part(text="go")])
        stream = shop.runner.run_async(user_id="u", session_id=shop.session, new_message=message)
        async for event in stream:
            if event.is_final_response():
                break
        await stream.aclose()

    asyncio.run(story())
    assert states(guard) == {State.COMPLETED: 1}


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
