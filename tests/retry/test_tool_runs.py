# SPDX-License-Identifier: Apache-2.0
"""What a runtime raises only after it has ended the tool's span."""

from __future__ import annotations

import contextvars
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from support.agent_run import AgentRun

from genai_processor import Policy, is_safe_to_retry
from genai_processor.retry.tool_runs import TOOL_RUNS, ToolRun, body_begins


@pytest.fixture
def run() -> Iterator[AgentRun]:
    made = AgentRun(Policy(read_only=("get_*",)))
    yield made
    made.provider.shutdown()


def nothing() -> None:
    pass


def runtime(run: AgentRun, tool: str, error: Exception, *, body: Callable[[], None] = nothing, watched: bool = True) -> None:
    """Runs a tool as LangChain does: the span ends with a failure, and then the exception is raised."""
    if not watched:
        run.fail(tool, error=type(error).__name__)
        raise error
    with ToolRun():
        span = run.begin(
            f"execute_tool {tool}", attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        )
        body_begins()
        body()
        span.set_attribute("error.type", type(error).__name__)
        span.end()
        raise error


def test_what_is_raised_after_the_span_has_ended_is_known(run: AgentRun) -> None:
    for tool, safe in (("get_rate", True), ("refund", False)):
        error = ConnectionError(f"of {tool}")
        with run.agent(), suppress(ConnectionError):
            runtime(run, tool, error)
        assert is_safe_to_retry(error) is safe


def test_without_a_run_around_it_it_is_unknown(run: AgentRun) -> None:
    error = ConnectionError("unwatched")
    with run.agent(), suppress(ConnectionError):
        runtime(run, "get_rate", error, watched=False)
    assert not is_safe_to_retry(error)


def test_a_like_of_what_left_the_run_is_unknown(run: AgentRun) -> None:
    with run.agent(), suppress(ConnectionError):
        runtime(run, "get_rate", ConnectionError("lost"))
    assert not is_safe_to_retry(ConnectionError("lost"))


def test_what_a_body_handled_is_not_taken_for_what_ended_its_tool(run: AgentRun) -> None:
    """The call inside failed with an error of its own; what the body raised afterwards came after its own effect."""

    def body() -> None:
        with run.agent():
            run.fail("get_rate", error="ConnectionError")

    error = ConnectionError("the payment's")
    with run.agent(), suppress(ConnectionError), ToolRun():  # of a tool that nobody traces
        body_begins()
        body()
        raise error
    assert not is_safe_to_retry(error)


def test_a_run_inside_another_takes_its_own_spans_only(run: AgentRun) -> None:
    inner, outer = ConnectionError("inner"), ConnectionError("outer")

    def body() -> None:
        with suppress(ConnectionError):
            runtime(run, "get_rate", inner)

    with run.agent(), suppress(ConnectionError):
        runtime(run, "refund", outer, body=body)
    assert not is_safe_to_retry(outer)
    assert not is_safe_to_retry(inner)  # the refund around it counts


def test_another_call_of_the_trace_counts(run: AgentRun) -> None:
    error = ConnectionError("lost")
    with run.agent(), suppress(ConnectionError):
        run.succeed("refund")
        runtime(run, "get_rate", error)
    assert not is_safe_to_retry(error)


def test_what_was_raised_in_a_forgotten_or_good_call_is_unknown(run: AgentRun) -> None:
    error = ConnectionError("after all went well")
    with run.agent(), suppress(ConnectionError), ToolRun():
        run.succeed("get_rate")
        raise error
    assert not is_safe_to_retry(error)


def test_a_span_that_begins_in_a_thread_with_the_context_is_of_the_run(run: AgentRun) -> None:
    error = ConnectionError("threaded")

    def traced() -> None:
        run.fail("get_rate", error="ConnectionError")

    with run.agent(), suppress(ConnectionError), ToolRun():
        thread = threading.Thread(target=contextvars.copy_context().run, args=(traced,))
        thread.start()
        thread.join()
        raise error
    assert is_safe_to_retry(error)


def test_nothing_stays_open(run: AgentRun) -> None:
    with run.agent(), suppress(ConnectionError):
        runtime(run, "get_rate", ConnectionError())
    gc.collect()
    assert not TOOL_RUNS
