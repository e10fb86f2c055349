# SPDX-License-Identifier: Apache-2.0
"""smolagents: OpenInference (official instrumentation makes no tool spans). Positional arguments follow the schema."""

from __future__ import annotations

import dataclasses
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import never_named, rendered_unless_json
from genai_processor.spans.dialects.conventions import CONVENTIONS
from genai_processor.spans.dialects.openinference import OPENINFERENCE
from genai_processor.spans.records import Span
from genai_processor.spans.values import loads


def _positional(span: Span, key: str, value: Any) -> tuple[Any, bool]:
    """`{"args": [...], "sanitize_inputs_outputs": …, "kwargs": {...}}`, mapped onto the schema's parameters in order."""
    parsed = loads(value)
    if not isinstance(parsed, dict) or "kwargs" not in parsed:
        return rendered_unless_json(span, key, value)
    keywords = {k: v for k, v in (parsed.get("kwargs") or {}).items() if k != "sanitize_inputs_outputs"}
    positional = parsed.get("args") or []
    if positional:
        schema = loads(span.attributes.get("tool.parameters"))
        properties = schema.get("properties", schema) if isinstance(schema, dict) else {}
        if len(properties) < len(positional):
            return None, True
        keywords = {**dict(zip(properties, positional, strict=False)), **keywords}
    return keywords, False


OPENINFERENCE_SMOLAGENTS = dataclasses.replace(
    OPENINFERENCE,
    name="smolagents (OpenInference)",
    scopes=("openinference.instrumentation.smolagents",),
    runtime=runtimes.SMOLAGENTS,
    unnamed=never_named,
    decode_arguments=_positional,
    definitions=("llm.tools.", "smolagents.tools_names"),
    schemas=("tool.parameters",),
    framework_tools=frozenset({"final_answer"}),
)
GENAI = dataclasses.replace(
    CONVENTIONS,
    name="smolagents (official)",
    scopes=("opentelemetry.instrumentation.genai.smolagents",),
    runtime=runtimes.SMOLAGENTS,
    framework_tools=frozenset({"final_answer"}),
)
DIALECTS = (OPENINFERENCE_SMOLAGENTS, GENAI)
