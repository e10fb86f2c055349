# SPDX-License-Identifier: Apache-2.0
"""The processor in front of an exporter: what comes out at the other end carries the verdict.

Run it: python examples/explicit.py
"""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from genai_processor import GenAISpanProcessor

# Any exporter does: OTLPSpanExporter() instead of the console's is what an application would have here.
provider = TracerProvider()
provider.add_span_processor(GenAISpanProcessor(BatchSpanProcessor(ConsoleSpanExporter())))

# What an agent framework writes when a tool fails. Arguments are opt-in, and here nobody opted in.
tool_span = provider.get_tracer("my_agent").start_as_current_span(
    "execute_tool create_refund",
    attributes={
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "create_refund",
        "gen_ai.tool.call.id": "call_h2Fq9x",
    },
)
try:
    with tool_span:
        raise TimeoutError("no answer from the payment service")
except TimeoutError:
    pass

provider.shutdown()
