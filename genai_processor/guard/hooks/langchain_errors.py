# SPDX-License-Identifier: Apache-2.0
"""Lets `is_safe_to_retry` know an exception that a LangChain tool raised, so that LangGraph's `RetryPolicy` can ask it.

It asks no guard. What it wraps returns and raises what it did before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target
from genai_processor.retry.tool_runs import ToolRun, body_begins


def _run(guard: Guard, wrapped: Callable[..., Any], tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with ToolRun():
        return wrapped(*args, **kwargs)


async def _arun(guard: Guard, wrapped: Callable[..., Any], tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with ToolRun():
        return await wrapped(*args, **kwargs)


def _body(guard: Guard, wrapped: Callable[..., Any], tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    body_begins()  # nearly: the span is open, and the body is called next
    return wrapped(*args, **kwargs)


_BASE: Final = "langchain_core.tools.base"

HOOK = Hook(
    "LangChain",
    (
        Target(_BASE, "BaseTool.run", ("self", "tool_input"), _run),
        Target(_BASE, "BaseTool.arun", ("self", "tool_input"), _arun),
        Target(_BASE, "BaseTool._to_args_and_kwargs", ("self", "tool_input", "tool_call_id"), _body),
    ),
    guards=False,
    otherwise="is_safe_to_retry answers False for what its tools raise",
)
