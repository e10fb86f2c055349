# SPDX-License-Identifier: Apache-2.0
"""Results of calls that ended well, kept for a while: the very same call is then answered without running it again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final, Protocol

from genai_processor.forks import guard_with_lock
from genai_processor.guard.refused import Recorded

MAX_RESULTS: Final = 1_000
"""How many results of the latest calls a process keeps."""


class ResultStore(Protocol):
    """Keeps results where another process finds them. The user provides it: results may hold anything.

    Called from the thread that runs the tool, or from a thread of the guard's for an asynchronous one. What it raises counts
    as "not kept".
    """

    def save(self, entry_id: str, value: Any) -> None:
        """Keep the result of the call that has this ledger entry."""
        ...

    def load(self, entry_id: str) -> Recorded | None:
        """Return the result that was kept for an entry, in a `Recorded`; None if there is none."""
        ...


class Results:
    """The latest results of this process, in front of whatever the user provides.

    Args:
        store: The user's store, if any.
        most: How many to keep here.
    """

    _lock: threading.RLock

    def __init__(self, store: ResultStore | None = None, most: int = MAX_RESULTS) -> None:
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._store = store
        self._most = most
        guard_with_lock(self)

    @property
    def lasting(self) -> bool:
        """Whether the user provided a store."""
        return self._store is not None

    def save(self, entry_id: str, value: Any) -> None:
        """Keep a result.

        Raises:
            Exception: Whatever the user's store raises; the result is kept here all the same.
        """
        with self._lock:
            self._kept[entry_id] = value
            self._kept.move_to_end(entry_id)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        if self._store is not None:
            self._store.save(entry_id, value)

    def load(self, entry_id: str) -> Recorded | None:
        """Return a kept result.

        Raises:
            Exception: Whatever the user's store raises.
        """
        with self._lock:
            if entry_id in self._kept:
                return Recorded(self._kept[entry_id])
        return None if self._store is None else self._store.load(entry_id)
