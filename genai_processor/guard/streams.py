# SPDX-License-Identifier: Apache-2.0
"""Runs and calls that are generators: they are current only while one of their steps runs.

A context variable that is held across a `yield` leaks into whoever consumes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from genai_processor.guard.runs import Run, current_run, enter_run, leave_run
from genai_processor.guard.threads import tell

if TYPE_CHECKING:
    from genai_processor.guard.guard import Guard

Inside = Callable[[], AbstractContextManager[Any]]
"""Makes something current for as long as a step runs."""


def steps(inner: Iterator[Any], inside: Inside) -> Generator[Any, None, Any]:
    """Yield what an iterator yields, each step of it inside something; what it returns at last is returned."""
    try:
        while True:
            with inside():
                try:
                    item = next(inner)
                except StopIteration as done:
                    return done.value
            yield item
    finally:
        close = getattr(inner, "close", None)
        if close is not None:
            with inside():
                close()


async def asteps(inner: AsyncIterator[Any], inside: Inside) -> AsyncGenerator[Any, None]:
    """As `steps`, of an async iterator."""
    try:
        while True:
            with inside():
                try:
                    item = await anext(inner)
                except StopAsyncIteration:
                    return
            yield item
    finally:
        close = getattr(inner, "aclose", None)
        if close is not None:
            with inside():
                await close()


def run_within(hint: str | None = None) -> Run:
    """Return a run of an agent that begins here, in the scope of the one around it.

    Args:
        hint: The scope that the framework knows of, if it does at this place only.
    """
    outer = current_run()
    return Run(None if outer is None else outer.scope, hint or (None if outer is None else outer.hint))


def run_of_steps(guard: Guard, inner: Iterator[Any], run: Run) -> Generator[Any, None, Any]:
    """One run of an agent that tells of itself step by step. Who stops listening does not kill it."""
    try:
        value = yield from steps(inner, partial(_in_run, run))
    except GeneratorExit:
        raise
    except BaseException:
        guard.died(run)
        raise
    guard.delivered(run.delivered())
    return value


async def run_of_asteps(guard: Guard, inner: AsyncIterator[Any], run: Run) -> AsyncGenerator[Any, None]:
    """As `run_of_steps`, of an async iterator."""
    own = asteps(inner, partial(_in_run, run))
    try:
        async for item in own:
            yield item
    except GeneratorExit:
        await own.aclose()
        raise
    except BaseException:
        await tell(guard.threads, partial(guard.died, run))
        raise
    await tell(guard.threads, partial(guard.delivered, run.delivered()))


@contextmanager
def _in_run(run: Run) -> Iterator[None]:
    token = enter_run(run)
    try:
        yield
    finally:
        leave_run(token)
