# SPDX-License-Identifier: Apache-2.0
"""The ledger of one process, in memory: the default, and the reference for the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from urllib.parse import parse_qsl, urlsplit

from genai_processor.errors import LedgerURLError
from genai_processor.ledger.bookkeeper import Bookkeeper
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.forks import ForkSafeLock
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.noted import entry_of, id_of, without_digest
from genai_processor.ledger.paging import page_of
from genai_processor.ledger.protocol import DEFAULT_PAGE, Page, Query, Stats
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, Returned, Sighting
from genai_processor.ledger.shelf import Bounds, Shelf


class MemoryLedger:
    """A `Ledger` in the memory of one process: thread-safe, bounded, without I/O; it ends with the process.

    A forked child starts with a copy of it. What it evicts becomes unknown, never safe: see `Bounds` and `Stats`.
    """

    def __init__(
        self,
        bounds: Bounds | None = None,
        *,
        clock: Callable[[], int] = time.time_ns,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Make an empty ledger.

        Args:
            bounds: How much it may hold; `Bounds()` if None.
            clock: The time, in nanoseconds since the Unix epoch.
            new_id: Makes entry ids: random, never the same twice.
        """
        self._shelf = Shelf(Bounds() if bounds is None else bounds)
        self._books = Bookkeeper(self._shelf, clock, new_id)
        self._record = self._books.record  # bound once: see `note` and `record_return`
        self._record_return = self._books.record_return
        self._lock = ForkSafeLock()

    @classmethod
    def from_url(cls, url: str) -> MemoryLedger:
        """Make one from ``memory:``, with bounds as options: ``memory:?max_entries=1000``.

        Raises:
            LedgerURLError: An option that `Bounds` does not have, or a value that is no positive integer.
        """
        options = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
        known = [field.name for field in fields(Bounds)]
        for name, value in options.items():
            if name not in known or not value.isdecimal() or int(value) < 1:
                raise LedgerURLError(
                    f"ledger URL {url!r}: option {name}={value} is not understood; "
                    f"memory: takes positive integers for {', '.join(known)}"
                )
        return cls(Bounds(**{name: int(value) for name, value in options.items()}))

    # -- a witness ---------------------------------------------------------------------------------------------------

    def record(self, sighting: Sighting) -> Entry | None:
        """See `Ledger.record`."""
        held = self._lock.change_or_postpone(self._record, sighting)
        return None if held is None else entry_of(held)

    def note(self, sighting: Sighting) -> str | None:
        """Do what `record` does, and return the id of the entry only: of most entries there is no more yet."""
        held = self._lock.change_or_postpone(self._record, sighting)
        return None if held is None else id_of(held)

    def record_return(self, returned: Returned) -> None:
        """Do what `record` does with the sighting that this stands for, without making one."""
        self._lock.change_or_leave(self._record_return, returned)

    def set_digest(self, entry_id: str, digest: str) -> Entry | None:
        """See `Ledger.set_digest`."""
        return self._lock.change_or_postpone(partial(self._books.set_digest, digest=digest), entry_id)

    # -- the guard ---------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        """See `Ledger.claim`."""
        return self._lock.change(partial(self._books.claim, claim, observe))

    def start(self, entry: Entry) -> Entry:
        """See `Ledger.start`."""
        return self._lock.change_or_postpone(self._books.start, entry) or self._books.must(entry.entry_id)

    def renew(self, entry: Entry, *, lease_ns: int) -> Entry:
        """See `Ledger.renew`."""
        return self._lock.change(partial(self._books.renew, entry, lease_ns))

    def finish(self, entry: Entry, outcome: Outcome, *, reason: str | None = None) -> Entry:
        """See `Ledger.finish`."""
        done = self._lock.change_or_postpone(partial(self._books.finish, outcome=outcome, reason=reason), entry)
        return done or self._books.must(entry.entry_id)

    def undeliver(self, entry: Entry) -> Entry:
        """See `Ledger.undeliver`."""
        return self._lock.change_or_postpone(self._books.undeliver, entry) or self._books.must(entry.entry_id)

    def deliver(self, entry: Entry) -> Entry:
        """See `Ledger.deliver`."""
        return self._lock.change_or_postpone(self._books.deliver, entry) or self._books.must(entry.entry_id)

    def expire(self) -> tuple[Entry, ...]:
        """See `Ledger.expire`."""
        return self._lock.change(self._books.expire)

    # -- a person ----------------------------------------------------------------------------------------------------

    def pending(self, query: Query | None = None, *, limit: int = DEFAULT_PAGE, cursor: str | None = None) -> Page:
        """See `Ledger.pending`."""
        with self._lock:
            entries = self._shelf.open_entries()
        return page_of(entries, Query() if query is None else query, limit, cursor)

    def settle(self, entry_id: str, resolution: Resolution, *, who: str, note: str, version: int) -> Entry:
        """See `Ledger.settle`."""
        return self._lock.change(partial(self._books.settle, entry_id, resolution, who, note, version))

    # -- everybody ---------------------------------------------------------------------------------------------------

    def get(self, entry_id: str) -> Entry | None:
        """See `Ledger.get`."""
        with self._lock:
            return self._shelf.get(entry_id)

    def by_call(self, scope: str, call_id: str) -> tuple[Entry, ...]:
        """See `Ledger.by_call`."""
        with self._lock:
            return tuple(self._shelf.by_call(scope, call_id))

    def by_action(self, scope: str, tool: str, digest: str | None) -> tuple[Entry, ...]:
        """See `Ledger.by_action`."""
        with self._lock:
            if digest is not None:
                return tuple(self._shelf.by_action(scope, tool, digest))
            everything = self._shelf.everything()
        return tuple(without_digest(everything, scope, tool))  # slow, so nobody waits for it

    def is_unknown(self, scope: str, tool: str) -> bool:
        """See `Ledger.is_unknown`."""
        with self._lock:
            return self._shelf.forgotten.tool(scope, tool)

    def counts(self) -> Mapping[State, int]:
        """See `Ledger.counts`."""
        with self._lock:
            return dict(self._shelf.counts)

    def stats(self) -> Stats:
        """See `Ledger.stats`."""
        with self._lock:
            shelf = self._shelf
            return Stats(
                entries=len(shelf),
                bytes=shelf.bytes,
                evicted=shelf.evicted,
                evicted_open=shelf.evicted_open,
                unknown_tools=len(shelf.forgotten),
                everything_unknown=shelf.forgotten.everything,
                rejected=self._books.rejected,
            )

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""
