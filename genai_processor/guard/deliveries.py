# SPDX-License-Identifier: Apache-2.0
"""Results that a model has seen, and of which the ledger has yet to be told.

Nobody waits for that. But the next call of the same tool does not have to be refused for it: it tells the ledger itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from genai_processor.ledger.entries import Entry

_MANY: Final = 1_000


class Deliveries:
    """What is yet to be told. Each method is made of single operations on a dictionary, so threads need no lock."""

    def __init__(self) -> None:
        self._untold: dict[str, Entry] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        """Note that a model has seen some results."""
        for entry in entries:
            self._untold[entry.entry_id] = entry

    def told(self, entry: Entry) -> None:
        """Note that the ledger knows of one."""
        self._untold.pop(entry.entry_id, None)

    def are_many(self) -> bool:
        """Whether there are so many that one which could not be told is not worth keeping: then a person is asked."""
        return len(self._untold) > _MANY

    def of(self, scope: str, tool: str) -> tuple[Entry, ...]:
        """What may stand in the way of a call of a tool, and should not."""
        if not self._untold:
            return ()
        return tuple(entry for entry in tuple(self._untold.values()) if entry.scope == scope and entry.tool == tool)
