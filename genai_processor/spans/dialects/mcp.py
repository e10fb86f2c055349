# SPDX-License-Identifier: Apache-2.0
"""MCP: python-sdk 1 and 2, fastmcp 2 and 4, OpenLLMetry's and logfire's instrumentation of them.

Native spans never carry arguments, results or call ids; only the SERVER span knows whether the server rejected a call.
`-32601` and `-32602` prove nothing: a body's own error code reaches the client's span.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect, after, looks_failed, never_named, status_ok
from genai_processor.spans.dialects.openllmetry import OPENLLMETRY
from genai_processor.spans.records import NotStarted, Operation, Span, View
from genai_processor.spans.values import loads, quick_loads


def _exception(span: Span, name: str) -> bool:
    return any(event.attributes.get("exception.type") == name for event in span.events)


def _fastmcp_rejected(span: Span) -> NotStarted | None:
    """Types that fastmcp 4 owns and its server raises before the body only (docs/verdict.md)."""
    if span.kind != 2:
        return None
    if _exception(span, "fastmcp.exceptions.ValidationError"):
        return NotStarted("malformed_arguments", "fastmcp.exceptions.ValidationError")
    if _exception(span, "fastmcp.exceptions.NotFoundError") and "fastmcp.provider.type" not in span.attributes:
        return NotStarted("unknown_tool", "fastmcp.exceptions.NotFoundError")
    return None


def _sdk_tool(span: Span, recorded: str | None) -> str | None:
    name = after("MCP send tools/call ")(span, recorded)
    return after("tools/call ")(span, name)


def _traceloop_operation(span: Span) -> Operation | None:
    if span.name.endswith(".mcp"):
        return Operation.MCP
    return {"session": Operation.STEP, "server": Operation.STEP}.get(str(span.attributes.get("traceloop.span.kind")))


def _traceloop_view(span: Span) -> View:
    """The server's copy of a call belongs to a workflow; the client's is a CLIENT of nobody's."""
    return View.MCP_SERVER if "traceloop.workflow.name" in span.attributes else View.MCP_CLIENT


def _traceloop_failures(span: Span, result: Any) -> Iterable[str]:
    failed = looks_failed(result)
    if failed:
        yield failed


def _logfire_request(span: Span) -> dict[str, Any]:
    request = quick_loads(span.attributes.get("request"))
    return request if isinstance(request, dict) else {}


def _logfire_operation(span: Span) -> Operation | None:
    method = span.attributes.get("rpc.method")
    if method is None and span.name.startswith("MCP server handle request: "):
        method = span.name.removeprefix("MCP server handle request: ")
    if method is None:
        return Operation.MCP if span.name.startswith("MCP ") else None
    return Operation.TOOL if method == "tools/call" else Operation.MCP


def _logfire_view(span: Span) -> View:
    return View.MCP_SERVER if span.name.startswith("MCP server") else View.MCP_CLIENT


def _logfire_tool(span: Span, recorded: str | None) -> str | None:
    if recorded is None:
        params = _logfire_request(span).get("params")
        name = params.get("name") if isinstance(params, dict) else None
        if isinstance(name, str):
            return name
        return after("MCP request: tools/call ")(span, None)
    return recorded


def _logfire_arguments(span: Span, key: str, value: Any) -> tuple[Any, bool]:
    request = loads(value)
    params = request.get("params") if isinstance(request, dict) else None
    return (params.get("arguments"), False) if isinstance(params, dict) else (value, True)


PYTHON_SDK = Dialect(
    name="MCP python-sdk",
    scopes=("mcp-python-sdk",),
    runtime=runtimes.MCP_SERVER,
    unnamed=never_named,
    tool_name=_sdk_tool,
)
FASTMCP = Dialect(
    name="fastmcp",
    scopes=("fastmcp",),
    runtime=runtimes.FASTMCP_SERVER,
    unnamed=never_named,
    tool_name=_sdk_tool,
    not_started=_fastmcp_rejected,
)
TRACELOOP = dataclasses.replace(
    OPENLLMETRY,
    name="MCP (OpenLLMetry)",
    scopes=("opentelemetry.instrumentation.mcp.instrumentation", "opentelemetry.instrumentation.mcp"),
    runtime=runtimes.MCP_SERVER_OPENLLMETRY,
    unnamed=never_named,
    operation=_traceloop_operation,
    view=_traceloop_view,
    definitions=("traceloop.entity.output",),
    has_end_mark=status_ok,
    failures=_traceloop_failures,
)
LOGFIRE = Dialect(
    name="MCP (logfire)",
    scopes=("logfire.mcp",),
    runtime=runtimes.MCP_SERVER,
    unnamed=never_named,
    operation=_logfire_operation,
    view=_logfire_view,
    tool_name=_logfire_tool,
    arguments=("request",),
    decode_arguments=_logfire_arguments,
    results=("response",),
    definitions=("response",),
)
DIALECTS = (PYTHON_SDK, FASTMCP, TRACELOOP, LOGFIRE)
