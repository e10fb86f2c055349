# SPDX-License-Identifier: Apache-2.0
"""Generators as tools: a call lasts until the generator is exhausted; one that is given up may have committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final

from genai_processor.guard.attempt import NOT_KEPT, Attempt
from genai_processor.guard.functions import Body, Guarded, value_or_error
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import hand_out, never_began, tell_end
from genai_processor.guard.streams import Steps, steps, stepwise
from genai_processor.guard.threads import Threads, ask, tell

MAX_ITEMS: Final = 1_000
"""How many items of a generator are kept to be handed back; of a longer one, none are."""

Begin = Callable[[], Attempt | Body | Refused]


def generator(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Guard a generator function."""

    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from steps_of_call(partial(guarded.begin, args, kwargs), partial(function, *args, **kwargs)))

    return call


def async_generator(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Guard an async generator function."""

    def around(*args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Steps]:
        return _call(guarded.guard.threads, partial(guarded.begin, args, kwargs), partial(function, *args, **kwargs))

    return stepwise(around)


def steps_of_call(
    begin: Begin, make: Callable[[], Iterator[Any]], refuse: Callable[[Refused], Any] = value_or_error
) -> Generator[Any, Any, Any]:
    """One call of a tool that is a generator.

    Args:
        begin: Claims it, with the first step.
        make: Returns the generator.
        refuse: Raises what says that it was not run, or returns what was kept of the call that ran: items and value.

    Raises:
        BaseException: Whatever `refuse` or the generator raises.
    """
    begun = begin()
    if isinstance(begun, Refused):
        hand_out(begun)
        items, value = refuse(begun)
        yield from items
        return value
    kept = _Kept()
    begun.start()
    try:
        value = yield from steps(make(), begun.inside, kept.add)
    except BaseException as error:
        begun.raised(error)
        raise
    begun.returned(kept.all(value))
    return value


@asynccontextmanager
async def _call(
    threads: Threads | None,
    begin: Begin,
    make: Callable[[], AsyncIterator[Any]],
    refuse: Callable[[Refused], Any] = value_or_error,
    *,
    awaits_start: bool = False,
) -> AsyncIterator[Steps]:
    """As `steps_of_call`, of an async generator.

    Args:
        threads: Where to wait for the ledger; None waits right here.
        begin: Claims it, with the first step.
        make: Returns the generator.
        refuse: Raises, or returns items and a value.
        awaits_start: Whether the body says itself that it begins.
    """
    begun = await ask(threads, begin, never_began)
    if isinstance(begun, Refused):
        hand_out(begun, threads)
        yield Steps(_each(refuse(begun)[0]), nullcontext)
        return
    kept = _Kept()
    if not awaits_start:
        begun.start()
    try:
        yield Steps(make(), begun.inside, kept.add)
    except GeneratorExit as error:
        begun.raised(error, awaits_start=awaits_start)  # right here: its event loop may have ended
        raise
    except BaseException as error:
        await tell(threads, partial(begun.raised, error, awaits_start=awaits_start))
        raise
    await tell_end(threads, begun, partial(begun.returned, kept.all(None)))


asteps_of_call: Final = stepwise(_call)


async def _each(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


class _Kept:
    """What a generator has yielded, as long as it is not too much."""

    def __init__(self) -> None:
        self._items: list[Any] | None = []

    def add(self, item: Any) -> None:
        if self._items is not None:
            self._items.append(item)
            if len(self._items) > MAX_ITEMS:
                self._items = None

    def all(self, value: Any) -> Any:
        """The items and the value, or that they are not kept."""
        return NOT_KEPT if self._items is None else (self._items, value)
