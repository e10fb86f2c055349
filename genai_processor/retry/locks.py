# SPDX-License-Identifier: Apache-2.0
"""Locks for code that the garbage collector may re-enter and a fork may catch in the middle."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Locked(Protocol):
    """Something that guards its state with a lock called `_lock`."""

    _lock: threading.RLock


def guard_with_lock(owner: Locked) -> None:
    """Give an object a lock, and a new one in every forked child.

    Re-entrant, because the collector can end a span inside a critical section, on the same thread. Made anew, because the
    thread that held it does not exist in the child. A bare `RLock`, because one in a wrapper costs more than the work that
    it guards. Never hold it over I/O.
    """
    owner._lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        known = weakref.ref(owner)

        def renew() -> None:
            still = known()
            if still is not None:
                still._lock = threading.RLock()

        os.register_at_fork(after_in_child=renew)
