# SPDX-License-Identifier: Apache-2.0
"""OpenInference (Arize Phoenix): its own attribute names, on its own spans and on spans of others that it rewrites.

Lacks a call id on tool spans of most instrumentors, sets OK on everything that did not raise, and writes a placeholder
instead of leaving content out. `input.value` of a one-argument call is bare text, not broken JSON.
"""

from __future__ import annotations

from typing import Any

from genai_processor.spans.dialects.base import Dialect, rendered_unless_json
from genai_processor.spans.records import Span
from genai_processor.spans.values import quick_loads


def output_recorded(span: Span, call_id: str | None, arguments: Any, result: Any) -> bool:
    """A call that came back has an `output.value`; a placeholder counts."""
    return "output.value" in span.attributes


def id_in_message(span: Span) -> str | None:
    """LangChain's ToolMessage, the recorded output, names the call that it answers."""
    for key in ("output.value", "gen_ai.tool.call.result", "gen_ai.tool.call.arguments"):
        value = span.attributes.get(key)
        if isinstance(value, str) and '"tool_call_id"' in value:
            parsed = quick_loads(value)
            for path in (("data",), ("kwargs",), ("output", "kwargs"), ("output", "data"), ()):
                node = parsed
                for part in path:
                    node = node.get(part) if isinstance(node, dict) else None
                found = node.get("tool_call_id") if isinstance(node, dict) else None
                if isinstance(found, str):
                    return found
    return None


OPENINFERENCE = Dialect(
    name="OpenInference",
    scopes=("openinference.instrumentation.*",),
    marks=("openinference.span.kind",),
    tool_names=("tool.name",),
    call_ids=("tool_call.id", "tool.call_id"),
    call_id=id_in_message,
    arguments=("input.value",),
    decode_arguments=rendered_unless_json,
    results=("output.value",),
    outputs=("llm.output_messages.", "output.value"),
    inputs=("llm.input_messages.", "input.value"),
    steps=("input.value",),
    definitions=("llm.tools.",),
    schemas=("tool.json_schema",),
    conversations=("session.id",),
    has_end_mark=output_recorded,
)
