# SPDX-License-Identifier: Apache-2.0
"""Strands Agents, default and latest conventions, and as OpenInference rewrites it.

The default keeps the arguments in an event. Only `gen_ai.tool.status` tells a call that came back: a cancelled span is OK.
Broken JSON becomes `{}` and runs on the tool's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect
from genai_processor.spans.messages import walk
from genai_processor.spans.records import Proposal, Span
from genai_processor.spans.values import loads


def _status_recorded(span: Span, call_id: str | None, arguments: Any, result: Any) -> bool:
    return "gen_ai.tool.status" in span.attributes


def _cancelled(span: Span, result: Any) -> Iterable[str]:
    if span.attributes.get("gen_ai.tool.status") == "error":
        yield "gen_ai.tool.status=error"


def _from_event(span: Span) -> Any:
    for event in span.events:
        if event.name == "gen_ai.tool.message":
            return event.attributes.get("content")
        if event.name == "gen_ai.client.inference.operation.details":
            for part in walk(loads(event.attributes.get("gen_ai.input.messages"))):
                if isinstance(part, Proposal):
                    return part.arguments
    return None


STRANDS = Dialect(
    name="Strands",
    scopes=("strands.telemetry.tracer",),
    runtime=runtimes.STRANDS,
    arguments=("gen_ai.tool.call.arguments", "tool.parameters"),
    find_arguments=_from_event,
    definitions=("gen_ai.agent.tools", "gen_ai.tool.definitions", "llm.tools."),
    has_end_mark=_status_recorded,
    failures=_cancelled,
)
DIALECTS = (STRANDS,)
