# SPDX-License-Identifier: Apache-2.0
"""An MCP server in another process, as the OpenAI Agents SDK connects to it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents.mcp import MCPServerStdio

from benchmarks.incidents.kit import World

_SERVER = """
import logging, sys
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer
logging.disable(logging.CRITICAL)
server = MCPServer("payments")

from mcp.types import ToolAnnotations

@server.tool(annotations=ToolAnnotations.model_validate({sys.argv[3]: True}) if sys.argv[3:] else None)
async def refund(order: str) -> str:
    with open(sys.argv[1], "a") as effects:
        effects.write(order + chr(10))
    if sys.argv[2] == "hang":
        import anyio
        await anyio.sleep_forever()
    raise ConnectionError("502 Bad Gateway")

server.run()
"""


@asynccontextmanager
async def server_that_refunds(world: World, conduct: str, retries: int, *hint: str) -> AsyncIterator[MCPServerStdio]:
    """A server that refunds, and then hangs or says that it failed. Its effects land in the world at the end.

    Args:
        world: Where they land.
        conduct: `hang` or `fail`.
        retries: How often the SDK's session sends a request again.
        *hint: What the server declares of its tool.
    """
    with tempfile.TemporaryDirectory() as directory:
        program, effects = Path(directory, "server.py"), Path(directory, "effects")
        program.write_text(_SERVER)
        effects.touch()
        server = MCPServerStdio(
            {"command": sys.executable, "args": [str(program), str(effects), conduct, *hint]},
            cache_tools_list=True,
            client_session_timeout_seconds=60,
            max_retry_attempts=retries,
            retry_backoff_seconds_base=0.01,
        )
        async with server:
            await server.list_tools()
            if conduct == "hang":
                server.session._session_read_timeout_seconds = _seconds(1)  # type: ignore[union-attr]
            yield server
        for effect in effects.read_text().split():
            world.commit(effect)


def _seconds(number: float) -> Any:
    return timedelta(seconds=number) if version("mcp").startswith("1.") else number
