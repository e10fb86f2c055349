# SPDX-License-Identifier: Apache-2.0
"""The guard in front of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, SQLiteSession, function_tool, trace
from support.hooked import installing_tests
from support.incidents import Install, incident_tests, keeps_keys, refusal, release, states

from benchmarks.incidents import openai_agents as told
from benchmarks.incidents.bodies import on_the_loop
from benchmarks.incidents.kit import World
from benchmarks.incidents.openai_agents import INCIDENTS, failing, in_one_run, run, working
from benchmarks.incidents.openai_agents_model import Script, call, text
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks.openai_agents import HOOK
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)
NOT_RUN = "refund was not run: an earlier attempt at the same action may have committed. Do not call it again with these "


@pytest.mark.parametrize(
    "story", [told.new_id, told.new_id_sync_tool, told.time_out, told.worded_time_out, told.handled_error, told.cancelled]
)
def test_the_model_reads_our_text_and_is_not_asked_to_try_again(story: Callable[[World], Any], guarded: Install) -> None:
    guard = guarded()
    script = asyncio.run(story(World()))
    [entry] = guard.ledger.pending().entries
    assert script.read()[-1] == refusal(entry)
    assert states(guard) == {State.QUARANTINED: 1}


def test_the_other_calls_of_a_refused_calls_turn_finish(guarded: Install) -> None:
    guarded()
    world, script = World(), Script(call(), [call(), call(arguments='{"order": "o2"}')], text("done"))

    async def refund(order: str) -> str:
        return world.commit_then_fail(order) if order == "o1" else world.commit(order)

    asyncio.run(run(world, Agent("a", model=script, tools=[function_tool(refund)])))
    assert world.effects == ["o1", "o2"]
    refused, done = script.read()[-2:]
    assert refused.startswith(NOT_RUN)
    assert done == "done: o2"


def test_a_run_can_be_stopped_instead(guarded: Install) -> None:
    guarded(on_refusal="raise")
    with pytest.raises(ToolSpanCommitmentError) as caught:
        asyncio.run(told.new_id(World()))
    assert (caught.value.tool, caught.value.reason) == ("refund", "action_quarantined")
    assert caught.value.call_id is not None


def test_a_streamed_run_can_be_stopped_too(guarded: Install) -> None:
    guarded(on_refusal="raise")
    with pytest.raises(ToolSpanCommitmentError):
        asyncio.run(told.streamed(World()))


def test_a_call_that_the_body_makes_and_that_is_refused_is_told_as_it_is(guarded: Install) -> None:
    guard, world = guarded(), World()

    @guard.tool()
    def charge(order: str) -> str:
        return world.commit_then_fail(order)

    async def refund(order: str) -> str:
        try:
            return charge(order)
        except ConnectionError:
            return charge(order)

    script = Script(call(), text("done"))
    asyncio.run(run(world, Agent("a", model=script, tools=[function_tool(refund)])))
    assert world.effects == ["o1"]
    assert script.read()[-1].startswith("charge was not run: an earlier attempt within this call may have committed.")


def test_arguments_that_the_sdk_rejects_are_no_call(guarded: Install) -> None:
    guard, world = guarded(), World()
    script = Script(call(arguments="{"), call(arguments='{"order": {}}'), call(arguments='{"order": {}}'), text("done"))
    asyncio.run(run(world, Agent("a", model=script, tools=[working(world)])))
    assert states(guard) == {State.NOT_STARTED: 3}


def test_of_a_tool_with_an_invoker_of_the_applications_nobody_knows_whether_it_started(guarded: Install) -> None:
    guard = guarded()
    asyncio.run(told.own_invoker(World()))
    assert states(guard) == {State.QUARANTINED: 1}


def test_an_invoker_that_the_application_put_around_the_sdks_is_its_own(guarded: Install) -> None:
    guard, world = guarded(), World()
    tool = working(world)
    inner = tool.on_invoke_tool

    async def charge_first(context: Any, arguments: str) -> Any:
        world.commit("fee")
        return await inner(context, arguments)

    charge_first.__dict__.update(inner.__dict__)
    tool.on_invoke_tool = charge_first
    script = Script(call(arguments="{"), text("done"))
    asyncio.run(run(world, Agent("a", model=script, tools=[tool])))
    assert world.effects == ["fee"]
    assert states(guard) == {State.QUARANTINED: 1}


def test_an_agent_in_a_tool_that_waits_for_an_approval_is_paused(guarded: Install) -> None:
    guard, seen = guarded(), list[dict[State, int]]()
    asyncio.run(told.approved_in_agent_tool(World(), lambda: seen.append(states(guard))))
    assert [*seen, states(guard)] == [{State.PAUSED: 1, State.COMPLETED: 1}, {State.COMPLETED: 3}]


def test_results_of_a_run_that_died_are_undelivered_and_handed_back_once(guarded: Install) -> None:
    guard, world = guarded(), World()
    script = asyncio.run(told.dying_run(world))
    assert states(guard) == {State.COMPLETED: 1, State.QUARANTINED: 1}
    assert script.read()[0] == "done: o1"
    assert script.read()[1].startswith(NOT_RUN)


def test_until_they_are_handed_back_they_wait_for_a_person(guarded: Install) -> None:
    guard, world = guarded(), World()
    script = Script([call()], RuntimeError("the model is away"))
    with pytest.raises(RuntimeError):
        asyncio.run(run(world, Agent("a", model=script, tools=[working(world)])))
    assert states(guard) == {State.UNDELIVERED: 1}


def test_so_do_those_of_a_streamed_run_that_was_cancelled(guarded: Install, tmp_path: Path) -> None:
    guard, world = guarded(f"sqlite:///{tmp_path}/ledger.db"), World()

    async def story() -> None:
        asked = asyncio.Event()

        class Slow(Script):
            async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
                if not self.lines:
                    asked.set()
                    await asyncio.Event().wait()
                async for event in super().stream_response(*args, **kwargs):
                    yield event

        with world.scope("order-1"):
            result = Runner.run_streamed(Agent("a", model=Slow(call()), tools=[working(world)]), "go")
            await asked.wait()
            result.cancel()
            async for _ in result.stream_events():
                pass

    asyncio.run(story())
    assert states(guard) == {State.UNDELIVERED: 1}


def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install) -> None:
    guard, keys = guarded(), list[str | None]()
    body = keeps_keys(keys)
    for one in (on_the_loop(body), body):
        asyncio.run(in_one_run(World(), function_tool(one), call()))
        entry = release(guard)
    assert keys == [entry.intent] * 2


@pytest.mark.parametrize("options", ["session", "conversation_id", "run_config", "trace"])
def test_the_sdk_knows_a_scope(options: str, guarded: Install, tmp_path: Path) -> None:
    guard, world = guarded(), World()

    async def once() -> None:
        more: dict[str, Any] = {
            "session": {"session": SQLiteSession("conversation-7")},
            "conversation_id": {"conversation_id": "conversation-7"},
            "run_config": {"run_config": {"group_id": "conversation-7"}},
            "trace": {},
        }[options]
        await Runner.run(Agent("a", model=Script(call(), text("done")), tools=[failing(world)]), "go", **more)

    async def twice() -> None:
        if options == "trace":
            with trace("a conversation", trace_id="trace_" + "7" * 32):
                await once()
                await once()
        else:
            await once()
            await once()

    asyncio.run(twice())
    assert world.effects == ["o1"]
    [entry] = guard.ledger.pending().entries
    assert entry.scope == ("trace_" + "7" * 32 if options == "trace" else "conversation-7")


_CHILD = """
import asyncio, json, sys
from agents import Agent, Runner, RunState
from benchmarks.incidents.bodies import on_the_loop
from benchmarks.incidents.kit import World
from benchmarks.incidents.openai_agents import working
from benchmarks.incidents.openai_agents_model import Script, call, text
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard

async def main(url, kept, effects):
    world = World()
    hooks.install(Guard(url))
    script = Script(call(), text("done")) if kept is None else Script(RuntimeError("the model is away"))
    agent = Agent("a", model=script, tools=[working(world, needs_approval=True)])
    try:
        if kept is None:
            result = await Runner.run(agent, "refund o1")
            state = result.to_state()
            for item in result.interruptions:
                state.approve(item)
            print(json.dumps(state.to_json()))
        else:
            await Runner.run(agent, await RunState.from_json(agent, json.loads(kept)))
    except RuntimeError:
        pass
    with open(effects, "a") as file:
        file.writelines(effect + chr(10) for effect in world.effects)

asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None, sys.argv[3] if len(sys.argv) > 3 else "/dev/null"))
"""


def test_a_kept_state_is_resumed_once_whatever_the_process(tmp_path: Path) -> None:
    def process(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, f"sqlite:///{tmp_path}/ledger.db", *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    effects = tmp_path / "effects"
    kept = process()
    assert json.loads(kept)
    process(kept, str(effects))
    assert effects.read_text() == "o1\n"
    process(kept, str(effects))
    assert effects.read_text() == "o1\n"


@pytest.mark.parametrize(
    ("hint", "trusted", "effects"),
    [("readOnlyHint", "payments", 2), ("readOnlyHint", "other", 1), ("idempotentHint", "payments", 1)],
)
def test_what_a_trusted_mcp_server_declares_holds_for_the_agents_tool(
    hint: str, trusted: str, effects: int, guarded: Install
) -> None:
    guard, world = guarded(trusted_mcp_servers=(trusted,)), World()
    asyncio.run(told.over_stdio(world, "fail", 0, hint))
    assert len(world.effects) == effects
    assert guard.ledger.stats().entries == (0 if effects == 2 else 2)


def test_an_mcp_tool_whose_arguments_are_no_json_is_never_sent(guarded: Install) -> None:
    guard, world = guarded(), World()
    asyncio.run(told.over_stdio(world, "fail", 0, first=call(arguments="{")))
    assert world.effects == ["o1"]
    assert states(guard) == {State.NOT_STARTED: 1, State.QUARANTINED: 2}


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
