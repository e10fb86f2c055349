# SPDX-License-Identifier: Apache-2.0
"""The entries of a `MemoryLedger`, their indexes and their bounds. Knows no rules, and no lock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from genai_processor.ledger.entries import OPEN, Entry, State
from genai_processor.ledger.forgotten import Forgotten
from genai_processor.ledger.index import Index
from genai_processor.ledger.noted import Held, created_ns, entry_of, keys_of, updated_ns
from genai_processor.ledger.requests import Claim, Returned, Sighting

_DAY_NS: Final = 24 * 3600 * 10**9
_ENTRY_BYTES: Final = 1100  # an `Entry` without its strings, with its share of the indexes: measured, CPython 3.11
_CHANGE_BYTES: Final = 120
_COMPLETED: Final = State.COMPLETED
_OVER: Final = frozenset({State.COMPLETED, State.NOT_STARTED})
_SPARE: Final = 2048
"""One in so many entries is evicted on top of what must be: of 20,000, ten go at every tenth call."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a ledger may hold before it evicts.

    Entries whose end is known go first, those longest untouched before the others, and in a large ledger a few more
    than must, so that not every call evicts one; entries that nobody has settled go last, no more of them than must,
    and never for their age.

    Attributes:
        max_entries: How many entries; at least 1.
        max_bytes: Their estimated size, in bytes.
        max_age_ns: After how long untouched an entry whose end is known goes, in nanoseconds.
        max_unknown_tools: How many (scope, tool) of evicted unsettled entries are kept apart before everything counts
            as unknown.
        filter_bytes: Size of the filter that remembers the other evicted entries, in bytes; it has 8 at least.
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
    """Entries by id, by call, by action, and in order of eviction; each look-up and each change in constant time.

    Those that one sighting made and whose end is known are held as that sighting (`genai_processor.ledger.noted`), and
    count as large as an `Entry`, which they are for whoever asks.
    """

    def __init__(self, bounds: Bounds) -> None:
        """Make an empty one."""
        self.bounds = bounds
        self.forgotten = Forgotten(max_tools=bounds.max_unknown_tools, filter_bytes=bounds.filter_bytes)
        self.counts = dict.fromkeys(State, 0)
        self.bytes = 0
        self.evicted = 0
        self.evicted_open = 0
        self._max_entries, self._max_bytes, self._max_age_ns = bounds.max_entries, bounds.max_bytes, bounds.max_age_ns
        self._known: OrderedDict[str, Held] = OrderedDict()
        self._known_since_ns = 0  # no entry in _known has been untouched for longer
        self._open: OrderedDict[str, Entry] = OrderedDict()
        self._by_call: Index[tuple[str, str]] = Index()
        self._by_action: Index[tuple[str, str, str]] = Index()
        self._open_by_tool: Index[tuple[str, str, bool]] = Index()  # and whether their digest is known

    def __len__(self) -> int:
        """Return how many entries are held."""
        return len(self._known) + len(self._open)

    def get(self, entry_id: str | None) -> Entry | None:
        """Return an entry, or None."""
        if entry_id is None:
            return None
        held = self._open.get(entry_id) or self._known.get(entry_id)
        return None if held is None else entry_of(held)

    def held_by_call(self, scope: str, call_id: str, newest: int | None = None) -> list[Held]:
        """Return what is held of the entries of a call id, oldest first; with `newest`, of so many that were added last."""
        return self._all(self._by_call.ids((scope, call_id), newest))

    def held_by_action(self, scope: str, tool: str, digest: str, newest: int | None = None) -> list[Held]:
        """Return what is held of the entries of an action, oldest first; with `newest`, of so many that were added last."""
        return self._all(self._by_action.ids((scope, tool, digest), newest))

    def by_call(self, scope: str, call_id: str) -> list[Entry]:
        """Return the entries of a call id, oldest first."""
        return [entry_of(held) for held in self.held_by_call(scope, call_id)]

    def by_action(self, scope: str, tool: str, digest: str) -> list[Entry]:
        """Return the entries of an action, oldest first."""
        return [entry_of(held) for held in self.held_by_action(scope, tool, digest)]

    def everything(self) -> list[Held]:
        """Return all that is held."""
        return [*self._known.values(), *self._open.values()]

    def open_entries(self) -> list[Entry]:
        """Return the entries that nobody has settled and whose end is not known."""
        return list(self._open.values())

    def leased(self) -> list[Entry]:
        """Return whatever has a lease."""
        return [held for held in self.everything() if isinstance(held, Entry) and held.lease_expires_ns is not None]

    def bearing_on(self, claim: Claim) -> Iterator[Entry]:
        """Yield the entries that bear on a claim, as `genai_processor.ledger.claims` defines it."""
        if claim.call_id is not None:
            yield from self.by_call(claim.scope, claim.call_id)
        if claim.digest is not None:
            for held in self.held_by_action(claim.scope, claim.tool, claim.digest):
                _, _, state, _, _, turn = keys_of(held)
                if state not in _OVER or (turn and turn == claim.turn):
                    yield entry_of(held)
        yield from map(entry_of, self._all(self._open_by_tool.ids((claim.scope, claim.tool, False))))
        if claim.digest is None:
            yield from map(entry_of, self._all(self._open_by_tool.ids((claim.scope, claim.tool, True))))
        outer = self.get(claim.parent)
        seen: set[str] = set()
        while outer is not None and outer.entry_id not in seen:
            yield outer
            seen.add(outer.entry_id)
            outer = self.get(outer.parent)

    def note(self, seen: Sighting, now_ns: int, new_id: Callable[[], str], *, anyhow: bool = False) -> Held | None:
        """Make and add the entry of a sighting, last in the order of eviction.

        This is what happens at the end of nearly every call, hence written for speed.

        Returns:
            The entry; None, and nothing is done, if it shares a key with another one: do that only if told `anyhow`.
        """
        scope, tool, state, call_id, digest, turn, named, _, reason, _, _, _ = seen
        call = (scope, call_id) if call_id else None
        action = (scope, tool, digest) if digest else None
        if not anyhow and (named is not None or call in self._by_call or action in self._by_action):
            return None
        entry_id = new_id()
        size = _size_of(scope, tool, call_id, digest, turn, reason)
        noted: Held = (entry_id, now_ns, size, seen)
        if state in OPEN:
            noted = self._open[entry_id] = entry_of(noted)
            self._open_by_tool.add((scope, tool, bool(digest)), entry_id)
        else:
            self._known[entry_id] = noted
        if anyhow:
            self._list(entry_id, call, action)
        else:
            if call is not None:
                self._by_call[call] = entry_id
            if action is not None:
                self._by_action[action] = entry_id
        self.counts[state] += 1
        self.bytes += size
        return noted

    def note_return(self, returned: Returned, now_ns: int, new_id: Callable[[], str]) -> bool:
        """Do what `note` does, for a call that came back and whose arguments nobody has looked into.

        Returns:
            False, and nothing is done, if its call id is known.
        """
        scope, tool, call_id, _, reason, _, _ = returned
        call = (scope, call_id) if call_id else None
        if call in self._by_call:
            return False
        entry_id = new_id()
        size = _size_of(scope, tool, call_id, None, None, reason)
        self._known[entry_id] = (entry_id, now_ns, size, returned)
        if call is not None:
            self._by_call[call] = entry_id
        self.counts[_COMPLETED] += 1
        self.bytes += size
        return True

    def add(self, entry: Entry) -> None:
        """Add an entry of a new id, last in the order of eviction."""
        entry_id = entry.entry_id
        if entry.state in OPEN:
            self._open[entry_id] = entry
            self._open_by_tool.add((entry.scope, entry.tool, bool(entry.digest)), entry_id)
        else:
            self._known[entry_id] = entry
        self._list(
            entry_id,
            None if entry.call_id is None else (entry.scope, entry.call_id),
            None if entry.digest is None else (entry.scope, entry.tool, entry.digest),
        )
        self.counts[entry.state] += 1
        self.bytes += _size(entry)

    def replace(self, old: Entry, new: Entry) -> None:
        """Put an entry in the place of its former version, but last in the order of eviction."""
        if old.call_id != new.call_id or old.digest != new.digest or (old.state in OPEN) != (new.state in OPEN):
            self._take(old)
            self.add(new)
            return
        entries: OrderedDict[str, Entry] | OrderedDict[str, Held] = self._open if new.state in OPEN else self._known
        entries[new.entry_id] = new
        entries.move_to_end(new.entry_id)
        self.counts[old.state] -= 1
        self.counts[new.state] += 1
        self.bytes += _size(new) - _size(old)

    def evict(self, now_ns: int) -> None:
        """Come back within the bounds."""
        if self._known_since_ns < now_ns - self._max_age_ns:
            self._evict_old(now_ns - self._max_age_ns)
        if len(self._known) + len(self._open) > self._max_entries or self.bytes > self._max_bytes:
            self._make_room()

    def _make_room(self) -> None:
        entries, size = self._max_entries, self._max_bytes
        while self._known and (len(self) > entries - entries // _SPARE or self.bytes > size - size // _SPARE):
            self._forget_known()
        while self._open and (len(self) > entries or self.bytes > size):
            self._forget_open()

    def _evict_old(self, oldest_ns: int) -> None:
        while self._known:
            self._known_since_ns = updated_ns(next(iter(self._known.values())))
            if self._known_since_ns >= oldest_ns:
                return
            self._forget_known()

    def _forget_known(self) -> None:
        entry_id, held = self._known.popitem(last=False)
        scope, tool, state, call_id, digest, turn = keys_of(held)
        size = held[2] if isinstance(held, tuple) else _size(held)
        self._unlist(entry_id, scope, tool, state, call_id, digest, size)
        self.forgotten.add_call(scope, tool, call_id, digest, turn)
        self.evicted += 1

    def _forget_open(self) -> None:
        entry = next(iter(self._open.values()))
        self._take(entry)
        self.forgotten.add_tool(entry.scope, entry.tool)
        self.evicted_open += 1

    def _take(self, entry: Entry) -> None:
        entry_id, scope, tool = entry.entry_id, entry.scope, entry.tool
        if entry.state in OPEN:
            del self._open[entry_id]
            self._open_by_tool.remove((scope, tool, bool(entry.digest)), entry_id)
        else:
            del self._known[entry_id]
        self._unlist(entry_id, scope, tool, entry.state, entry.call_id, entry.digest, _size(entry))

    def _list(self, entry_id: str, call: tuple[str, str] | None, action: tuple[str, str, str] | None) -> None:
        if call is not None:
            self._by_call.add(call, entry_id)
        if action is not None:
            self._by_action.add(action, entry_id)

    def _unlist(
        self, entry_id: str, scope: str, tool: str, state: State, call_id: str | None, digest: str | None, size: int
    ) -> None:
        if call_id:
            self._by_call.remove((scope, call_id), entry_id)
        if digest:
            self._by_action.remove((scope, tool, digest), entry_id)
        self.counts[state] -= 1
        self.bytes -= size

    def _all(self, entry_ids: tuple[str, ...]) -> list[Held]:
        found = [self._open.get(entry_id) or self._known.get(entry_id) for entry_id in entry_ids]
        return sorted((held for held in found if held is not None), key=created_ns)


def _size_of(scope: str, tool: str, call_id: str | None, digest: str | None, turn: str | None, reason: str | None) -> int:
    size = _ENTRY_BYTES + len(scope) + len(tool)
    if call_id:
        size += len(call_id)
    if digest:
        size += len(digest)
    if turn:
        size += len(turn)
    if reason:
        size += len(reason)
    return size


def _size(entry: Entry) -> int:
    size = _size_of(entry.scope, entry.tool, entry.call_id, entry.digest, entry.turn, entry.reason)
    if entry.history:
        size += _CHANGE_BYTES * len(entry.history)
    if entry.settlement is not None:
        size += _CHANGE_BYTES + len(entry.settlement.note) + len(entry.settlement.who)
    return size
