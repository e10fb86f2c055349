# SPDX-License-Identifier: Apache-2.0
"""The guard in front of AutoGen's agentchat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("autogen_agentchat")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Handoff
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.tools import BaseStreamTool, BaseTool, FunctionTool
from pydantic import BaseModel
from support.hooked import installing_tests
from support.incidents import Install, incident_tests, paying_tests, refusal, states

from benchmarks.incidents import autogen as stories
from benchmarks.incidents.autogen import INCIDENTS, Scripted, agent, late, run
from benchmarks.incidents.bodies import pays, pays_in_thread
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import AGAIN, FIRST, once, refund
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.context import idempotency_key
from genai_processor.guard.hooks.autogen import HOOK
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)
(
    test_the_body_has_the_key_of_its_intent_which_a_released_attempt_keeps,
    test_a_tool_that_did_nothing_may_be_called_again,
    test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered,
) = paying_tests(stories)


class Order(BaseModel):
    order: str


class Paid(BaseModel):
    text: str


class Own(BaseTool[Order, Paid]):
    """A tool that is no function."""

    def __init__(self, world: World) -> None:
        super().__init__(Order, Paid, "refund", "Pays.")
        self.world = world

    async def run(self, args: Order, cancellation_token: CancellationToken) -> Paid:
        return Paid(text=self.world.commit_then_fail(args.order))


class OwnStream(BaseStreamTool[Order, Paid, Paid]):
    """A tool that tells of itself step by step."""

    def __init__(self, world: World, fails: bool = True) -> None:
        super().__init__(Order, Paid, "refund", "Pays.")
        self.world = world
        self.fails = fails

    async def run(self, args: Order, cancellation_token: CancellationToken) -> Paid:
        raise AssertionError

    async def run_stream(self, args: Order, cancellation_token: CancellationToken) -> AsyncGenerator[Paid, None]:
        yield Paid(text=self.world.commit(args.order))
        if self.fails:
            raise ConnectionError("502 Bad Gateway")


def test_the_model_is_told_and_the_other_calls_finish(guarded: Install) -> None:
    guard, world = guarded(), World()
    model = Scripted([refund("c1")], [refund("c2"), refund("c3", "o2")], "done")
    run(world, agent(model, pays(world, once=True)))
    [entry] = guard.ledger.pending().entries
    assert model.heard == [
        "502 Bad Gateway",
        refusal(entry),
        "done: o2",
    ]
    assert world.effects == ["o1", "o2"]
    assert states(guard) == {State.QUARANTINED: 1, State.COMPLETED: 1}
    assert (entry.scope, entry.call_id, entry.reason) == ("conversation-1", "c1", "ConnectionError")


def test_a_run_can_be_stopped_instead_when_the_other_calls_have_finished(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    one = agent(Scripted([refund("c1")], [refund("c2"), refund("c3", "o2")], "done"), pays(world, once=True))
    with pytest.raises(ToolSpanCommitmentError) as caught:
        run(world, one)
    assert (caught.value.tool, caught.value.call_id, caught.value.reason) == ("refund", "c2", "action_quarantined")
    assert world.effects == ["o1", "o2"]


def test_a_run_is_not_stopped_before_an_agent_that_is_a_tool_has_finished(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    pay = pays(world)

    async def refund_slowly(order: str) -> Any:
        for _ in range(100):
            await asyncio.sleep(0)  # whoever listens has all the time to stop
        return await pay(order)

    payer = AssistantAgent(
        "payer",
        Scripted([refund("m1", "o2")], [refund("m2", "o3")], "done"),
        description="Pays.",
        tools=[FunctionTool(refund_slowly, description="Pays.", name="refund")],
        max_tool_iterations=5,
    )
    turns = [refund("c1")], [refund("c2"), ("d1", "payer", {"task": "refund the others"})], "done"
    with pytest.raises(ToolSpanCommitmentError):
        run(world, agent(Scripted(*turns), pays(world, once=True), AgentTool(payer)))
    assert world.effects == ["o1", "o2", "o3"]


def test_a_team_can_be_stopped(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    team = RoundRobinGroupChat([agent(Scripted(*AGAIN), pays(world, once=True))], max_turns=1)
    with world.scope("conversation-1"), pytest.raises(RuntimeError, match="refund was not run"):
        asyncio.run(asyncio.wait_for(team.run(task="refund o1"), 20))


def test_twins_have_keys_of_their_own_in_threads_too(guarded: Install) -> None:
    guarded()
    world = World()
    run(world, agent(Scripted([refund("c1"), refund("c2")], "done"), pays_in_thread(world)))
    assert len(set(world.keys)) == 2
    assert None not in world.keys


@pytest.mark.parametrize("kind", [Own, OwnStream])
def test_tools_that_are_no_functions_are_guarded_too(kind: Any, guarded: Install) -> None:
    guard, world = guarded(), World()
    model = Scripted(*AGAIN)
    run(world, agent(model, kind(world)))
    assert world.effects == ["o1"]
    assert world.keys != [None]
    assert model.heard[0] == "502 Bad Gateway"
    assert model.heard[1].startswith("refund was not run: an earlier attempt at the same action may have committed.")
    assert states(guard) == {State.QUARANTINED: 1}


def test_a_streaming_tool_ends_well(guarded: Install) -> None:
    guard, world = guarded(), World()
    model = Scripted(*once(FIRST))
    run(world, agent(model, OwnStream(world, fails=False)))
    assert model.heard == ['{"text": "done: o1"}']
    assert states(guard) == {State.COMPLETED: 1}


def test_arguments_that_do_not_fit_are_not_claimed(guarded: Install) -> None:
    guard = guarded()

    def refund(cents: int) -> str:
        raise AssertionError

    model = Scripted([("c1", "refund", {"cents": "many"})], "done")
    run(World(), agent(model, refund))
    assert "valid integer" in model.heard[0]
    assert states(guard) == {}


def test_a_handoff_is_no_action_and_may_be_repeated(guarded: Install) -> None:
    guard = guarded()
    script = [("c1", "transfer_to_ann", dict[str, Any]())]
    one = AssistantAgent("refunder", Scripted(script, script, "done"), handoffs=[Handoff(target="ann")])
    run(World(), one, one)
    assert states(guard) == {}


def test_what_a_task_returns_to_a_run_that_was_given_up_is_undelivered(guarded: Install) -> None:
    guard, world = guarded(), World()
    late(world)
    assert world.effects == ["o1"]
    assert states(guard) == {State.UNDELIVERED: 1}


def test_without_a_conversation_the_application_is_told_so_once(guarded: Install, caplog: pytest.LogCaptureFixture) -> None:
    guarded()
    for call_id in ("c1", "c2"):
        one = agent(Scripted([refund(call_id)], "done"), pays(World()))
        asyncio.run(one.run(task="refund o1"))
    assert caplog.text.count("The calls of AutoGen have no conversation") == 1


def test_keys_do_not_outlive_their_calls(guarded: Install) -> None:
    guarded()

    async def story() -> None:
        async for _ in agent(Scripted(*once(FIRST)), pays(World())).run_stream(task="refund o1"):
            assert idempotency_key() is None

    asyncio.run(story())


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
