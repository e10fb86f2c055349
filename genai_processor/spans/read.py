# SPDX-License-Identifier: Apache-2.0
"""From a span to what it stands for: a tool call, an inference, an agent, a step, or nothing of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from genai_processor.spans import values
from genai_processor.spans.definitions import ToolList, tool_list
from genai_processor.spans.dialects import DIALECTS, Dialect, dialect_of
from genai_processor.spans.dialects.base import looks_failed, may_look_failed, rendered_unless_json
from genai_processor.spans.records import Operation, Span, StatusCode, ToolCall, View

_T, _I, _A, _S, _O = Operation.TOOL, Operation.INFERENCE, Operation.AGENT, Operation.STEP, Operation.OTHER

_OPERATION_NAMES: dict[str, Operation] = {
    "execute_tool": _T,
    "chat": _I,
    "text_completion": _I,
    "generate_content": _I,
    "invoke_agent": _A,
    "invoke_workflow": _A,
    "create_agent": _S,
    "execute_task": _S,
    "execute_event_loop_cycle": _S,
    "chain": _S,
    "handoff": _S,
}
_OPENINFERENCE_KINDS: dict[str, Operation] = {"TOOL": _T, "LLM": _I, "AGENT": _A, "CHAIN": _S}
_TRACELOOP_KINDS: dict[str, Operation] = {"tool": _T, "agent": _A, "workflow": _A, "task": _S}
_LANGSMITH_KINDS: dict[str, Operation] = {"tool": _T, "llm": _I, "chain": _S}

_OPERATION_KEYS: tuple[tuple[str, Mapping[str, Operation]], ...] = (
    ("gen_ai.operation.name", _OPERATION_NAMES),
    ("openinference.span.kind", _OPENINFERENCE_KINDS),
    ("traceloop.span.kind", _TRACELOOP_KINDS),
    ("langsmith.span.kind", _LANGSMITH_KINDS),
)

MARKER_KEYS: frozenset[str] = frozenset(
    {
        "gen_ai.operation.name",
        "openinference.span.kind",
        "traceloop.span.kind",
        "mcp.method.name",
        "langsmith.span.kind",
        "ai.operationId",
        "rpc.method",
        "gen_ai.tool.name",
        "logfire.msg_template",
    }
)
"""A span without any of these attributes, and without loss, is none of ours: one look-up tells."""

PAUSES: frozenset[str] = frozenset(
    {
        "langgraph.errors.GraphInterrupt",
        "langgraph.errors.GraphBubbleUp",
        "langgraph.errors.ParentCommand",
        "langgraph.errors.NodeInterrupt",
        "pydantic_ai.exceptions.ApprovalRequired",
        "pydantic_ai.exceptions.CallDeferred",
    }
)
"""Control-flow types by which a framework suspends a call (docs/verdict.md); only the full name counts."""

_LOST_TOOL = re.compile(r"execute_tool \S|\S+\.tool$")


def is_marked(span: Span) -> bool:
    """Whether a span may be one of ours: it has a marker, lost attributes, or comes from a scope that sets no marker."""
    return not MARKER_KEYS.isdisjoint(span.attributes) or span.dropped_attributes > 0 or span.scope in _ODD_SCOPES


def operation_of(span: Span) -> tuple[Operation, Dialect | None]:
    """What a span stands for, and whose it is (None where it is nothing of ours)."""
    attributes = span.attributes
    if MARKER_KEYS.isdisjoint(attributes) and not is_marked(span):
        return (_A if span.name.startswith("invoke_agent ") else _O), None
    dialect = dialect_of(span.scope, attributes)
    if dialect.operation is not None:
        found = dialect.operation(span)
        if found is not None:
            return found, dialect
    return _common_operation(span, attributes), dialect


_ODD_SCOPES = frozenset({"logfire.mcp", "logfire.openai_agents", "opentelemetry.instrumentation.mcp.instrumentation"})


def _common_operation(span: Span, attributes: Mapping[str, Any]) -> Operation:
    get = attributes.get
    if get("logfire.span_type") == "pending_span":
        return _O
    method = get("mcp.method.name")
    if method is not None:
        return _T if method == "tools/call" else Operation.MCP
    for key, table in _OPERATION_KEYS:
        value = get(key)
        if value is not None and value.__class__ is str and value in table:
            return table[value]
    if span.dropped_attributes and _LOST_TOOL.match(span.name):
        return _T
    return _O


def read_tool(span: Span, dialect: Dialect) -> ToolCall:
    """One view of a tool call. Total: an attribute of an odd type counts as missing."""
    attributes = span.attributes
    raw_tool = _first_text(attributes, dialect.tool_names)
    tool = dialect.tool_name(span, raw_tool) if dialect.tool_name is not None else raw_tool
    arguments, rendered = _arguments(span, dialect)
    result = values.first_of(attributes, dialect.results)
    call_id = _call_id(span, dialect, tool)
    error_types = _error_types(span)
    failure = _failures(span, dialect, result, error_types)
    paused = next((name for name in error_types if name in PAUSES), None) if error_types else None
    if paused is None and dialect.paused is not None:
        paused = dialect.paused(span)
    ended = None
    if dialect.has_end_mark is not None and not span.dropped_attributes:
        ended = dialect.has_end_mark(span, call_id, arguments, result)
    if span.dropped_events:
        ended = False
    return ToolCall(
        span,
        dialect,
        dialect.view(span) if dialect.view is not None else View.FRAMEWORK,
        tool=tool,
        raw_tool=raw_tool or tool,
        call_id=call_id,
        arguments=arguments,
        arguments_rendered=rendered,
        failure=failure,
        error_types=error_types,
        paused=paused,
        not_started=dialect.not_started(span) if failure and dialect.not_started is not None else None,
        ended=ended,
    )


def _call_id(span: Span, dialect: Dialect, tool: str | None) -> str | None:
    for key in dialect.call_ids:
        value = span.attributes.get(key)
        if value is not None:
            found = values.usable_id(value, tool)
            if found is not None:
                return found
    return values.usable_id(dialect.call_id(span), tool) if dialect.call_id is not None else None


def _first_text(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        found = values.text(attributes.get(key))
        if found is not None:
            return found
    return None


def _arguments(span: Span, dialect: Dialect) -> tuple[Any, bool]:
    attributes = span.attributes
    for key in dialect.arguments:
        value = attributes.get(key)
        if value is None:
            continue
        if dialect.empty_is_withheld and value == "{}":
            return None, False
        if dialect.decode_arguments is not None:
            return dialect.decode_arguments(span, key, value)
        return rendered_unless_json(span, key, value)
    if dialect.find_arguments is not None:
        return dialect.find_arguments(span), False
    return None, False


def _error_types(span: Span) -> tuple[str, ...]:
    error = span.attributes.get("error.type")
    if error is None and not span.events:
        return ()
    found = [] if error is None else [str(error)]
    found.extend(str(event.attributes.get("exception.type")) for event in span.events if event.name == "exception")
    return tuple(found)


def _failures(span: Span, dialect: Dialect, result: Any, error_types: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    if span.status == _ERROR:
        found.append("status=ERROR")
    if error_types:
        found.extend([f"error.type={name[:120]}" for name in error_types])
    if ".cancellation." in "\n".join(span.attributes):
        found.append("cancellation recorded")
    if may_look_failed(result):
        failed = looks_failed(result)
        if failed is not None:
            found.append(failed)
    if dialect.failures is not None:
        found.extend(dialect.failures(span, result))
    return tuple(found)


_ERROR = int(StatusCode.ERROR)  # comparing with the member itself is slower


GUARD_OUTCOME = "genai.guard.outcome"
"""What this package's guard did with a call, on the spans that it tagged."""

_NOT_RUN = frozenset({"refused", "handed_back"})


def from_cache(attributes: Mapping[str, Any]) -> bool:
    """Whether a tool span says that nothing was executed: a cache answered, or a guard did."""
    return (
        attributes.get("crewai.tool.from_cache") is True
        or attributes.get("gen_ai.tool.from_cache") is True
        or attributes.get(GUARD_OUTCOME) in _NOT_RUN
    )


def refused_by_guard(attributes: Mapping[str, Any]) -> bool:
    """Whether a tool span says that a guard did not let its call run, because another attempt stood in its way."""
    return attributes.get(GUARD_OUTCOME) == "refused"


def tools_on_offer(span: Span, dialect: Dialect, is_cut: Callable[[str], bool]) -> ToolList | None:
    """The tools that this span says were on offer, or None if it records none."""
    return tool_list(span.attributes, dialect.definitions, dropped=span.dropped_attributes > 0, is_cut=is_cut)


def own_schema(call: ToolCall) -> Any:
    """The JSON schema that the tool span itself records, or None."""
    attributes = call.span.attributes
    for key in call.dialect.schemas:
        value = attributes.get(key)
        if value is None:
            continue
        schema = values.quick_loads(value)
        if isinstance(schema, Mapping) and ("properties" in schema or "required" in schema):
            return schema
    return None


CONVERSATION_KEYS: frozenset[str] = frozenset(key for row in DIALECTS for key in row.conversations) | {"metadata"}
"""A span without any of these attributes names no conversation: one look-up tells."""


def conversation_of(span: Span, dialect: Dialect) -> str | None:
    """The conversation or session that a span names, or None (`mcp.session.id` is none, and neither is a placeholder)."""
    attributes = span.attributes
    for key in dialect.conversations:
        found = values.usable_id(attributes.get(key))
        if found is not None:
            return found
    metadata = attributes.get("metadata")
    if isinstance(metadata, str) and '"thread_id"' in metadata:
        parsed = values.quick_loads(metadata)
        thread = parsed.get("thread_id") if isinstance(parsed, dict) else None
        return values.usable_id(str(thread)) if thread is not None else None
    return None
