# SPDX-License-Identifier: Apache-2.0
"""A Celery task that runs an agent, with Celery's own retries, and how to keep them from what may have committed.

`autoretry_for` and `dont_autoretry_for` are classes, not questions; so a failure that must not be tried again becomes a
`ToolSpanCommitmentError`, which `dont_autoretry_for` names. The first failure stays as its cause.

Run it: GENAI_PROCESSOR_READ_ONLY_TOOLS=get_* python examples/celery_task.py
It needs: pip install celery
"""

from __future__ import annotations

from celery import Celery
from celery.contrib.testing.worker import start_worker
from opentelemetry.sdk.trace import TracerProvider

from genai_processor import GenAISpanProcessor, ToolSpanCommitmentError, is_safe_to_retry

provider = TracerProvider()
provider.add_span_processor(GenAISpanProcessor())  # in the process that runs the task: a prefork pool's child, say
tracer = provider.get_tracer("my_agent")

app = Celery("agents", broker="memory://", backend="cache+memory://")
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


@app.task(
    autoretry_for=(Exception,),
    dont_autoretry_for=(ToolSpanCommitmentError,),
    retry_kwargs={"max_retries": 2, "countdown": 0},
)
def answer(tool: str) -> None:
    """Run the agent; Celery does so again where that is safe."""
    try:
        run_agent(tool)
    except Exception as error:
        if is_safe_to_retry(error):
            raise
        raise ToolSpanCommitmentError(f"{error}; it may have committed: look before you run it again") from error


if __name__ == "__main__":
    with start_worker(app, perform_ping_check=False, pool="solo", loglevel="CRITICAL"):
        # A refund may have gone through. Reading an exchange rate changes nothing: it was declared so.
        for tool in ("create_refund", "get_rate"):
            runs = 0
            failure = answer.delay(tool).get(timeout=30, propagate=False)
            print(f"{tool}: {runs} run(s), then {type(failure).__name__}")
