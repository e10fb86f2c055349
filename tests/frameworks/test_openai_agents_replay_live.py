# SPDX-License-Identifier: Apache-2.0
"""Models of the OpenAI Agents SDK live, compared with the record; agents beside the run; tools that no record holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    ModelResponse,
    Runner,
    function_tool,
)
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from support.plans import Making, answered, calls, retrievals, says, user
from support.trapped_openai_agents import TrappedModel
from support.traps import Trap

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay import replaying

pytestmark = pytest.mark.usefixtures("untraced")


def text(content: str) -> Any:
    part = ResponseOutputText(annotations=[], text=content, type="output_text")
    return ResponseOutputMessage(id="m", content=[part], role="assistant", status="completed", type="message")


class LiveModel(Model):
    """Calls three times at once, and then says what it is told to."""

    def __init__(self, said: str, query: str = "q") -> None:
        self.said = said
        self.query = query

    def output(self, given: Any) -> list[Any]:
        if len(given) > 1 and not isinstance(given, str):
            return [text(self.said)]
        arguments = [f'{{"query": "{self.query}{n}"}}' for n in range(3)]
        return [
            ResponseFunctionToolCall(arguments=one, call_id=f"live_{n}", name="search", type="function_call")
            for n, one in enumerate(arguments)
        ]

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        return ModelResponse(output=self.output(input), usage=Usage(), response_id=None)

    async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for piece in ("a", "b"):
            yield ResponseTextDeltaEvent(
                content_index=0, delta=piece, item_id="m", output_index=0, sequence_number=0, logprobs=[],
                type="response.output_text.delta",
            )  # fmt: skip
        whole = Response(
            id="r", created_at=0, model="live", object="response", output=self.output(input), parallel_tool_calls=True,
            tool_choice="auto", tools=[],
        )  # fmt: skip
        yield ResponseCompletedEvent(response=whole, sequence_number=0, type="response.completed")


def agent(trap: Trap, model: Any, **more: Any) -> Agent[Any]:
    async def search(query: str) -> str:
        """Look it up."""
        trap.spring("search")

    return Agent("a", model=model, tools=[function_tool(search)], **more)


async def streamed(mine: Agent[Any]) -> tuple[list[str], Any]:
    result = Runner.run_streamed(mine, "compare them")
    found = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    return found, result.final_output


def test_a_live_model_is_compared_and_its_tools_are_answered(trap: Trap) -> None:
    plan = retrievals().plan()
    with replaying(plan, models="live") as run:
        mine = agent(trap, LiveModel("the answer"))
        assert asyncio.run(Runner.run(mine, "compare them")).final_output == "the answer"
    assert run.answered == {node.key for node in plan.nodes}
    with replaying(plan, models="live"):
        assert asyncio.run(streamed(agent(trap, LiveModel("the answer")))) == (["a", "b"] * 2, "the answer")


@pytest.mark.parametrize("stream", [False, True])
def test_a_live_model_that_says_something_else_stops_at_its_node(stream: bool, trap: Trap) -> None:
    plan = retrievals().plan()
    for model, node in ((LiveModel("the answer", "other"), plan.nodes[0]), (LiveModel("no"), plan.nodes[-1])):
        mine = agent(trap, model)
        with pytest.raises(ReplayDivergence) as caught, replaying(plan, models="live"):
            asyncio.run(streamed(mine) if stream else Runner.run(mine, "compare them"))  # type: ignore[arg-type]
        assert (caught.value.node, caught.value.where) == (node.key, "output")
        assert caught.value.difference


def test_an_agent_in_a_guardrail_is_answered_beside_the_run(trap: Trap) -> None:
    made = retrievals()
    made.chat("77" * 8, [user("is it fine? compare them")], [says("yes")])
    judge = Agent("judge", model=TrappedModel(trap))

    async def guard(context: Any, asking: Any, given: Any) -> GuardrailFunctionOutput:
        said = (await Runner.run(judge, f"is it fine? {given}")).final_output
        return GuardrailFunctionOutput(said, tripwire_triggered=said != "yes")

    with replaying(made.plan()) as run:
        mine = agent(trap, TrappedModel(trap), input_guardrails=[InputGuardrail(guard)])
        assert asyncio.run(Runner.run(mine, "compare them")).final_output == "the answer"
    assert run.answered == {node.key for node in made.nodes}


def test_two_runs_at_once_with_the_same_ids_are_two_runs(trap: Trap) -> None:
    made = Making()
    for n in range(2):
        call = calls("search", {"query": "same"}, "call_1")
        other = Making()
        history = [user(f"question {n}"), call, answered(call, f"found {n}")]
        other.chat(f"{n + 1:02x}" * 8, history[:1], [call])
        other.tool(f"{n + 3:02x}" * 8, call, f"found {n}")
        other.chat(f"{n + 5:02x}" * 8, history, [says(f"end {n}")])
        made.nodes += other.nodes
        made.decisions |= other.decisions
    mine = agent(trap, TrappedModel(trap))

    async def one(n: int, stream: bool) -> Any:
        if not stream:
            return (await Runner.run(mine, f"question {n}")).final_output
        result = Runner.run_streamed(mine, f"question {n}")
        async for _ in result.stream_events():
            pass
        return result.final_output

    async def both(stream: bool) -> list[Any]:
        return await asyncio.gather(one(0, stream), one(1, stream))

    for stream in (False, True):
        with replaying(made.plan()):
            assert asyncio.run(both(stream)) == ["end 0", "end 1"]


def test_tools_that_no_record_holds_stop_the_run() -> None:
    from agents.run_internal.tool_actions import ComputerAction, LocalShellAction

    for action in (ComputerAction, LocalShellAction):
        with pytest.raises(ReplayRefusedError, match="other than a function"), replaying(retrievals().plan()):
            asyncio.run(action.execute())  # type: ignore[call-arg]
