# SPDX-License-Identifier: Apache-2.0
"""Google ADK, schema 1 and 2, native and as OpenInference rewrites it.

A call that raised or was cancelled has `<not specified>` as its id, which is why a real id is the mark of a normal end.
`execute_tool (merged)` is no call. ADK runs arguments of a wrong type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect
from genai_processor.spans.dialects.openinference import OPENINFERENCE
from genai_processor.spans.records import Operation, Span

_REFLECTED = "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN"


def _operation(span: Span) -> Operation | None:
    if span.name == "execute_tool (merged)" or span.attributes.get("gen_ai.tool.name") == "(merged tools)":
        return Operation.OTHER
    return None


def _unnamed(span: Span) -> bool:
    return span.attributes.get("gen_ai.tool.call.id") == "<not specified>"


def _real_id(span: Span, call_id: str | None, arguments: Any, result: Any) -> bool:
    return call_id is not None


def _reflected(span: Span, result: Any) -> Iterable[str]:
    """The reflect-and-retry plugin swallows the exception and answers with a report of it."""
    for key in ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value"):
        value = span.attributes.get(key)
        if isinstance(value, str) and _REFLECTED in value:
            yield _REFLECTED
            return


NATIVE = Dialect(
    name="Google ADK",
    scopes=("gcp.vertex.agent",),
    marks=("gcp.vertex.agent.tool_call_args",),
    runtime=runtimes.GOOGLE_ADK,
    operation=_operation,
    unnamed=_unnamed,
    arguments=("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args"),
    results=("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response"),
    outputs=("gen_ai.output.messages", "gcp.vertex.agent.llm_response"),
    inputs=("gen_ai.input.messages", "gcp.vertex.agent.llm_request"),
    definitions=("gen_ai.tool.definitions", "llm.tools."),
    conversations=("gen_ai.conversation.id", "gcp.vertex.agent.session_id"),
    has_end_mark=_real_id,
    failures=_reflected,
    empty_is_withheld=True,
)
OPENINFERENCE_ADK = dataclasses.replace(
    OPENINFERENCE,
    name="Google ADK (OpenInference)",
    scopes=("openinference.instrumentation.google_adk",),
    runtime=runtimes.GOOGLE_ADK,
    operation=_operation,
    unnamed=_unnamed,
    arguments=("gen_ai.tool.call.arguments", "input.value"),
    results=("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value"),
    has_end_mark=_real_id,
    failures=_reflected,
    empty_is_withheld=True,
)
DIALECTS = (NATIVE, OPENINFERENCE_ADK)
