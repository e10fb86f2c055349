# SPDX-License-Identifier: Apache-2.0
"""What a hook of the replay is made of, and what several of them need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final, NoReturn

from genai_processor.errors import ReplayRefusedError
from genai_processor.hooks import Hook as AnyHook
from genai_processor.hooks import Target as AnyTarget
from genai_processor.replay.executions import Answer
from genai_processor.replay.handed_back import Make, exception_of
from genai_processor.replay.records import Ending, Node
from genai_processor.replay.session import Session
from genai_processor.replay.stopping import Stop, named
from genai_processor.spans.values import quick_loads

Wrapper = Callable[[Session, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called instead of a target: with the session, the target, what it is bound to (None for a function), and the arguments."""


_OVER: Final = object()

Target = AnyTarget[Wrapper]
Hook = AnyHook[Wrapper]


def as_ever(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The wrapper of what a hook calls itself: a target only so that a version without it is refused at the start."""
    return wrapped(*args, **kwargs)


async def value_of(
    session: Session, answer: Answer, modules: tuple[str, ...] = (), makers: Mapping[str, Make] | None = None
) -> Any:
    """Hand back what a tool came to: return its result, raise its failure, or wait as long as the framework lets it.

    Args:
        session: The replay.
        answer: What it came to.
        modules: Where the framework's own exceptions are from (`handed_back.exception_of`).
        makers: What makes those that take more than a message.
    """
    if answer.outcome.ending is Ending.WAITS:
        await _until_cancelled(session, answer)
    return value_now(session, answer, modules, makers)


def value_now(
    session: Session, answer: Answer, modules: tuple[str, ...] = (), makers: Mapping[str, Make] | None = None
) -> Any:
    """As `value_of`, in code that cannot be cancelled."""
    outcome = answer.outcome
    if outcome.ending in (Ending.FAILURE, Ending.PAUSED):
        raise exception_of(outcome, modules, makers)
    if outcome.ending is Ending.VALUE:
        return handed(outcome.parts[0].value) if len(outcome.parts) else None
    if outcome.ending is Ending.WAITS:
        why = "was cancelled, or never returned, which can be replayed in asynchronous code only"
    else:
        why = "has no recorded outcome"
    session.stop(ReplayRefusedError(f"{_which(answer)} {why}", nodes=_keys(answer)))


async def _until_cancelled(session: Session, answer: Answer) -> NoReturn:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    with session.waking(partial(loop.call_soon_threadsafe, stopped.set)):
        try:
            async with asyncio.timeout(session.patience):
                await stopped.wait()
        except TimeoutError:
            session.check()
            why = f"was cancelled in the record, or never returned, and now nobody cancelled it in {session.patience:g} s"
            session.stop(ReplayRefusedError(f"{_which(answer)} {why}", nodes=_keys(answer)))
    session.check()
    raise Stop


def _which(answer: Answer) -> str:
    return "A call" if answer.node is None else named(answer.node)


def _keys(answer: Answer) -> tuple[str, ...]:
    return () if answer.node is None else (answer.node.key,)


def compared(session: Session, node: Node, pieces: Iterator[Any]) -> Iterator[Any]:
    """The pieces of a live model's stream; what it fails with is compared, and not what whoever reads it does."""
    while True:
        with session.live.asking(node):
            piece = next(pieces, _OVER)
        if piece is _OVER:
            return
        yield piece


async def acompared(session: Session, node: Node, pieces: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """As `compared`, of an asynchronous stream."""
    while True:
        with session.live.asking(node):
            piece = await anext(pieces, _OVER)
        if piece is _OVER:
            return
        yield piece


def bound_to(method: Any, instance: Any) -> Callable[..., Any]:
    """A bound method of another instance."""
    bound: Callable[..., Any] = method.__func__.__get__(instance)
    return bound


def arguments_text(value: Any) -> str:
    """Arguments as JSON text; a text as it is."""
    return value if isinstance(value, str) else json.dumps({} if value is None else value)


def handed(value: Any) -> Any:
    """A recorded value for somebody who may change it."""
    return deepcopy(value) if isinstance(value, (dict, list)) else value


def arguments_mapping(value: Any) -> dict[str, Any] | None:
    """Arguments as a mapping, or None if they are none."""
    value = handed(value)
    if isinstance(value, str):
        value = quick_loads(value) if value.strip() else {}
        if isinstance(value, str):
            value = quick_loads(value)
    return dict(value) if isinstance(value, Mapping) else {} if value is None else None
