# SPDX-License-Identifier: Apache-2.0
"""Context variables that have a value for as long as something runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, TypeVar

_T = TypeVar("_T")


@contextmanager
def holding(variable: ContextVar[_T | None], value: _T | None) -> Iterator[None]:
    """Let a context variable have a value inside. Not across a `yield`: see `genai_processor.guard.streams`."""
    token = variable.set(value)
    try:
        yield
    finally:
        try:
            variable.reset(token)
        except ValueError:  # a generator was moved into another context: a copy of its own, or one of somebody else's
            if variable.get() is value:
                before = token.old_value
                variable.set(None if before is Token.MISSING else before)


async def held(variable: ContextVar[_T | None], value: _T | None, body: Callable[[], Awaitable[Any]]) -> Any:
    """Await something while a context variable has a value. The variable gets it with the first step of the coroutine."""
    with holding(variable, value):
        return await body()
