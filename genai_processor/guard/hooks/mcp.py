# SPDX-License-Identifier: Apache-2.0
"""The client of the MCP Python SDK 1 and 2, and so of all that stands on it: FastMCP, and the MCP tools of agent frameworks.

No model gives these calls an id, and the id of a request is new with every attempt. A call that the body of a guarded tool
makes is a child of that tool's call; any other stands for itself, and an attempt that ended in doubt stands in the way of
the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from typing import Any, Final
from weakref import WeakKeyDictionary

from genai_processor.guard.bindings import current
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, started
from genai_processor.retry.verdict import Effect


class _Server:
    """What a session has heard of its server."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.annotations: dict[str, Any] = {}


_servers: Final[WeakKeyDictionary[Any, _Server]] = WeakKeyDictionary()


def declared_effect(guard: Guard, session: Any, tool: str, annotations: Any = None) -> Effect | None:
    """Return what a server says of a tool's effect, if the user trusts that server.

    Args:
        guard: Knows whom the user trusts.
        session: The `ClientSession`.
        tool: The tool's name, as the server has it.
        annotations: What the server says of it, if it is at hand; else what its latest list of tools said.

    Returns:
        The effect; None if nobody trusted says anything, or nothing that matters.
    """
    if not guard.trusted_mcp_servers:
        return None
    server = _servers.get(session)
    name = _server_name(session, server)
    if name is None or not any(fnmatchcase(name, glob) for glob in guard.trusted_mcp_servers):
        return None
    if annotations is None and server is not None:
        annotations = server.annotations.get(tool)
    if _either(annotations, "readOnlyHint", "read_only_hint") is True:
        return Effect.READ_ONLY
    return Effect.IDEMPOTENT if _either(annotations, "idempotentHint", "idempotent_hint") is True else None


def _server_name(session: Any, server: _Server | None) -> str | None:
    info = getattr(session, "server_info", None)  # from 2 on
    name = getattr(info, "name", None) or (None if server is None else server.name)
    return name if isinstance(name, str) else None


def _either(value: Any, old: str, new: str) -> Any:
    """An attribute that is called otherwise since version 2."""
    return getattr(value, new) if hasattr(value, new) else getattr(value, old, None)


# -- the call ------------------------------------------------------------------------------------------------------------


def _call_tool(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    tool = argument("name", 0, args, kwargs)
    effect = declared_effect(guard, instance, tool)
    outer = current()
    call_id = None
    if effect is Effect.IDEMPOTENT and (outer is None or outer.entry_id is None):
        effect = None  # nothing shows which requests are attempts at the same thing
    elif effect is Effect.IDEMPOTENT and outer is not None:
        call_id = f"mcp-{outer.entry_id}"  # all that the body of one call sends for one action
    wish = Call(tool, call_id, argument("arguments", 1, args, kwargs) or {}, effect=effect, framework="MCP")
    return arun(guard, wish, partial(_sent, partial(wrapped, *args, **kwargs)), _manners())


async def _sent(send: Callable[[], Any]) -> Any:
    try:
        return await send()
    except Exception as error:
        bound, mismatch = current(), getattr(_types(), "HEADER_MISMATCH", None)  # from 2 on
        if bound is not None and mismatch is not None and getattr(error, "code", None) == mismatch:
            bound.rejected = True  # a server must find out before it calls anything, and the client sends again
        raise


def _manners() -> Manners:
    return Manners(refuse=_refuse, failure=_failure, pauses=_pauses, awaits_start=True)


def _types() -> Any:
    return import_module("mcp.client.session").types


def _refuse(refused: Refused) -> Any:
    return _types().CallToolResult.model_validate({"content": [{"type": "text", "text": refused.text}], "isError": True})


def _failure(result: Any) -> str | None:
    """An error of the tool; or what only an extension can read, such as a task that is still to be waited for."""
    is_error = _either(result, "isError", "is_error")
    if is_error is None:
        return "extension_result"
    return "tool_error" if is_error else None


def _pauses(result: Any) -> bool:
    """Whether the server waits for input: the same request is sent again with it, and is claimed once more."""
    kind = getattr(_types(), "InputRequiredResult", None)  # from 2 on
    return kind is not None and isinstance(result, kind)


def _send_request(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    request = argument("request", 0, args, kwargs)
    if type(getattr(request, "root", request)).__name__ == "CallToolRequest":
        started()
    return wrapped(*args, **kwargs)


# -- what the server says of itself --------------------------------------------------------------------------------------


def _server_of(session: Any) -> _Server:
    return _servers.setdefault(session, _Server())


def _initialize(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _initialized(instance, wrapped(*args, **kwargs))


async def _initialized(session: Any, answer: Any) -> Any:
    result = await answer
    _server_of(session).name = getattr(_either(result, "serverInfo", "server_info"), "name", None)
    return result


def _list_tools(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _listed(instance, wrapped(*args, **kwargs))


async def _listed(session: Any, answer: Any) -> Any:
    result = await answer
    _server_of(session).annotations.update({tool.name: tool.annotations for tool in result.tools})
    return result


HOOK = Hook(
    "MCP",
    (
        Target("mcp.client.session", "ClientSession.call_tool", ("name", "arguments"), _call_tool),
        Target("mcp.client.session", "ClientSession.send_request", ("request",), _send_request),
        Target("mcp.client.session", "ClientSession.initialize", (), _initialize),
        Target("mcp.client.session", "ClientSession.list_tools", (), _list_tools),
    ),
)
