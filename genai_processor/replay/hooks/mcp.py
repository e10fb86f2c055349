# SPDX-License-Identifier: Apache-2.0
"""The client of the MCP Python SDK 1 and 2: no call reaches a server.

An agent framework's MCP tools are answered where it runs them, and never come here. Whoever calls a server past the
frameworks that a replay answers is stopped. What tools a server has is asked of it as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.hooks.base import Hook, Target
from genai_processor.replay.session import Session


def _call(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.check()
    tool = args[0] if args else kwargs["name"]
    session.stop(ReplayRefusedError(f"{tool} of an MCP server was called past the frameworks that a replay answers"))


HOOK = Hook("MCP", (Target("mcp.client.session", "ClientSession.call_tool", ("name",), _call),))
