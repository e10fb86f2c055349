# SPDX-License-Identifier: Apache-2.0
"""Generators as tools: a call lasts until the generator is exhausted; one that is given up may have committed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any, Final

from genai_processor.guard.attempt import NOT_KEPT
from genai_processor.guard.functions import Guarded, value_or_error
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import never_began
from genai_processor.guard.threads import ask, tell

MAX_ITEMS: Final = 1_000
"""How many items of a generator are kept to be handed back; of a longer one, none are."""


def generator(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Guard a generator function."""

    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        begun = guarded.begin(args, kwargs)
        if isinstance(begun, Refused):
            items, value = value_or_error(begun)
            yield from items
            return value
        items = _Items()
        inner = function(*args, **kwargs)
        resume: Callable[[], Any] = partial(next, inner)
        begun.start()
        try:
            while True:
                with begun.inside():  # not across a yield: it would leak into whoever consumes
                    try:
                        item = resume()
                    except StopIteration as done:
                        value = done.value
                        break
                items.add(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    inner.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is the body's to handle
                    resume = partial(inner.throw, error)
                else:
                    resume = partial(inner.send, sent)
        except BaseException as error:
            begun.raised(error)
            raise
        begun.returned(items.kept(value))
        return value

    return call


def async_generator(guarded: Guarded, function: Callable[..., Any]) -> Callable[..., Any]:
    """Guard an async generator function."""

    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        threads = guarded.guard.threads
        begun = await ask(threads, partial(guarded.begin, args, kwargs), never_began)
        if isinstance(begun, Refused):
            for item in value_or_error(begun)[0]:
                yield item
            return
        items = _Items()
        inner = function(*args, **kwargs)
        resume: Callable[[], Any] = inner.__anext__
        begun.start()
        try:
            while True:
                with begun.inside():
                    try:
                        item = await resume()
                    except StopAsyncIteration:
                        break
                items.add(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is the body's to handle
                    resume = partial(inner.athrow, error)
                else:
                    resume = partial(inner.asend, sent)
        except GeneratorExit as error:
            begun.raised(error)  # right here: whoever closes a generator may have no event loop any more
            raise
        except BaseException as error:
            await tell(threads, partial(begun.raised, error))
            raise
        await tell(threads, partial(begun.returned, items.kept(None)))

    return call


class _Items:
    """What a generator has yielded, as long as it is not too much."""

    def __init__(self) -> None:
        self._items: list[Any] | None = []

    def add(self, item: Any) -> None:
        if self._items is not None:
            self._items.append(item)
            if len(self._items) > MAX_ITEMS:
                self._items = None

    def kept(self, value: Any) -> Any:
        return NOT_KEPT if self._items is None else (self._items, value)
