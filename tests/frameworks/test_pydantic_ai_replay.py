# SPDX-License-Identifier: Apache-2.0
"""A real pydantic-ai agent on the record, its model and its tools booby-trapped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai import __version__ as VERSION
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.plans import Making, answered, calls, failure, retrievals, says, user
from support.traps import Trap

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay.block import replaying
from genai_processor.replay.records import Ending

SYNTHESIS = "ff" * 8


def agent(trap: Trap, **more: Any) -> Agent[None, str]:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        trap.spring("the model")

    made = Agent(FunctionModel(model), **more)

    @made.tool_plain
    async def search(query: str, limit: int = 10) -> str:
        trap.spring("search")

    return made


def test_the_recorded_end_is_reached_and_nothing_of_the_users_runs(trap: Trap) -> None:
    plan = retrievals().plan()
    with replaying(plan) as run:
        result = agent(trap).run_sync("compare them")
    assert result.output == "the answer"
    assert run.answered == {node.key for node in plan.nodes}
    assert run.not_reached == ()
    assert set(run.boundary.outcomes) == run.answered


def test_an_overridden_model_is_not_asked_either(trap: Trap) -> None:
    mine = agent(trap)
    with replaying(retrievals().plan()), mine.override(model=mine.model):
        assert mine.run_sync("compare them").output == "the answer"


def test_a_stream_is_answered(trap: Trap) -> None:
    async def main() -> str:
        async with agent(trap).run_stream("compare them") as stream:
            return str(await stream.get_output())

    with replaying(retrievals().plan()):
        assert asyncio.run(main()) == "the answer"


def test_another_question_is_found_at_the_first_model_call(trap: Trap) -> None:
    plan = retrievals().plan()
    with pytest.raises(ReplayDivergence) as caught, replaying(plan):
        agent(trap).run_sync("compare these")
    assert (caught.value.node, caught.value.where) == (plan.nodes[0].key, "input")
    assert "'compare these'" in caught.value.difference


def test_a_prompt_that_is_permuted_on_the_way_is_found_at_the_node_that_would_get_it(trap: Trap) -> None:
    def swap(messages: list[ModelMessage]) -> list[ModelMessage]:
        if len(messages) == 3:
            one, two = messages[2].parts[:2]  # the framework itself puts results in the order of their calls
            one.content, two.content = two.content, one.content
        return messages

    from pydantic_ai.capabilities import ProcessHistory

    plan = retrievals().plan()
    mine = agent(trap, capabilities=[ProcessHistory(swap)])
    with pytest.raises(ReplayDivergence) as caught, replaying(plan):
        mine.run_sync("compare them")
    assert (caught.value.node, caught.value.where) == (plan.nodes[-1].key, "input")
    assert set(caught.value.last_valid_boundary.outcomes) == {node.key for node in plan.nodes[:-1]}


def test_no_framework_swallows_a_stop(trap: Trap) -> None:
    made = Making()
    made.chat("01" * 8, [user("u")], [calls("search", {"query": "q"}, "c1")])
    mine = agent(trap)
    with pytest.raises(ReplayRefusedError, match="recorded nowhere"), replaying(made.plan()):
        with contextlib.suppress(BaseException):  # as badly as it gets
            mine.run_sync("u")
        with contextlib.suppress(BaseException):  # and once more, which must not begin again
            mine.run_sync("u")
    with replaying(retrievals().plan(), raise_on_divergence=False) as run, contextlib.suppress(BaseException):
        mine.run_sync("v")
    assert isinstance(run.stopped, ReplayDivergence)


def test_a_run_that_ends_before_its_record_has_diverged(trap: Trap) -> None:
    made = Making()
    made.chat("01" * 8, [user("u")], [says("a")])
    made.chat("02" * 8, [user("u"), says("a"), user("more")], [says("b")])
    with pytest.raises(ReplayDivergence) as caught, replaying(made.plan()):
        agent(trap).run_sync("u")
    assert (caught.value.node, caught.value.where) == (made.nodes[1].key, "end")
    with replaying(made.plan(), whole=False):
        agent(trap).run_sync("u")


def test_a_recorded_retry_counts_as_one_for_the_framework(trap: Trap) -> None:
    made = Making()
    worded = "no such index" + ("\n\nFix the errors and try again." if VERSION.startswith("1.") else "")
    first, second = calls("search", {"query": "q"}, "c1"), calls("search", {"query": "r"}, "c2")
    made.chat("01" * 8, [user("u")], [first])
    made.tool("02" * 8, first, failure("pydantic_ai.exceptions.ToolRetryError", "no such index"))
    history = [user("u"), first, answered(first, worded)]
    made.chat("03" * 8, history, [second])
    made.tool("04" * 8, second, "found")
    made.chat("05" * 8, [*history, second, answered(second, "found")], [says("end")])
    with replaying(made.plan()):
        assert agent(trap).run_sync("u").output == "end"
    with pytest.raises(Exception, match="exceeded max retries"), replaying(made.plan()):
        agent(trap, retries=0).run_sync("u")


def test_a_cancelled_call_waits_until_the_framework_cancels_it(trap: Trap) -> None:
    made = retrievals()
    made.nodes[1] = made.nodes[1]._replace(outcome=failure("RuntimeError", "down"))
    made.nodes[2] = made.nodes[2]._replace(outcome=failure("asyncio.CancelledError", "", Ending.WAITS))
    made.nodes[3] = made.nodes[3]._replace(outcome=failure("asyncio.CancelledError", "", Ending.WAITS))
    with pytest.raises(RuntimeError, match="down"), replaying(made.plan()):
        agent(trap).run_sync("compare them")


def test_a_live_model_is_compared(trap: Trap) -> None:
    plan = retrievals().plan()
    asked: list[int] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        from pydantic_ai.messages import TextPart, ToolCallPart

        asked.append(len(messages))
        if len(messages) == 1:
            found = [ToolCallPart("search", {"query": f"q{n}"}, tool_call_id=f"new_{n}") for n in range(3)]
            return ModelResponse(parts=found)
        return ModelResponse(parts=[TextPart("the answer" if len(asked) == 2 else "another")])

    mine = agent(trap)
    with replaying(plan, models="live"):
        assert mine.run_sync("compare them", model=FunctionModel(model)).output == "the answer"
    assert asked == [1, 3]
    with pytest.raises(ReplayDivergence) as caught, replaying(plan, models="live"):
        mine.run_sync("compare them", model=FunctionModel(model))
    assert (caught.value.node, caught.value.where) == (plan.nodes[-1].key, "output")


def test_the_hooks_are_gone_after_the_block(trap: Trap) -> None:
    from pydantic_ai.tool_manager import ToolManager

    gc.collect()  # what the exceptions of other tests hold on to is left of a replay, too
    with replaying(retrievals().plan(), whole=False):
        pass
    before = vars(ToolManager)["_raw_execute"], vars(Agent)["iter"]
    with replaying(retrievals().plan()):
        assert vars(ToolManager)["_raw_execute"] is not before[0]
        agent(trap).run_sync("compare them")
    assert vars(ToolManager)["_raw_execute"] is before[0]
    assert vars(Agent)["iter"] is before[1]


def test_what_the_record_cannot_answer_is_refused_before_anything_runs(trap: Trap) -> None:
    made = retrievals()
    made.nodes[1] = made.nodes[1]._replace(outcome=made.nodes[1].outcome._replace(ending=Ending.UNKNOWN))
    with pytest.raises(ReplayRefusedError, match="search") as caught, replaying(made.plan()):
        trap.spring("the block")
    assert caught.value.nodes == (made.nodes[1].key,)
