# SPDX-License-Identifier: Apache-2.0
"""Proofs about calls that a server executes: who checks what, and whose list of tools counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.spans import ARGS, ID, SCHEMA, Read, agent, chat, failed_tool, span, tool, verdict

from genai_processor.retry.policy import Policy
from genai_processor.spans.records import Span, SpanKind

NEVER = "retryable_pre_execution"
STRANDS = "strands.telemetry.tracer"
AGENTS = "opentelemetry.instrumentation.genai.openai_agents"
OPENLLMETRY, LOGFIRE, SDK = "opentelemetry.instrumentation.mcp", "logfire.mcp", "mcp-python-sdk"
MISSING = '{"order_id": "o1"}'
MISTYPED = '{"order_id": "o1", "amount_cents": "lots"}'
MADE = {**SCHEMA, "title": "create_refundArguments"}
CALLS = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "create_refund"}


def listed(*names: str) -> Span:
    """A server's list of tools, all with one schema."""
    answer = json.dumps({"tools": [{"name": name, "inputSchema": MADE} for name in names]})
    attributes = {"rpc.method": "tools/list", "response": answer}
    return span("MCP request: tools/list", scope=LOGFIRE, kind=SpanKind.CLIENT, at=(3, 4), attributes=attributes)


def session(**more: Any) -> Span:
    """The beginning of a client's session."""
    attributes = {"rpc.method": "initialize"}
    return span("MCP request: initialize", scope=LOGFIRE, kind=SpanKind.CLIENT, at=(1, 2), attributes=attributes, **more)


def sent(name: str = "create_refund", args: str = ARGS) -> Span:
    """A client's request that the server answered with an error."""
    attributes = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": name,
        "traceloop.entity.input": json.dumps({"tool_name": name, "arguments": json.loads(args)}),
    }
    return span(f"{name}.tool", scope=OPENLLMETRY, kind=SpanKind.CLIENT, error="tool_error", attributes=attributes)


def test_a_clients_span_written_from_the_servers_answer_is_a_proof() -> None:
    call = sent(args=MISSING)
    assert verdict(call, listed("create_refund")) == (NEVER, "malformed_arguments")
    assert verdict(call)[0].startswith("quarantined"), "no schema"
    assert verdict(sent(), listed("create_refund"))[0].startswith("quarantined"), "nothing is wrong with them"


def test_not_if_the_servers_own_span_says_something_else() -> None:
    call = sent(args=MISSING)
    served = span("tools/call", parent=call, kind=SpanKind.SERVER, scope=SDK, error="RuntimeError", attributes=CALLS)
    assert verdict(call, served, listed("create_refund"))[0].startswith("quarantined")


def test_a_framework_that_sent_a_call_to_a_server_checked_only_its_json() -> None:
    call = failed_tool(scope=AGENTS, args=MISTYPED, error="_OTHER")
    top = agent()
    made = {**SCHEMA, "title": "create_refund_args"}
    turn = chat((ID, "create_refund", {}), offers={"create_refund": made}, parent=top)
    call = call._replace(parent_span_id=top.span_id)
    request = span("send", parent=call, kind=SpanKind.CLIENT, scope=SDK, attributes=CALLS)
    assert verdict(call, top, turn) == (NEVER, "malformed_arguments")
    assert verdict(call, top, turn, request)[0].startswith("quarantined")


def test_whatever_a_framework_sent_to_a_server_was_on_its_list() -> None:
    top = agent()
    turn = chat((ID, "delete_all", {}), offers={"create_refund": SCHEMA}, parent=top)
    call = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}", parent=top)
    request = span(
        "send", parent=call, kind=SpanKind.CLIENT, scope=SDK, attributes={**CALLS, "gen_ai.tool.name": "delete_all"}
    )
    assert verdict(call, top, turn) == (NEVER, "unknown_tool")
    assert verdict(call, top, turn, request)[0] == "quarantined"


def test_a_tool_that_the_one_server_of_a_trace_does_not_list_is_unknown() -> None:
    call = sent("delete_all")
    assert verdict(call, session(), listed("create_refund")) == (NEVER, "unknown_tool")
    assert verdict(call, session(), listed("create_refund", "delete_all"))[0].startswith("quarantined")


def test_another_servers_list_proves_nothing() -> None:
    call = sent("delete_all", "{}")
    assert verdict(call, session(), session(), listed("create_refund"))[0].startswith("quarantined")
    assert verdict(call, listed("create_refund"))[0].startswith("quarantined"), "nobody knows whose it is"
    elsewhere = session(parent="f" * 16)
    assert verdict(call, elsewhere, listed("create_refund"))[0].startswith("quarantined")


def test_the_models_list_says_nothing_of_a_call_that_only_mcp_shows() -> None:
    top = agent()
    turn = chat((ID, "delete_all", {}), offers={"create_refund": SCHEMA}, parent=top)
    call = sent("delete_all", "{}")._replace(parent_span_id=top.span_id)
    assert verdict(call, top, turn)[0].startswith("quarantined")


@pytest.mark.parametrize("known", [("create_refund",), ("delete_*",)])
def test_what_the_user_declared_counts_for_servers_too(known: tuple[str, ...]) -> None:
    found = verdict(sent("delete_all", "{}"), policy=Policy(known=known))[0]
    assert (found == NEVER) is (known == ("create_refund",))


def test_a_server_without_its_framework_is_a_call_of_its_own() -> None:
    server = tool(kind=SpanKind.SERVER, scope=SDK, attributes=CALLS, error="tool_error")
    assert len(Read([server]).rows) == 1
    assert verdict(server) == ("quarantined_unknown", "arguments_withheld")


NOT_FOUND, REFUSED = "fastmcp.exceptions.NotFoundError", "fastmcp.exceptions.ValidationError"


def attempts(*raised: str | None, clients: bool = True, unserved: int = 0) -> tuple[Span, list[Span]]:
    """One call of a framework, which its session sent several times; what each server's span says of it."""
    call = failed_tool(id=ID, args=ARGS, at=(10, 90))
    others: list[Span] = []
    for error in raised:
        above = call
        if clients:
            above = span("send", parent=call, kind=SpanKind.CLIENT, scope=SDK, attributes=CALLS, error="tool_error")
            others.append(above)
        error_type = {} if error is None else {"raised": error}
        served = span("tools/call", parent=above, kind=SpanKind.SERVER, scope="fastmcp", attributes=CALLS, **error_type)
        others.append(served)
    lost = {"kind": SpanKind.CLIENT, "scope": SDK, "attributes": CALLS, "error": "TimeoutError"}
    return call, [*others, *(span("send", parent=call, **lost) for _ in range(unserved))]


@pytest.mark.parametrize("clients", [True, False])
@pytest.mark.parametrize(("error", "reason"), [(NOT_FOUND, "unknown_tool"), (REFUSED, "malformed_arguments")])
def test_every_request_must_have_been_refused(clients: bool, error: str, reason: str) -> None:
    for raised in ((error,), (error, error)):
        call, others = attempts(*raised, clients=clients)
        assert verdict(call, *others) == (NEVER, reason)
    for first in ("TimeoutError", None):
        for raised in ((first, error), (error, first)):
            call, others = attempts(*raised, clients=clients)
            assert verdict(call, *others)[0].startswith("quarantined"), raised
    call, others = attempts(error, clients=clients, unserved=1)
    assert verdict(call, *others)[0].startswith("quarantined"), "nobody saw what became of the other request"


def test_two_answers_to_one_request_must_both_refuse_it() -> None:
    call, (sent_once, served) = attempts(NOT_FOUND)
    timed_out = served._replace(span_id="f" * 16, events=(), attributes={**CALLS, "error.type": "TimeoutError"})
    assert verdict(call, sent_once, served) == (NEVER, "unknown_tool")
    assert verdict(call, sent_once, served, timed_out)[0].startswith("quarantined")


def test_arguments_that_one_server_rejected_another_may_have_taken() -> None:
    refused = {"raised": "ValidationError", "scope": OPENLLMETRY, "kind": SpanKind.SERVER}
    served = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "create_refund",
        "traceloop.workflow.name": "server.mcp",
        "traceloop.entity.input": json.dumps({"tool_name": "create_refund", "arguments": json.loads(MISSING)}),
    }
    call = failed_tool(attributes={"gen_ai.tool.json_schema": json.dumps(SCHEMA)})
    one = span("create_refund.tool", parent=call, attributes=served, **refused)
    two = span("create_refund.tool", parent=call, attributes=served, **{**refused, "raised": "TimeoutError"})
    assert verdict(call, one) == (NEVER, "malformed_arguments")
    assert verdict(call, one, two)[0].startswith("quarantined")
