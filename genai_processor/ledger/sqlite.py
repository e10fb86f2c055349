# SPDX-License-Identifier: Apache-2.0
"""A ledger in a SQLite file: for all processes of one host, and it outlives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from genai_processor.errors import LedgerURLError
from genai_processor.ledger.bookkeeper import Bookkeeper
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.noted import entry_of
from genai_processor.ledger.options import Options, positive, yes_or_no
from genai_processor.ledger.paging import next_page, where
from genai_processor.ledger.protocol import DEFAULT_PAGE, Page, Query, Stats
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, Sighting
from genai_processor.ledger.sqlite_transactions import Transactions
from genai_processor.ledger.texts import as_utf8, storable_call

_LONGEST_PAGE: Final = 100_000
_DAY_NS: Final = 24 * 3600 * 10**9


class SQLiteLedger:
    """A `Ledger` in a file: many threads, many processes, one host. SQLite's locks fail on a network file system.

    Each method is one transaction, written through to the disk before it returns. Quarantined, undelivered, running and
    settled calls stay for good; others expire after `max_age_days`, and then count as unknown, never as new: of each
    the file keeps a digest of what identifies it.
    """

    def __init__(
        self,
        path: str,
        *,
        max_age_days: float = 30,
        timeout_seconds: float = 10,
        create: bool = True,
        clock: Callable[[], int] = time.time_ns,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Name a file; it is opened, and made if need be, with the first operation.

        Args:
            path: The file. Beside it stand two more of SQLite's own, ``-wal`` and ``-shm``.
            max_age_days: After how long untouched an entry whose end is known expires.
            timeout_seconds: How long to wait for other threads, and then for another process, before the ledger counts as
                unavailable.
            create: Make the file if there is none.
            clock: The time, in nanoseconds since the Unix epoch.
            new_id: Makes entry ids: random, never the same twice.
        """
        self._transactions = Transactions(
            path,
            timeout_seconds=timeout_seconds,
            create=create,
            max_age_ns=int(min(max_age_days * _DAY_NS, 2**62)),
            bookkeeper=lambda tables: Bookkeeper(tables, clock, new_id),
        )

    @classmethod
    def from_url(cls, url: str) -> SQLiteLedger:
        """Make one from ``sqlite:///PATH`` (``sqlite:////PATH`` from the root).

        Options: ``max_age_days`` and ``timeout_seconds``, positive numbers, and ``create``, which is true or false.

        Raises:
            LedgerURLError: No path, a ``#``, an option that there is not, or a value that it does not take.
        """
        parts = urlsplit(url)
        path = unquote(parts.path).removeprefix("/")
        if parts.netloc or not path or path == ":memory:":
            raise LedgerURLError(
                f"ledger URL {url!r} names no file; write sqlite:///PATH, or sqlite:////PATH for one from the root"
            )
        if "#" in url:
            raise LedgerURLError(f"ledger URL {url!r} has a '#' in it, which ends the name of the file; write %23 for it")
        values: dict[str, Any] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            try:
                values[name] = _OPTIONS[name](value)
            except (KeyError, ValueError):
                raise LedgerURLError(
                    f"ledger URL {url!r}: option {name}={value} is not understood; sqlite: takes positive numbers for "
                    "max_age_days and timeout_seconds, and create=true or false"
                ) from None
        return cls(path, **values)

    # -- a witness ---------------------------------------------------------------------------------------------------

    def record(self, sighting: Sighting) -> Entry | None:
        """See `Ledger.record`."""
        held = self._transactions.run_or_postpone(
            lambda books: books.record(storable_call(sighting, as_utf8) if isinstance(sighting, Sighting) else sighting),
            None,
        )
        return None if held is None else entry_of(held)

    def set_digest(self, entry_id: str, digest: str) -> Entry | None:
        """See `Ledger.set_digest`."""
        return self._transactions.run_or_postpone(lambda books: books.set_digest(entry_id, digest), None)

    # -- the guard ---------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        """See `Ledger.claim`."""
        return self._transactions.run(lambda books: books.claim(storable_call(claim, as_utf8), observe))

    def start(self, entry: Entry) -> Entry:
        """See `Ledger.start`."""
        return self._transactions.run_or_postpone(lambda books: books.start(entry), entry)

    def renew(self, entry: Entry, *, lease_ns: int) -> Entry:
        """See `Ledger.renew`."""
        return self._transactions.run(lambda books: books.renew(entry, lease_ns))

    def finish(self, entry: Entry, outcome: Outcome, *, reason: str | None = None) -> Entry:
        """See `Ledger.finish`."""
        return self._transactions.run_or_postpone(lambda books: books.finish(entry, outcome, reason), entry)

    def undeliver(self, entry: Entry) -> Entry:
        """See `Ledger.undeliver`."""
        return self._transactions.run_or_postpone(lambda books: books.undeliver(entry), entry)

    def deliver(self, entry: Entry) -> Entry:
        """See `Ledger.deliver`."""
        return self._transactions.run_or_postpone(lambda books: books.deliver(entry), entry)

    def expire(self) -> tuple[Entry, ...]:
        """See `Ledger.expire`."""
        return self._transactions.run(lambda books: books.expire())

    # -- a person ----------------------------------------------------------------------------------------------------

    def pending(self, query: Query | None = None, *, limit: int = DEFAULT_PAGE, cursor: str | None = None) -> Page:
        """See `Ledger.pending`."""
        condition, values = where(Query() if query is None else query, cursor)
        limit = max(1, min(limit, _LONGEST_PAGE))
        return next_page(self._transactions.read(lambda tables: tables.pending(condition, values, limit + 1)), limit)

    def settle(self, entry_id: str, resolution: Resolution, *, who: str, note: str, version: int) -> Entry:
        """See `Ledger.settle`."""
        return self._transactions.run(lambda books: books.settle(entry_id, resolution, who, note, version))

    # -- everybody ---------------------------------------------------------------------------------------------------

    def get(self, entry_id: str) -> Entry | None:
        """See `Ledger.get`."""
        return self._transactions.read(lambda tables: tables.get(entry_id))

    def by_call(self, scope: str, call_id: str) -> tuple[Entry, ...]:
        """See `Ledger.by_call`."""
        return tuple(self._transactions.read(lambda tables: tables.by_call(scope, call_id)))

    def by_action(self, scope: str, tool: str, digest: str | None) -> tuple[Entry, ...]:
        """See `Ledger.by_action`."""
        return tuple(self._transactions.read(lambda tables: tables.by_action(scope, tool, digest)))

    def is_unknown(self, scope: str, tool: str) -> bool:
        """See `Ledger.is_unknown`."""
        return self._transactions.read(lambda tables: tables.forgotten.tool(scope, tool))

    def counts(self) -> Mapping[State, int]:
        """See `Ledger.counts`."""
        return self._transactions.read(lambda tables: tables.counts())

    def stats(self) -> Stats:
        """See `Ledger.stats`."""
        counts = self.counts()
        expired, unknown = self._transactions.read(lambda tables: tables.forgotten.sizes())
        return Stats(
            entries=sum(counts.values()),
            evicted=expired,
            unknown_tools=unknown,
            rejected=self._transactions.rejected(),
        )

    def close(self) -> None:
        """Close the file. The next operation opens it again."""
        self._transactions.close()


_OPTIONS: Final[Options] = {
    "max_age_days": positive,
    "timeout_seconds": positive,
    "create": yes_or_no,
}
