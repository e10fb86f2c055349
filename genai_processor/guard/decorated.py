# SPDX-License-Identifier: Apache-2.0
"""The decorator: which kind of function it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from genai_processor.guard.calls import Key
from genai_processor.guard.functions import Guarded, coroutine_function, plain_function
from genai_processor.guard.generators import async_generator, generator
from genai_processor.retry.verdict import Effect

if TYPE_CHECKING:
    from genai_processor.guard.guard import Guard

_F = TypeVar("_F", bound=Callable[..., Any])
_MARK: Final = "_genai_processor_decorated"


def tool(
    guard: Guard,
    name: str | None,
    *,
    effect: Effect | None,
    key: Key | None,
    call_id: Callable[[Mapping[str, Any]], str | None] | None,
    not_started_on: tuple[type[BaseException], ...],
) -> Callable[[_F], _F]:
    """See `Guard.tool`."""

    def decorate(function: _F) -> _F:
        called = name or getattr(function, "__name__", None)
        if called is None:  # a `functools.partial`, say
            raise TypeError(f"{function!r} has no name for its calls; give it one, as in guard.tool('refund')")
        signature = inspect.signature(function)
        around = getattr(function, _MARK, False)
        wrapped = Guarded(guard, called, signature, effect, key, call_id, not_started_on, around=around)
        made: Callable[..., Any]
        if inspect.isasyncgenfunction(function):
            made = async_generator(wrapped, function)
        elif inspect.isgeneratorfunction(function):
            made = generator(wrapped, function)
        elif inspect.iscoroutinefunction(function):
            made = coroutine_function(wrapped, function)
        else:
            made = plain_function(wrapped, function)
        setattr(made, _MARK, True)
        return cast(_F, functools.update_wrapper(made, function))

    return decorate
