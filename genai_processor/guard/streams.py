# SPDX-License-Identifier: Apache-2.0
"""Runs and calls that are generators: what they are is current only while one of their steps runs.

A context variable that is held across a `yield` leaks into whoever consumes.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from genai_processor.guard.running import ends_of
from genai_processor.guard.runs import Run, in_run

if TYPE_CHECKING:
    from genai_processor.guard.guard import Guard

Inside = Callable[[], AbstractContextManager[Any]]
"""Makes something current for as long as a step runs."""


def _unnoticed(item: Any) -> None:
    return None


class Steps(NamedTuple):
    """An async iterator, and what is to be around its steps.

    Attributes:
        inner: The iterator.
        inside: Entered for each step.
        seen: Gets each item before whoever consumes does.
    """

    inner: AsyncIterator[Any]
    inside: Inside
    seen: Callable[[Any], object] = _unnoticed


def steps(inner: Iterator[Any], inside: Inside, seen: Callable[[Any], object] = _unnoticed) -> Generator[Any, Any, Any]:
    """Yield what an iterator yields, each step of it inside something, and return what it returns.

    Args:
        inner: The iterator. What is sent or thrown in is sent on to it, if it is a generator; it is closed at the end.
        inside: Entered for each step.
        seen: Gets each item before whoever consumes does.
    """
    resume: Callable[[], Any] = partial(next, inner)
    try:
        while True:
            with inside():
                try:
                    item = resume()
                except StopIteration as done:
                    return done.value
            seen(item)
            try:
                sent = yield item
            except GeneratorExit:
                raise
            except BaseException as error:
                if not hasattr(inner, "throw"):
                    raise
                resume = partial(inner.throw, error)  # it is the generator's to handle
            else:
                resume = partial(next, inner) if sent is None else partial(inner.send, sent)  # type: ignore[attr-defined]
    finally:
        close = getattr(inner, "close", None)
        if close is not None:
            with inside():
                close()


def stepwise(
    around: Callable[..., AbstractAsyncContextManager[Steps]],
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """Return an async generator function that does what `steps` does, of an async iterator.

    Args:
        around: Called with its arguments. What it returns is entered with the first step, and left after the last, or with
            whatever ends it: it says what to step through, and tells how that ended. The iterator is closed by then.
    """

    @functools.wraps(around)
    async def stepping(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with around(*args, **kwargs) as (inner, inside, seen):
            resume: Callable[[], Any] = inner.__anext__
            try:
                while True:
                    with inside():
                        try:
                            item = await resume()
                        except StopAsyncIteration:
                            break
                    seen(item)
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        if not hasattr(inner, "athrow"):
                            raise
                        resume = partial(inner.athrow, error)  # it is the generator's to handle
                    else:
                        resume = inner.__anext__ if sent is None else partial(inner.asend, sent)  # type: ignore[attr-defined]
            finally:
                close = getattr(inner, "aclose", None)
                if close is not None:
                    with inside():
                        await close()

    return stepping


def run_of_steps(guard: Guard, inner: Iterator[Any], run: Run) -> Generator[Any, Any, Any]:
    """One run of an agent that tells of itself step by step.

    Args:
        guard: The guard.
        inner: What the run yields.
        run: The run.
    """
    try:
        value = yield from steps(inner, partial(in_run, run))
    except BaseException as error:
        guard.ended(run, error)
        raise
    guard.ended(run)
    return value


@stepwise
@asynccontextmanager
async def run_of_asteps(guard: Guard, inner: AsyncIterator[Any], run: Run | None = None) -> AsyncIterator[Steps]:
    """As `run_of_steps`, of an async iterator; by default of a run that begins with the first step."""
    run = Run.within() if run is None else run
    async with ends_of(guard, run):
        yield Steps(inner, partial(in_run, run))
