# SPDX-License-Identifier: Apache-2.0
"""Recorded pydantic-ai runs (tests/data) are replayed by real agents to the recorded end, model and tools booby-trapped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai import __version__ as VERSION
from pydantic_ai.models.function import FunctionModel
from support.recordings import Recorded, each
from support.traps import Trap

from genai_processor.replay import Operation, replaying

MINE = "pydantic-ai1" if VERSION.startswith("1.") else "pydantic-ai_"
FAILED = "502 Bad Gateway on response leg"


def agent(trap: Trap, name: str = "agent", **more: Any) -> Agent[Any, Any]:
    model = FunctionModel(lambda *_: trap.spring("the model"), stream_function=lambda *_: trap.spring("the stream"))
    made: Agent[Any, Any] = Agent(model, name=name, **more)

    @made.tool_plain
    async def create_refund(order_id: str, amount_cents: int) -> str:
        trap.spring("create_refund")

    @made.tool_plain
    async def search_docs(query: str) -> str:
        trap.spring("search_docs")

    @made.tool_plain
    async def get_rate(query: str) -> str:
        trap.spring("get_rate")

    return made


async def ended(running: Any) -> str:
    try:
        return str((await running).output)
    except Exception as error:  # noqa: BLE001 - whatever a run ends with
        return str(error) or type(error).__name__


@each(
    ("pydantic-ai__native-v5", "s02_commit_then_502", FAILED),
    ("pydantic-ai__native-v5", "s03_bad_json_args", "gave up"),
    ("pydantic-ai__native-v5", "s04_schema_invalid", "gave up"),
    ("pydantic-ai__native-v5", "s08b_fanout_one_fails", FAILED),
    ("pydantic-ai__native-v2", "s06_retry_new_id", "done"),
    ("pydantic-ai__native-v2", "s08_fanout", "synthesis of all three"),
    ("pydantic-ai__native-v2", "s10b_tool_failed", "sorry"),
    ("pydantic-ai__openinference", "s08_fanout", "synthesis of all three"),
    ("pydantic-ai__logfire", "s02_commit_then_502", FAILED),
    ("pydantic-ai1__native-default", "s06_retry_new_id", "done"),
    ("pydantic-ai1__native-default", "s08b_fanout_one_fails", FAILED),
)
def test_a_recorded_run_reaches_its_end(recorded: Recorded, trap: Trap) -> None:
    if not recorded.folder.startswith(MINE):
        pytest.skip("of another version")
    plan = recorded.plan
    with replaying(plan) as run:
        assert asyncio.run(ended(agent(trap).run(recorded.question))) == recorded.end
    assert {node.key for node in plan.nodes if node.operation is Operation.INFERENCE} <= run.answered


@each(("pydantic-ai__native-v5", "s09_timeout", "TimeoutError"))
def test_a_call_that_ran_into_a_deadline_runs_into_it_again(recorded: Recorded, trap: Trap) -> None:
    async def main() -> str:
        return await ended(asyncio.wait_for(agent(trap).run(recorded.question), 0.05))

    with replaying(recorded.plan):
        assert asyncio.run(main()) == recorded.end


@each(("pydantic-ai__openinference", "s16_stream", FAILED))
def test_a_recorded_stream_reaches_its_end(recorded: Recorded, trap: Trap) -> None:
    async def main() -> None:
        async with agent(trap).run_stream(recorded.question) as stream:
            await stream.get_output()

    with pytest.raises(RuntimeError, match=recorded.end), replaying(recorded.plan):
        asyncio.run(main())


@each(("pydantic-ai__openinference", "s12_subagent", FAILED))
@pytest.mark.parametrize("enter", [(), ("ask_refund_agent",), ("ask_*",)])
def test_an_agent_inside_a_tool_is_answered_whole_or_entered(recorded: Recorded, enter: Any, trap: Trap) -> None:
    entered: list[str] = []
    inner = agent(trap, "refund_agent")
    boss = Agent(FunctionModel(lambda *_: trap.spring("the model")), name="triage")

    @boss.tool_plain
    async def ask_refund_agent(request: str) -> str:
        entered.append(request)
        return str((await inner.run(request)).output)

    plan = recorded.plan
    with replaying(plan, enter=enter) as run:
        assert asyncio.run(ended(boss.run(recorded.question))) == recorded.end
    assert bool(entered) is bool(enter)
    assert len(run.answered) == (len(plan.nodes) if enter else 2)


@each(
    ("pydantic-ai__openinference", "s07_retry_same_id", "done"),
    ("pydantic-ai1__native-default", "s07_retry_same_id", "done"),
)
def test_a_run_that_was_resumed_from_its_history_is_replayed_with_it(recorded: Recorded, trap: Trap) -> None:
    """The first run fails in its tool, the second goes on from the history of the first: two traces, one call id."""
    if not recorded.folder.startswith(MINE):
        pytest.skip("of another version")
    mine = agent(trap, "a")

    async def main() -> str:
        async with mine.iter(recorded.question) as first:
            with pytest.raises(RuntimeError, match=FAILED):
                async for _ in first:
                    pass
        history = first.ctx.state.message_history[:2]  # up to the response that calls
        return await ended(mine.run(message_history=history))

    with replaying(recorded.plan) as run:
        assert asyncio.run(main()) == recorded.end
    assert run.not_reached == ()


@each(("pydantic-ai__native-v5", "s13_approval_required", "create_refund"))
def test_a_call_that_waited_for_approval_waits_again(recorded: Recorded, trap: Trap) -> None:
    mine = agent(trap, output_type=[str, DeferredToolRequests])
    with replaying(recorded.plan):
        found = asyncio.run(mine.run(recorded.question)).output
    assert isinstance(found, DeferredToolRequests)
    assert [call.tool_name for call in found.approvals] == [recorded.end]
