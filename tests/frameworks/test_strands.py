# SPDX-License-Identifier: Apache-2.0
"""The guard in front of Strands Agents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("strands")

from strands import Agent, ToolContext, tool
from strands.hooks import AfterToolCallEvent, AfterToolsEvent
from strands.types.exceptions import EventLoopException
from support.hooked import installing_tests
from support.incidents import Install, did_nothing_first, incident_tests, keeps_keys, refusal, release, states

from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import WRONG, ask
from benchmarks.incidents.strands import INCIDENTS, agent, failing, paying
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard import bindings
from genai_processor.guard.actions import action_digest
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.strands import HOOK
from genai_processor.ledger import Entry, State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)


def entries(guard: Guard, made: Agent) -> list[Entry]:
    return [entry for call_id in made.model.asked for entry in guard.ledger.by_call(made.session_id, call_id)]


def test_the_model_is_told_and_the_other_calls_finish(guarded: Install) -> None:
    guard, world = guarded(), World()
    made = agent([failing(world)], [ask("o9")], [ask("o9"), ask("o2")])
    made("refund")
    [entry] = guard.ledger.pending().entries
    assert world.effects == ["o9", "o2"]
    assert made.model.told[1:] == [
        refusal(entry),
        "done: o2",
    ]


def test_a_run_is_stopped_after_the_other_calls_of_the_turn(guarded: Install) -> None:
    guard, world = guarded(on_refusal="raise"), World()
    made = agent([failing(world)], [ask("o9")], [ask("o9"), ask("o2")], [ask("o9")])
    with pytest.raises(ToolSpanCommitmentError) as caught:
        made("refund")
    assert (caught.value.tool, caught.value.reason) == ("refund", "action_quarantined")
    assert world.effects == ["o9", "o2"]
    assert len(made.model.script) == 1
    assert states(guard) == {State.QUARANTINED: 1, State.UNDELIVERED: 1}
    assert [block for block in made.messages[-1]["content"] if "toolResult" not in block] == []
    made.model.script.clear()
    assert str(made("go on")).strip() == "done"


def test_a_refusal_in_a_sub_agent_stops_the_run_around_it(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    helper = agent([failing(world)], [ask()], [ask()], name="refunds").as_tool(name="refunds", description="Refunds.")
    made = agent([helper], [("refunds", {"input": "refund o9"})], [ask("o1")])
    with pytest.raises(ToolSpanCommitmentError):
        made("refund")
    assert world.effects == ["o9"]
    assert len(made.model.script) == 1


def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install) -> None:
    guard, keys = guarded(), list[str | None]()
    made = agent([tool(keeps_keys(keys))], [ask()], [], [ask()])
    for _ in range(2):
        made("refund")
        entry = release(guard)
    assert keys == [entry.intent] * 2


@pytest.mark.parametrize("sync", [False, True])
def test_each_of_parallel_calls_has_its_own_key(guarded: Install, sync: bool) -> None:
    guard, world = guarded(), World()
    made = agent([paying(world, sync=sync)], [ask("o1"), ask("o2"), ask("o2")])
    made("refund")
    assert sorted(world.keys, key=str) == sorted(entry.intent for entry in entries(guard, made))
    assert len(set(world.keys)) == 3


def test_no_call_is_current_for_whoever_consumes_a_run(guarded: Install) -> None:
    guarded()
    world = World()

    async def story() -> None:
        async for _ in agent([paying(world)], [ask("o1"), ask("o2")]).stream_async("refund"):
            assert bindings.current() is None

    asyncio.run(story())
    assert len(world.effects) == 2


def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
    guard, world = guarded(), World()
    agent([tool(did_nothing_first(world))], [ask()], [ask()])("refund")
    assert world.effects == ["o9"]
    assert states(guard) == {State.NOT_STARTED: 1, State.COMPLETED: 1}


def test_bad_arguments_have_not_started(guarded: Install) -> None:
    guard = guarded()
    made = agent([paying(World())], WRONG)
    made("refund")
    assert states(guard) == {State.NOT_STARTED: 1}
    assert "Validation failed" in made.model.told[0]


def test_an_error_result_of_a_tool_is_a_failure(guarded: Install) -> None:
    guard = guarded()

    @tool
    def refund(order: str) -> dict[str, Any]:
        return {"status": "error", "content": [{"text": "the service is not sure"}]}

    agent([refund], [ask()])("refund")
    assert states(guard) == {State.QUARANTINED: 1}


def test_a_value_error_of_the_body_is_a_failure(guarded: Install) -> None:
    guard = guarded()

    @tool
    def refund(order: str) -> str:
        raise ValueError("after the commit")

    agent([refund], [ask()])("refund")
    assert states(guard) == {State.QUARANTINED: 1}


def test_a_streaming_tool_is_over_with_its_last_event(guarded: Install) -> None:
    guard, world = guarded(), World()

    @tool
    async def refund(order: str) -> Any:
        yield "looking"
        yield world.commit(order)

    agent([refund], [ask()])("refund")
    assert states(guard) == {State.COMPLETED: 1}
    assert world.keys[0] is not None


def test_a_call_waits_for_a_person_and_is_resumed_once(guarded: Install) -> None:
    guard, world = guarded(), World()

    @tool(context=True)
    def refund(order: str, tool_context: ToolContext) -> str:
        tool_context.interrupt("approve")
        return world.commit(order)

    made = agent([refund], [ask()])
    asked = made("refund")
    assert asked.stop_reason == "interrupt"
    assert states(guard) == {State.PAUSED: 1}
    made([{"interruptResponse": {"interruptId": one.id, "response": "yes"}} for one in asked.interrupts])
    assert states(guard) == {State.COMPLETED: 1}
    assert world.effects == ["o9"]


def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
    guard, world = guarded(), World()
    made = agent([paying(world)], [ask()], [ask()])

    def fail(event: Any) -> None:
        raise RuntimeError("out of memory")

    made.hooks.add_callback(AfterToolsEvent, fail)
    with pytest.raises(EventLoopException, match="out of memory"):
        made("refund")
    assert states(guard) == {State.UNDELIVERED: 1}
    again = agent([paying(world)], [ask()])
    with guard.run(made.session_id):
        again("refund")
    assert again.model.told == ["done: o9"]
    assert states(guard) == {State.COMPLETED: 1}
    assert world.effects == ["o9"]


def test_a_hook_that_insists_is_refused_each_time(guarded: Install) -> None:
    guarded()
    world, insisted = World(), []

    def again(event: AfterToolCallEvent) -> None:
        insisted.append(event.result["content"][0]["text"])
        event.retry = len(insisted) < 4

    made = agent([failing(world)], [ask()])
    made.hooks.add_callback(AfterToolCallEvent, again)
    made("refund")
    assert world.effects == ["o9"]
    assert [text for text in insisted if "was not run" in text] == insisted[1:]


def test_turns_are_the_messages_of_the_session(guarded: Install) -> None:
    guard = guarded()
    made = agent([paying(World())], [ask()], [ask()])
    made("refund")
    turns = [
        message["tracking_id"]
        for message in made.messages
        if message["role"] == "assistant" and "toolUse" in message["content"][0]
    ]
    assert [entry.turn for entry in entries(guard, made)] == turns
    assert len(set(turns)) == 2


def test_structured_output_is_not_claimed(guarded: Install) -> None:
    from pydantic import BaseModel

    class Refund(BaseModel):
        order: str

    guard = guarded()
    made = agent([], [("Refund", {"order": "o9"})])
    assert made("refund", structured_output_model=Refund).structured_output == Refund(order="o9")
    assert states(guard) == {}


def test_a_result_that_is_handed_to_code_is_delivered_with_that(guarded: Install) -> None:
    guard, world = guarded(), World()
    made = agent([paying(world)])
    made.tool.refund(order="o9")
    [entry] = guard.ledger.by_action(made.session_id, "refund", action_digest({"order": "o9"}))
    guard.ledger.undeliver(entry)
    for _ in range(2):
        made.tool.refund(order="o9")
    assert world.effects == ["o9", "o9"]


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
