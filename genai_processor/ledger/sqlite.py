# SPDX-License-Identifier: Apache-2.0
"""A ledger in a SQLite file: for all processes of one host, and it outlives them."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from genai_processor.errors import LedgerError, LedgerUnavailableError, LedgerURLError, UnknownEntryError
from genai_processor.forks import call_before_fork, call_in_child, guard_with_lock, let_forks_pass
from genai_processor.ledger.bookkeeper import Bookkeeper
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.noted import entry_of
from genai_processor.ledger.options import Options, positive, yes_or_no
from genai_processor.ledger.paging import next_page, where
from genai_processor.ledger.protocol import DEFAULT_PAGE, Page, Query, Stats
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, Sighting
from genai_processor.ledger.sqlite_file import Opened, open_file
from genai_processor.ledger.tables import Tables
from genai_processor.ledger.texts import as_utf8, storable_call

_T = TypeVar("_T")
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
            timeout_seconds: How long to wait for another process before a ledger counts as unavailable.
            create: Make the file if there is none.
            clock: The time, in nanoseconds since the Unix epoch.
            new_id: Makes entry ids: random, never the same twice.
        """
        self._path = path
        self._timeout = timeout_seconds
        self._create = create
        self._max_age_ns = int(min(max_age_days * _DAY_NS, 2**62))
        self._clock = clock
        self._new_id = new_id
        self._rejected = 0
        self._identity: tuple[int, int] | None = None  # which file it is, once it was opened
        self._busy = False
        self._postponed: deque[Callable[[Bookkeeper], object]] = deque()
        self._writing, self._reading = _Side(), _Side()  # nobody who looks waits for a writer who waits for another process
        self._shut = True  # nothing is open, nor about to be
        self._inherited: list[object] = []
        call_before_fork(self._close_for_fork)
        call_in_child(self._begin_in_child)

    def _close_for_fork(self) -> None:
        """Close the file, so that a child inherits nothing: SQLite would believe that it holds the locks of its parent."""
        for side in (self._writing, self._reading):
            if side.depth:  # this very thread forks in the middle of an operation
                return
        for side in (self._writing, self._reading):
            self._close(side)
        self._shut = True

    def _begin_in_child(self) -> None:
        if not self._shut:  # neither to be used nor to be closed, which would take its parent's locks away
            self._inherited += [self._writing.opened, self._reading.opened]
        for side in (self._writing, self._reading):
            side.opened, side.depth = None, 0
        self._busy = False
        self._postponed.clear()

    @classmethod
    def from_url(cls, url: str) -> SQLiteLedger:
        """Make one from ``sqlite:///PATH`` (``sqlite:////PATH`` from the root).

        Options: ``max_age_days`` and ``timeout_seconds``, positive numbers, and ``create``, which is true or false.

        Raises:
            LedgerURLError: No path, an option that there is not, or a value that it does not take.
        """
        parts = urlsplit(url)
        path = unquote(parts.path).removeprefix("/")
        if parts.netloc or not path or path == ":memory:":
            raise LedgerURLError(
                f"ledger URL {url!r} names no file; write sqlite:///PATH, or sqlite:////PATH for one from the root"
            )
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

    # -- transactions ------------------------------------------------------------------------------------------------

    def _run(self, operation: Callable[[Bookkeeper], _T]) -> _T:
        """Run an operation in a transaction of its own.

        Raises:
            LedgerUnavailableError: The file cannot be opened, read or written, or another process held it for too long; or
                a finalizer interrupted another operation of this very thread.
        """
        let_forks_pass()
        with self._writing._lock:
            if self._busy:
                raise LedgerUnavailableError(
                    "the ledger was called by a finalizer that interrupted one of its own operations; "
                    "nothing was changed; call it from ordinary code, not from __del__ or a finalised generator"
                )
            return self._alone(operation)

    def _run_or_postpone(self, operation: Callable[[Bookkeeper], _T], otherwise: _T) -> _T:
        """As `_run`; if it interrupts another operation of this thread then after that, for `otherwise`."""
        let_forks_pass()
        with self._writing._lock:
            if self._busy:
                self._postponed.append(operation)
                return otherwise
            return self._alone(operation)

    def _alone(self, operation: Callable[[Bookkeeper], _T]) -> _T:
        self._busy = True
        try:
            done = self._transact(operation)
            while self._postponed:  # by this thread, so they come to an end
                with suppress(Exception):  # whoever asked for it is not there any more to be told
                    self._transact(self._postponed.popleft())
            return done
        finally:
            self._busy = False

    def _transact(self, operation: Callable[[Bookkeeper], _T]) -> _T:
        side = self._writing
        try:
            opened = self._open(side)
            books, execute = opened.books, opened.connection.execute
            if books is None:
                books = opened.books = Bookkeeper(Tables(opened.execute, self._max_age_ns), self._clock, self._new_id)
            if opened.connection.in_transaction:  # a second interrupt kept an earlier operation from its end
                execute("ROLLBACK")
            try:
                side.depth = 1
                execute("BEGIN IMMEDIATE")
                done = operation(books)
                execute("COMMIT")
            except UnknownEntryError:  # the news that it brought is kept
                execute("COMMIT")
                raise
            except BaseException:
                self._give_up(opened)
                raise
            finally:
                side.depth = 0
            return done
        except LedgerError:
            raise
        except (sqlite3.Error, ValueError) as error:  # a damaged file may hold anything
            raise self._unusable(error) from error

    def _open(self, side: _Side) -> Opened:
        """Return the file, opened anew if it was closed.

        Raises:
            LedgerUnavailableError: It is gone, or another one stands in its place: one that knows nothing of what ran.
        """
        if self._inherited:
            raise LedgerUnavailableError(
                f"the ledger {self._path} was in use at the moment of a fork, and cannot be used in the child; "
                "fork before, or between, operations"
            )
        if side.opened is not None and side.opened.is_gone():
            self._close(side)
        if side.opened is None:
            self._shut = False  # before it is: a fork that met this would otherwise not know
            opened = open_file(self._path, self._timeout, create=self._create, known=self._identity)
            self._identity, side.opened = opened.identity, opened
        return side.opened

    def _give_up(self, opened: Opened) -> None:
        """Leave no transaction open, whatever ended it: else this process would hold the file for good."""
        try:
            if opened.connection.in_transaction:
                opened.connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close(self._writing)

    def _close(self, side: _Side) -> None:
        opened, side.opened = side.opened, None
        if opened is not None:
            self._rejected += opened.books.rejected if opened.books is not None else 0
            opened.connection.close()

    def _read(self, question: Callable[[Tables], _T]) -> _T:
        """Ask something that changes nothing, beside whatever is being written."""
        let_forks_pass()
        try:
            with self._reading._lock:
                return self._ask(self._reading, question)
        except LedgerError:
            raise
        except (sqlite3.Error, ValueError) as error:  # a damaged file may hold anything
            raise self._unusable(error) from error

    def _ask(self, side: _Side, question: Callable[[Tables], _T]) -> _T:
        if side.depth:  # asked by a finalizer that interrupted another question
            assert side.opened is not None
            return question(Tables(side.opened.execute, self._max_age_ns))
        opened = self._open(side)
        connection = opened.connection
        if connection.in_transaction:  # an interrupt kept an earlier question from its end
            connection.execute("ROLLBACK")
        try:
            side.depth = 1
            connection.execute("BEGIN")
            return question(Tables(opened.execute, self._max_age_ns))
        finally:
            side.depth = 0
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _unusable(self, error: Exception) -> LedgerUnavailableError:
        return LedgerUnavailableError(f"the ledger {self._path} cannot be used: {error}")

    # -- a witness ---------------------------------------------------------------------------------------------------

    def record(self, sighting: Sighting) -> Entry | None:
        """See `Ledger.record`."""
        held = self._run_or_postpone(
            lambda books: books.record(storable_call(sighting, as_utf8) if isinstance(sighting, Sighting) else sighting),
            None,
        )
        return None if held is None else entry_of(held)

    def set_digest(self, entry_id: str, digest: str) -> Entry | None:
        """See `Ledger.set_digest`."""
        return self._run_or_postpone(lambda books: books.set_digest(entry_id, digest), None)

    # -- the guard ---------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        """See `Ledger.claim`."""
        return self._run(lambda books: books.claim(storable_call(claim, as_utf8), observe))

    def start(self, entry: Entry) -> Entry:
        """See `Ledger.start`."""
        return self._run_or_postpone(lambda books: books.start(entry), entry)

    def renew(self, entry: Entry, *, lease_ns: int) -> Entry:
        """See `Ledger.renew`."""
        return self._run(lambda books: books.renew(entry, lease_ns))

    def finish(self, entry: Entry, outcome: Outcome, *, reason: str | None = None) -> Entry:
        """See `Ledger.finish`."""
        return self._run_or_postpone(lambda books: books.finish(entry, outcome, reason), entry)

    def undeliver(self, entry: Entry) -> Entry:
        """See `Ledger.undeliver`."""
        return self._run_or_postpone(lambda books: books.undeliver(entry), entry)

    def deliver(self, entry: Entry) -> Entry:
        """See `Ledger.deliver`."""
        return self._run_or_postpone(lambda books: books.deliver(entry), entry)

    def expire(self) -> tuple[Entry, ...]:
        """See `Ledger.expire`."""
        return self._run(lambda books: books.expire())

    # -- a person ----------------------------------------------------------------------------------------------------

    def pending(self, query: Query | None = None, *, limit: int = DEFAULT_PAGE, cursor: str | None = None) -> Page:
        """See `Ledger.pending`."""
        condition, values = where(Query() if query is None else query, cursor)
        limit = max(1, min(limit, _LONGEST_PAGE))
        return next_page(self._read(lambda tables: tables.pending(condition, values, limit + 1)), limit)

    def settle(self, entry_id: str, resolution: Resolution, *, who: str, note: str, version: int) -> Entry:
        """See `Ledger.settle`."""
        return self._run(lambda books: books.settle(entry_id, resolution, who, note, version))

    # -- everybody ---------------------------------------------------------------------------------------------------

    def get(self, entry_id: str) -> Entry | None:
        """See `Ledger.get`."""
        return self._read(lambda tables: tables.get(entry_id))

    def by_call(self, scope: str, call_id: str) -> tuple[Entry, ...]:
        """See `Ledger.by_call`."""
        return tuple(self._read(lambda tables: tables.by_call(scope, call_id)))

    def by_action(self, scope: str, tool: str, digest: str | None) -> tuple[Entry, ...]:
        """See `Ledger.by_action`."""
        return tuple(self._read(lambda tables: tables.by_action(scope, tool, digest)))

    def is_unknown(self, scope: str, tool: str) -> bool:
        """See `Ledger.is_unknown`."""
        return self._read(lambda tables: tables.forgotten.tool(scope, tool))

    def counts(self) -> Mapping[State, int]:
        """See `Ledger.counts`."""
        return self._read(lambda tables: tables.counts())

    def stats(self) -> Stats:
        """See `Ledger.stats`."""
        counts = self.counts()
        expired, unknown = self._read(lambda tables: tables.forgotten.sizes())
        books = self._writing.opened.books if self._writing.opened is not None else None
        return Stats(
            entries=sum(counts.values()),
            evicted=expired,
            unknown_tools=unknown,
            rejected=self._rejected + (books.rejected if books is not None else 0),
        )

    def close(self) -> None:
        """Close the file. The next operation opens it again."""
        for side in (self._writing, self._reading):
            with side._lock:
                self._close(side)


class _Side:
    """A connection and its lock. A fork waits for the lock, so it never meets an open transaction."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self.opened: Opened | None = None
        self.depth = 0  # inside how many operations the holder of the lock is


_OPTIONS: Final[Options] = {
    "max_age_days": positive,
    "timeout_seconds": positive,
    "create": yes_or_no,
}
