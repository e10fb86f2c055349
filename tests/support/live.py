# SPDX-License-Identifier: Apache-2.0
"""Tool spans made through the SDK, and a processor that keeps what it gets."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer

FAILED = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "refund",
    "gen_ai.tool.call.id": "toolu_01AbCdEfGh",
    "gen_ai.tool.call.arguments": '{"order": "A-7", "cents": 5000}',
}


class Keeping(SpanProcessor):
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[ReadableSpan] = []
        self.flushed: list[int] = []
        self.shut = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.started.append(span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def shutdown(self) -> None:
        self.shut += 1

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        self.flushed.append(timeout_millis)
        return True

    def one(self, name: str = "execute_tool refund") -> ReadableSpan:
        (found,) = [span for span in self.ended if span.name == name]
        return found


def fail_tool(tracer: Tracer, **more: Any) -> None:
    """Make the span of a tool call that failed and may have committed."""
    with tracer.start_as_current_span("execute_tool refund", attributes={**FAILED, **more}) as span:
        span.set_status(Status(StatusCode.ERROR, "502"))


def tags(span: ReadableSpan) -> dict[str, Any]:
    return {key: value for key, value in (span.attributes or {}).items() if key.startswith("genai.")}
