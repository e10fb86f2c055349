# SPDX-License-Identifier: Apache-2.0
"""Agent runs through the real SDK and the real processor: what is stamped, recorded and told, and what a scan says."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from genai_processor import GenAISpanProcessor, MemoryLedger, Policy, Settings
from genai_processor.ledger import Entry
from genai_processor.spans.otlp_protobuf import ProtobufSpans
from support.spans import Read, definitions

try:
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter
except ImportError:  # before SDK 1.39
    from opentelemetry.sdk._logs.export import InMemoryLogExporter as InMemoryLogRecordExporter


class AgentRun:
    """A provider with the processor on it, and everything that comes out."""

    def __init__(self, policy: Policy | None = None, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.logs = InMemoryLogRecordExporter()
        self.ledger = MemoryLedger()
        self.policy = policy or Policy()
        loggers = LoggerProvider(shutdown_on_exit=False)
        loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        self.processor = GenAISpanProcessor(
            SimpleSpanProcessor(self.exporter),
            ledger=self.ledger,
            policy=self.policy,
            settings=Settings(metrics=False),
            logger_provider=loggers,
        )
        self.provider = TracerProvider(shutdown_on_exit=False, sampler=ALWAYS_ON, **options)
        self.provider.add_span_processor(self.processor)

    def begin(
        self,
        name: str = "work",
        *,
        scope: str = "app",
        kind: SpanKind = SpanKind.INTERNAL,
        parent: Span | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Span:
        """Start any span, below the current one if no parent is given."""
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent) if parent is not None else None
        tracer = self.provider.get_tracer(scope)
        return tracer.start_span(name, context=context, kind=kind, attributes=dict(attributes or {}))

    @contextlib.contextmanager
    def span(self, name: str = "work", **more: Any) -> Iterator[Span]:
        """Any span, as the current one; an exception ends it as the SDK does, and passes."""
        from opentelemetry.trace import use_span

        with use_span(self.begin(name, **more), end_on_exit=True) as span:
            yield span

    def tool(
        self, name: str = "create_refund", *, id: str | None = None, args: Any = None, result: Any = None, **more: Any
    ) -> contextlib.AbstractContextManager[Span]:
        """A tool call, as the conventions write it."""
        found = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": id,
            "gen_ai.tool.call.arguments": args,
            "gen_ai.tool.call.result": result,
            **(more.pop("attributes", None) or {}),
        }
        found = {key: value for key, value in found.items() if value is not None}
        return self.span(f"execute_tool {name}", attributes=found, **more)

    def fail(self, name: str = "create_refund", *, error: str = "RuntimeError", **more: Any) -> Span:
        """A tool call that fails without an exception."""
        with self.tool(name, **more) as span:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, "502"))
        return span

    def succeed(self, name: str = "create_refund", **more: Any) -> Span:
        """A tool call that comes back."""
        with self.tool(name, **more) as span:
            pass
        return span

    def chat(self, *calls: tuple[str | None, str, Any], offers: Mapping[str, Any] | None = None, **more: Any) -> Span:
        """An inference that proposes calls."""
        parts = [{"type": "tool_call", "id": i, "name": name, "arguments": args} for i, name, args in calls]
        found = {"gen_ai.operation.name": "chat", **(more.pop("attributes", None) or {})}
        if calls:
            found["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": parts}])
        if offers is not None:
            found["gen_ai.tool.definitions"] = definitions(offers)
        with self.span("chat model", attributes=found, **more) as span:
            pass
        return span

    def agent(self, **more: Any) -> contextlib.AbstractContextManager[Span]:
        """An agent."""
        attributes = {"gen_ai.operation.name": "invoke_agent", **(more.pop("attributes", None) or {})}
        return self.span("invoke_agent a", attributes=attributes, **more)

    # -- what came out -----------------------------------------------------------------------------------------------

    @property
    def exported(self) -> tuple[ReadableSpan, ...]:
        """The spans that were forwarded, tagged."""
        return self.exporter.get_finished_spans()

    def tags(self, span: Span) -> dict[str, Any]:
        """What was stamped on a span, without the common part of the names."""
        wanted = span.get_span_context().span_id
        (found,) = [one for one in self.exported if one.context is not None and one.context.span_id == wanted]
        own, prefix = found.attributes or {}, "genai.retry."
        return {key.removeprefix(prefix): value for key, value in own.items() if key.startswith(prefix)}

    def verdict(self, span: Span) -> tuple[str, str]:
        """The verdict and reason that were stamped."""
        tags = self.tags(span)
        return tags["verdict"], tags["reason"]

    def entry(self, span: Span) -> Entry:
        """The ledger's entry of the call that a span shows."""
        entry_id = self.tags(span)["entry_id"]
        found = self.ledger.get(entry_id)
        assert found is not None
        return found

    def events(self) -> list[dict[str, Any]]:
        """The log events that were emitted."""
        return [dict(record.log_record.attributes or {}) for record in self.logs.get_finished_logs()]

    def scanned(self) -> Read:
        """What a scan says of the exported spans, trace by trace."""
        content = encode_spans(self.exported).SerializeToString()
        traces: dict[str, list[Any]] = {}
        for one in ProtobufSpans(pytest.fail).read(content):
            traces.setdefault(one.trace_id, []).append(one)
        return Read(*traces.values(), policy=self.policy, length_limit=0)
