# SPDX-License-Identifier: Apache-2.0
"""Recorded runs of the OpenAI Agents SDK (tests/data) are replayed by real agents to the recorded end, booby-trapped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, Runner, RunState, function_tool
from support.recordings import Recorded, each
from support.trapped_openai_agents import TrappedModel
from support.traps import Trap

from genai_processor.replay import Operation, replaying

pytestmark = pytest.mark.usefixtures("untraced")

FAILED = "502 Bad Gateway on response leg"
OFFICIAL, OPENINFERENCE, TRACELOOP = (f"openai-agents__{name}" for name in ("genai-official", "openinference", "traceloop"))


def agent(trap: Trap, recorded: Recorded, name: str = "agent", said: str = "do it", **of_tools: Any) -> Agent[Any]:
    async def create_refund(order_id: str, amount_cents: int) -> str:
        trap.spring("create_refund")

    async def search_docs(query: str) -> str:
        trap.spring("search_docs")

    async def get_rate(query: str) -> str:
        trap.spring("get_rate")

    tools: list[Any] = [function_tool(one, **of_tools) for one in (create_refund, search_docs, get_rate)]
    instructions = said if recorded.folder == OFFICIAL else None  # which only that one records
    return Agent(name, model=TrappedModel(trap), instructions=instructions, tools=tools)


async def ended(running: Any) -> str:
    try:
        return str((await running).final_output)
    except Exception as error:  # noqa: BLE001 - whatever a run ends with
        return str(error)


@pytest.mark.parametrize("stream", [False, True])
@each(
    (OFFICIAL, "s03_bad_json_args", "gave up"),
    (OFFICIAL, "s04_schema_invalid", "gave up"),
    (OFFICIAL, "s08c_same_tool_twice", "done"),
    (OFFICIAL, "s10_swallowed", "sorry"),
    (OPENINFERENCE, "s01_ok", "done"),
    (OPENINFERENCE, "s06_retry_new_id", "done"),
    (TRACELOOP, "s04_schema_invalid", "gave up"),
    (TRACELOOP, "s07b_model_reuses_id", "done"),
)
def test_a_recorded_run_reaches_its_end(recorded: Recorded, stream: bool, trap: Trap) -> None:
    mine, plan = agent(trap, recorded), recorded.plan

    async def streamed() -> Any:
        result = Runner.run_streamed(mine, recorded.question)
        async for _ in result.stream_events():
            pass
        return result

    with replaying(plan) as run:
        running = streamed() if stream else Runner.run(mine, recorded.question)
        assert asyncio.run(ended(running)) == recorded.end
    assert run.not_reached == ()


@each(
    (OFFICIAL, "s03b_bad_json_args_raise", "Invalid JSON input for tool create_refund"),
    (OPENINFERENCE, "s08b_fanout_one_fails", FAILED),
    (TRACELOOP, "s08b_fanout_one_fails", FAILED),
    (TRACELOOP, "s02_commit_then_502", FAILED),
)
def test_a_failure_has_its_own_words_and_siblings_that_never_returned_are_cancelled_again(
    recorded: Recorded, trap: Trap
) -> None:
    mine = agent(trap, recorded, failure_error_function=None)
    with replaying(recorded.plan):
        assert asyncio.run(ended(Runner.run(mine, recorded.question))) == f"Error running tool create_refund: {recorded.end}"


@each((OFFICIAL, "s10_swallowed", "sorry"))
def test_a_failure_that_the_sdk_did_not_record_in_words_is_worded_as_it_was(recorded: Recorded, trap: Trap) -> None:
    def worded(context: Any, error: Exception) -> str:
        return f"it failed: {error}"

    with replaying(recorded.plan):
        mine = agent(trap, recorded, failure_error_function=worded)
        assert asyncio.run(ended(Runner.run(mine, recorded.question))) == recorded.end


@each((OFFICIAL, "s12_subagent", "sorry"), (OPENINFERENCE, "s12_subagent", "sorry"))
def test_a_handoff_is_made_again_by_the_framework_and_its_target_is_answered(recorded: Recorded, trap: Trap) -> None:
    refunder = agent(trap, recorded, "refund_agent", "x")
    triage = agent(trap, recorded, "triage")
    triage.tools, triage.handoffs = [], [refunder]
    plan = recorded.plan
    with replaying(plan) as run:
        assert asyncio.run(ended(Runner.run(triage, recorded.question))) == recorded.end
    assert run.not_reached == ()
    answered = {node.key for node in plan.nodes if node.operation is not Operation.HANDOFF}
    assert answered <= set(run.boundary.outcomes)


@each((OPENINFERENCE, "s12b_agent_as_tool", "sorry"), (TRACELOOP, "s12b_agent_as_tool", "sorry"))
def test_an_agent_as_a_tool_is_entered_also_where_spans_do_not_show_it_inside(recorded: Recorded, trap: Trap) -> None:
    refunder = agent(trap, recorded, "refund_agent", failure_error_function=None)
    boss = agent(trap, recorded, "triage")
    boss.tools = [refunder.as_tool("ask_refund_agent", "refunds")]
    plan = recorded.plan
    with replaying(plan, enter="ask_refund_agent") as run:
        assert asyncio.run(ended(Runner.run(boss, recorded.question))) == recorded.end
    assert run.answered == {node.key for node in plan.nodes}


@each(
    (OFFICIAL, "s13b_approval_rejected", "ok, not refunded"),
    (TRACELOOP, "s13b_approval_rejected", "ok, not refunded"),
)
@pytest.mark.parametrize("stored", [False, True])
def test_a_rejected_call_goes_on_in_its_second_trace(recorded: Recorded, stored: bool, trap: Trap) -> None:
    mine = agent(trap, recorded, needs_approval=True)

    async def main() -> str:
        result = await Runner.run(mine, recorded.question)
        state = result.to_state()
        if stored:
            state = await RunState.from_json(mine, state.to_json())
        for one in state.get_interruptions():
            state.reject(one)
        return await ended(Runner.run(mine, state))

    with replaying(recorded.plan):
        assert asyncio.run(main()) == recorded.end


@each((OFFICIAL, "s07_retry_same_id", "done"))
def test_an_approved_call_that_failed_and_was_run_again_is_answered_in_that_order(recorded: Recorded, trap: Trap) -> None:
    """Three traces: the model's call, whose tool waits; the tool that fails; the tool once more. The last two have no id."""
    mine = agent(trap, recorded, needs_approval=True, failure_error_function=None)

    async def main() -> list[str]:
        result = await Runner.run(mine, recorded.question)
        stored, ends = result.to_state().to_json(), []
        for _ in range(2):
            state = await RunState.from_json(mine, stored)
            for one in state.get_interruptions():
                state.approve(one)
            ends.append(await ended(Runner.run(mine, state)))
        return ends

    with replaying(recorded.plan):
        assert asyncio.run(main()) == [f"Error running tool create_refund: {FAILED}", recorded.end]
