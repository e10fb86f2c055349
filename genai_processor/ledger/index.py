# SPDX-License-Identifier: Apache-2.0
"""An index of a `MemoryLedger`."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

_Key = TypeVar("_Key")


class Index(dict[_Key, str | dict[str, None]]):
    """Entry ids by a key, in the order in which they were added; each change in constant time.

    Most keys have one id. It is held bare, and only several of them in a collection.
    """

    __slots__ = ()

    def ids(self, key: _Key, newest: int | None = None) -> tuple[str, ...]:
        """Return the ids of a key, of which there may be none; with `newest`, no more than so many, added last."""
        ids = self.get(key, ())
        if isinstance(ids, str):
            return (ids,)
        return tuple(ids) if newest is None else tuple(islice(reversed(ids), newest))[::-1]

    def add(self, key: _Key, entry_id: str) -> None:
        """Add an id that the key does not have yet."""
        ids = self.setdefault(key, entry_id)
        if ids is entry_id:
            return
        if isinstance(ids, str):
            ids = self[key] = {ids: None}
        ids[entry_id] = None

    def remove(self, key: _Key, entry_id: str) -> None:
        """Remove an id that the key has."""
        ids = self.pop(key)
        if isinstance(ids, dict):
            del ids[entry_id]
            if ids:
                self[key] = ids
