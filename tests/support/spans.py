# SPDX-License-Identifier: Apache-2.0
"""Small recorded traces, built by hand: one function per kind of span."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from genai_processor.retry.findings import DuplicateGroup, UnobservedCall
from genai_processor.retry.policy import Policy
from genai_processor.retry.survey import Survey, SurveyedCall
from genai_processor.retry.trace import Trace
from genai_processor.spans.read import operation_of, read_tool
from genai_processor.spans.records import Event, Inference, Link, Operation, Span, SpanKind, StatusCode, ToolCall

TRACE = f"{1:032x}"
ID = "call_Xk29LmQ8vTz4"
ARGS = '{"order_id":"o1","amount_cents":500}'
SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "amount_cents": {"type": "integer"}},
    "required": ["order_id", "amount_cents"],
}
LANGCHAIN = "opentelemetry.instrumentation.genai.langchain"
WITHOUT_IDS = "opentelemetry.instrumentation.genai.openai_agents"
"""An instrumentation that writes no call id on any tool span, and the conventions' keys otherwise."""

_numbers = itertools.count(1)


def span(
    name: str = "work",
    *,
    parent: Span | str | None = None,
    at: tuple[int | None, int | None] = (10, 20),
    kind: SpanKind = SpanKind.INTERNAL,
    scope: str = "app",
    trace: str | None = None,
    error: str | None = None,
    raised: str | None = None,
    failed: bool | None = None,
    ok: bool = False,
    attributes: Mapping[str, Any] | None = None,
    events: Iterable[Event] = (),
    links: Iterable[Link] = (),
    dropped: int = 0,
    dropped_events: int = 0,
    resource: object = "r",
) -> Span:
    """Any span. `error` is `error.type`, `raised` an exception event; both make it ERROR unless `failed` is False."""
    found = dict(attributes or {})
    if error is not None:
        found["error.type"] = error
    exceptions = () if raised is None else (Event("exception", {"exception.type": raised}),)
    bad = failed if failed is not None else error is not None or raised is not None
    return Span(
        trace_id=trace or (parent.trace_id if isinstance(parent, Span) else TRACE),
        span_id=f"{next(_numbers):016x}",
        parent_span_id=parent.span_id if isinstance(parent, Span) else parent,
        name=name,
        kind=kind,
        scope=scope,
        start_ns=at[0],
        end_ns=at[1],
        status=StatusCode.ERROR if bad else StatusCode.OK if ok else StatusCode.UNSET,
        attributes=found,
        events=(*exceptions, *events),
        links=tuple(links),
        dropped_attributes=dropped,
        dropped_events=dropped_events,
        resource=resource,
    )


def tool(
    name: str | None = "create_refund",
    *,
    id: str | None = None,
    args: Any = None,
    result: Any = None,
    attributes: Mapping[str, Any] | None = None,
    **more: Any,
) -> Span:
    """A tool call as the conventions write it."""
    found = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": id,
        "gen_ai.tool.call.arguments": args,
        "gen_ai.tool.call.result": result,
        **(attributes or {}),
    }
    found = {key: value for key, value in found.items() if value is not None}
    return span(f"execute_tool {name}" if name else "execute_tool", attributes=found, **more)


def failed_tool(name: str | None = "create_refund", **more: Any) -> Span:
    """A tool call that failed and tells no more than that."""
    return tool(name, **{"error": "RuntimeError", **more})


def chat(
    *calls: tuple[str | None, str, Any],
    offers: Mapping[str, Any] | None = None,
    reads: Iterable[Mapping[str, Any]] = (),
    attributes: Mapping[str, Any] | None = None,
    **more: Any,
) -> Span:
    """An inference that proposes calls `(id, tool, arguments)`, given tools `offers` (name to schema)."""
    parts = [{"type": "tool_call", "id": i, "name": name, "arguments": args} for i, name, args in calls]
    found: dict[str, Any] = {"gen_ai.operation.name": "chat"}
    if calls:
        found["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": parts}])
    if offers is not None:
        found["gen_ai.tool.definitions"] = definitions(offers)
    if reads:
        found["gen_ai.input.messages"] = json.dumps([{"role": "tool", "parts": list(reads)}])
    return span("chat model", **{"at": (1, 5), **more}, attributes={**found, **(attributes or {})})


def definitions(offers: Mapping[str, Any]) -> str:
    """A tool list as the conventions write it."""
    return json.dumps([{"type": "function", "name": name, "parameters": schema} for name, schema in offers.items()])


def agent(*, attributes: Mapping[str, Any] | None = None, **more: Any) -> Span:
    """An agent that stands around turns and calls."""
    found = {"gen_ai.operation.name": "invoke_agent", **(attributes or {})}
    return span("invoke_agent a", **{"at": (0, 100), **more}, attributes=found)


def read(one: Span) -> ToolCall | Inference | Operation:
    """What a span says: a `ToolCall`, an `Inference`, or the operation of a span that is neither."""
    operation, dialect = operation_of(one)
    if dialect is not None and operation is Operation.TOOL:
        return read_tool(one, dialect)
    return Inference(one, dialect) if dialect is not None and operation is Operation.INFERENCE else operation


class Read:
    """What a survey says of traces."""

    def __init__(self, *traces: Iterable[Span], policy: Policy | None = None, **options: Any) -> None:
        survey = Survey(policy or Policy())
        self.rows: list[SurveyedCall] = []
        for spans in traces:
            self.rows += survey.judge(Trace(spans, **{"length_limit": 0, **options}))[0]
        found = list(survey.rest())
        self.duplicates = [one for one in found if isinstance(one, DuplicateGroup)]
        self.unobserved = [one for one in found if isinstance(one, UnobservedCall)]

    def of(self, wanted: Span) -> SurveyedCall:
        """The row of the call that a span shows."""
        (row,) = [r for r in self.rows if wanted.span_id in [v.span.span_id for v in r.call.node.views()]]
        return row

    def verdict(self, wanted: Span) -> tuple[str, str]:
        """Verdict and reason of the call that a span shows."""
        verdict = self.of(wanted).call.verdict
        return verdict.verdict.value, verdict.reason.value


def verdict(wanted: Span, *others: Span, **options: Any) -> tuple[str, str]:
    """Verdict and reason of a call in a trace of its own."""
    return Read([wanted, *others], **options).verdict(wanted)


def facts(wanted: Span, *others: Span, **options: Any) -> Any:
    """What was found out of a call in a trace of its own."""
    return Read([wanted, *others], **options).of(wanted).call.facts
