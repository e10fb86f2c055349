# SPDX-License-Identifier: Apache-2.0
"""Vercel AI SDK: version 6 (`ai`, with keys of its own) and 7 (`gen_ai`, the conventions).

Makes no span for a call that it rejects. Each JavaScript span has a clock of its own, so a call may seem to outlive its
parent by a little. Version 7 measures every call that came back, and only those.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect
from genai_processor.spans.dialects.conventions import CONVENTIONS
from genai_processor.spans.records import Operation, Span

_OPERATIONS = {
    "ai.toolCall": Operation.TOOL,
    "ai.generateText": Operation.AGENT,
    "ai.streamText": Operation.AGENT,
    "ai.generateObject": Operation.AGENT,
    "ai.streamObject": Operation.AGENT,
}


def _operation(span: Span) -> Operation | None:
    operation = span.attributes.get("ai.operationId")
    if not isinstance(operation, str):
        return None
    if operation.endswith((".doGenerate", ".doStream")):
        return Operation.INFERENCE
    return _OPERATIONS.get(operation, Operation.STEP)


def _measured(span: Span, call_id: str | None, arguments: Any, result: Any) -> bool:
    return "gen_ai.execute_tool.duration" in span.attributes


VERCEL_AI = Dialect(
    name="Vercel AI SDK 6",
    scopes=("ai",),
    marks=("ai.operationId",),
    runtime=runtimes.VERCEL_AI,
    operation=_operation,
    tool_names=("ai.toolCall.name",),
    call_ids=("ai.toolCall.id",),
    arguments=("ai.toolCall.args", "ai.toolCall.input"),
    results=("ai.toolCall.result", "ai.toolCall.output"),
    outputs=("ai.response.toolCalls",),
    inputs=("ai.prompt.messages",),
    definitions=("ai.prompt.tools",),
    conversations=("ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.threadId"),
    ends_inside_parent=False,
)
VERCEL_AI_7 = dataclasses.replace(
    CONVENTIONS,
    name="Vercel AI SDK 7",
    scopes=("gen_ai",),
    runtime=runtimes.VERCEL_AI,
    has_end_mark=_measured,
    ends_inside_parent=False,
)
DIALECTS = (VERCEL_AI, VERCEL_AI_7)
