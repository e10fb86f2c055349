# SPDX-License-Identifier: Apache-2.0
"""What proves that a tool's body began, and so outranks every proof that it never did."""

from __future__ import annotations

from typing import Any

import pytest
from support.spans import ARGS, agent, chat, facts, failed_tool, span, tool, verdict

from genai_processor.spans.records import Span, SpanKind

NEVER = "retryable_pre_execution"
AGENTS = "opentelemetry.instrumentation.genai.openai_agents"
PYDANTIC = "pydantic_core._pydantic_core.ValidationError"
MISSING = '{"order_id": "o1"}'


def rejected(**more: Any) -> Span:
    """A call that would be safe, but for what stands below it."""
    stage = {"pydantic_ai.tool.failure_stage": "validation"}
    return failed_tool(scope="pydantic-ai", error=PYDANTIC, attributes=stage, **more)


def child(call: Span, kind: str, **more: Any) -> Span:
    if kind in ("CLIENT", "PRODUCER"):
        return span("send", parent=call, kind=SpanKind[kind], **more)
    if kind == "inference":
        return chat(parent=call, at=(11, 15), **more)
    return agent(parent=call, at=(11, 15), **more) if kind == "agent" else tool("lookup", parent=call, at=(11, 15), **more)


@pytest.mark.parametrize("kind", ["CLIENT", "PRODUCER", "inference", "agent", "tool"])
def test_what_only_a_body_makes_proves_that_it_began(kind: str) -> None:
    call = rejected()
    assert verdict(call) == (NEVER, "malformed_arguments")
    below = child(call, kind)
    assert facts(call, below).execution == "started"
    assert verdict(call, below) == ("quarantined", "execution_started")
    between = span("between", parent=call)
    assert facts(call, between, below._replace(parent_span_id=between.span_id)).execution == "started"


@pytest.mark.parametrize("kind", [SpanKind.INTERNAL, SpanKind.CONSUMER, SpanKind.SERVER, SpanKind.UNSPECIFIED])
def test_any_other_span_below_makes_it_unknown(kind: SpanKind) -> None:
    call = rejected()
    found = facts(call, span("anything", parent=call, kind=kind))
    assert found.execution == "unknown"
    assert verdict(call, span("anything", parent=call, kind=kind))[0] == "quarantined_unknown"


@pytest.mark.parametrize("end", [21, None], ids=["later", "never"])
def test_a_span_below_that_ends_after_its_tool_proves_that_the_body_began(end: int | None) -> None:
    call = rejected()
    assert facts(call, span("thread", parent=call, at=(15, end))).execution == "started"


def test_a_nested_call_that_never_started_proves_nothing() -> None:
    call = rejected()
    nested = rejected(name="lookup", parent=call)
    assert facts(call, nested).execution == "unknown"
    assert facts(call, nested, span("POST", parent=nested, kind=SpanKind.CLIENT)).execution == "started"


def test_mcp_transport_is_not_the_bodys_doing() -> None:
    """Below a client's span stands what carries the request, and a server's list is asked for by the framework."""
    call = tool(scope=AGENTS, args=MISSING, result="x")
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "create_refund"}
    sent = span(
        "MCP send tools/call create_refund", parent=call, kind=SpanKind.CLIENT, scope="mcp-python-sdk", attributes=mcp
    )
    post = span("POST", parent=sent, kind=SpanKind.CLIENT)
    listed = span("tools/list", parent=call, kind=SpanKind.CLIENT, attributes={"mcp.method.name": "tools/list"})
    assert facts(call, sent, post, listed).execution == "unknown"
    assert not facts(call, sent, post, listed).reached_outside


def test_two_views_of_a_call_are_no_nested_calls() -> None:
    """Else every call that a framework sends to a server would count as one that began."""
    call = failed_tool()
    mcp = {"mcp.method.name": "tools/call"}
    refused = "fastmcp.exceptions.ValidationError"
    served = tool(scope="fastmcp", kind=SpanKind.SERVER, parent=call, attributes=mcp, raised=refused)
    assert verdict(call, served) == (NEVER, "malformed_arguments")
    outer = rejected()
    assert verdict(outer, rejected(parent=outer)) == (NEVER, "malformed_arguments"), "two instrumentations"


def test_what_a_framework_says_is_no_proof_where_a_request_went_out() -> None:
    call = rejected()
    served = tool(scope="mcp-python-sdk", kind=SpanKind.SERVER, parent=call, attributes={"mcp.method.name": "tools/call"})
    assert verdict(call, served)[0].startswith("quarantined")


def test_something_outside_before_a_pause_is_an_effect_before_it() -> None:
    paused = tool(args=ARGS, raised="langgraph.errors.GraphInterrupt")
    assert verdict(paused) == ("no_retry_needed", "paused")
    assert verdict(paused, span("POST", parent=paused, kind=SpanKind.CLIENT)) == ("quarantined", "effect_before_pause")
    inner = tool("ask", parent=paused, raised="langgraph.errors.GraphInterrupt", at=(11, 15))
    assert verdict(paused, inner) == ("no_retry_needed", "paused"), "what is nested paused, and nothing else"
    assert verdict(paused, tool("pay", parent=paused, at=(11, 15))) == ("quarantined", "effect_before_pause")


def test_what_went_outside_stays_so_whatever_else_is_nested() -> None:
    paused = tool(args=ARGS, raised="langgraph.errors.GraphInterrupt")
    post = span("POST", parent=paused, kind=SpanKind.CLIENT)
    inner = tool("ask", parent=paused, raised="langgraph.errors.GraphInterrupt", at=(11, 15))
    assert facts(paused, inner).execution == "unknown"
    assert verdict(paused, post, inner) == ("quarantined", "effect_before_pause")


def test_a_span_below_any_of_the_views_voids_a_proof() -> None:
    call = rejected()
    below = span(parent=call)
    view = rejected(parent=call)
    assert verdict(call, view) == (NEVER, "malformed_arguments")
    assert verdict(call, view, below)[0] == "quarantined_unknown"
    assert verdict(call, view, below._replace(parent_span_id=view.span_id))[0] == "quarantined_unknown"


def test_a_call_without_an_end_may_have_anything_below_it() -> None:
    call = rejected(at=(10, None))
    assert facts(call, span(parent=call)).execution == "unknown"
    assert facts(call, span(parent=call, kind=SpanKind.CLIENT)).execution == "started"
