# SPDX-License-Identifier: Apache-2.0
"""A recorded run of an agent is run again from its record: no model is asked, no tool runs, and what differs is found.

Run it: python examples/replay_run.py
It needs: pip install pydantic-ai-slim
"""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from genai_processor.replay import ReplayDivergence, replaying

refunds = 0


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for a refund, and then says what came of it."""
    results = [part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if results:
        return ModelResponse(parts=[TextPart(f"Done: {results[0]}")])
    return ModelResponse(parts=[ToolCallPart("refund", {"order": "1042"}, tool_call_id="call_7Xq2")])


exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
agent = Agent(FunctionModel(model))


@agent.tool_plain
def refund(order: str) -> str:
    """Pay money back."""
    global refunds
    refunds += 1
    return f"refund {refunds} of order {order}"


print("live:    ", agent.run_sync("Refund order 1042.").output)
record = exporter.get_finished_spans()

with replaying(record):
    print("replayed:", agent.run_sync("Refund order 1042.").output)

try:
    with replaying(record):
        agent.run_sync("Refund order 2048.")
except ReplayDivergence as divergence:
    print("diverged:", divergence.where)
    print(divergence.difference)

print("refunds: ", refunds)
