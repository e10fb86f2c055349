# SPDX-License-Identifier: Apache-2.0
"""What is stamped on live tool spans, and what the ledger gets."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.trace import SpanKind
from support.agent_run import AgentRun
from support.spans import ARGS, ID, LANGCHAIN, SCHEMA

from genai_processor import Policy
from genai_processor.ledger import State

PYDANTIC = "pydantic_core._pydantic_core.ValidationError"
VALIDATION = {"pydantic_ai.tool.failure_stage": "validation"}
OFFERS = {"create_refund": SCHEMA}
MISSING = '{"order_id": "o1"}'


@pytest.fixture
def run() -> AgentRun:
    return AgentRun()


def rejected(run: AgentRun, **more: object) -> object:
    return run.tool(scope="pydantic-ai", id=ID, args="{}", attributes={**VALIDATION, "error.type": PYDANTIC}, **more)


def test_a_failed_call_is_quarantined(run: AgentRun) -> None:
    call = run.fail(id=ID, args=ARGS)
    tags = run.tags(call)
    assert (tags["verdict"], tags["reason"]) == ("quarantined", "commitment_marker")
    assert (tags["execution"], tags["effect"], tags["arguments.state"]) == ("unknown", "non_idempotent", "complete")
    assert tags["call_id.source"] == "span"
    assert "call_id" not in tags, "the span has it"
    assert set(tags["evidence"]) == {"status=ERROR", "error.type=RuntimeError"}
    entry = run.entry(call)
    assert (entry.state, entry.reason) == (State.QUARANTINED, "commitment_marker")
    assert (entry.tool, entry.call_id) == ("create_refund", ID)
    (event,) = run.events()
    assert event["genai.retry.verdict"] == "quarantined"
    assert event["genai.retry.late"] is False


def test_a_call_that_came_back_needs_no_retry(run: AgentRun) -> None:
    call = run.succeed(id=ID, args=ARGS)
    assert run.verdict(call) == ("no_retry_needed", "succeeded")
    (entry,) = run.ledger.by_call(f"{call.get_span_context().trace_id:032x}", ID)
    assert entry.state is State.COMPLETED
    assert run.events() == []


def test_an_exception_that_escapes_is_a_failure(run: AgentRun) -> None:
    with pytest.raises(ZeroDivisionError), run.tool(id=ID, args=ARGS) as call:
        raise ZeroDivisionError
    assert run.verdict(call) == ("quarantined", "commitment_marker")


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_what_tears_the_thread_out_of_a_call_is_no_good_end(run: AgentRun, error: type[BaseException]) -> None:
    """The API ends such a span without a word: no status, no event."""
    with pytest.raises(error), run.tool(id=ID, args=ARGS, result="ok") as call:
        raise error
    assert run.verdict(call) == ("quarantined", "commitment_marker")
    assert f"ended by {error.__name__}" in run.tags(call)["evidence"]


def test_three_views_that_came_back_are_one_entry(run: AgentRun) -> None:
    mcp = {"mcp.method.name": "tools/call"}
    with (
        run.tool(id=ID, args=ARGS, result="ok") as call,
        run.tool(scope="demo.mcp", kind=SpanKind.CLIENT, attributes=mcp),
        run.tool(scope="demo.mcp", kind=SpanKind.SERVER, attributes=mcp),
    ):
        pass
    assert run.verdict(call) == ("no_retry_needed", "succeeded")
    assert run.ledger.stats().entries == 1


def test_without_arguments_or_id_nobody_knows(run: AgentRun) -> None:
    assert run.verdict(run.fail(id=ID)) == ("quarantined_unknown", "arguments_withheld")
    assert run.verdict(run.fail(args='{"x":1}')) == ("quarantined_unknown", "call_id_missing")


def test_declared_effects(run: AgentRun) -> None:
    run = AgentRun(Policy(read_only=("get_*",), idempotent=("put_*",)))
    read = run.fail("get_rate", id=ID)
    assert run.verdict(read) == ("retryable_read_only", "read_only_tool")
    assert "entry_id" not in run.tags(read)
    put = run.fail("put_order", id=ID, args=ARGS)
    assert run.verdict(put) == ("retryable_same_call_id", "idempotent_tool")
    assert run.entry(put).state is State.QUARANTINED, "under another id it may not run again"
    assert run.verdict(run.fail("put_order", args='{"x":1}'))[0] == "quarantined_unknown"


# -- what ends below a call ------------------------------------------------------------------------------------------


def test_the_framework_says_that_it_never_started(run: AgentRun) -> None:
    with rejected(run) as call:
        pass
    assert run.verdict(call) == ("retryable_pre_execution", "malformed_arguments")
    assert run.tags(call)["execution"] == "not_started"
    assert run.entry(call).state is State.NOT_STARTED


@pytest.mark.parametrize("kind", [SpanKind.CLIENT, SpanKind.PRODUCER])
def test_a_request_below_a_call_proves_that_it_started(run: AgentRun, kind: SpanKind) -> None:
    with rejected(run) as call, run.span("between"), run.span("POST", kind=kind):
        pass
    assert run.verdict(call) == ("quarantined", "commitment_marker")
    assert run.tags(call)["execution"] == "started"


def test_a_nested_call_an_inference_or_an_agent_proves_it(run: AgentRun) -> None:
    with rejected(run) as call:
        run.succeed("lookup")
    assert run.tags(call)["execution"] == "started"
    with rejected(run) as call:
        run.chat()
    assert run.tags(call)["execution"] == "started"
    with rejected(run) as call, run.agent():
        pass
    assert run.tags(call)["execution"] == "started"


def test_any_other_span_below_voids_the_proof(run: AgentRun) -> None:
    with rejected(run) as call, run.span():
        pass
    assert run.tags(call)["execution"] == "unknown"
    assert run.verdict(call)[0] == "quarantined"


def test_a_span_still_open_below_proves_it(run: AgentRun) -> None:
    with rejected(run) as call:
        thread = run.begin("thread")
    assert run.tags(call)["execution"] == "started"
    thread.end()
    with rejected(run) as call, run.span("between"):
        thread = run.begin("thread")
    assert run.tags(call)["execution"] == "started", "through a span between that has ended"
    thread.end()


def test_a_child_that_ends_after_its_tool_is_late_evidence(run: AgentRun) -> None:
    with rejected(run) as call:
        pass
    assert run.entry(call).state is State.NOT_STARTED
    late = run.begin("POST", kind=SpanKind.CLIENT, parent=call)
    late.end()
    assert run.verdict(call)[0] == "retryable_pre_execution", "its span has gone"
    assert run.entry(call).state is State.QUARANTINED
    assert run.entry(call).reason == "execution_started"
    (event,) = run.events()
    assert (event["genai.retry.late"], event["genai.retry.verdict"]) == (True, "quarantined")
    assert run.tags(late) == {}


def test_what_ends_late_below_a_quarantined_call_tells_nothing_new(run: AgentRun) -> None:
    call = run.fail(id=ID, args=ARGS)
    run.begin("POST", kind=SpanKind.CLIENT, parent=call).end()
    assert len(run.events()) == 1


# -- views, pauses, proofs -------------------------------------------------------------------------------------------


def test_a_client_and_a_server_view_are_one_entry(run: AgentRun) -> None:
    mcp = {"mcp.method.name": "tools/call"}
    with run.tool(id=ID, args=ARGS, result="x") as call, run.tool(kind=SpanKind.CLIENT, attributes=mcp) as client:
        server = run.fail(kind=SpanKind.SERVER, attributes=mcp)
    assert run.tags(call)["entry_id"] == run.tags(client)["entry_id"] == run.tags(server)["entry_id"]
    assert run.verdict(call)[0] == "quarantined", "a call failed if any of its views did"
    assert run.ledger.stats().entries == 1


def test_a_pause_needs_no_retry_unless_something_went_outside_first(run: AgentRun) -> None:
    pause = {"error.type": "langgraph.errors.GraphInterrupt"}
    with run.tool(id=ID, args=ARGS, attributes=pause) as call:
        pass
    assert run.verdict(call) == ("no_retry_needed", "paused")
    assert run.entry(call).state is State.PAUSED
    with run.tool(id="call_Third9Kd1", args=ARGS, attributes=pause) as call, run.span("POST", kind=SpanKind.CLIENT):
        pass
    assert run.verdict(call) == ("quarantined", "effect_before_pause")


def test_malformed_arguments_in_a_runtime_that_rejects_them(run: AgentRun) -> None:
    with run.agent():
        run.chat((ID, "create_refund", {"order_id": "o1"}), offers=OFFERS)
        call = run.fail(scope=LANGCHAIN, id=ID, args=MISSING, error=PYDANTIC)
        other = run.fail(scope="my.own", id="call_Third9Kd1", args=MISSING, error=PYDANTIC)
    assert run.verdict(call) == ("retryable_pre_execution", "malformed_arguments")
    assert run.verdict(other)[0] == "quarantined_unknown"


def test_an_unknown_tool_by_the_recorded_definitions(run: AgentRun) -> None:
    with run.agent():
        run.chat((ID, "delete_all", {}), offers=OFFERS)
        call = run.fail("delete_all", scope="strands.telemetry.tracer", error="Exception", id=ID, args="{}")
    assert run.verdict(call) == ("retryable_pre_execution", "unknown_tool")


def test_the_proposal_gives_what_the_span_lacks(run: AgentRun) -> None:
    with run.agent():
        run.chat((ID, "create_refund", {"order_id": "o1", "amount_cents": 500}))
        no_id, no_args = run.fail(args=ARGS), run.fail("create_refund", id=ID)
    assert run.verdict(no_id) == ("quarantined", "commitment_marker")
    assert (run.tags(no_id)["call_id"], run.tags(no_id)["call_id.source"]) == (ID, "proposal")
    assert run.tags(no_args)["arguments.state"] == "complete"


def test_the_sdks_own_limits_are_known() -> None:
    run = AgentRun(span_limits=SpanLimits(max_span_attribute_length=20, max_span_attributes=64))
    call = run.fail(scope="opentelemetry.instrumentation.genai.openai_agents", args=ARGS, error="_OTHER")
    assert run.verdict(call) == ("quarantined_unknown", "arguments_cut")
    run = AgentRun(span_limits=SpanLimits(max_span_attributes=3))
    call = run.fail(scope=LANGCHAIN, id=ID, args=MISSING, error=PYDANTIC)
    assert run.verdict(call) == ("quarantined", "commitment_marker"), "a tool call by its name, of which little is left"


def test_no_argument_value_is_ever_stamped(run: AgentRun) -> None:
    call = run.fail(id=ID, args='{"card": "4111111111111111"}')
    assert "4111" not in str(run.tags(call))
    assert "4111" not in str(run.events())
    assert "4111" not in repr(run.entry(call))


def test_remote_parents_are_where_it_stops(run: AgentRun) -> None:
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

    remote = NonRecordingSpan(SpanContext(7, 7, True, TraceFlags(1)))
    run.begin("POST", kind=SpanKind.CLIENT, parent=remote).end()
    assert run.verdict(run.fail(id=ID, args=ARGS, parent=remote))[0] == "quarantined"
