# SPDX-License-Identifier: Apache-2.0
"""Asking a ledger that does I/O from asynchronous code: its event loop does not wait, and no answer is lost."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Final, TypeVar

from genai_processor.forks import call_in_child, guard_with_lock

_T = TypeVar("_T")

MAX_THREADS: Final = 32
"""How many operations of one guard may wait for its ledger at a time."""


class Threads:
    """A few threads, started when they are first needed."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self._pool: ThreadPoolExecutor | None = None
        call_in_child(self._forget)

    def _forget(self) -> None:
        self._pool = None  # its threads are the parent's

    def submit(self, function: Callable[[], _T]) -> Future[_T]:
        """Run a function in a thread, in a copy of this context.

        Raises:
            RuntimeError: The interpreter is shutting down.
        """
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="GenAIProcessorGuard")
            return self._pool.submit(copy_context().run, _called, function)


def _called(function: Callable[[], _T]) -> _T:
    try:
        return function()
    except StopIteration as error:  # of a function of the user's: no future takes it, so whoever waits would for ever
        raise RuntimeError("a function that the guard has called raised StopIteration") from error


async def ask(threads: Threads | None, function: Callable[[], _T], if_cancelled: Callable[[_T], object]) -> _T:
    """Call a function that may wait for a ledger. A cancellation is raised at once, and what it then returns is dealt with.

    Args:
        threads: Where to call it; None calls it right here.
        function: Does the I/O.
        if_cancelled: Gets the result that nobody waits for any more, in that thread.
    """
    if threads is None:
        return function()
    try:
        asyncio.get_running_loop()
        future = threads.submit(function)
    except RuntimeError:  # another kind of event loop, or the interpreter's end
        return function()
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except BaseException:  # cancelled, or closed: whoever is collected with its event loop is not cancelled
        future.add_done_callback(lambda done: _drop(done, if_cancelled))
        raise


async def tell(threads: Threads | None, function: Callable[[], object]) -> None:
    """Call a function that tells a ledger something. A cancellation is raised when that is done.

    Whoever cancels a run, and begins it again, then finds in the ledger how the calls of the first one have ended. A
    coroutine that is being closed may not await anything: it calls the function right here, or lets the thread that is at
    it come to its end.

    Args:
        threads: Where to call it; None calls it right here.
        function: Does the I/O.
    """
    if threads is None or isinstance(sys.exception(), GeneratorExit):
        function()
        return
    try:
        asyncio.get_running_loop()
        future = threads.submit(function)
    except RuntimeError:  # another kind of event loop, or the interpreter's end
        function()
        return
    process, telling = os.getpid(), asyncio.wrap_future(future)
    cancelled: asyncio.CancelledError | None = None
    while not telling.done():
        try:
            await asyncio.shield(telling)
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
        except GeneratorExit:
            if os.getpid() == process:  # a forked child has the coroutine, and not the thread
                wait([future])
            raise
        except Exception:  # noqa: BLE001 - raised below
            break
    error = cancelled or (None if telling.cancelled() else telling.exception())
    if error is not None:
        raise error


def soon(threads: Threads | None, function: Callable[[], object]) -> None:
    """Call a function that tells a ledger something, and that nobody waits for.

    Args:
        threads: Where to call it; None calls it right here.
        function: Does the I/O.
    """
    try:
        if threads is not None:
            threads.submit(function)
            return
    except RuntimeError:  # the interpreter is shutting down
        pass
    function()


def _drop(done: Future[_T], if_cancelled: Callable[[_T], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        if_cancelled(done.result())
