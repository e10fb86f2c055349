# SPDX-License-Identifier: Apache-2.0
"""Bodies of agno's tools, which say themselves when they begin: nothing else there tells a failure before from one after."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

from genai_processor.guard import bindings
from genai_processor.guard.hooks import installing
from genai_processor.guard.running import started
from genai_processor.ledger.requests import RefusalReason

_MARK: Final = "_genai_processor_marks_its_start"


def marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool's function that says when its body begins, as the innermost of what agno wraps around it."""
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def items(*args: Any, **kwargs: Any) -> Any:
            started()
            async for item in function(*args, **kwargs):
                yield item

        return _with_mark(items)
    if inspect.isgeneratorfunction(function):
        return function
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with _body():
                return await function(*args, **kwargs)

        return _with_mark(coroutine)

    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with _body():
            return function(*args, **kwargs)

    return _with_mark(plain)


def _with_mark(function: Callable[..., Any]) -> Callable[..., Any]:
    setattr(function, _MARK, True)
    return function


@contextmanager
def _body() -> Iterator[None]:
    """A body begins, and not for the second time within one call after a first that may have committed: hooks do that."""
    bound, guard = bindings.current(), installing.active()
    if bound is None or guard is None:
        yield
        return
    if bound.body_failed and guard.refuses(None, bound.tool):
        raise guard.refuse(bound, RefusalReason.NESTED_UNCERTAIN).error()
    started()
    try:
        yield
    except BaseException:
        bound.body_failed = not bound.rejected
        raise


def marks_its_start(function: Any) -> bool:
    """Whether a function, or one that it wraps, says when its body begins."""
    while function is not None:
        if getattr(function, _MARK, False):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def is_generator(function: Any) -> bool:
    """Whether the body of a tool, given as agno's `Function`, is a generator."""
    entrypoint = inspect.unwrap(function.entrypoint) if callable(function.entrypoint) else None
    return inspect.isgeneratorfunction(entrypoint) or inspect.isasyncgenfunction(entrypoint)
