# SPDX-License-Identifier: Apache-2.0
"""LangGraph: its `ToolNode`, where a call is still as the model made it; and its graphs, to know that one goes on.

Later, the graph's state is put into the arguments.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

from genai_processor.replay.hooks.base import Hook, Target, as_ever
from genai_processor.replay.hooks.langchain_tools import as_recorded, entered
from genai_processor.replay.session import Session


def _execute(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    request, rest = _request(args, kwargs)
    if request.tool is None:  # the framework says itself that there is no such tool
        session.check()
        return wrapped(*args, **kwargs)
    call = request.tool_call
    answer = session.called(call["name"], call["id"], call["args"])
    if answer.node is not None and session.enters(answer.node):
        with session.frame(answer.node.key):
            return wrapped(request.override(tool=entered(request.tool)), *rest[0], **rest[1])
    return wrapped(request.override(tool=as_recorded(session, request.tool, answer)), *rest[0], **rest[1])


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
    answer = session.called(call["name"], call["id"], call["args"])
    if answer.node is not None and session.enters(answer.node):
        with session.frame(answer.node.key):
            return await wrapped(request.override(tool=entered(request.tool)), *rest[0], **rest[1])
    return await wrapped(request.override(tool=as_recorded(session, request.tool, answer)), *rest[0], **rest[1])


def _stream(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Any]:
    with session.running():
        yield from wrapped(*args, **kwargs)


async def _astream(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    with session.running():
        async with aclosing(wrapped(*args, **kwargs)) as pieces:
            async for piece in pieces:
                yield piece


def _request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[tuple[Any, ...], dict[str, Any]]]:
    if args:
        return args[0], (args[1:], kwargs)
    return kwargs["request"], ((), {name: value for name, value in kwargs.items() if name != "request"})


HOOK = Hook(
    "LangGraph",
    (
        Target("langgraph.prebuilt.tool_node", "ToolNode._execute_tool_sync", ("request",), _execute),
        Target("langgraph.prebuilt.tool_node", "ToolNode._execute_tool_async", ("request",), _aexecute),
        Target("langgraph.prebuilt.tool_node", "ToolCallRequest.override", (), as_ever),
        Target("langgraph.pregel", "Pregel.stream", ("input",), _stream),
        Target("langgraph.pregel", "Pregel.astream", ("input",), _astream),
    ),
)
