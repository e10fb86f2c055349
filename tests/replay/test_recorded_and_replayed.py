# SPDX-License-Identifier: Apache-2.0
"""From the spans of a real run to its replay: recorded by the framework's own instrumentation, planned, run again."""

from __future__ import annotations

import asyncio
import random
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

from pydantic_ai import Agent, InstrumentationSettings, ModelRetry
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
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings: Any = InstrumentationSettings(tracer_provider=provider, version=version)  # type: ignore[arg-type]
    Agent.instrument_all(settings)
    try:
        assert agent(World()).run_sync("compare them").output == "the answer"
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
