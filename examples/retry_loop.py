# SPDX-License-Identifier: Apache-2.0
"""A plain retry loop that asks before it tries again.

Run it: GENAI_PROCESSOR_READ_ONLY_TOOLS=get_* python examples/retry_loop.py
"""

import json

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from genai_processor import GenAISpanProcessor, is_safe_to_retry

provider = TracerProvider()
provider.add_span_processor(GenAISpanProcessor(SimpleSpanProcessor(InMemorySpanExporter())))  # or what you export with
tracer = provider.get_tracer("my_agent")


def call_tool(tool: str, call_id: str, arguments: dict[str, object]) -> None:
    """What an agent framework does: it runs a tool inside a span. Whatever these tools ask does not answer."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    }
    with tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes):
        raise TimeoutError(f"{tool}: no answer")


def attempts(tool: str, arguments: dict[str, object]) -> int:
    """Try up to three times, as long as that is safe."""
    for attempt in range(1, 4):
        try:
            with tracer.start_as_current_span("run"):  # as agent frameworks do: what a run did stands in one trace
                call_tool(tool, f"call_{tool}_{attempt}", arguments)
        except TimeoutError as error:
            if not is_safe_to_retry(error):
                break
    return attempt


# A refund may have gone through, whatever the error was. Reading an exchange rate changes nothing: it was declared so.
print("create_refund:", attempts("create_refund", {"order": "1042", "amount_cents": 2500}), "attempt(s)")
print("get_rate:", attempts("get_rate", {"currency": "EUR"}), "attempt(s)")
