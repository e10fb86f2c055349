# SPDX-License-Identifier: Apache-2.0
"""What a fork does to this package: one registration with the interpreter, and weak references to whom it concerns.

A child has only the thread that forked. A lock that another thread held would never be released there, and what that
thread was changing would stay half changed. So a fork waits until nobody is inside a critical section, and in the child
every lock is made anew; whoever has more to renew there says so.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol


class Locked(Protocol):
    """Something that guards its state with a lock called `_lock`."""

    _lock: threading.RLock


def guard_with_lock(owner: Locked) -> None:
    """Give an object a lock for which forks wait, and a new one in every forked child.

    Re-entrant, because the collector can end a span inside a critical section, on the same thread. A bare `RLock`,
    because one in a wrapper costs more than the work that it guards. Never hold it over I/O, but for one transaction of a
    ledger in a file, nor over a fork.
    """
    owner._lock = threading.RLock()
    key = next(_numbers)
    _owners[key] = weakref.ref(owner, lambda _: _owners.pop(key, None))


def let_forks_pass() -> None:
    """Wait a moment if a fork waits for locks: whoever holds one for long, and again and again, would keep it waiting."""
    if not _no_fork_waits.is_set():
        _no_fork_waits.wait(_POLITE_SECONDS)


def call_in_child(method: Callable[[], None]) -> None:
    """Have a bound method called in every forked child, for as long as its object lives."""
    key = next(_numbers)
    # No `WeakMethod`: its callback prints an error where interpreter and object end together.
    bound: Any = method
    _methods[key] = weakref.ref(bound.__self__, lambda _: _methods.pop(key, None)), bound.__func__


def call_before_fork(method: Callable[[], None]) -> None:
    """Have a bound method called before every fork, while all locks are held; not if they could not be had."""
    key = next(_numbers)
    bound: Any = method
    _before[key] = weakref.ref(bound.__self__, lambda _: _before.pop(key, None)), bound.__func__


# Dictionaries that are changed and copied by single operations: a lock of their own could be wanted by a thread that is
# inside one of those for which the fork waits.
_numbers: Final = itertools.count()
_owners: Final[dict[int, weakref.ref[Locked]]] = {}
_methods: Final[dict[int, tuple[weakref.ref[Any], Callable[[Any], None]]]] = {}
_before: Final[dict[int, tuple[weakref.ref[Any], Callable[[Any], None]]]] = {}

_ATTEMPTS: Final = 1_000
_POLITE_SECONDS: Final = 1.0
_no_fork_waits = threading.Event()
_no_fork_waits.set()
_forking = threading.RLock()  # one fork at a time: two could wait for each other
_held: Final[list[threading.RLock]] = []


def _locks() -> list[threading.RLock]:
    return [owner._lock for found in list(_owners.values()) if (owner := found()) is not None]


def _before_fork() -> None:
    """Hold every lock. They nest in an order of which nothing is known here, so none is waited for while one is held.

    Busy threads may never all pause at once, and the application must get its child: then it is forked as things stand.
    """
    _forking.acquire()
    _no_fork_waits.clear()
    for _ in range(_ATTEMPTS):
        busy = _hold(_locks())
        if busy is None:
            _prepare()
            return
        _let_go()
        busy.acquire()
        busy.release()


def _prepare() -> None:
    for known, method in list(_before.values()):
        if (owner := known()) is not None:
            with contextlib.suppress(Exception):  # the application must get its child
                method(owner)


def _hold(locks: list[threading.RLock]) -> threading.RLock | None:
    """Take all locks that are free, up to the first that is not, which is returned."""
    for lock in locks:
        if not lock.acquire(blocking=False):
            return lock
        _held.append(lock)
    return None


def _let_go() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_parent() -> None:
    _let_go()
    _no_fork_waits.set()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking, _no_fork_waits
    _held.clear()
    for found in list(_owners.values()):
        if (owner := found()) is not None:
            owner._lock = threading.RLock()
    _forking = threading.RLock()
    _no_fork_waits = threading.Event()
    _no_fork_waits.set()
    for known, method in list(_methods.values()):
        if (owner := known()) is not None:
            method(owner)


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
