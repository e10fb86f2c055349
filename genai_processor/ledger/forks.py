# SPDX-License-Identifier: Apache-2.0
"""A lock that survives `fork`, and the garbage collector.

Two things can happen inside a critical section. Another thread forks: the child would inherit a lock that nobody ever
releases, around a state that was left half changed. So a fork waits for every lock, and the child gets new ones. And
the garbage collector can run a finalizer, which may end a span, which comes back into the ledger: on the same thread,
in the middle of a change. The lock is therefore re-entrant, and tells such a call that it is one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from genai_processor.errors import LedgerUnavailableError

_T = TypeVar("_T")
_A = TypeVar("_A")


class ForkSafeLock:
    """A re-entrant lock for short critical sections; never hold it over I/O."""

    def __init__(self) -> None:
        """Make the lock and register it, weakly, with this process's forks."""
        self._lock = threading.RLock()
        self._postponed: deque[Callable[[], object]] = deque()
        self._changing = False  # only its holder looks, so True means: this very thread is in the middle of a change
        with _forking:
            _locks.add(self)

    def __enter__(self) -> None:
        """Wait for the lock, to read."""
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.release()

    def change(self, operation: Callable[[], _T]) -> _T:
        """Run an operation that changes something, alone.

        Raises:
            LedgerUnavailableError: It interrupts another one; see `change_or_postpone`.
        """
        with self._lock:
            if self._changing:
                raise LedgerUnavailableError(
                    "the ledger was called by a finalizer that interrupted one of its own operations; "
                    "nothing was changed; call it from ordinary code, not from __del__ or a finalised generator"
                )
            self._changing = True
            try:
                return operation()
            finally:
                if self._postponed:
                    self._catch_up()
                self._changing = False

    def change_or_postpone(self, operation: Callable[[_A], _T], argument: _A) -> _T | None:
        """Run an operation that changes something, alone; if it interrupts another one then after that, for None.

        It has one argument because that is the cheapest to pass on.
        """
        with self._lock:
            if self._changing:
                self._postponed.append(partial(operation, argument))
                return None
            self._changing = True
            try:
                return operation(argument)
            finally:
                if self._postponed:
                    self._catch_up()
                self._changing = False

    def _catch_up(self) -> None:
        try:
            while self._postponed:
                with contextlib.suppress(Exception):  # whoever asked for it is not there any more to be told
                    self._postponed.popleft()()
        finally:
            self._changing = False

    def _hold(self) -> None:
        self._lock.acquire()

    def _let_go(self) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.RLock()


_forking = threading.RLock()  # one fork at a time, and no new lock meanwhile: two forks could wait for each other
_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()
_held: list[ForkSafeLock] = []


def _before_fork() -> None:
    _forking.acquire()
    for lock in list(_locks):
        lock._hold()
        _held.append(lock)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop()._let_go()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    while _held:
        _held.pop()._renew()
    _forking = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
