# SPDX-License-Identifier: Apache-2.0
"""The guard in front of pydantic-ai."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import ModelRetry
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from support.hooked import installing_tests
from support.incidents import Install, did_nothing_first, incident_tests, keeps_keys, refusal, release

from benchmarks.incidents.bodies import loses, only_o9_works
from benchmarks.incidents.kit import World
from benchmarks.incidents.pydantic_ai import INCIDENTS, agent, scripted
from benchmarks.incidents.scripts import AGAIN, FIRST, SECOND, both, once, refund
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks.pydantic_ai import HOOK
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def test_the_model_is_told_and_the_other_calls_finish(guarded: Install) -> None:
    guard, world = guarded(), World()

    def pay(order: str) -> str:
        if order != "o1" or "o1" not in world.effects:
            return loses(world, ModelRetry)(order) if order == "o1" else world.commit(order)
        raise AssertionError("it ran twice")

    turns = ([refund("toolu_a1")], [refund("toolu_b2"), refund("toolu_c3", "o2")])
    result = agent(scripted(*turns), pay).run_sync("go", conversation_id="c1")
    [entry] = guard.ledger.pending().entries
    told = [text for text in returned(result.all_messages()) if "was not run" in text]
    assert told == [refusal(entry)]
    assert world.effects == ["o1", "o2"]


def test_a_run_can_be_stopped_instead(guarded: Install) -> None:
    guarded(on_refusal="raise")
    with pytest.raises(ToolSpanCommitmentError) as caught:
        agent(scripted(*AGAIN), loses(World(), ModelRetry)).run_sync("go", conversation_id="c1")
    assert (caught.value.tool, caught.value.call_id, caught.value.reason) == ("refund", "toolu_b2", "action_quarantined")


def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install) -> None:
    guard, keys = guarded(), list[str | None]()
    for call_id in (FIRST, SECOND):
        with pytest.raises(ConnectionError):
            agent(scripted(*once(call_id)), keeps_keys(keys)).run_sync("go", conversation_id="c1")
        entry = release(guard)
    assert keys == [entry.intent] * 2


def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
    guard, world = guarded(), World()
    agent(scripted(*AGAIN), did_nothing_first(world, ModelRetry)).run_sync("go", conversation_id="c1")
    assert world.effects == ["o1"]
    assert guard.ledger.counts()[State.NOT_STARTED] == 1


def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
    guard, world = guarded(), World()

    def run(name: str) -> Any:
        return agent(scripted(both(name)), only_o9_works(world)).run_sync("go", conversation_id="c1")

    with pytest.raises(ConnectionError):
        run("a1")
    assert guard.ledger.counts()[State.UNDELIVERED] == 1
    assert "done: o9" in returned(run("b2").all_messages())
    assert guard.ledger.counts()[State.UNDELIVERED] == 0
    assert world.effects == ["o9", "oX"]


def test_read_only_and_idempotent_tools(guarded: Install) -> None:
    from genai_processor import Policy

    guarded(policy=Policy(read_only="refund"))
    world = World()
    agent(scripted(*AGAIN), loses(world, ModelRetry)).run_sync("go", conversation_id="c1")
    assert len(world.effects) == 2


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
