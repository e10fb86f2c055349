# SPDX-License-Identifier: Apache-2.0
"""What is peculiar to a ledger in a PostgreSQL database: its schema, its sessions, who may do what."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from support.servers import PASSWORD, PostgreSQLServer

from genai_processor.errors import LedgerUnavailableError
from genai_processor.ledger import (
    Claim,
    Granted,
    Outcome,
    Refusal,
    RefusalReason,
    Sighting,
    State,
    open_ledger,
    postgresql,
)
from genai_processor.ledger.postgresql import PostgreSQLLedger
from genai_processor.ledger.postgresql_schema import MIGRATIONS, SCHEMA_VERSION

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def schema() -> str:
    return f"t{uuid.uuid4().hex}"


@pytest.fixture
def client(postgresql_server: PostgreSQLServer, schema: str) -> Iterator[Connection]:
    with psycopg.connect(postgresql_server.url(), autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema}, public")
        yield connection


def value(client: Connection, statement: str) -> object:
    row = client.execute(statement).fetchone()  # type: ignore[arg-type]
    return None if row is None else row[0]


def test_a_schema_of_a_later_version_is_left_alone(
    postgresql_server: PostgreSQLServer, client: Connection, schema: str
) -> None:
    PostgreSQLLedger(postgresql_server.url(), schema=schema).counts()
    assert value(client, "SELECT version FROM genai_ledger_meta") == SCHEMA_VERSION
    client.execute("UPDATE genai_ledger_meta SET version = 99")
    with pytest.raises(LedgerUnavailableError, match="later version"):
        PostgreSQLLedger(postgresql_server.url(), schema=schema).record(Sighting("s", "pay", State.QUARANTINED))
    assert value(client, "SELECT count(*) FROM genai_ledger_entries") == 0


def test_a_schema_of_an_earlier_version_is_brought_to_this_one_with_what_is_in_it(
    postgresql_server: PostgreSQLServer, client: Connection, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = PostgreSQLLedger(postgresql_server.url(), schema=schema)
    kept = old.record(Sighting("s", "pay", State.QUARANTINED))
    monkeypatch.setattr(postgresql, "MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE genai_ledger_later (one INTEGER)",)))
    monkeypatch.setattr(postgresql, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    with pytest.raises(LedgerUnavailableError, match="earlier version"):
        PostgreSQLLedger(postgresql_server.url(), schema=schema, create=False).counts()
    for _ in range(2):
        assert PostgreSQLLedger(postgresql_server.url(), schema=schema).pending().entries == (kept,)
    assert value(client, "SELECT count(*) FROM genai_ledger_later") == 0
    assert value(client, "SELECT version FROM genai_ledger_meta") == SCHEMA_VERSION + 1


def test_without_a_schema_it_is_wherever_the_database_says(postgresql_server: PostgreSQLServer, client: Connection) -> None:
    url = postgresql_server.url().replace("postgresql://", "postgres://")
    assert set(open_ledger(url).counts()) == set(State)  # other tests may have been here
    assert value(client, "SELECT to_regclass('public.genai_ledger_entries')::text") == "genai_ledger_entries"


def test_a_database_with_other_habits_is_asked_as_it_has_to_be(
    postgresql_server: PostgreSQLServer, client: Connection, schema: str
) -> None:
    client.execute("CREATE ROLE eve LOGIN SUPERUSER PASSWORD 'eve'")
    for habit in (
        "default_transaction_isolation = 'serializable'",
        "synchronous_commit = 'off'",
        "statement_timeout = '1h'",
    ):
        client.execute(f"ALTER ROLE eve SET {habit}")  # type: ignore[arg-type]
    ledger = PostgreSQLLedger(postgresql_server.url().replace(f"ann:{PASSWORD}", "eve:eve"), schema=schema)
    settings = ("default_transaction_isolation", "synchronous_commit", "statement_timeout")
    deadline = time.monotonic() + 60
    wire = ledger._store._connect(deadline)  # type: ignore[attr-defined]
    found = [wire.query(f"SHOW {name}", deadline)[0][0][0].decode() for name in settings]
    wire.close()
    assert found == ["read committed", "on", "2s"]
    assert isinstance(ledger.claim(Claim("s", "pay")), Granted)


def test_who_may_not_make_tables_uses_what_is_there(
    postgresql_server: PostgreSQLServer, client: Connection, schema: str
) -> None:
    client.execute("CREATE ROLE bob LOGIN PASSWORD 'bob'")
    url = postgresql_server.url().replace(f"ann:{PASSWORD}", "bob:bob")
    with pytest.raises(LedgerUnavailableError, match="permission denied"):
        PostgreSQLLedger(url, schema=schema).counts()
    PostgreSQLLedger(postgresql_server.url(), schema=schema).counts()
    client.execute(f"GRANT USAGE ON SCHEMA {schema} TO bob")  # type: ignore[arg-type]
    client.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO bob")  # type: ignore[arg-type]
    ledger = PostgreSQLLedger(url, schema=schema)
    answer = ledger.claim(Claim("s", "pay"))
    assert isinstance(answer, Granted)
    assert ledger.finish(answer.entry, Outcome.RETURNED).state is State.COMPLETED


def test_a_wrong_password_is_told_without_it(postgresql_server: PostgreSQLServer) -> None:
    ledger = open_ledger(postgresql_server.url().replace(PASSWORD, "hunter2"))
    with pytest.raises(LedgerUnavailableError, match="password authentication failed") as caught:
        ledger.counts()
    assert "hunter2" not in str(caught.value)


def test_who_holds_what_is_asked_for_too_long_is_not_waited_for(
    postgresql_server: PostgreSQLServer, client: Connection, schema: str
) -> None:
    ledger = PostgreSQLLedger(postgresql_server.url(), schema=schema)
    hasty = PostgreSQLLedger(postgresql_server.url(), schema=schema, timeout_seconds=0.3)
    answer = ledger.claim(Claim("s", "pay"))
    assert isinstance(answer, Granted)
    with client.transaction():
        client.execute("LOCK TABLE genai_ledger_entries")
        with pytest.raises(LedgerUnavailableError):
            hasty.finish(answer.entry, Outcome.RETURNED)
    assert ledger.finish(answer.entry, Outcome.RETURNED).state is State.COMPLETED


def test_a_server_that_was_restored_from_a_backup_is_told_from_one_that_was_started_again() -> None:
    server = PostgreSQLServer()
    try:
        server.start()
        ledger = PostgreSQLLedger(server.url())
        ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_1x", "d1"))
        server.stop()
        subprocess.run(["cp", "-a", f"{server.folder}/data", f"{server.folder}/backup"], check=True)
        server.start()
        again = ledger.claim(Claim("s", "pay", "toolu_new1", "d1", "t2"))
        assert isinstance(again, Refusal)
        assert again.reason is RefusalReason.ACTION_QUARANTINED
        ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_2x", "d2"))
        server.stop()
        subprocess.run(["rm", "-r", f"{server.folder}/data"], check=True)
        subprocess.run(["mv", f"{server.folder}/backup", f"{server.folder}/data"], check=True)
        server.start()
        for _ in range(2):
            with pytest.raises(LedgerUnavailableError, match="has lost what"):
                ledger.claim(Claim("s", "pay", "toolu_new2", "d2", "t2"))
    finally:
        server.remove()


def test_each_look_for_entries_has_an_index(postgresql_server: PostgreSQLServer, client: Connection, schema: str) -> None:
    PostgreSQLLedger(postgresql_server.url(), schema=schema).counts()
    client.execute("SET enable_seqscan = off")
    for condition in (
        "call_place = 1 ORDER BY created_ns DESC, entry_id DESC LIMIT 64",
        "turn_place = 1 ORDER BY created_ns DESC, entry_id DESC",
        "action_place = 1 ORDER BY created_ns DESC, entry_id DESC",
        "open_place = 1 ORDER BY created_ns DESC, entry_id DESC",
        "leased_place = 1 AND lease_expires_ns <= 1",
        "lease_expires_ns <= 1 ORDER BY lease_expires_ns LIMIT 1",
        f"{postgresql.MAY_EXPIRE} AND updated_ns < 1 ORDER BY updated_ns LIMIT 1",
        f"{postgresql.IS_PENDING} AND (created_ns, entry_id) > (1, 'e') ORDER BY created_ns, entry_id LIMIT 1",
    ):
        plan = client.execute(f"EXPLAIN SELECT * FROM genai_ledger_entries WHERE {condition}").fetchall()  # type: ignore[arg-type]
        assert "Index Cond" in str(plan), condition
        assert "Seq Scan" not in str(plan), condition
