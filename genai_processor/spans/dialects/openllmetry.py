# SPDX-License-Identifier: Apache-2.0
"""OpenLLMetry (Traceloop): `traceloop.*` beside the conventions, no call id on tool spans, OK on most that came back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from genai_processor.spans.dialects.base import Dialect, after
from genai_processor.spans.records import Span
from genai_processor.spans.values import loads


def unwrap_entity_input(span: Span, key: str, value: Any) -> tuple[Any, bool]:
    """`traceloop.entity.input` wraps the arguments: `{"tool_name": …, "arguments": …}`."""
    if isinstance(value, str) and '"arguments"' in value:
        parsed = loads(value)
        if isinstance(parsed, dict) and "arguments" in parsed and ("tool_name" in parsed or "name" in parsed):
            return parsed["arguments"], False
    return value, key == "traceloop.entity.input"


def task_failed(span: Span, result: Any) -> Iterable[str]:
    """`gen_ai.task.status` is OpenLLMetry's own verdict on a tool or task."""
    if span.attributes.get("gen_ai.task.status") == "failure":
        yield "gen_ai.task.status=failure"


OPENLLMETRY = Dialect(
    name="OpenLLMetry",
    scopes=("opentelemetry.instrumentation.*",),
    marks=("traceloop.span.kind",),
    tool_names=("traceloop.entity.name",),
    tool_name=after("", ".tool"),
    arguments=("gen_ai.tool.call.arguments", "traceloop.entity.input"),
    decode_arguments=unwrap_entity_input,
    results=("gen_ai.tool.call.result", "traceloop.entity.output"),
    outputs=("gen_ai.output.messages", "gen_ai.completion.", "traceloop.entity.output"),
    inputs=("gen_ai.input.messages", "gen_ai.prompt.", "traceloop.entity.input"),
    steps=("gen_ai.task.input", "traceloop.entity.input"),
    definitions=("llm.request.functions.",),
    conversations=("traceloop.association.properties.thread_id", "traceloop.association.properties.session_id"),
    failures=task_failed,
)
