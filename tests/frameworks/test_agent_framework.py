# SPDX-License-Identifier: Apache-2.0
"""The guard in front of Microsoft Agent Framework."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agent_framework")

from agent_framework import AgentSession, Content, function_middleware, tool
from support.hooked import installing_tests
from support.incidents import Install, did_nothing_first, incident_tests, keeps_keys, refusal, release, states

from benchmarks.incidents.agent_framework import INCIDENTS, agent, failing, paying, unasked
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import WRONG, ask
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.agent_framework import HOOK
from genai_processor.ledger import Entry, State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)


def run(made: Any, session: AgentSession | None = None, **more: Any) -> Any:
    async def story() -> Any:
        return await made.run("refund", session=session or AgentSession(session_id="c1"), **more)

    return asyncio.run(story())


def entries(guard: Guard, made: Any) -> list[Entry]:
    return [entry for call_id in made.client.asked for entry in guard.ledger.by_call("c1", call_id)]


def test_the_model_is_told_and_the_other_calls_finish(guarded: Install) -> None:
    guard, world = guarded(), World()
    made = agent([failing(world)], [ask("o9")], [ask("o9"), ask("o2")])
    run(made)
    [entry] = guard.ledger.pending().entries
    assert world.effects == ["o9", "o2"]
    assert made.client.told[1:] == [
        refusal(entry),
        "done: o2",
    ]


def test_the_text_passes_parsers_of_results(guarded: Install) -> None:
    guarded()
    world = World()

    def parse(result: Any) -> str:
        return f"parsed: {result}"

    async def refund(order: str) -> str:
        return world.commit_then_fail(order) if not world.effects else world.commit(order)

    made = agent([tool(refund, result_parser=parse, approval_mode="never_require")], [ask()], [ask(), ask("o2")])
    run(made)
    assert made.client.told[1].startswith("refund was not run")
    assert made.client.told[2] == "parsed: done: o2"


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_can_be_stopped(guarded: Install, stream: bool) -> None:
    guarded(on_refusal="raise")
    world = World()
    made = agent([failing(world)], [ask()], [ask()], [ask()])

    async def story() -> None:
        if not stream:
            await made.run("refund", session=AgentSession())
            return
        async for _ in made.run("refund", session=AgentSession(), stream=True):
            pass

    with pytest.raises(ToolSpanCommitmentError) as caught:
        asyncio.run(story())
    assert (caught.value.tool, caught.value.reason) == ("refund", "action_quarantined")
    assert str(caught.value).startswith("refund was not run")
    assert world.effects == ["o9"]
    assert len(made.client.script) == 1


def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install) -> None:
    guard, keys = guarded(), list[str | None]()
    for _ in range(2):
        run(agent([unasked(keeps_keys(keys))], [ask()]))
        entry = release(guard)
    assert keys == [entry.intent] * 2


@pytest.mark.parametrize("sync", [False, True])
def test_each_of_parallel_calls_has_its_own_key(guarded: Install, sync: bool) -> None:
    guard, world = guarded(), World()
    made = agent([paying(world, sync=sync)], [ask("o1"), ask("o2"), ask("o2")])
    run(made)
    assert sorted(world.keys, key=str) == sorted(entry.intent for entry in entries(guard, made))
    assert len(set(world.keys)) == 3


def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
    guard, world = guarded(), World()
    run(agent([unasked(did_nothing_first(world))], [ask()], [ask()]))
    assert world.effects == ["o9"]
    assert states(guard) == {State.NOT_STARTED: 1, State.COMPLETED: 1}


def test_bad_arguments_are_not_claimed(guarded: Install) -> None:
    guard = guarded()
    made = agent([paying(World())], WRONG)
    run(made)
    assert states(guard) == {}
    assert made.client.told == ["Error: Argument parsing failed."]


def test_a_tool_that_is_used_up_is_not_claimed(guarded: Install) -> None:
    guard, world = guarded(), World()

    @tool(approval_mode="never_require", max_invocations=1)
    async def refund(order: str) -> str:
        return world.commit(order)

    run(agent([refund], [ask()], [ask()]))
    assert states(guard) == {State.COMPLETED: 1}


def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
    guard, world = guarded(), World()

    async def refund(order: str) -> str:
        if order == "o8":
            return world.commit(order)
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.Event().wait()
        return "never"

    made = agent([tool(refund, approval_mode="never_require")], [ask("o8"), ask("o9")])

    async def story() -> None:
        nonlocal running
        running = asyncio.create_task(made.run("refund", session=AgentSession(session_id="c1")))
        await asyncio.gather(running, return_exceptions=True)

    running: Any = None
    asyncio.run(story())
    assert states(guard) == {State.UNDELIVERED: 1, State.QUARANTINED: 1}
    made.client.script.append([ask("o8")])
    run(made)
    assert made.client.told == ["done: o8"]
    assert states(guard) == {State.COMPLETED: 1, State.QUARANTINED: 1}
    assert world.effects == ["o8"]


def test_middleware_that_tries_again_gets_the_text(guarded: Install) -> None:
    guarded()
    world, got = World(), list[Any]()

    @function_middleware
    async def again(context: Any, call_next: Any) -> None:
        try:
            await call_next()
        except ConnectionError:
            await call_next()
            got.append(context.result)

    run(agent([failing(world)], [ask()], middleware=[again]))
    assert world.effects == ["o9"]
    assert "this very call was made before, and may have committed" in str(got[0][0].text)


def test_a_tool_that_is_called_by_another_tool_is_its_child(guarded: Install) -> None:
    guard, world = guarded(), World()
    inner = failing(world)

    @tool(approval_mode="never_require")
    async def outer(order: str) -> str:
        for _ in range(2):
            try:
                result = await inner.invoke(arguments={"order": order})
            except ConnectionError:
                continue
        return str(result[0].text)

    made = agent([outer], [ask("o9", "outer")])
    run(made)
    assert world.effects == ["o9"]
    assert "an earlier attempt within this call may have committed" in made.client.told[0]
    assert states(guard) == {State.QUARANTINED: 2}


def test_a_session_that_the_framework_made_for_one_run_is_no_scope(
    guarded: Install, caplog: pytest.LogCaptureFixture
) -> None:
    guarded()
    made = agent([paying(World())], [ask()], context_providers=[])

    async def story() -> None:
        await made.run("refund")

    asyncio.run(story())
    assert "have no conversation to tell them apart by" in caplog.text


def test_turns_differ_and_scopes_are_sessions(guarded: Install) -> None:
    guard = guarded()
    made = agent([paying(World())], [ask(), ask()], [ask()])
    run(made)
    first, second, third = (entry.turn for entry in entries(guard, made))
    assert first == second != third


def test_a_tool_that_is_invoked_directly_answers_with_contents(guarded: Install) -> None:
    guard, world = guarded(), World()
    refund = failing(world)

    async def story() -> Any:
        with guard.run("c1"):
            with pytest.raises(ConnectionError):
                await refund.invoke(arguments={"order": "o9"})
            raw = await refund.invoke(arguments={"order": "o9"}, skip_parsing=True)
            return raw, await refund.invoke(arguments={"order": "o9"})

    raw, parsed = asyncio.run(story())
    assert world.effects == ["o9"]
    assert raw.startswith("refund was not run")
    assert [type(content) for content in parsed] == [Content]


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
