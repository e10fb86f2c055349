# SPDX-License-Identifier: Apache-2.0
"""A ledger in a PostgreSQL database: for all hosts that reach it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from genai_processor.errors import LedgerUnavailableError, LedgerURLError
from genai_processor.ledger.entries import Entry, State
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.options import Options, place_of_server, positive, split_options, word, yes_or_no
from genai_processor.ledger.pool import Pool
from genai_processor.ledger.protocol import Query
from genai_processor.ledger.rows import entry_of_document
from genai_processor.ledger.server_clock import ServerClock, passed_ns
from genai_processor.ledger.shared import SharedLedger
from genai_processor.ledger.shared_store import Reply, lost, telling
from genai_processor.ledger.snapshot import Answers, Request
from genai_processor.ledger.tables import IS_PENDING, MAY_EXPIRE

try:
    from psycopg import Error
    from psycopg.conninfo import make_conninfo
except ImportError as _error:  # pragma: no cover - shown by a test in a process of its own
    raise LedgerUnavailableError(
        "a postgresql: ledger needs psycopg 3; pip install 'otel-genai-processor[postgresql]'"
    ) from _error

from genai_processor.ledger.postgresql_requests import answers_from, arguments_of
from genai_processor.ledger.postgresql_schema import MIGRATIONS, SCHEMA_VERSION
from genai_processor.ledger.postgresql_wire import RefusedError, Wire

_OPTIONS: Final[Options] = {
    "max_age_days": positive,
    "timeout_seconds": positive,
    "create": yes_or_no,
    "schema": word,
}
_LARGEST: Final = 2**63 - 1
_MIGRATING: Final = 0x67656E61695F6C65  # an advisory lock
_ASK: Final = b"genai_ledger_ask"
_ROWS: Final = "SELECT row_to_json(entries) FROM genai_ledger_entries AS entries"
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class PostgreSQLLedger(SharedLedger):
    """A `Ledger` in a PostgreSQL database (12 or newer).

    Its tables are made by the first that opens it, and their names begin with ``genai_ledger_``. Sessions are configured
    when they begin, so a pooler in between has to leave each to one client (PgBouncer: not by transaction).
    """

    def __init__(
        self,
        url: str,
        *,
        max_age_days: float = 30,
        timeout_seconds: float = 2,
        create: bool = True,
        schema: str | None = None,
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Name a database; it is connected to with the first operation.

        Args:
            url: ``postgresql://[USER:PASSWORD@]HOST[:PORT]/DATABASE``, with options as libpq knows them.
            max_age_days: After how long untouched an entry whose end is known expires.
            timeout_seconds: After how long an operation gives up.
            create: Make the tables, and bring them to this version, if need be.
            schema: Where the tables are; by default wherever the database's ``search_path`` begins.
            clock: The time, in nanoseconds since the Unix epoch; by default the server's.
            new_id: Makes entry ids: random, never the same twice.

        Raises:
            LedgerURLError: The URL is not one of a database.
        """
        store = _PostgreSQLStore(url, timeout_seconds, schema, create=create)
        super().__init__(store, max_age_days=max_age_days, clock=clock, new_id=new_id)

    @classmethod
    def from_url(cls, url: str) -> PostgreSQLLedger:
        """Make one from ``postgresql://HOST:PORT/DATABASE``.

        Options: ``max_age_days`` and ``timeout_seconds``, positive numbers, ``create``, which is true or false, and
        ``schema``; all others are those of libpq.

        Raises:
            LedgerURLError: A value that an option does not take.
        """
        rest, values = split_options(url, _OPTIONS)
        return cls(rest, **values)


class _PostgreSQLStore:
    """See `genai_processor.ledger.shared_store.SharedStore`."""

    def __init__(self, url: str, timeout_seconds: float, schema: str | None, *, create: bool) -> None:
        self.name = place_of_server(url)
        self.timeout_seconds = timeout_seconds
        self.clock = ServerClock()
        self._schema = schema
        self._create = create
        self._tables = ""  # which they are, once they were seen
        self._changed_by = 0  # the last transaction of this process that changed something
        try:
            self._conninfo = make_conninfo(url, client_encoding="UTF8")
        except Error:  # whose text may repeat a password
            raise LedgerURLError(f"ledger URL {urlsplit(url).scheme}:… is not one that libpq understands") from None
        self._pool: Pool[Wire] = Pool(self._connect)

    # -- connections -------------------------------------------------------------------------------------------------

    def _connect(self, deadline: float) -> Wire:
        wire = Wire.connect(self._conninfo, deadline)
        try:
            self._configure(wire, deadline)
            version = self._version(wire, deadline)
            if version < SCHEMA_VERSION:
                version = self._migrate(wire, deadline)
            if version > SCHEMA_VERSION:
                raise LedgerUnavailableError(
                    f"the ledger {self.name} has schema {version}, and this version of genai_processor knows "
                    f"{SCHEMA_VERSION}: it was made by a later version; upgrade this one"
                )
            self._tables = self._tables or self._which(wire, deadline)
            wire.prepare(_ASK.decode(), "SELECT genai_ledger_ask($1::jsonb, $2::json)", deadline)
        except BaseException:
            wire.close()
            raise
        return wire

    def _configure(self, wire: Wire, deadline: float) -> None:
        """Have the session wait no longer than its client, see what was committed, and write through to the disk."""
        settings = [
            f"SET statement_timeout = {max(1, int(self.timeout_seconds * 1_000))}",
            "SET default_transaction_isolation = 'read committed'",
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
            f"SELECT {_NOW}",
        ]
        if self._schema is not None:
            settings.insert(0, f'SET search_path = "{self._schema}"')
        sent = passed_ns()
        answers = wire.query("; ".join(settings), deadline)
        self.clock.sample(int(answers[-1][0][0] or 0) * 1_000, sent, passed_ns())

    def _version(self, wire: Wire, deadline: float) -> int:
        tables = self._which(wire, deadline)
        if self._tables not in ("", tables):
            raise lost(self.name)
        if not tables:
            return 0
        found = wire.query("SELECT max(version) FROM genai_ledger_meta", deadline)[0][0][0]
        return 0 if found is None else int(found)

    def _which(self, wire: Wire, deadline: float) -> str:
        """Say which tables there are; "" for none."""
        return (wire.query("SELECT to_regclass('genai_ledger_meta')::oid", deadline)[0][0][0] or b"").decode()

    def _migrate(self, wire: Wire, deadline: float) -> int:
        if not self._create:
            raise LedgerUnavailableError(f"no ledger at {self.name}, or one of an earlier version; let create=true make it")
        wire.query(f"BEGIN; SELECT pg_advisory_xact_lock({_MIGRATING})", deadline)  # closing the connection rolls it back
        if self._schema is not None:
            wire.query(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"', deadline)
        wire.query("CREATE TABLE IF NOT EXISTS genai_ledger_meta (version INTEGER NOT NULL)", deadline)
        version = self._version(wire, deadline)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                wire.query(statement, deadline)
        if version < SCHEMA_VERSION:
            version = SCHEMA_VERSION
            wire.query(f"DELETE FROM genai_ledger_meta; INSERT INTO genai_ledger_meta VALUES ({version})", deadline)
        wire.query("COMMIT", deadline)
        return version

    # -- questions -------------------------------------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        self._select("SELECT 1", [], deadline)

    def ask(self, request: Request, deadline: float) -> Reply:
        def ask(wire: Wire, deadline: float) -> Any:
            parameters = arguments_of(request, self._tables, self._changed_by)
            sent = passed_ns()
            answer = orjson.loads(wire.call(_ASK, parameters, deadline))
            if "lost" in answer:
                raise lost(self.name)
            self.clock.sample(answer["now"] * 1_000, sent, passed_ns())
            return answer

        with self._told():
            answer, again = self._pool.ask(ask, deadline)
            self._changed_by = max(self._changed_by, answer.get("changed_by") or 0)
            done = "answers" not in answer
            answers = Answers() if done else answers_from(request, answer["answers"], answer["rows"] or ())
        return Reply(done, answers, again)

    def overdue(self, now_ns: int, limit: int) -> Sequence[Entry]:
        return self._entries("lease_expires_ns <= $1 ORDER BY lease_expires_ns LIMIT $2", [now_ns, limit])

    def expirable(self, before_ns: int, limit: int) -> Sequence[Entry]:
        return self._entries(f"{MAY_EXPIRE} AND updated_ns < $1 ORDER BY updated_ns LIMIT $2", [before_ns, limit])

    def pending(self, query: Query, after: tuple[int, str] | None, limit: int) -> Sequence[Entry]:
        conditions, values = [IS_PENDING], list[Any]()

        def add(condition: str, *more: Any) -> None:
            marks = [f"${len(values) + number}" for number in range(1, len(more) + 1)]
            conditions.append(condition.format(*marks))
            values.extend(max(-_LARGEST, min(value, _LARGEST)) if isinstance(value, int) else value for value in more)

        for name, text in (("tool", query.tool), ("scope", query.scope)):
            if text is not None:
                add(f"md5({name}) = md5({{0}}) AND {name} = {{0}}", text)
        if query.state is not None:
            add("state = {0}", State(query.state).value)
        if query.created_before_ns is not None:
            add("created_ns < {0}", query.created_before_ns)
        if query.created_after_ns is not None:
            add("created_ns >= {0}", query.created_after_ns)
        if after is not None:
            add("(created_ns, entry_id) > ({0}::bigint, {1})", *after)
        return self._entries(f"{' AND '.join(conditions)} ORDER BY created_ns, entry_id LIMIT {limit}", values)

    def counts(self) -> Mapping[State, int]:
        rows = self._select("SELECT state, count(*) FROM genai_ledger_entries GROUP BY state", [])
        found = {(state or b"").decode(): int(count or 0) for state, count in rows}
        return {state: found.get(state.value, 0) for state in State}

    def sizes(self) -> tuple[int, int]:
        statement = "SELECT (SELECT count(*) FROM genai_ledger_expired), (SELECT count(*) FROM genai_ledger_unknown)"
        ((expired, unknown),) = self._select(statement, [])
        return int(expired or 0), int(unknown or 0)

    def close(self) -> None:
        self._pool.close()

    def _entries(self, condition: str, values: Sequence[Any]) -> list[Entry]:
        rows = self._select(f"{_ROWS} WHERE {condition}", values)
        with self._told():
            return [entry_of_document(orjson.loads(row[0] or b"")) for row in rows]

    def _select(self, statement: str, values: Sequence[Any], deadline: float | None = None) -> list[list[bytes | None]]:
        if deadline is None:
            deadline = time.monotonic() + self.timeout_seconds
        with self._told():
            return self._pool.ask(lambda wire, by: wire.select(statement, values, by), deadline)[0]

    def _told(self) -> AbstractContextManager[None]:
        return telling(self.name, RefusedError)
