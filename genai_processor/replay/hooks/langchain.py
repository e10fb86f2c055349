# SPDX-License-Identifier: Apache-2.0
"""LangChain: chat models answer from the record below their callbacks, so that spans stay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, Final

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.handed_back import exception_of
from genai_processor.replay.hooks.base import Hook, Target, acompared, arguments_mapping, arguments_text, bound_to, compared
from genai_processor.replay.live import Message, Prompt, parts_of
from genai_processor.replay.parts import PartKind
from genai_processor.replay.records import Ending, Node
from genai_processor.replay.session import Session

MODULES: Final = ("langchain_core.exceptions", "langchain_core.tools", "langgraph.errors")

_asked: Final[ContextVar[bool]] = ContextVar("genai_processor_replay_model_asked", default=False)
"""The live model that runs here has been compared already, by whoever calls it."""


@contextmanager
def _as_asked() -> Iterator[None]:
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)


# -- whole answers -------------------------------------------------------------------------------------------------------


def _generate(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    node = _node(session, args[0] if args else kwargs["messages"])
    if session.models:
        return _result(session, node)
    with _as_asked(), session.live.asking(node):
        result = wrapped(*args, **kwargs)
    session.answered_live(node, _said(result.generations[0].message))
    return result


def _agenerate(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _agenerated(session, wrapped, args, kwargs)


async def _agenerated(session: Session, wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    node = _node(session, args[0] if args else kwargs["messages"])
    if session.models:
        return _result(session, node)
    with _as_asked(), session.live.asking(node):
        result = await wrapped(*args, **kwargs)
    session.answered_live(node, _said(result.generations[0].message))
    return result


# -- streams -------------------------------------------------------------------------------------------------------------


def _should_stream(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """A recorded answer comes as one chunk: only what was said is recorded, not in which pieces."""
    return not session.models and bool(wrapped(*args, **kwargs))


def _stream(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if session.models or not instance._should_stream(async_api=False, **{**_options(kwargs), "stream": True}):
        return wrapped(*args, **kwargs)
    return _compared(session, wrapped, instance, args, kwargs)


def _compared(session: Session, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    node, whole = _node(session, _input(instance, args, kwargs)), None
    for chunk in compared(session, node, wrapped(*args, **kwargs)):
        whole = chunk if whole is None else whole + chunk
        if _is_last(chunk):
            session.answered_live(node, _said(whole))
        yield chunk


def _astream(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if session.models or not instance._should_stream(async_api=True, **{**_options(kwargs), "stream": True}):
        return wrapped(*args, **kwargs)
    return _acompared(session, wrapped, instance, args, kwargs)


async def _acompared(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any
) -> AsyncIterator[Any]:
    node, whole = _node(session, _input(instance, args, kwargs)), None
    async with aclosing(wrapped(*args, **kwargs)) as chunks:
        async for chunk in acompared(session, node, chunks):
            whole = chunk if whole is None else whole + chunk
            if _is_last(chunk):
                session.answered_live(node, _said(whole))
            yield chunk


def _options(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in ("input", "config", "stop")}


def _input(instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return instance._convert_input(args[0] if args else kwargs["input"]).to_messages()


def _is_last(chunk: Any) -> bool:
    return getattr(chunk, "chunk_position", None) == "last"  # the framework sees to it that there is one


def _events(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return wrapped(*args, **kwargs) if _asked.get() else _iterated(session, wrapped, args, kwargs)


def _iterated(session: Session, wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    node = _node(session, args[0] if args else kwargs["messages"])
    if session.models:
        chunk = _chunk(session, node)
        yield from bound_to(wrapped, SimpleNamespace(_stream=lambda *_, **__: iter([chunk])))(*args, **kwargs)
        return
    is_compared = False
    for event in compared(session, node, wrapped(*args, **kwargs)):
        is_compared = is_compared or _compare_once_done(session, node, kwargs["stream"])
        yield event


def _compare_once_done(session: Session, node: Node, stream: Any) -> bool:
    """Compare what was streamed as soon as it is whole: whoever reads it may ask for no more then."""
    if not stream.done or stream.output_message is None:
        return False
    session.answered_live(node, _said(stream.output_message))
    return True


def _aevents(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return wrapped(*args, **kwargs) if _asked.get() else _aiterated(session, wrapped, args, kwargs)


async def _aiterated(
    session: Session, wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    node = _node(session, args[0] if args else kwargs["messages"])
    if not session.models:
        is_compared = False
        async with aclosing(wrapped(*args, **kwargs)) as events:
            async for event in acompared(session, node, events):
                is_compared = is_compared or _compare_once_done(session, node, kwargs["stream"])
                yield event
        return
    chunk = _chunk(session, node)

    async def chunks(*_: Any, **__: Any) -> AsyncIterator[Any]:
        yield chunk

    recorded = bound_to(wrapped, SimpleNamespace(_astream=chunks))
    async with aclosing(recorded(*args, **kwargs)) as events:
        async for event in events:
            yield event


def _chunk(session: Session, node: Node) -> Any:
    from langchain_core.messages import AIMessageChunk
    from langchain_core.outputs import ChatGenerationChunk

    message = _result(session, node).generations[0].message
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    pieces: Any = [
        {
            "name": call["name"],
            "id": call["id"],
            "args": arguments_text(call["args"]),
            "index": at,
            "type": "tool_call_chunk",
        }
        for at, call in enumerate(calls)
    ]
    return ChatGenerationChunk(
        message=AIMessageChunk(content=message.content, tool_call_chunks=pieces, chunk_position="last")
    )


# -- messages ------------------------------------------------------------------------------------------------------------


def _node(session: Session, messages: Iterable[Any]) -> Node:
    return session.asked(Prompt(parts_of(messages_of(messages))))


def _said(message: Any) -> Any:
    return parts_of(messages_of([message]))


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
    for call in (*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())):
        parts.append({"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]})
    return {"role": "ai" if message.type == "AIMessageChunk" else message.type, "parts": parts}


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


def _complete(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.stop(
        ReplayRefusedError("A model that completes texts was asked; a replay answers, and compares, chat models only")
    )


_CHAT: Final = "langchain_core.language_models.chat_models"
_TEXT: Final = "langchain_core.language_models.llms"

HOOK = Hook(
    "LangChain",
    (
        Target(_CHAT, "BaseChatModel._generate_with_cache", ("messages",), _generate),
        Target(_CHAT, "BaseChatModel._agenerate_with_cache", ("messages",), _agenerate),
        Target(_CHAT, "BaseChatModel._should_stream", ("async_api",), _should_stream),
        Target(_CHAT, "BaseChatModel.stream", ("input",), _stream),
        Target(_CHAT, "BaseChatModel.astream", ("input",), _astream),
        *(Target(_TEXT, f"BaseLLM.{name}", (), _complete) for name in ("generate", "agenerate", "stream", "astream")),
    ),
    (
        Target(_CHAT, "BaseChatModel._iter_v2_events", ("messages", "stream"), _events),
        Target(_CHAT, "BaseChatModel._aiter_v2_events", ("messages", "stream"), _aevents),
    ),
)
