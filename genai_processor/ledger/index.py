# SPDX-License-Identifier: Apache-2.0
"""An index of a `MemoryLedger`."""

from __future__ import annotations

from typing import Generic, TypeVar

_Key = TypeVar("_Key")


class Index(Generic[_Key]):
    """Entry ids by a key, in the order in which they were added; each change in constant time.

    Most keys have one id. It is held bare, and only several of them in a collection.
    """

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        """Make an empty one."""
        self._ids: dict[_Key, str | dict[str, None]] = {}

    def __len__(self) -> int:
        """Return how many keys it has."""
        return len(self._ids)

    def __contains__(self, key: _Key) -> bool:
        """Whether any id has the key."""
        return key in self._ids

    def __getitem__(self, key: _Key) -> tuple[str, ...]:
        """Return the ids of a key, of which there may be none."""
        ids = self._ids.get(key, ())
        return (ids,) if isinstance(ids, str) else tuple(ids)

    def add(self, key: _Key, entry_id: str) -> None:
        """Add an id that the key does not have yet."""
        ids = self._ids.setdefault(key, entry_id)
        if ids is entry_id:
            return
        if isinstance(ids, str):
            ids = self._ids[key] = {ids: None}
        ids[entry_id] = None

    def remove(self, key: _Key, entry_id: str) -> None:
        """Remove an id that the key has."""
        ids = self._ids[key]
        if isinstance(ids, dict):
            del ids[entry_id]
        if isinstance(ids, str) or not ids:
            del self._ids[key]
