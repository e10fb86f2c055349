# SPDX-License-Identifier: Apache-2.0
"""LangChain and LangGraph: official instrumentation, OpenLLMetry, OpenInference, LangSmith.

The graph node that runs a call (`tools`) names it, id included, where the tool span does not. LangSmith hides exception
types behind `Exception` and may write OK on a call that raised; its exception event tells.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect, result_if_arguments
from genai_processor.spans.dialects.conventions import CONVENTIONS
from genai_processor.spans.dialects.openinference import OPENINFERENCE, id_in_message
from genai_processor.spans.dialects.openllmetry import OPENLLMETRY
from genai_processor.spans.records import Span, StatusCode
from genai_processor.spans.values import literal, loads


def _unwrap_run_metadata(span: Span, key: str, value: Any) -> tuple[Any, bool]:
    """OpenLLMetry records the callback's input: `{"input_str": repr, "inputs": …, "tags", "metadata"}`."""
    if not isinstance(value, str) or '"input_str"' not in value:
        return value, key != "gen_ai.tool.call.arguments"
    parsed = loads(value)
    if not isinstance(parsed, dict):
        return value, False  # cut or broken: not for us to repair
    if isinstance(parsed.get("inputs"), dict):
        return parsed["inputs"], False
    rendered = parsed.get("input_str")
    found = literal(rendered) if isinstance(rendered, str) else None
    return (found, False) if found is not None else (rendered, True)


def _came_to_no_message(span: Span) -> bool:
    """OpenInference's id stands in the message that a call came to: one that raised has none."""
    return span.status == StatusCode.ERROR or any(event.name == "exception" for event in span.events)


GENAI = dataclasses.replace(
    CONVENTIONS,
    name="LangChain (official)",
    scopes=("opentelemetry.instrumentation.genai.langchain",),
    runtime=runtimes.LANGCHAIN,
    has_end_mark=result_if_arguments,
)
TRACELOOP = dataclasses.replace(
    OPENLLMETRY,
    name="LangChain (OpenLLMetry)",
    scopes=("opentelemetry.instrumentation.langchain",),
    runtime=runtimes.LANGCHAIN,
    call_id=id_in_message,
    decode_arguments=_unwrap_run_metadata,
    has_end_mark=result_if_arguments,
)
OPENINFERENCE_LANGCHAIN = dataclasses.replace(
    OPENINFERENCE,
    name="LangChain (OpenInference)",
    scopes=("openinference.instrumentation.langchain",),
    runtime=runtimes.LANGCHAIN,
    unnamed=_came_to_no_message,
)
LANGSMITH = Dialect(
    name="LangSmith",
    scopes=("langsmith",),
    marks=("langsmith.span.kind",),
    runtime=runtimes.LANGCHAIN,
    arguments=("gen_ai.prompt",),
    results=("gen_ai.completion",),
    outputs=("gen_ai.completion",),
    inputs=("gen_ai.prompt",),
    steps=("gen_ai.prompt",),
    conversations=("langsmith.metadata.thread_id", "langsmith.metadata.session_id"),
    empty_is_withheld=True,
)
DIALECTS = (GENAI, TRACELOOP, OPENINFERENCE_LANGCHAIN, LANGSMITH)
