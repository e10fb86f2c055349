# SPDX-License-Identifier: Apache-2.0
"""The transactions of a ledger in a SQLite file: alone, to the end, and across forks, finalizers and interrupts."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from genai_processor.errors import LedgerError, LedgerUnavailableError, UnknownEntryError
from genai_processor.forks import call_before_fork, call_in_child, guard_with_lock, let_forks_pass
from genai_processor.ledger.bookkeeper import Bookkeeper
from genai_processor.ledger.sqlite_file import Opened, lost, open_file, state_of_folder
from genai_processor.ledger.tables import Tables

_T = TypeVar("_T")


class Transactions:
    """Runs operations on a file, which is opened, and made if need be, with the first of them.

    Two connections: nobody who looks waits for a writer who waits for another process.
    """

    def __init__(
        self, path: str, *, timeout_seconds: float, create: bool, max_age_ns: int, bookkeeper: Callable[[Tables], Bookkeeper]
    ) -> None:
        """Name the file.

        Args:
            path: The file.
            timeout_seconds: How long to wait for other threads, and then for another process.
            create: Make the file if there is none.
            max_age_ns: After how long untouched an entry whose end is known expires.
            bookkeeper: Makes the bookkeeper of some tables.
        """
        self._path = path
        self._timeout = timeout_seconds
        self._create = create
        self._max_age_ns = max_age_ns
        self._bookkeeper = bookkeeper
        self._rejected = 0
        self._identity: tuple[int, int] | None = None  # which file it is, once it was opened
        self._cut_off = False  # from what other processes see of it
        self._folder: tuple[int, int, int] | None = None  # when that was last looked into
        self._busy = False
        self._postponed: deque[Callable[[Bookkeeper], object]] = deque()
        self._writing, self._reading = Side(), Side()
        self._shut = True  # nothing is open, nor about to be
        self._inherited: list[object] = []
        call_before_fork(self._close_for_fork)
        call_in_child(self._begin_in_child)

    def run(self, operation: Callable[[Bookkeeper], _T]) -> _T:
        """Run an operation in a transaction of its own.

        Raises:
            LedgerUnavailableError: The file cannot be opened, read or written, or another process held it for too long; or
                a finalizer interrupted another operation of this very thread.
        """
        let_forks_pass()
        asked = time.monotonic()
        with self._writing._lock:
            if self._busy:
                raise LedgerUnavailableError(
                    "the ledger was called by a finalizer that interrupted one of its own operations; "
                    "nothing was changed; call it from ordinary code, not from __del__ or a finalised generator"
                )
            return self._alone(operation, asked)

    def run_or_postpone(self, operation: Callable[[Bookkeeper], _T], otherwise: _T) -> _T:
        """As `run`; if it interrupts another operation of this thread then after that, for `otherwise`."""
        let_forks_pass()
        asked = time.monotonic()
        with self._writing._lock:
            if self._busy:
                self._postponed.append(operation)
                return otherwise
            return self._alone(operation, asked)

    def _alone(self, operation: Callable[[Bookkeeper], _T], asked: float) -> _T:
        if time.monotonic() - asked > self._timeout:  # or many who wait for one file would do so one after the other
            raise LedgerUnavailableError(
                f"the ledger {self._path} was busy with other calls of this process for {self._timeout:g} s"
            )
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
                books = opened.books = self._bookkeeper(Tables(opened.execute, self._max_age_ns))
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

    def _open(self, side: Side) -> Opened:
        """Return the file, opened anew if it was closed.

        Raises:
            LedgerUnavailableError: It is gone, or another one stands in its place: one that knows nothing of what ran. Or
                what was written last is in a file beside it that was removed.
        """
        if self._inherited:
            raise LedgerUnavailableError(
                f"the ledger {self._path} was in use at the moment of a fork, and cannot be used in the child; "
                "fork before, or between, operations"
            )
        if self._is_cut_off():  # what is open stays open: closed, it would write into what others may use by now
            raise lost(self._path)
        if side.opened is not None and side.opened.is_gone():
            self._close(side)
        if side.opened is None:
            self._shut = False  # before it is: a fork that met this would otherwise not know
            opened = open_file(self._path, self._timeout, create=self._create, known=self._identity)
            self._identity, side.opened = opened.identity, opened
            self._folder = None
        return side.opened

    def _is_cut_off(self) -> bool:
        """Whether what either connection writes or reads is nobody else's any more; it stays like that."""
        both = [opened for opened in (self._writing.opened, self._reading.opened) if opened is not None]
        folder = state_of_folder(both[0].real) if both else None  # one look, in place of one at each file
        if folder is None or folder != self._folder:
            if any(not opened.is_gone() and opened.is_cut_off() for opened in both):
                self._cut_off = True
            self._folder = folder
        return self._cut_off

    def _give_up(self, opened: Opened) -> None:
        """Leave no transaction open, whatever ended it: else this process would hold the file for good."""
        try:
            if opened.connection.in_transaction:
                opened.connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close(self._writing)

    def _close(self, side: Side) -> None:
        opened, side.opened = side.opened, None
        if opened is not None:
            self._rejected += opened.books.rejected if opened.books is not None else 0
            opened.connection.close()

    def read(self, question: Callable[[Tables], _T]) -> _T:
        """Ask something that changes nothing, beside whatever is being written."""
        let_forks_pass()
        try:
            with self._reading._lock:
                return self._ask(self._reading, question)
        except LedgerError:
            raise
        except (sqlite3.Error, ValueError) as error:  # a damaged file may hold anything
            raise self._unusable(error) from error

    def _ask(self, side: Side, question: Callable[[Tables], _T]) -> _T:
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

    def rejected(self) -> int:
        """How many sightings could not be used."""
        books = self._writing.opened.books if self._writing.opened is not None else None
        return self._rejected + (books.rejected if books is not None else 0)

    def close(self) -> None:
        """Close the file. The next operation opens it again."""
        for side in (self._writing, self._reading):
            with side._lock:
                self._close(side)

    # -- forks -------------------------------------------------------------------------------------------------------

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


class Side:
    """A connection and its lock. A fork waits for the lock, so it never meets an open transaction."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self.opened: Opened | None = None
        self.depth = 0  # inside how many operations the holder of the lock is
