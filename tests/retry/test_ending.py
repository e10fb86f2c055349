# SPDX-License-Identifier: Apache-2.0
"""How a call ended: what marks a failure, what casts doubt on a success, what is a pause."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.spans import ARGS, ID, LANGCHAIN, Read, agent, chat, facts, failed_tool, span, tool, verdict

from genai_processor.spans.records import Event, Span, SpanKind

PAUSE = "langgraph.errors.GraphInterrupt"
STRANDS, ADK = "strands.telemetry.tracer", "gcp.vertex.agent"
OPENINFERENCE, TRACELOOP = "openinference.instrumentation.langchain", "opentelemetry.instrumentation.agno"


def ended(call: Span, *others: Span, **options: Any) -> str:
    found: str = facts(call, *others, **options).ended.value
    return found


# -- failed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "marks",
    [
        {"failed": True},
        {"error": "RuntimeError", "failed": False},
        {"raised": "RuntimeError", "failed": False},
        {"events": [Event("exception", {"exception.type": "ValueError", "exception.escaped": "False"})]},
        {"events": [Event("exception", {})]},
        {"attributes": {"gen_ai.task.cancellation.reason": "timeout"}},
        {"result": '{"isError": true, "content": []}'},
        {"result": '[{"is_error": true}]'},
        {"result": '{"type": "tool", "status": "error", "tool_call_id": "c1"}'},
        {"result": '{"toolUseId": "c1", "status": "error"}'},
        {"result": '{"output": {"kwargs": {"status": "error", "tool_call_id": "c1"}}}'},
        {"scope": STRANDS, "attributes": {"gen_ai.tool.status": "error"}},
        {"scope": TRACELOOP, "ok": True, "result": "FunctionExecutionResult(status='failure', error='502')"},
        {"scope": "opentelemetry.instrumentation.langchain", "attributes": {"gen_ai.task.status": "failure"}},
        {"scope": ADK, "id": ID, "result": '{"error_type": "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN"}'},
        {
            "scope": "opentelemetry.instrumentation.genai.openai_agents",
            "result": "Tool 'create_refund' timed out after 0.2 seconds.",
        },
    ],
    ids=str,
)
def test_a_mark_of_failure(marks: dict[str, Any]) -> None:
    assert ended(tool(args=ARGS, **marks)) == "failed"
    assert ended(tool(args=ARGS, result="done")) == "well"


@pytest.mark.parametrize(
    "result",
    [
        "error: none",
        '{"status": "error"}',
        '{"errors": []}',
        '{"is_error": false}',
        '{"data": {"order": {"isError": true}}}',
        "Error: refund failed",
    ],
)
def test_a_tools_own_data_is_no_mark(result: str) -> None:
    assert ended(tool(args=ARGS, result=result)) == "well"


def test_a_call_failed_if_any_of_its_views_did() -> None:
    call = tool(args=ARGS, result="done", ok=True)
    mcp = {"mcp.method.name": "tools/call"}
    served = failed_tool(parent=call, kind=SpanKind.SERVER, scope="mcp-python-sdk", attributes=mcp)
    assert ended(call, served) == "failed"


@pytest.mark.parametrize("failed", [True, False])
def test_a_later_message_may_say_that_it_failed(failed: bool) -> None:
    call = tool(id=ID, args=ARGS, result="x")
    answer = {"type": "tool_call_response", "id": ID, "response": {"isError": failed}}
    assert ended(call, chat(reads=[answer], at=(30, 40))) == ("failed" if failed else "well")


# -- unknown ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "come_back"),
    [
        (STRANDS, {"attributes": {"gen_ai.tool.status": "success"}}),
        (ADK, {"id": ID}),
        (OPENINFERENCE, {"attributes": {"output.value": "__REDACTED__"}}),
        (TRACELOOP, {"ok": True}),
        ("opentelemetry.instrumentation.mcp", {"ok": True}),
        (LANGCHAIN, {"args": ARGS, "result": "done"}),
        (LANGCHAIN, {}),
        ("agent_framework", {"args": ARGS, "result": "done"}),
        ("pydantic-ai", {"args": ARGS, "result": "done"}),
        ("semantic_kernel.functions", {"args": ARGS, "result": "done"}),
        ("gen_ai", {"attributes": {"gen_ai.execute_tool.duration": 0.5}}),
    ],
)
def test_the_mark_of_a_normal_end_of_each_dialect(scope: str, come_back: dict[str, Any]) -> None:
    assert ended(tool(scope=scope, **come_back)) == "well"
    bare = tool(scope=scope, args=ARGS)
    assert ended(bare) == "unknown"
    assert verdict(bare)[1] == "no_end_recorded"
    assert ended(tool(scope=scope, args=ARGS, dropped=1)) == "well", "it may be among what was dropped"


def test_a_mark_that_is_content_counts_only_where_content_is_recorded() -> None:
    """OpenLLMetry's spans of LlamaIndex lack the result where content capture is off, and where a call was cut short."""
    task = {"traceloop.span.kind": "task", "tool.name": "create_refund", "tool.arguments": ARGS}
    call = tool(scope="opentelemetry.instrumentation.llamaindex", attributes=task)
    assert ended(call) == "well"
    assert ended(call, span(attributes={"traceloop.entity.input": "{}"})) == "unknown"


def test_openai_agents_has_no_such_mark() -> None:
    """A call without a result is an approval that was asked for."""
    assert ended(tool(scope="opentelemetry.instrumentation.genai.openai_agents", args=ARGS)) == "well"


def test_a_call_that_outlived_its_parent() -> None:
    parent = span("run", at=(0, 20))
    assert ended(tool(args=ARGS, parent=parent, at=(10, 21)), parent) == "unknown"
    assert ended(tool(args=ARGS, parent=parent, at=(10, 20)), parent) == "well"
    open_parent = parent._replace(end_ns=None)
    assert ended(tool(args=ARGS, parent=open_parent, at=(10, 21)), open_parent) == "well"
    served = tool(parent=parent, at=(10, 21), kind=SpanKind.SERVER, attributes={"mcp.method.name": "tools/call"})
    assert ended(served, parent) == "well", "a server has a clock of its own"
    script = tool(scope="gen_ai", parent=parent, at=(10, 21), attributes={"gen_ai.execute_tool.duration": 1})
    assert ended(script, parent) == "well", "so has each of its spans"


def test_an_enclosing_span_failed_and_nothing_else_is_to_blame() -> None:
    run = agent(error="RuntimeError")
    call = tool(args=ARGS, parent=run)
    assert ended(call, run) == "unknown"
    assert verdict(call, run) == ("quarantined_unknown", "no_end_recorded")
    assert ended(call, agent(failed=True)._replace(span_id=run.span_id)) == "unknown", "whatever it failed with"
    assert ended(call, run, chat(parent=run, at=(30, 40))) == "well", "the run went on"
    assert ended(call, run, failed_tool("other", parent=run)) == "well", "something else failed"
    assert ended(call, run, chat(parent=run, at=(1, 5))) == "unknown", "what came before tells nothing"
    assert ended(call, agent(error=PAUSE)._replace(span_id=run.span_id)) == "well", "the run only paused"


def test_a_call_without_an_end() -> None:
    call = tool(id=ID, args=ARGS, at=(10, None))
    assert verdict(call) == ("quarantined_unknown", "no_end_recorded")
    assert verdict(failed_tool(id=ID, args=ARGS, at=(10, None))) == ("quarantined", "commitment_marker")


def test_a_request_without_its_server_where_the_others_have_one() -> None:
    run = agent()

    def request(method: str, served: bool, at: tuple[int, int]) -> list[Span]:
        attributes = {"mcp.method.name": method, **({"gen_ai.tool.name": "t"} if method == "tools/call" else {})}
        sent = span("send", parent=run, kind=SpanKind.CLIENT, scope="mcp-python-sdk", attributes=attributes, at=at)
        got = span("got", parent=sent, kind=SpanKind.SERVER, scope="mcp-python-sdk", attributes=attributes, at=at)
        return [sent, got] if served else [sent]

    died = request("tools/call", False, (10, 20))
    others = [*request("initialize", True, (1, 2)), *request("tools/list", True, (3, 4))]
    assert ended(died[0], run, *others) == "unknown"
    told = request("notifications/initialized", False, (2, 3))
    assert ended(died[0], run, *others, *told) == "unknown", "nobody answers a notification"
    assert ended(died[0], run) == "well"
    assert ended(died[0], run, *others, *request("ping", False, (5, 6))) == "well", "servers are not always traced"


# -- paused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "langgraph.errors.GraphInterrupt",
        "langgraph.errors.GraphBubbleUp",
        "langgraph.errors.ParentCommand",
        "langgraph.errors.NodeInterrupt",
        "pydantic_ai.exceptions.ApprovalRequired",
        "pydantic_ai.exceptions.CallDeferred",
    ],
)
def test_a_control_flow_type_is_a_pause_by_its_full_name(name: str) -> None:
    assert verdict(tool(id=ID, args=ARGS, raised=name)) == ("no_retry_needed", "paused")
    assert verdict(tool(id=ID, args=ARGS, error=name)) == ("no_retry_needed", "paused")
    short = name.rpartition(".")[2]
    assert verdict(tool(id=ID, args=ARGS, raised=short)) == ("quarantined", "commitment_marker")


def test_a_deferral_that_the_framework_names_is_a_pause() -> None:
    name = {"pydantic_ai.tool.deferral.name": "ApprovalRequired"}
    assert ended(tool(scope="pydantic-ai", args=ARGS, attributes=name)) == "paused"


def test_another_error_beside_the_pause_is_a_failure() -> None:
    assert ended(tool(args=ARGS, raised=PAUSE, error="RuntimeError")) == "failed"


def test_langsmith_hides_the_type_so_its_interrupts_stay_quarantined() -> None:
    attributes = {"langsmith.span.kind": "tool", "gen_ai.prompt": ARGS}
    assert ended(tool(scope="langsmith", raised="Exception", attributes=attributes)) == "failed"


def test_evidence_names_what_it_was_read_from() -> None:
    call = failed_tool(id=ID, args=ARGS, raised="app.Declined", result=json.dumps({"isError": True}))
    evidence = Read([call]).of(call).call.verdict.evidence
    assert set(evidence) >= {
        "status=ERROR",
        "error.type=RuntimeError",
        "error.type=app.Declined",
        "result says is_error",
    }


# -- events that were dropped ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["app", LANGCHAIN, STRANDS, TRACELOOP, "opentelemetry.instrumentation.llamaindex"])
def test_a_dropped_event_may_have_told_of_a_failure(scope: str) -> None:
    marks = {"gen_ai.tool.status": "success", "traceloop.span.kind": "tool"}
    call = tool(scope=scope, id=ID, args=ARGS, result="done", attributes=marks, ok=True)
    assert ended(call) == "well"
    assert ended(call._replace(dropped_events=1)) == "unknown"
    assert verdict(call._replace(dropped_events=1))[0].startswith("quarantined")
    failed = failed_tool(scope=scope, attributes=marks, dropped_events=1)
    assert ended(failed) == "failed"


def test_a_dropped_event_voids_a_pause_too() -> None:
    paused = tool(args=ARGS, raised=PAUSE)
    assert verdict(paused) == ("no_retry_needed", "paused")
    assert verdict(paused._replace(dropped_events=1))[0].startswith("quarantined")
