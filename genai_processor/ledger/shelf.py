# SPDX-License-Identifier: Apache-2.0
"""The entries of a `MemoryLedger`, their indexes and their bounds. Knows no rules, and no lock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from genai_processor.ledger.entries import OPEN, Entry, State
from genai_processor.ledger.forgotten import Forgotten
from genai_processor.ledger.requests import Claim

_DAY_NS: Final = 24 * 3600 * 10**9
_ENTRY_BYTES: Final = 1100  # an entry without its strings, with its share of the indexes: measured, CPython 3.11
_CHANGE_BYTES: Final = 120

_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a ledger may hold before it evicts.

    Entries whose end is known go first, those longest untouched before the others; entries that nobody has settled go
    last, and never for their age.

    Attributes:
        max_entries: How many entries; at least 1.
        max_bytes: Their estimated size, in bytes.
        max_age_ns: After how long untouched an entry whose end is known goes, in nanoseconds.
        max_unknown_tools: How many (scope, tool) of evicted unsettled entries are kept apart before everything counts
            as unknown.
        filter_bytes: Size of the filter that remembers the other evicted entries, in bytes.
    """

    max_entries: int = 20_000
    max_bytes: int = 64 * 2**20
    max_age_ns: int = 7 * _DAY_NS
    max_unknown_tools: int = 10_000
    filter_bytes: int = 2 * 2**20

    def __post_init__(self) -> None:
        """Check that there is room for something.

        Raises:
            ValueError: A bound is not positive.
        """
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"ledger bound {name} must be at least 1, not {getattr(self, name)!r}")


class Shelf:
    """Entries by id, by call, by action, and in order of eviction; each look-up and each change in constant time."""

    def __init__(self, bounds: Bounds) -> None:
        """Make an empty one."""
        self.bounds = bounds
        self.forgotten = Forgotten(max_tools=bounds.max_unknown_tools, filter_bytes=bounds.filter_bytes)
        self.counts = dict.fromkeys(State, 0)
        self.bytes = 0
        self.evicted = 0
        self.evicted_open = 0
        self._known: OrderedDict[str, Entry] = OrderedDict()
        self._open: OrderedDict[str, Entry] = OrderedDict()
        self._by_call: dict[tuple[str, str], list[str]] = {}
        self._by_action: dict[tuple[str, str, str | None], list[str]] = {}
        self._open_by_tool: dict[tuple[str, str], list[str]] = {}

    def __len__(self) -> int:
        """Return how many entries are held."""
        return len(self._known) + len(self._open)

    def get(self, entry_id: str | None) -> Entry | None:
        """Return an entry, or None."""
        if entry_id is None:
            return None
        return self._open.get(entry_id) or self._known.get(entry_id)

    def by_call(self, scope: str, call_id: str) -> list[Entry]:
        """Return the entries of a call id, oldest first."""
        return self._all(self._by_call.get((scope, call_id)))

    def by_action(self, scope: str, tool: str, digest: str | None) -> list[Entry]:
        """Return the entries of an action, oldest first."""
        return self._all(self._by_action.get((scope, tool, digest)))

    def open_entries(self) -> list[Entry]:
        """Return the entries that nobody has settled and whose end is not known."""
        return list(self._open.values())

    def bearing_on(self, claim: Claim) -> Iterator[Entry]:
        """Yield the entries that bear on a claim, as `genai_processor.ledger.claims` defines it."""
        if claim.call_id is not None:
            yield from self.by_call(claim.scope, claim.call_id)
        if claim.digest is not None:
            yield from self.by_action(claim.scope, claim.tool, claim.digest)
        yield from self._all(self._open_by_tool.get((claim.scope, claim.tool)))
        outer = self.get(claim.parent)
        seen: set[str] = set()
        while outer is not None and outer.entry_id not in seen:
            yield outer
            seen.add(outer.entry_id)
            outer = self.get(outer.parent)

    def add(self, entry: Entry) -> None:
        """Add an entry of a new id, last in the order of eviction."""
        entry_id = entry.entry_id
        if entry.state in OPEN:
            self._open[entry_id] = entry
            self._open_by_tool.setdefault((entry.scope, entry.tool), []).append(entry_id)
        else:
            self._known[entry_id] = entry
        if entry.call_id is not None:
            self._by_call.setdefault((entry.scope, entry.call_id), []).append(entry_id)
        self._by_action.setdefault((entry.scope, entry.tool, entry.digest), []).append(entry_id)
        self.counts[entry.state] += 1
        self.bytes += _size(entry)

    def replace(self, old: Entry, new: Entry) -> None:
        """Put an entry in the place of its former version, but last in the order of eviction."""
        if old.call_id != new.call_id or old.digest != new.digest or (old.state in OPEN) != (new.state in OPEN):
            self._take(old)
            self.add(new)
            return
        entries = self._open if new.state in OPEN else self._known
        entries[new.entry_id] = new
        entries.move_to_end(new.entry_id)
        self.counts[old.state] -= 1
        self.counts[new.state] += 1
        self.bytes += _size(new) - _size(old)

    def evict(self, now_ns: int) -> None:
        """Come back within the bounds."""
        bounds = self.bounds
        oldest_ns = now_ns - bounds.max_age_ns
        while self._known and next(iter(self._known.values())).updated_ns < oldest_ns:
            self._forget(next(iter(self._known.values())))
        while len(self._known) + len(self._open) > bounds.max_entries or self.bytes > bounds.max_bytes:
            self._forget(next(iter((self._known or self._open).values())))

    def _forget(self, entry: Entry) -> None:
        self._take(entry)
        self.forgotten.add(entry)
        if entry.state in OPEN:
            self.evicted_open += 1
        else:
            self.evicted += 1

    def _take(self, entry: Entry) -> None:
        if entry.state in OPEN:
            del self._open[entry.entry_id]
            _remove(self._open_by_tool, (entry.scope, entry.tool), entry.entry_id)
        else:
            del self._known[entry.entry_id]
        if entry.call_id is not None:
            _remove(self._by_call, (entry.scope, entry.call_id), entry.entry_id)
        _remove(self._by_action, (entry.scope, entry.tool, entry.digest), entry.entry_id)
        self.counts[entry.state] -= 1
        self.bytes -= _size(entry)

    def _all(self, entry_ids: list[str] | None) -> list[Entry]:
        if not entry_ids:
            return []
        found = [self.get(entry_id) for entry_id in tuple(entry_ids)]
        return sorted((entry for entry in found if entry is not None), key=_created)


def _remove(index: dict[_Key, list[str]], key: _Key, entry_id: str) -> None:
    entry_ids = index[key]
    entry_ids.remove(entry_id)
    if not entry_ids:
        del index[key]


def _created(entry: Entry) -> int:
    return entry.created_ns


def _size(entry: Entry) -> int:
    size = _ENTRY_BYTES + len(entry.scope) + len(entry.tool)
    for text in (entry.call_id, entry.digest, entry.turn, entry.reason):
        if text is not None:
            size += len(text)
    if entry.history:
        size += _CHANGE_BYTES * len(entry.history)
    if entry.settlement is not None:
        size += _CHANGE_BYTES + len(entry.settlement.note) + len(entry.settlement.who)
    return size
