# SPDX-License-Identifier: Apache-2.0
"""Functions that return before their body has run: what they return is what runs it, so the call lasts as long as that."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

from genai_processor.guard.attempt import NOT_KEPT
from genai_processor.guard.running import Ended, tell_end
from genai_processor.guard.streams import Steps, steps, stepwise
from genai_processor.guard.threads import Threads, tell

_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes, dict, list, tuple})  # nearly all results
_LATE: Final = (Coroutine, asyncio.Future, concurrent.futures.Future, Generator, AsyncGenerator)
_ITERATORS: Final = frozenset(  # which run code for each item, and can do nothing else
    {map, filter, zip, enumerate, type(iter(int, 1))}
    | {kind for kind in vars(itertools).values() if isinstance(kind, type) and issubclass(kind, Iterator)}
)


class Begun(Ended, Protocol):
    """A call whose function has returned something: an `Attempt`, or what stands in for one."""

    def inside(self) -> AbstractContextManager[None]:
        """See `Attempt`."""
        ...

    def runs_once_more(self) -> None:
        """See `Attempt`."""
        ...

    def returned(self, value: Any = NOT_KEPT) -> None:
        """See `Attempt`."""
        ...

    def raised(self, error: BaseException) -> None:
        """See `Attempt`."""
        ...


def runs_later(value: Any) -> bool:
    """Whether something that a function returned has yet to run its body: a coroutine, a future, a generator, a `map`.

    Not any other iterator: it may be a file, or a cursor, of which much more can be asked than the next item.
    """
    if type(value) in _PLAIN:
        return False
    if type(value) in _ITERATORS:
        return True
    return isinstance(value, _LATE) or (inspect.isawaitable(value) and _is_asynchronous())


def _is_asynchronous() -> bool:
    """Whether whoever called may await something. Else an object that could be awaited, too, is a result like any other."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def until_it_has_run(begun: Begun, value: Any, threads: Threads | None) -> Any:
    """Return such a thing, or one like it that tells how the call ends.

    What it yields or returns is not kept: it could not be handed back as what the function returns.

    Args:
        begun: The call.
        value: What its function returned, of which `runs_later` is true.
        threads: Where to wait for the ledger in asynchronous code; None waits right here.
    """
    if isinstance(value, asyncio.Future):
        return asyncio.ensure_future(_awaited(begun, value, threads), loop=value.get_loop())
    if isinstance(value, concurrent.futures.Future):
        return _followed(begun, value)
    if hasattr(type(value), "__aenter__"):
        return _entered(begun, value, threads)
    if inspect.isawaitable(value):  # as some generators are
        return _awaited(begun, value, threads)
    if isinstance(value, Iterator):
        return _generator(begun, value)
    return _async_generator(begun, value, threads)


def _followed(begun: Begun, inner: concurrent.futures.Future[Any]) -> concurrent.futures.Future[Any]:
    """A future that is done once the ledger has been told: nobody who waits for it finds its call still running.

    Whoever cancels it while the body runs gets no result, though there may be one.
    """
    outer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def inner_ended(future: concurrent.futures.Future[Any]) -> None:
        try:
            result = future.result()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            begun.raised(error)
            if outer.set_running_or_notify_cancel():
                outer.set_exception(error)
        else:
            begun.returned()
            if outer.set_running_or_notify_cancel():
                outer.set_result(result)
            else:
                begun.not_delivered()

    def outer_ended(future: concurrent.futures.Future[Any]) -> None:
        if future.cancelled():
            inner.cancel()

    outer.add_done_callback(outer_ended)
    inner.add_done_callback(inner_ended)
    return outer


async def _awaited(begun: Begun, value: Awaitable[Any], threads: Threads | None) -> Any:
    with begun.inside():
        try:
            result = await value
        except BaseException as error:
            await tell(threads, partial(begun.raised, error))
            raise
    await tell_end(threads, begun, begun.returned)
    return result


def _entered(begun: Begun, value: Any, threads: Threads | None) -> Any:
    """What can be awaited or entered, such as a client library's request: the call lasts as long as its block."""
    from wrapt import ObjectProxy  # late: it takes time, and few functions return such a thing

    used = False

    def use() -> None:
        nonlocal used
        if used:
            begun.runs_once_more()
        used = True

    class Entered(ObjectProxy):  # type: ignore[misc, type-arg, unused-ignore]
        def __await__(self) -> Any:
            use()
            return _awaited(begun, value, threads).__await__()

        async def __aenter__(self) -> Any:
            use()
            try:
                with begun.inside():
                    return await type(value).__aenter__(value)
            except BaseException as error:
                await tell(threads, partial(begun.raised, error))
                raise

        async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> Any:
            try:
                with begun.inside():
                    suppressed = await type(value).__aexit__(value, kind, error, trace)
            except BaseException as raised:
                await tell(threads, partial(begun.raised, raised))
                raise
            if error is None:
                await tell_end(threads, begun, begun.returned)
            else:
                await tell(threads, partial(begun.raised, error))
            return suppressed

    return Entered(value)


def _generator(begun: Begun, value: Iterator[Any]) -> Generator[Any, Any, Any]:
    try:
        result = yield from steps(value, begun.inside)
    except BaseException as error:
        begun.raised(error)
        raise
    begun.returned()
    return result


@asynccontextmanager
async def _items(begun: Begun, value: AsyncGenerator[Any, Any], threads: Threads | None) -> AsyncIterator[Steps]:
    try:
        yield Steps(value, begun.inside)
    except GeneratorExit as error:
        begun.raised(error)  # right here: its event loop may have ended
        raise
    except BaseException as error:
        await tell(threads, partial(begun.raised, error))
        raise
    await tell_end(threads, begun, begun.returned)


_async_generator: Final = stepwise(_items)
