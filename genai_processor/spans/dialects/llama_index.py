# SPDX-License-Identifier: Apache-2.0
"""LlamaIndex: official instrumentation, OpenInference, OpenLLMetry.

Runs arguments of a wrong type. OpenLLMetry writes a task with `tool.name` and never ERROR; the workflow step `call_tool`
names the call that OpenInference's tool span leaves without an id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import looks_failed, never_named, rendered_unless_json, result_if_arguments
from genai_processor.spans.dialects.conventions import CONVENTIONS
from genai_processor.spans.dialects.openinference import OPENINFERENCE
from genai_processor.spans.dialects.openllmetry import OPENLLMETRY
from genai_processor.spans.records import Operation, Span
from genai_processor.spans.values import loads, quick_loads, text


def _task_operation(span: Span) -> Operation | None:
    attributes = span.attributes
    if attributes.get("traceloop.span.kind") != "task":
        return None
    if "tool.name" in attributes:
        return Operation.TOOL
    output = attributes.get("traceloop.entity.output")
    if isinstance(output, str) and output.startswith('{"message"'):
        return Operation.INFERENCE
    return None


def _task_call_id(span: Span) -> str | None:
    output = quick_loads(span.attributes.get("traceloop.entity.output"))
    return text(output.get("tool_id")) if isinstance(output, dict) else None


def _task_failed(span: Span, result: Any) -> Iterable[str]:
    failed = looks_failed(result)
    if failed:
        yield failed


def _keywords(span: Span, key: str, value: Any) -> tuple[Any, bool]:
    """OpenInference records the Python call: `{"kwargs": {…}}`."""
    parsed = loads(value)
    if isinstance(parsed, dict) and set(parsed) <= {"args", "kwargs"} and isinstance(parsed.get("kwargs"), dict):
        if not parsed.get("args"):
            return parsed["kwargs"], False
        return None, True
    return rendered_unless_json(span, key, value)


GENAI = dataclasses.replace(
    CONVENTIONS,
    name="LlamaIndex (official)",
    scopes=("opentelemetry.instrumentation.genai.llama_index",),
    runtime=runtimes.LLAMA_INDEX,
    has_end_mark=result_if_arguments,
)
OPENINFERENCE_LLAMA_INDEX = dataclasses.replace(
    OPENINFERENCE,
    name="LlamaIndex (OpenInference)",
    scopes=("openinference.instrumentation.llama_index",),
    runtime=runtimes.LLAMA_INDEX,
    unnamed=never_named,
    decode_arguments=_keywords,
    schemas=("tool.parameters",),
)
TRACELOOP = dataclasses.replace(
    OPENLLMETRY,
    name="LlamaIndex (OpenLLMetry)",
    scopes=("opentelemetry.instrumentation.llamaindex",),
    runtime=runtimes.LLAMA_INDEX,
    operation=_task_operation,
    tool_names=("tool.name",),
    tool_name=None,
    call_id=_task_call_id,
    arguments=("tool.arguments",),
    decode_arguments=None,
    has_end_mark=result_if_arguments,
    end_mark_needs=("traceloop.entity.input", "traceloop.entity.output"),
    failures=_task_failed,
)
DIALECTS = (GENAI, OPENINFERENCE_LLAMA_INDEX, TRACELOOP)
