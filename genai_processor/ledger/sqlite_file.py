# SPDX-License-Identifier: Apache-2.0
"""Opening the SQLite file of a ledger: whether it is one, and which version of the tables it has."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from genai_processor.errors import LedgerUnavailableError
from genai_processor.ledger.bookkeeper import Bookkeeper
from genai_processor.ledger.tables import SCHEMA, SCHEMA_VERSION
from genai_processor.ledger.texts import as_utf8

_COARSEST_NS: Final = 2 * 10**9
"""No usual file system tells the time of a change less exactly."""

_APPLICATION: Final = 0x67656E61  # "gena", in the header of the file: it is a ledger, and no other application's


@dataclass(slots=True)
class Opened:
    """A connection, and the bookkeeper that works through it.

    Attributes:
        connection: The connection; transactions are begun and ended by hand.
        path: The file that was opened.
        identity: Which file that was.
        real: The same without symbolic links: beside that one SQLite keeps two files of its own.
        beside: Which these were; they stay the same for as long as anybody has it open.
        books: The bookkeeper, once there is one.
    """

    connection: sqlite3.Connection
    path: str
    identity: tuple[int, int] | None
    real: str
    beside: tuple[tuple[int, int] | None, ...]
    books: Bookkeeper | None = None

    def is_gone(self) -> bool:
        """Whether the path names another file by now, or none."""
        return _identity(self.path) != self.identity

    def is_cut_off(self) -> bool:
        """Whether a file beside it was removed: whoever opens it from now on sees nothing of what is written here."""
        return any(before is not None and now != before for before, now in zip(self.beside, _beside(self.real), strict=True))

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; see `genai_processor.ledger.tables.Execute`. What UTF-8 cannot hold is escaped."""
        try:
            return self.connection.execute(statement, parameters).fetchall()
        except UnicodeEncodeError:
            return self.connection.execute(
                statement, [as_utf8(value) if isinstance(value, str) else value for value in parameters]
            ).fetchall()


def open_file(path: str, timeout: float, *, create: bool, known: tuple[int, int] | None = None) -> Opened:
    """Open a ledger's file, and make its tables if it is new.

    Args:
        path: The file.
        timeout: How many seconds to wait for other processes.
        create: Make the file if there is none.
        known: Which file it has to be; None for any.

    Raises:
        LedgerUnavailableError: There is no such file, or it is another one, or is not a ledger, or one of a later version.
        sqlite3.Error: It cannot be opened or read.
    """
    if known is not None and _identity(path) != known:
        raise lost(path)
    if not create and not os.path.exists(path):
        raise LedgerUnavailableError(f"no ledger at {path}")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise LedgerUnavailableError(f"no ledger at {path}: there is no directory {folder}; make it first")
    uri = f"{Path(path).absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        if not _is_ready(connection, path):
            if known is not None:
                raise lost(path)
            _make(connection, path, timeout, create=create)
        connection.execute("PRAGMA synchronous=FULL")
        real = os.path.realpath(path)
        return Opened(connection, path, _identity(path), real, _beside(real))
    except BaseException:
        connection.close()
        raise


def _is_ready(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file has the tables of this version; False if it is empty."""
    alone = not connection.in_transaction
    if alone:  # so that all is read of one state of the file
        connection.execute("BEGIN")
    try:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    finally:
        if alone:
            connection.execute("ROLLBACK")
    if application != _APPLICATION:
        if tables or application or version:
            raise LedgerUnavailableError(f"{path} is a database of something else, not a ledger; name another file")
        return False
    if version > SCHEMA_VERSION:
        raise LedgerUnavailableError(
            f"the ledger {path} has schema {version}, and this version of genai_processor knows {SCHEMA_VERSION}: "
            "it was made by a later version; upgrade this one"
        )
    return True


def lost(path: str) -> LedgerUnavailableError:
    """Return the error for a file that does not hold any more what this process has seen in it."""
    return LedgerUnavailableError(
        f"the ledger {path} is not the file any more that this process has used: it, or one of the two beside it, was "
        "removed, emptied, or replaced by another one; calls that ran are not known there any more and may have committed, "
        "so find out which, and then start this process again"
    )


def _make(connection: sqlite3.Connection, path: str, timeout: float, *, create: bool) -> None:
    if not create:
        raise LedgerUnavailableError(f"no ledger at {path}: the file is empty")
    _switch_to_wal(connection, timeout)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _is_ready(connection, path):  # another process may have been faster
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _switch_to_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Let readers and a writer work side by side. For this SQLite does not wait for others, so it is tried again."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def state_of_folder(path: str) -> tuple[int, int, int] | None:
    """Return what changes whenever a file comes or goes in the folder of a file; None where that cannot be told."""
    try:
        found = os.stat(os.path.dirname(path))
    except OSError:
        return None
    # What comes and goes within one tick of the file system's clock leaves the time as it is.
    settled = time.time_ns() - found.st_mtime_ns > _COARSEST_NS
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if settled else None


def _beside(path: str) -> tuple[tuple[int, int] | None, ...]:
    return _identity(f"{path}-wal"), _identity(f"{path}-shm")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
