# SPDX-License-Identifier: Apache-2.0
"""What the tool of a story does: functions named `refund`, which a framework's file makes its tools of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from benchmarks.incidents.kit import Run, World

Body = Callable[[str], str]
_SECONDS = 30
"""After which a story goes on whatever happens, so that a fault in it does not stop everything."""


def on_the_loop(body: Body) -> Callable[..., Any]:
    """The same as a coroutine function, which lets others have their turn first."""

    async def refund(order: str) -> str:
        """Refund an order."""
        await asyncio.sleep(0)
        return body(order)

    return refund


def pays_in_thread(world: World, once: bool = False) -> Body:
    """A tool that pays; the first time only, its answer is lost, or never.

    It is not asynchronous: it runs in a thread, or holds up the event loop, as the framework has it.
    """

    def refund(order: str) -> str:
        """Refund an order."""
        if once and not world.effects:
            return world.commit_then_fail(order)
        return world.commit(order)

    return refund


def pays(world: World, once: bool = False) -> Callable[..., Any]:
    """As `pays_in_thread`, asynchronous."""
    return on_the_loop(pays_in_thread(world, once))


def loses(world: World, error: type[Exception] = ConnectionError) -> Body:
    """The effect lands, and its answer is lost, each time."""

    def refund(order: str) -> str:
        """Refund an order."""
        return world.commit_then_fail(order, error)

    return refund


def loses_first(world: World) -> Body:
    """The effect lands; of each order, the first answer is lost."""
    paid: list[str] = []

    def refund(order: str) -> str:
        """Refund an order."""
        paid.append(order)
        return world.commit_then_fail(order) if paid.count(order) == 1 else world.commit(order)

    return refund


def only_o9_works(world: World) -> Body:
    """The effect lands; the answer is lost but for one order."""

    def refund(order: str) -> str:
        """Refund an order."""
        return world.commit(order) if order == "o9" else world.commit_then_fail(order)

    return refund


def o9_works_first(world: World) -> Callable[..., Any]:
    """As `only_o9_works`, asynchronous: the one that works is through before another one fails."""
    works = only_o9_works(world)

    async def refund(order: str) -> str:
        """Refund an order."""
        if order != "o9":
            await asyncio.sleep(0)
        return works(order)

    return refund


def pays_cents(world: World) -> Callable[[int], str]:
    """A tool that wants a number."""

    def refund(cents: int) -> str:
        """Refund an amount."""
        return world.commit(str(cents))

    return refund


def hangs_first(world: World, landed: Callable[[], object] = lambda: None) -> Callable[..., Any]:
    """The effect lands; the first time, somebody may hear of it, and no answer ever comes."""

    async def refund(order: str) -> str:
        """Refund an order."""
        done = world.commit(order)
        if len(world.effects) == 1:
            landed()
            await asyncio.Event().wait()
        return done

    return refund


def hangs_beside(world: World) -> Callable[..., Any]:
    """Of two calls at a time one pays, `o8`, when the other one has and hangs, `o9`: the first time."""
    hangs = asyncio.Event()

    async def refund(order: str) -> str:
        """Refund an order."""
        if order == "o8":
            await hangs.wait()
            return world.commit(order)
        done = world.commit(order)
        if not hangs.is_set():
            hangs.set()
            await asyncio.Event().wait()
        return done

    return refund


class Late:
    """A tool that outlives its run in a thread: the first call pays when it may, any other at once.

    Attributes:
        refund: The tool's body.
    """

    def __init__(self, world: World) -> None:
        self._begun, self._may_pay, self._over = threading.Event(), threading.Event(), threading.Event()

        def refund(order: str) -> str:
            """Refund an order."""
            if self._begun.is_set():
                return world.commit(order)
            self._begun.set()
            self._may_pay.wait(_SECONDS)
            try:
                return world.commit(order)
            finally:
                self._over.set()

        self.refund = refund

    async def has_begun(self) -> None:
        """Wait until the first call is in its thread."""
        await asyncio.to_thread(self._begun.wait, _SECONDS)

    async def pays(self) -> None:
        """Let the first call pay, if it has not, and wait for it."""
        self._may_pay.set()
        await asyncio.to_thread(self._over.wait, _SECONDS)

    async def is_run_again(self, first: Run, again: Run, paid_before: bool = False) -> None:
        """Give up the run of the first call, and run again; it pays after that, or before."""
        running = asyncio.ensure_future(first())
        await self.has_begun()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if paid_before:
            await self.pays()
        await again()
        await self.pays()

    def is_run_beside(self, first: Callable[[], object], again: Callable[[], object]) -> None:
        """As `is_run_again`, with runs that block: the first one is left to itself in a thread."""
        thread = threading.Thread(target=copy_context().run, args=(first,))
        thread.start()
        self._begun.wait(_SECONDS)
        again()
        self._may_pay.set()
        thread.join()
