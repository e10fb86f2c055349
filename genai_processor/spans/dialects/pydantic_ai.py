# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai, formats 1 to 6: native, through logfire, and as OpenInference rewrites it.

Says itself when validation failed (`failure_stage`, from 2.x on) or a call was deferred. Formats before 3 keep arguments
and result under names of their own; 1.x makes no span for a call that it rejects.
"""

from __future__ import annotations

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect, result_if_arguments
from genai_processor.spans.records import NotStarted, Span
from genai_processor.spans.values import text


def _deferred(span: Span) -> str | None:
    return text(span.attributes.get("pydantic_ai.tool.deferral.name"))


def _validation_failed(span: Span) -> NotStarted | None:
    if span.attributes.get("pydantic_ai.tool.failure_stage") == "validation":
        return NotStarted("malformed_arguments", "pydantic_ai.tool.failure_stage=validation")
    return None


PYDANTIC_AI = Dialect(
    name="pydantic-ai",
    scopes=("pydantic-ai",),
    runtime=runtimes.PYDANTIC_AI,
    arguments=("gen_ai.tool.call.arguments", "tool_arguments"),
    results=("gen_ai.tool.call.result", "tool_response"),
    outputs=("gen_ai.output.messages", "events"),
    inputs=("gen_ai.input.messages", "events"),
    definitions=("gen_ai.tool.definitions", "model_request_parameters"),
    has_end_mark=result_if_arguments,
    paused=_deferred,
    not_started=_validation_failed,
)
DIALECTS = (PYDANTIC_AI,)
