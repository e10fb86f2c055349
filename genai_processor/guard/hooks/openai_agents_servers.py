# SPDX-License-Identifier: Apache-2.0
"""Tools of the OpenAI Agents SDK that stand for tools of MCP servers."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.mcp import declared_effect
from genai_processor.retry.verdict import Effect


def _mcp_origin(tool: Any) -> tuple[Any, Any] | None:
    """The SDK's server and the server's own tool that a tool stands for, or None."""
    implementation = getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)
    if not isinstance(implementation, partial) or getattr(implementation.func, "__name__", None) != "invoke_mcp_tool":
        return None
    server, theirs = (*implementation.args, None, None)[:2]
    return None if theirs is None else (server, theirs)


def effect_of(guard: Guard, tool: Any) -> Effect | None:
    """Return what the server of an MCP tool says of its effect, if the user trusts it; None of other tools."""
    server, theirs = _mcp_origin(tool) or (None, None)
    session, annotations = getattr(server, "session", None), getattr(theirs, "annotations", None)
    if session is None or annotations is None:
        return None
    return declared_effect(guard, session, getattr(theirs, "name", ""), annotations)


def never_sends(tool: Any, arguments: str) -> bool:
    """Whether the arguments are none that the SDK would send to a server."""
    if _mcp_origin(tool) is None:
        return False
    try:
        return bool(arguments) and not isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return True
