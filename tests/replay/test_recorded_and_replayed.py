# SPDX-License-Identifier: Apache-2.0
"""From the spans of a real run to its replay: recorded by the framework's own instrumentation, planned, run again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.traps import Trap

from genai_processor.errors import ReplayDivergence
from genai_processor.replay import Plan, plan, replay, replaying
from genai_processor.spans.otlp_protobuf import ProtobufSpans
from genai_processor.spans.records import Span

pytest.importorskip("pydantic_ai")

from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    InstrumentationSettings,
    ModelRetry,
    RunContext,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


class World:
    """What the tools of a run reach; a trap in a replay."""

    def __init__(self, trap: Trap | None = None) -> None:
        self.trap = trap
        self.results = {"q0": "zero", "q1": {"chunks": [1, 2]}, "q2": "two"}

    async def search(self, query: str) -> Any:
        if self.trap is not None:
            self.trap.spring("search")
        for _ in range(random.randrange(5)):
            await asyncio.sleep(0)
        if query == "bad":
            raise ModelRetry("no such index")
        return self.results[query]


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask badly, then three at once, then answer."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("search", {"query": "bad"})])
    if len(messages) == 3:
        return ModelResponse(parts=[ToolCallPart("search", f'{{"query": "q{n}"}}') for n in range(3)])
    return ModelResponse(parts=[TextPart("the answer")])


def agent(world: World, model: Any = script) -> Agent[None, str]:
    return Agent(FunctionModel(model), tools=[world.search], instructions="be brief")


def recorded(version: int) -> list[Span]:
    def run() -> None:
        assert agent(World()).run_sync("compare them").output == "the answer"

    return recording(run, version)


def recording(run: Callable[[], object], version: int = 5) -> list[Span]:
    """What the framework's own instrumentation says of a run."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings: Any = InstrumentationSettings(tracer_provider=provider, version=version)  # type: ignore[arg-type]
    Agent.instrument_all(settings)
    try:
        run()
    finally:
        Agent.instrument_all(False)
    return list(ProtobufSpans(pytest.fail).read(encode_spans(exporter.get_finished_spans()).SerializeToString()))


def trapped(trap: Trap) -> Agent[None, str]:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        trap.spring("the model")

    return agent(World(trap), model)


@pytest.mark.parametrize("version", [2, 5, 6])
def test_a_recorded_run_is_replayed_to_its_end(trap: Trap, version: int) -> None:
    spans = recorded(version)
    random.shuffle(spans)
    with replaying(spans) as run:
        assert trapped(trap).run_sync("compare them").output == "the answer"
    assert run.not_reached == ()
    assert len(run.answered) == 7


def test_its_plan_replays_against_itself() -> None:
    planned: Plan = plan(recorded(5), recompute=("chat",))
    result = replay(planned, {"chat": lambda run: run.node.outcome})
    assert not result.diverged
    assert set(result.outcomes) == {node.key for node in planned.nodes}


def test_other_instructions_are_found(trap: Trap) -> None:
    spans = recorded(5)
    mine = Agent(FunctionModel(lambda *_: trap.spring("the model")), tools=[World(trap).search], instructions="be long")
    with pytest.raises(ReplayDivergence, match="system instructions"), replaying(spans):
        mine.run_sync("compare them")


def test_a_live_model_is_answered_by_recorded_tools(trap: Trap) -> None:
    with replaying(recorded(5), models="live") as run:
        assert agent(World(trap)).run_sync("compare them").output == "the answer"
    assert len(run.answered) == 7


class Approving:
    """Pays after an approval, once the framework or the tool itself has asked for it, and says what came of it."""

    def __init__(self, trap: Trap | None, asks: str, fails: bool = False) -> None:
        self.trap = trap
        self.fails = fails
        model = FunctionModel(self._model)
        self.agent: Agent[Any, Any] = Agent(model, output_type=[str, DeferredToolRequests])
        if asks == "framework":
            self.agent.tool_plain(self.pay, requires_approval=True)
        else:
            self.agent.tool(self.ask_and_pay, name="pay")

    def _model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if self.trap is not None:
            self.trap.spring("the model")
        if len(messages) == 1:
            calls = [ToolCallPart("pay", {"order": str(n)}, tool_call_id="pay_" * n) for n in (1, 2)]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("paid")])

    async def pay(self, order: str) -> str:
        if self.trap is not None:
            self.trap.spring("pay")
        if self.fails:
            raise RuntimeError("502")
        return f"paid {order}"

    async def ask_and_pay(self, context: RunContext[Any], order: str) -> str:
        if self.trap is None and not context.tool_call_approved:
            raise ApprovalRequired
        return await self.pay(order)

    def run(self, *approved: bool) -> str:
        first = self.agent.run_sync("pay both")
        assert [call.tool_call_id for call in first.output.approvals] == ["pay_", "pay_pay_"]
        results = DeferredToolResults(approvals=dict(zip(("pay_", "pay_pay_"), approved, strict=True)))
        history = first.all_messages()
        return str(self.agent.run_sync(message_history=history, deferred_tool_results=results).output)


@pytest.mark.parametrize("asks", ["framework", "tool"])
@pytest.mark.parametrize("approved", [(True, True), (True, False), (False, False)])
def test_approved_and_denied_calls_go_on_from_the_history(asks: str, approved: tuple[bool, bool], trap: Trap) -> None:
    live = Approving(None, asks)
    spans = recording(lambda: live.run(*approved))
    with replaying(spans) as run:
        assert Approving(trap, asks).run(*approved) == "paid"
    assert run.not_reached == ()


@pytest.mark.parametrize("asks", ["framework", "tool"])
def test_an_approved_call_that_failed_fails_again(asks: str, trap: Trap) -> None:
    def fail() -> None:
        with pytest.raises(RuntimeError, match="502"):
            Approving(None, asks, fails=True).run(True, False)

    spans = recording(fail)
    with replaying(spans), pytest.raises(RuntimeError, match="502"):
        Approving(trap, asks).run(True, False)


def test_another_decision_than_the_recorded_one_is_found(trap: Trap) -> None:
    live = Approving(None, "tool")
    spans = recording(lambda: live.run(True, False))
    with pytest.raises(ReplayDivergence) as caught, replaying(spans):
        Approving(trap, "tool").run(True, True)
    assert caught.value.where in ("call", "input")
