# SPDX-License-Identifier: Apache-2.0
"""A lock for code that the garbage collector may re-enter and a fork may catch in the middle."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class ForkSafeLock:
    """A re-entrant lock that a forked child gets anew.

    Re-entrant, because the collector can end a span inside a critical section on the same thread. Made anew, because the
    thread that held it does not exist in the child. Never hold it over I/O.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            own = weakref.ref(self)

            def renew() -> None:
                lock = own()
                if lock is not None:
                    lock._lock = threading.RLock()

            os.register_at_fork(after_in_child=renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
