# SPDX-License-Identifier: Apache-2.0
"""LangChain: chat models answer from the record below their callbacks, so that spans stay; so do tools run by themselves.

A tool in LangGraph's `ToolNode` is answered there (`hooks.langgraph`), where its call is still as the model made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from genai_processor.replay.handed_back import exception_of
from genai_processor.replay.hooks.base import (
    Hook,
    Target,
    arguments_mapping,
    arguments_text,
    bound_to,
    value_now,
    value_of,
)
from genai_processor.replay.live import Message, Prompt, parts_of
from genai_processor.replay.parts import PartKind
from genai_processor.replay.records import Ending, Node, Outcome
from genai_processor.replay.session import Session

MODULES: Final = ("langchain_core.exceptions", "langchain_core.tools", "langgraph.errors")

answered: Final[ContextVar[bool]] = ContextVar("genai_processor_replay_tool_answered", default=False)
"""The tool that runs here has been answered already, by whoever calls it."""


@contextmanager
def as_answered() -> Iterator[None]:
    """What is inside runs a tool that has been answered."""
    token = answered.set(True)
    try:
        yield
    finally:
        answered.reset(token)


# -- models --------------------------------------------------------------------------------------------------------------


def _generate(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    messages = args[0] if args else kwargs["messages"]
    node = session.asked(Prompt(parts_of(messages_of(messages))))
    if session.models:
        return _result(session, node)
    result = wrapped(*args, **kwargs)
    session.answered_live(node, parts_of(messages_of([result.generations[0].message])))
    return result


def _agenerate(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _agenerated(session, wrapped, args, kwargs)


async def _agenerated(session: Session, wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    messages = args[0] if args else kwargs["messages"]
    node = session.asked(Prompt(parts_of(messages_of(messages))))
    if session.models:
        return _result(session, node)
    result = await wrapped(*args, **kwargs)
    session.answered_live(node, parts_of(messages_of([result.generations[0].message])))
    return result


def _should_stream(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Streams come as one chunk: only what was said is recorded, not in which pieces."""
    return False


def messages_of(messages: Iterable[Any]) -> list[Message]:
    """Messages as the conventions write them."""
    return [_message(message) for message in messages]


def _message(message: Any) -> Message:
    if message.type == "tool":
        response = {
            "type": "tool_call_response",
            "id": message.tool_call_id,
            "name": message.name,
            "result": message.content,
        }
        return {"role": "tool", "parts": [response]}
    parts: list[Any] = [{"type": "text", "content": message.content}] if isinstance(message.content, str) else []
    if not isinstance(message.content, str):
        parts = [{"type": "text", "content": one} if isinstance(one, str) else one for one in message.content]
        parts = [one for one in parts if one.get("type") not in ("tool_use", "tool_call", "function_call")]
    for call in getattr(message, "tool_calls", ()):
        parts.append({"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]})
    for call in getattr(message, "invalid_tool_calls", ()):
        parts.append({"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]})
    return {"role": message.type, "parts": parts}


def _result(session: Session, node: Node) -> Any:
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    outcome = session.answers(node)
    if outcome.ending is not Ending.VALUE:
        raise exception_of(outcome, MODULES)
    texts: list[str] = []
    calls: list[Any] = []
    broken: list[Any] = []
    for slot, part in enumerate(outcome.parts):
        if part.kind is PartKind.CALL:
            call = {"name": part.tool, "id": session.call_id(node, slot)}
            arguments = arguments_mapping(part.value)
            if arguments is None:
                broken.append({**call, "args": arguments_text(part.value), "error": None, "type": "invalid_tool_call"})
            else:
                calls.append({**call, "args": arguments, "type": "tool_call"})
        elif part.kind is PartKind.TEXT:
            texts.append(part.value if isinstance(part.value, str) else str(part.value))
    content: Any = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts] or ""
    message = AIMessage(content=content, tool_calls=calls, invalid_tool_calls=broken)
    return ChatResult(generations=[ChatGeneration(message=message)])


# -- tools ---------------------------------------------------------------------------------------------------------------


def as_recorded(session: Session, tool: Any, outcome: Outcome) -> Any:
    """A tool that is as the given one in all but its body, which comes to what is recorded."""
    makers = {"GraphInterrupt": _interrupt, "NodeInterrupt": _interrupt}

    def run(*_: Any, **__: Any) -> Any:
        return value_now(session, outcome, MODULES, makers)

    async def arun(*_: Any, **__: Any) -> Any:
        return await value_of(session, outcome, MODULES, makers)

    changed: dict[str, Any] = {"response_format": "content"}
    if "coroutine" in type(tool).model_fields:  # without one, asynchronous runs would wait in a thread
        changed["coroutine"] = arun
    recorded = tool.model_copy(update=changed)
    object.__setattr__(recorded, "_run", run)
    object.__setattr__(recorded, "_arun", arun)
    return recorded


def _interrupt(message: str) -> BaseException:
    from langgraph.errors import GraphInterrupt
    from langgraph.types import Interrupt

    return GraphInterrupt((Interrupt(value=message),))


def _run(session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if answered.get():
        return wrapped(*args, **kwargs)
    node, outcome = _called(session, instance, args, kwargs)
    if node is not None and session.enters(node):
        with session.frame(node.key), as_answered():
            return wrapped(*args, **kwargs)
    with as_answered():
        return bound_to(wrapped, as_recorded(session, instance, outcome))(*args, **kwargs)


def _arun(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return wrapped(*args, **kwargs) if answered.get() else _aran(session, wrapped, instance, args, kwargs)


async def _aran(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    node, outcome = _called(session, instance, args, kwargs)
    if node is not None and session.enters(node):
        with session.frame(node.key), as_answered():
            return await wrapped(*args, **kwargs)
    with as_answered():
        return await bound_to(wrapped, as_recorded(session, instance, outcome))(*args, **kwargs)


def _called(session: Session, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Node | None, Outcome]:
    given = args[0] if args else kwargs.get("tool_input")
    return session.called(tool.name, kwargs.get("tool_call_id"), given)


HOOK = Hook(
    "LangChain",
    (
        Target("langchain_core.language_models.chat_models", "BaseChatModel._generate_with_cache", ("messages",), _generate),
        Target(
            "langchain_core.language_models.chat_models", "BaseChatModel._agenerate_with_cache", ("messages",), _agenerate
        ),
        Target("langchain_core.language_models.chat_models", "BaseChatModel._should_stream", (), _should_stream),
        Target("langchain_core.tools.base", "BaseTool.run", ("tool_input", "tool_call_id"), _run),
        Target("langchain_core.tools.base", "BaseTool.arun", ("tool_input", "tool_call_id"), _arun),
    ),
)
