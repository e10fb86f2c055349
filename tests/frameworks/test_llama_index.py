# SPDX-License-Identifier: Apache-2.0
"""The guard in front of LlamaIndex, on real agents with scripted models."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from support.hooked import entries, hooked, installing_tests, states
from support.incidents import incident_tests, refusal
from support.telling import released_intent, telling_tests, turns_of

from benchmarks.incidents import llama_index as stories
from benchmarks.incidents import scripts
from benchmarks.incidents.kit import World
from benchmarks.incidents.llama_index import agent, refund_that_fails, refund_that_works, run
from benchmarks.incidents.scripts import AGAIN, FIRST, ORDER, SECOND, THIRD, once
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks import llama_index as hooks_of_llama_index
from genai_processor.guard.hooks.llama_index import HOOK

BEFORE_0_14 = not hooks_of_llama_index._waiting()
"""Its workflows wrap what a step raises, wait in place, and lose the context of a sync tool."""

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(stories.INCIDENTS)
test_a_success_is_completed_and_the_turn_is_noted, test_the_latest_guard_is_asked_and_only_it = telling_tests(stories)


def told(made: Any) -> list[str]:
    """The texts of all results that the model has been told, in order."""
    return [message.content for message in made.llm.seen[-1] if message.role.value == "tool"]


@pytest.mark.parametrize("sync", [False, True])
def test_the_model_is_told_in_our_words_and_nothing_asks_it_to_try_again(sync: bool) -> None:
    world = World()
    made = agent(AGAIN, refund_that_fails(world, sync))
    with hooked() as guard, guard.run("o1"):
        assert run(made) == "done"
    (entry,) = entries(guard, "o1", "refund", **ORDER)
    assert entry.state.value == "quarantined"
    assert entry.reason == ("error_result" if BEFORE_0_14 else "ConnectionError")
    assert told(made)[1:] == [
        refusal(entry),
    ]


@pytest.mark.skipif(BEFORE_0_14, reason="its results do not tell what was raised")
def test_a_tool_may_say_that_it_did_nothing() -> None:
    def refund(order: str) -> str:
        """Refund an order."""
        raise LookupError("no such order")

    with hooked(not_started_on={"refund": (LookupError,)}) as guard, guard.run("o1"):
        run(agent(once(FIRST), refund))
    assert states(guard, "o1", "refund", **ORDER) == ["not_started"]


def test_a_refusal_lets_the_siblings_finish() -> None:
    world = World()
    turns = [
        [scripts.refund(FIRST)],
        [scripts.refund(SECOND), scripts.refund(THIRD, "o8")],
        "done",
    ]
    made = agent(turns, refund_that_fails(world))
    with hooked() as guard, guard.run("o1"):
        run(made)
        # The tool fails for each order's first time, but it was run.
        assert states(guard, "o1", "refund", order="o8") == ["quarantined"]
    assert world.effects == ["o1", "o8"]
    assert "502 Bad Gateway" in told(made)[-1]


def test_a_guard_that_raises_stops_the_run() -> None:
    world = World()
    with (
        hooked(on_refusal="raise") as guard,
        guard.run("o1"),
        pytest.raises(Exception, match="may have committed") as raised,
    ):
        run(agent(AGAIN, refund_that_fails(world)))
    assert BEFORE_0_14 or isinstance(raised.value, ToolSpanCommitmentError)
    assert world.effects == ["o1"]


def test_each_response_is_a_turn_of_its_own() -> None:
    first, second = turns_of(stories.later_turn)
    assert first != second


def test_the_memory_knows_the_conversation() -> None:
    memory = Memory.from_defaults(session_id="conversation-7")
    with hooked() as guard:
        run(agent(once(FIRST), refund_that_works(World())), memory=memory)
    assert states(guard, "conversation-7", "refund", **ORDER) == ["completed"]


@pytest.mark.parametrize("given", [{"ordr": "o1"}, {}, {"order": "o1", "more": 1}])
@pytest.mark.parametrize("sync", [False, True])
def test_arguments_that_do_not_fit_are_no_attempt(given: dict[str, Any], sync: bool) -> None:
    world = World()
    with hooked() as guard, guard.run("o1"):
        run(agent([[("toolu_a1", "refund", given)], "done"], refund_that_works(world, sync)))
    assert states(guard, "o1", "refund", **given) == ["not_started"]
    assert world.effects == []


def test_a_type_error_of_the_body_is_an_attempt() -> None:
    def refund(order: str) -> str:
        """Refund an order."""
        raise TypeError("refund() got an unexpected keyword argument 'order'")

    with hooked() as guard, guard.run("o1"):
        run(agent(once(FIRST), refund))
    assert states(guard, "o1", "refund", **ORDER) == ["quarantined"]


def test_a_function_that_is_not_the_one_that_runs_proves_nothing() -> None:
    """Its arguments fit the async function, which runs, and not the sync one."""
    world = World()

    async def arefund(**given: Any) -> str:
        return world.commit_then_fail(given["order"])

    tool = FunctionTool.from_defaults(fn=lambda other: "never", async_fn=arefund, name="refund")
    with hooked() as guard, guard.run("o1"):
        run(agent(AGAIN, tool))
    assert world.effects == ["o1"]
    assert states(guard, "o1", "refund", **ORDER) == ["quarantined"]


def test_what_a_tool_fills_in_itself_counts_as_given() -> None:
    world = World()

    def refund(order: str, cents: int) -> str:
        """Refund an order."""
        return world.commit_then_fail(order)

    tool = FunctionTool.from_defaults(refund, partial_params={"cents": 100})
    with hooked() as guard, guard.run("o1"):
        run(agent(AGAIN, tool))
    assert world.effects == ["o1"]
    assert states(guard, "o1", "refund", **ORDER) == ["quarantined"]


def test_an_approval_pauses_the_call() -> None:
    seen: list[list[str]] = []
    world = World()

    async def refund(ctx: Context, order: str) -> str:
        """Refund an order."""
        await ctx.wait_for_event(HumanResponseEvent, waiter_id="a", waiter_event=InputRequiredEvent(prefix="Refund it?"))
        return world.commit(order)

    refund.__annotations__["ctx"] = Context

    async def main() -> None:
        handler = agent(once(FIRST), refund).run(user_msg="Refund order o1")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                seen.append(states(guard, "o1", "refund", **ORDER))
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        await handler

    with hooked() as guard, guard.run("o1"):
        asyncio.run(main())
    assert seen == [["claimed" if BEFORE_0_14 else "paused"]]
    assert states(guard, "o1", "refund", **ORDER) == ["completed"]


def test_what_a_dead_run_has_paid_is_undelivered() -> None:
    world = World()
    turns = [[scripts.refund("call_9sd7a", "o9")], ConnectionError("the model is gone")]
    with hooked() as guard, guard.run("o1"):
        with pytest.raises(Exception, match="the model is gone"):
            run(agent(turns, refund_that_works(world)))
        assert states(guard, "o1", "refund", order="o9") == ["undelivered"]


def test_what_a_run_that_ends_well_has_paid_is_delivered() -> None:
    with hooked() as guard, guard.run("o1"):
        stories.later_turn(World())
        with pytest.raises(Exception, match="the model is gone"):
            run(agent([ConnectionError("the model is gone")], refund_that_works(World())))
    assert states(guard, "o1", "refund", **ORDER) == ["completed", "completed"]


def test_handing_over_is_not_claimed() -> None:
    with hooked() as guard, guard.run("o1"):
        stories.handed_over(World())
    assert guard.ledger.by_call("o1", "call_h1x") == ()


@pytest.mark.parametrize("sync", [False, True])
def test_the_body_gets_the_key_of_its_intent_and_a_released_retry_the_same(sync: bool) -> None:
    world = World()
    refund = refund_that_fails(world, sync)
    intent = released_intent(lambda call_id: run(agent(once(call_id), refund)))
    if not (sync and BEFORE_0_14):
        assert world.keys == [intent] * 2


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, stories.INCIDENTS)
