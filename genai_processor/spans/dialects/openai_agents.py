# SPDX-License-Identifier: Apache-2.0
"""OpenAI Agents SDK: official instrumentation, OpenLLMetry, OpenInference, logfire.

No call id on any tool span, and no mark of a normal end: a call without a result *inside* its parent is an approval that
was asked for; a cancelled one outlives its parent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from genai_processor.spans import runtimes
from genai_processor.spans.dialects.base import Dialect, never_named
from genai_processor.spans.dialects.conventions import CONVENTIONS
from genai_processor.spans.dialects.openinference import OPENINFERENCE
from genai_processor.spans.dialects.openllmetry import OPENLLMETRY
from genai_processor.spans.records import NotStarted, Operation, Span

_TIMED_OUT = "timed out after "


def _timed_out(span: Span, result: Any) -> Iterable[str]:
    """The SDK turns its own time-out into the tool's result: "Tool 'x' timed out after 0.2 seconds."."""
    if isinstance(result, str) and _TIMED_OUT in result[:300] and result.lstrip('"').startswith("Tool "):
        yield "result is the SDK's time-out text"


def _logfire_operation(span: Span) -> Operation | None:
    template = span.attributes.get("logfire.msg_template")
    name = template if isinstance(template, str) else span.name
    if name.startswith("Function"):
        return Operation.TOOL
    if name.startswith(("Responses API", "Chat completion", "Response")):
        return Operation.INFERENCE
    if name.startswith(("Agent run", "OpenAI Agents trace")):
        return Operation.AGENT
    return None


def _logfire_tool(span: Span, recorded: str | None) -> str | None:
    if recorded is None and span.name.startswith("Function: ") and "{" not in span.name:
        return span.name.removeprefix("Function: ").strip() or None
    return recorded


def _logfire_error(span: Span, result: Any) -> Iterable[str]:
    if span.attributes.get("error") not in (None, "", "null"):
        yield "error recorded"
    yield from _timed_out(span, result)


def _rejected_by_sdk(span: Span) -> NotStarted | None:
    """`ModelBehaviorError` is the SDK's own, raised before the body; a nested call on the trace outranks it."""
    for event in span.events:
        if event.attributes.get("exception.type") == "agents.exceptions.ModelBehaviorError":
            return NotStarted("rejected_before_execution", "agents.exceptions.ModelBehaviorError", True)
    return None


OFFICIAL = dataclasses.replace(
    CONVENTIONS,
    name="openai-agents (official)",
    scopes=("opentelemetry.instrumentation.genai.openai_agents", "opentelemetry.instrumentation.openai_agents_v2"),
    runtime=runtimes.OPENAI_AGENTS,
    unnamed=never_named,
    failures=_timed_out,
    not_started=_rejected_by_sdk,
)
TRACELOOP = dataclasses.replace(
    OPENLLMETRY,
    name="openai-agents (OpenLLMetry)",
    scopes=("opentelemetry.instrumentation.openai_agents",),
    runtime=runtimes.OPENAI_AGENTS,
    unnamed=never_named,
    failures=_timed_out,
    not_started=_rejected_by_sdk,
)
OPENINFERENCE_AGENTS = dataclasses.replace(
    OPENINFERENCE,
    name="openai-agents (OpenInference)",
    scopes=("openinference.instrumentation.openai_agents",),
    runtime=runtimes.OPENAI_AGENTS,
    unnamed=never_named,
    schemas=("tool.parameters",),
    has_end_mark=None,
    failures=_timed_out,
    not_started=_rejected_by_sdk,
)
LOGFIRE = Dialect(
    name="openai-agents (logfire)",
    scopes=("logfire.openai_agents",),
    runtime=runtimes.OPENAI_AGENTS,
    unnamed=never_named,
    operation=_logfire_operation,
    tool_names=("name",),
    tool_name=_logfire_tool,
    arguments=("input",),
    results=("output",),
    outputs=("response",),
    inputs=("raw_input", "events"),
    definitions=("response.tools", "tools"),
    failures=_logfire_error,
    not_started=_rejected_by_sdk,
)
DIALECTS = (OFFICIAL, TRACELOOP, OPENINFERENCE_AGENTS, LOGFIRE)
