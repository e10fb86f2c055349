# SPDX-License-Identifier: Apache-2.0
"""The retry library that you have, and the one line that lets it ask before it runs an agent again.

Run it: GENAI_PROCESSOR_READ_ONLY_TOOLS=get_* python examples/retry_libraries.py
It needs: pip install tenacity stamina backoff
"""

from __future__ import annotations

import backoff
import stamina
import tenacity
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from genai_processor import GenAISpanProcessor, is_safe_to_retry

provider = TracerProvider()
provider.add_span_processor(GenAISpanProcessor(SimpleSpanProcessor(InMemorySpanExporter())))  # or what you export with
tracer = provider.get_tracer("my_agent")
runs = 0


def run_agent(tool: str) -> None:
    """A run of an agent, as frameworks trace it, in which a tool does not answer."""
    global runs
    runs += 1
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.id": f"call_{runs}"}
    with (
        tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}),
        tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes),
    ):
        raise TimeoutError(f"{tool}: no answer")


LIBRARIES = {
    "tenacity": tenacity.retry(
        retry=tenacity.retry_if_exception(is_safe_to_retry),  # the line
        stop=tenacity.stop_after_attempt(3),
        reraise=True,
    ),
    "stamina": stamina.retry(
        on=is_safe_to_retry,  # the line
        attempts=3,
        wait_initial=0.01,
    ),
    "backoff": backoff.on_exception(
        backoff.constant,
        Exception,
        giveup=lambda error: not is_safe_to_retry(error),  # the line
        max_tries=3,
        interval=0,
    ),
}

# A refund may have gone through, whatever the error was. Reading an exchange rate changes nothing: it was declared so.
for name, retrying in LIBRARIES.items():
    for tool in ("create_refund", "get_rate"):
        runs = 0
        try:
            retrying(run_agent)(tool)
        except TimeoutError:
            print(f"{name}: {tool}: {runs} run(s)")
