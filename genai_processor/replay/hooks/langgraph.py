# SPDX-License-Identifier: Apache-2.0
"""LangGraph's `ToolNode`: a call is matched as the model made it, before the graph's state is put into its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genai_processor.replay.hooks.base import Hook, Target
from genai_processor.replay.hooks.langchain import as_answered, as_recorded
from genai_processor.replay.session import Session


def _execute(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    request, rest = _request(args, kwargs)
    if request.tool is None:  # the framework says itself that there is no such tool
        session.check()
        return wrapped(*args, **kwargs)
    call = request.tool_call
    node, outcome = session.called(call["name"], call["id"], call["args"])
    if node is not None and session.enters(node):
        with session.frame(node.key), as_answered():
            return wrapped(*args, **kwargs)
    with as_answered():
        return wrapped(request.override(tool=as_recorded(session, request.tool, outcome)), *rest[0], **rest[1])


def _aexecute(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _aexecuted(session, wrapped, args, kwargs)


async def _aexecuted(session: Session, wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    request, rest = _request(args, kwargs)
    if request.tool is None:
        session.check()
        return await wrapped(*args, **kwargs)
    call = request.tool_call
    node, outcome = session.called(call["name"], call["id"], call["args"])
    if node is not None and session.enters(node):
        with session.frame(node.key), as_answered():
            return await wrapped(*args, **kwargs)
    with as_answered():
        return await wrapped(request.override(tool=as_recorded(session, request.tool, outcome)), *rest[0], **rest[1])


def _request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[tuple[Any, ...], dict[str, Any]]]:
    if args:
        return args[0], (args[1:], kwargs)
    return kwargs["request"], ((), {name: value for name, value in kwargs.items() if name != "request"})


HOOK = Hook(
    "LangGraph",
    (
        Target("langgraph.prebuilt.tool_node", "ToolNode._execute_tool_sync", ("request",), _execute),
        Target("langgraph.prebuilt.tool_node", "ToolNode._execute_tool_async", ("request",), _aexecute),
    ),
)
