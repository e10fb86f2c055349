# SPDX-License-Identifier: Apache-2.0
"""A lock that survives `fork`, and the garbage collector, and for which nobody waits who need not.

Two things can happen inside a critical section. Another thread forks, which `genai_processor.forks` takes care of. And
the garbage collector can run a finalizer, which may end a span, which comes back into the ledger: on the same thread,
in the middle of a change. The lock is therefore re-entrant, and tells such a call that it is one.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from genai_processor.errors import LedgerUnavailableError
from genai_processor.forks import guard_with_lock

_MOST_LEFT = 1_000  # then whoever comes waits, and helps: so that nobody has too much to do for others
_T = TypeVar("_T")
_A = TypeVar("_A")


class ForkSafeLock:
    """A re-entrant lock for short critical sections; never hold it over I/O."""

    _lock: threading.RLock

    def __init__(self) -> None:
        """Make the lock."""
        guard_with_lock(self)
        self._postponed: deque[Callable[[], object]] = deque()
        self._changing = False  # only its holder looks, so True means: this very thread is in the middle of a change

    def __enter__(self) -> None:
        """Wait for the lock, to read; what was left behind is done first."""
        self._lock.acquire()
        if self._postponed and not self._is_nested():
            self._changing = True
            try:
                self._catch_up()
            except BaseException:
                self._lock.release()
                raise

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self._lock.release()

    def change(self, operation: Callable[[], _T]) -> _T:
        """Run an operation that changes something, alone.

        Raises:
            LedgerUnavailableError: It interrupts another one; see `change_or_postpone`.
        """
        with self._lock:
            if self._is_nested():
                raise LedgerUnavailableError(
                    "the ledger was called by a finalizer that interrupted one of its own operations; "
                    "nothing was changed; call it from ordinary code, not from __del__ or a finalised generator"
                )
            self._changing = True
            try:
                self._catch_up_first()
                return operation()
            finally:
                self._end()

    def change_or_postpone(self, operation: Callable[[_A], _T], argument: _A) -> _T | None:
        """Run an operation that changes something, alone; if it interrupts another one then after that, for None.

        It has one argument because that is the cheapest to pass on.
        """
        with self._lock:
            if self._is_nested():
                self._postponed.append(partial(operation, argument))
                return None
            self._changing = True
            try:
                self._catch_up_first()
                return operation(argument)
            finally:
                self._end()

    def change_or_leave(self, operation: Callable[[_A], object], argument: _A) -> None:
        """Run an operation that changes something, alone, now or before anybody looks; nobody is told its result.

        Threads that end spans would otherwise queue up behind one that was interrupted while it held the lock.
        """
        if not self._lock.acquire(blocking=len(self._postponed) > _MOST_LEFT):
            self._postponed.append(partial(operation, argument))
            return
        try:
            if self._is_nested():
                self._postponed.append(partial(operation, argument))
                return
            self._changing = True
            try:
                self._catch_up_first()
                operation(argument)
            finally:
                self._end()
        finally:
            self._lock.release()

    def _is_nested(self) -> bool:
        """Whether its holder is in the middle of a change, and was interrupted by a finalizer.

        Ctrl-C may come between two lines, and leave the mark of a change behind that is over.
        """
        if self._changing and (depth := getattr(self._lock, "_recursion_count", None)) is not None and depth() == 1:
            self._changing = False
        return self._changing

    def _end(self) -> None:
        """End a change; what interrupted it is done now."""
        try:
            if self._postponed:
                self._catch_up()
        finally:
            self._changing = False

    def _catch_up_first(self) -> None:
        """Do what was left behind before what comes after it, which may be about the same call."""
        if self._postponed:
            self._catch_up()
            self._changing = True

    def _catch_up(self) -> None:
        try:
            # What is here now: others may leave more while this goes on, and would never let it come to an end.
            for _ in range(len(self._postponed)):
                with contextlib.suppress(Exception):  # whoever asked for it is not there any more to be told
                    self._postponed.popleft()()
        finally:
            self._changing = False
