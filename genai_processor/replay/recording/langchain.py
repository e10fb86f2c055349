# SPDX-License-Identifier: Apache-2.0
"""LangChain, and so LangGraph: chat models around their callbacks, from which instrumentations make spans.

A batch of several prompts in one call is not looked at: which span shows which of them, nobody says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import reduce
from operator import add
from typing import Any

from genai_processor.replay.hooks.langchain import messages_of
from genai_processor.replay.parts import PartList
from genai_processor.replay.recording.installing import Hook, Target, failed
from genai_processor.replay.recording.requests import Request, asked_here, asking, list_of


def _request(messages: Any) -> Request | None:
    """The request of one prompt; None where it cannot be looked at."""
    try:
        return Request(list_of(messages_of(messages)))
    except Exception:  # noqa: BLE001 - the application must get its answer
        failed("LangChain")
        return None


def _only(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request | None:
    prompts = args[0] if args else kwargs.get("messages")
    return _request(prompts[0]) if isinstance(prompts, list) and len(prompts) == 1 else None


# -- whole answers -------------------------------------------------------------------------------------------------------


def _generate(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with asking(_only(args, kwargs)):
        return wrapped(*args, **kwargs)


async def _agenerate(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with asking(_only(args, kwargs)):
        return await wrapped(*args, **kwargs)


def _answer(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    _take(result)
    return result


async def _aanswer(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = await wrapped(*args, **kwargs)
    _take(result)
    return result


def _take(result: Any) -> None:
    request = asked_here()
    if request is None:
        return
    try:
        request.output = list_of(messages_of([result.generations[0].message]))
    except Exception:  # noqa: BLE001
        failed("LangChain")


# -- streams -------------------------------------------------------------------------------------------------------------


def _streamed(instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any], chunks: list[Any]) -> Request | None:
    try:
        given = instance._convert_input(args[0] if args else kwargs["input"]).to_messages()
    except Exception:  # noqa: BLE001 - the framework says the same, in its own way
        return None
    request = _request(given)
    if request is not None:

        def answer() -> PartList | None:
            try:
                from langchain_core.messages import message_chunk_to_message

                return list_of(messages_of([message_chunk_to_message(reduce(add, chunks))])) if chunks else None
            except Exception:  # noqa: BLE001
                failed("LangChain")
                return None

        request.output = answer
    return request


def _stream(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    chunks: list[Any] = []
    request = _streamed(instance, args, kwargs, chunks)
    steps = wrapped(*args, **kwargs)
    try:
        while True:
            with asking(request):  # never while the application has its turn
                try:
                    chunk = next(steps)
                except StopIteration:
                    return
            chunks.append(chunk)
            yield chunk
    finally:
        with asking(request):
            if hasattr(steps, "close"):
                steps.close()


async def _astream(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    chunks: list[Any] = []
    request = _streamed(instance, args, kwargs, chunks)
    steps = wrapped(*args, **kwargs)
    try:
        while True:
            with asking(request):
                try:
                    chunk = await anext(steps)
                except StopAsyncIteration:
                    return
            chunks.append(chunk)
            yield chunk
    finally:
        with asking(request):
            if hasattr(steps, "aclose"):
                await steps.aclose()


_MODULE = "langchain_core.language_models.chat_models"

HOOK = Hook(
    "LangChain",
    (
        Target(_MODULE, "BaseChatModel.generate", ("messages",), _generate),
        Target(_MODULE, "BaseChatModel.agenerate", ("messages",), _agenerate),
        Target(_MODULE, "BaseChatModel.stream", ("input",), _stream),
        Target(_MODULE, "BaseChatModel.astream", ("input",), _astream),
    ),
    (
        Target(_MODULE, "BaseChatModel._generate_with_cache", ("messages",), _answer),
        Target(_MODULE, "BaseChatModel._agenerate_with_cache", ("messages",), _aanswer),
    ),
)
