# SPDX-License-Identifier: Apache-2.0
"""Semantic Kernel, native. Its tool's name is `plugin-function`: the function is the tool."""

from __future__ import annotations

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect, result_if_arguments
from genai_processor.spans.dialects.conventions import tool_in_span_name
from genai_processor.spans.records import Span


def _function(span: Span, recorded: str | None) -> str | None:
    name = tool_in_span_name(span, recorded)
    return name.rpartition("-")[2] or name if name else None


SEMANTIC_KERNEL = Dialect(
    name="Semantic Kernel",
    scopes=("semantic_kernel*",),
    runtime=runtimes.SEMANTIC_KERNEL,
    tool_name=_function,
    definitions=("gen_ai.tool.definitions", "sk.available_functions"),
    has_end_mark=result_if_arguments,
)
DIALECTS = (SEMANTIC_KERNEL,)
