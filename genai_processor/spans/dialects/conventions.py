# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry's GenAI semantic conventions, old and new. Every dialect falls back to these keys."""

from __future__ import annotations

from genai_processor.spans.dialects.base import Dialect
from genai_processor.spans.records import Span, View


def mcp_view(span: Span) -> View:
    """The MCP conventions put client calls on CLIENT spans and served ones on SERVER spans."""
    if span.attributes.get("mcp.method.name") != "tools/call":
        return View.FRAMEWORK
    return View.MCP_SERVER if span.kind == 2 else View.MCP_CLIENT


def tool_in_span_name(span: Span, recorded: str | None) -> str | None:
    """The conventions name a tool span `execute_tool {name}`, and an MCP one `tools/call {name}`."""
    if recorded is None:
        for prefix in ("execute_tool ", "tools/call "):
            if span.name.startswith(prefix):
                return span.name[len(prefix) :].strip() or None
    return recorded


CONVENTIONS = Dialect(
    name="GenAI conventions",
    view=mcp_view,
    tool_names=("gen_ai.tool.name",),
    tool_name=tool_in_span_name,
    call_ids=("gen_ai.tool.call.id",),
    arguments=("gen_ai.tool.call.arguments",),
    results=("gen_ai.tool.call.result",),
    outputs=("gen_ai.output.messages", "gen_ai.completion", "gen_ai.completion."),
    inputs=("gen_ai.input.messages", "gen_ai.prompt", "gen_ai.prompt."),
    definitions=("gen_ai.tool.definitions", "gen_ai.agent.tools"),
    schemas=("gen_ai.tool.json_schema",),
    conversations=("gen_ai.conversation.id",),
)
