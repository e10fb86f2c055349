# SPDX-License-Identifier: Apache-2.0
"""A real agent of the OpenAI Agents SDK on the record, its model and its tools booby-trapped."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, RunConfig, Runner, function_tool
from support.plans import Making, answered, calls, failure, one_call, retrievals, says, user
from support.trapped_openai_agents import TrappedModel
from support.traps import Trap

from genai_processor.errors import ReplayDivergence
from genai_processor.replay.block import replaying
from genai_processor.replay.records import Ending

pytestmark = pytest.mark.usefixtures("untraced")


def agent(trap: Trap, **of_tool: Any) -> Agent[Any]:
    async def search(query: str) -> str:
        """Look it up."""
        trap.spring("search")

    return Agent("a", model=TrappedModel(trap), tools=[function_tool(search, **of_tool)])


def test_the_recorded_end_is_reached_and_nothing_of_the_users_runs(trap: Trap) -> None:
    plan = retrievals().plan()
    with replaying(plan) as run:
        result = asyncio.run(Runner.run(agent(trap), "compare them"))
    assert result.final_output == "the answer"
    assert run.not_reached == ()
    with replaying(plan):
        config = RunConfig(model=TrappedModel(trap))
        assert asyncio.run(Runner.run(agent(trap), "compare them", run_config=config)).final_output == "the answer"


def test_a_stream_is_answered(trap: Trap) -> None:
    async def main() -> Any:
        result = Runner.run_streamed(agent(trap), "compare them")
        async for _ in result.stream_events():
            pass
        return result.final_output

    with replaying(retrievals().plan()):
        assert asyncio.run(main()) == "the answer"


def test_a_model_that_is_named_only_needs_no_key(trap: Trap) -> None:
    mine = agent(trap)
    mine.model = "gpt-some"
    with replaying(retrievals().plan()):
        assert asyncio.run(Runner.run(mine, "compare them")).final_output == "the answer"


def test_no_framework_swallows_a_stop(trap: Trap) -> None:
    made = Making()
    made.chat("01" * 8, [user("u")], [calls("search", {"query": "q"}, "c1")])
    with (
        pytest.raises(Exception, match="recorded nowhere"),
        replaying(made.plan()),
        contextlib.suppress(BaseException),
    ):  # as badly as it gets
        asyncio.run(Runner.run(agent(trap), "u"))


def test_a_stop_in_a_stream_is_not_swallowed(trap: Trap) -> None:
    async def main() -> None:
        result = Runner.run_streamed(agent(trap), "another question")
        async for _ in result.stream_events():
            pass

    with pytest.raises(ReplayDivergence), replaying(retrievals().plan()):
        asyncio.run(main())


def test_a_recorded_failure_is_worded_by_the_framework(trap: Trap) -> None:
    worded = "An error occurred while running the tool. Please try again."
    with replaying(one_call("u", failure("acme.BadGateway", "502"), worded).plan()):
        assert asyncio.run(Runner.run(agent(trap), "u")).final_output == "end"
    with pytest.raises(Exception, match="502"), replaying(one_call("u", failure("acme.BadGateway", "502"), worded).plan()):
        asyncio.run(Runner.run(agent(trap, failure_error_function=None), "u"))


def test_a_cancelled_call_waits_until_the_framework_cancels_it(trap: Trap) -> None:
    made = retrievals()
    made.nodes[1] = made.nodes[1]._replace(outcome=failure("RuntimeError", "down"))
    made.nodes[2] = made.nodes[2]._replace(outcome=failure("asyncio.CancelledError", "", Ending.WAITS))
    with pytest.raises(Exception, match="down"), replaying(made.plan()):
        asyncio.run(Runner.run(agent(trap, failure_error_function=None), "compare them"))


def test_equal_calls_get_the_answers_of_their_own_proposals_in_any_order_of_arrival(trap: Trap) -> None:
    made = Making()
    twins = [calls("search", {"query": "same"}, call_id) for call_id in ("x", "y")]
    made.chat("01" * 8, [user("u")], twins)
    made.tool("05" * 8, twins[0], "first")
    made.tool("04" * 8, twins[1], "second")
    answers = [answered(twins[0], "first"), answered(twins[1], "second")]
    made.chat("06" * 8, [user("u"), *twins, *answers], [says("end")])
    with replaying(made.plan()):
        assert asyncio.run(Runner.run(agent(trap), "u")).final_output == "end"


def test_an_agent_inside_a_tool_is_answered_where_its_tool_is_entered(trap: Trap) -> None:
    made = Making()
    call = calls("expert", '{"input":"why"}', "c")
    made.chat("01" * 8, [user("u")], [call])
    tool = made.tool("02" * 8, call, "because", composite=True)
    made.chat("04" * 8, [user("u"), call, answered(call, "because")], [says("so")])
    made.chat("03" * 8, [user("why")], [says("because")], agent=tool.key, covered_by=tool.key)
    expert = agent(trap).as_tool("expert", "knows")
    mine = Agent("boss", model=TrappedModel(trap), tools=[expert])
    with replaying(made.plan()) as run:
        assert asyncio.run(Runner.run(mine, "u")).final_output == "so"
    assert made.nodes[3].key not in run.answered
    with replaying(made.plan(), enter=("expert",)) as run:
        assert asyncio.run(Runner.run(mine, "u")).final_output == "so"
    assert run.answered == {node.key for node in made.nodes}
