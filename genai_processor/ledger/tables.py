# SPDX-License-Identifier: Apache-2.0
"""The entries of a ledger in the tables of a SQL database. Runs inside a transaction that its ledger has begun."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, Protocol

from genai_processor.ledger.entries import EXPIRING, OPEN, PENDING, Entry, State
from genai_processor.ledger.forgotten import digest_of_key, keys_of_call
from genai_processor.ledger.noted import Held, entry_of
from genai_processor.ledger.requests import Claim, Returned, Sighting
from genai_processor.ledger.rows import COLUMNS, changes_of, column, entry_from, row_of

SCHEMA_VERSION: Final = 1
"""Of the tables below; kept in the database, too."""

_ENTRIES: Final = "genai_ledger_entries"
_EXPIRED: Final = "genai_ledger_expired"
_UNKNOWN: Final = "genai_ledger_unknown"


def _listed(states: Iterable[State]) -> str:
    return ", ".join(f"'{state.value}'" for state in sorted(states))


_IS_OPEN: Final = f"state IN ({_listed(OPEN)})"
_BEARS: Final = f"state NOT IN ({_listed({State.COMPLETED, State.NOT_STARTED})})"
IS_PENDING: Final = f"state IN ({_listed(PENDING)})"
MAY_EXPIRE: Final = f"state IN ({_listed(EXPIRING)})"
"""Conditions in SQL: what waits for a person, and what expires once it is old enough."""

SCHEMA: Final = (
    f"CREATE TABLE {_ENTRIES} ({', '.join(map(column, COLUMNS))})",
    f"CREATE INDEX {_ENTRIES}_call ON {_ENTRIES} (scope, call_id, created_ns, entry_id) WHERE call_id IS NOT NULL",
    f"CREATE INDEX {_ENTRIES}_action ON {_ENTRIES} (scope, tool, digest, created_ns, entry_id) WHERE digest IS NOT NULL",
    f"CREATE INDEX {_ENTRIES}_bears ON {_ENTRIES} (scope, tool, digest) WHERE {_BEARS}",
    f"CREATE INDEX {_ENTRIES}_twin ON {_ENTRIES} (scope, tool, digest, turn) WHERE turn IS NOT NULL",
    f"CREATE INDEX {_ENTRIES}_any ON {_ENTRIES} (scope, tool, created_ns, entry_id) WHERE digest IS NULL",
    f"CREATE INDEX {_ENTRIES}_open ON {_ENTRIES} (scope, tool, digest) WHERE {_IS_OPEN}",
    f"CREATE INDEX {_ENTRIES}_pending ON {_ENTRIES} (created_ns, entry_id) WHERE {IS_PENDING}",
    f"CREATE INDEX {_ENTRIES}_lease ON {_ENTRIES} (lease_expires_ns) WHERE lease_expires_ns IS NOT NULL",
    f"CREATE INDEX {_ENTRIES}_age ON {_ENTRIES} (updated_ns) WHERE {MAY_EXPIRE}",
    f"CREATE TABLE {_EXPIRED} (call_key TEXT PRIMARY KEY)",
    f"CREATE TABLE {_UNKNOWN} (scope TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (scope, tool))",
)
"""What a database without a ledger is given, statement by statement."""

_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM {_ENTRIES}"
_INSERT: Final = f"INSERT INTO {_ENTRIES} ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_GET: Final = f"{_SELECT} WHERE entry_id = ?"
_IS_UNKNOWN: Final = f"SELECT 1 FROM {_UNKNOWN} WHERE scope = ? AND tool IN (?, ?)"
_EVERY_TOOL: Final = ""  # no tool has this name
_EXPIRED_AT_ONCE: Final = 100
_EVICT_EVERY_NS: Final = 60 * 10**9


@cache
def _bearing(has_id: bool, has_digest: bool, has_turn: bool) -> str:
    """The statement that selects what bears on a claim, whose parameters are in the order of its conditions."""
    ways = [f"scope = ? AND tool = ? AND {_IS_OPEN}{' AND digest IS NULL' if has_digest else ''}"]
    if has_id:
        ways.append("scope = ? AND call_id = ?")
    if has_digest:
        ways.append(f"scope = ? AND tool = ? AND digest = ? AND {_BEARS}")
        if has_turn:
            ways.append("scope = ? AND tool = ? AND digest = ? AND turn = ?")
    return " UNION ".join(f"{_SELECT} WHERE {condition}" for condition in ways)


@cache
def _changing(names: tuple[str, ...]) -> str:
    """The statement that changes some columns of an entry."""
    return f"UPDATE {_ENTRIES} SET {', '.join(f'{name} = ?' for name in names)} WHERE entry_id = ?"


@cache
def _is_any_expired(keys: int) -> str:
    """The statement that looks for any of some keys."""
    return f"SELECT 1 FROM {_EXPIRED} WHERE call_key IN ({', '.join('?' * keys)}) LIMIT 1"


class Execute(Protocol):
    """Runs one statement, whose parameters stand for its question marks."""

    def __call__(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows that it selects."""
        ...


class Tables:
    """Entries in a database. SQLite's dialect; each look-up by an index.

    Args:
        execute: Runs a statement in the transaction of the operation.
        max_age_ns: After how long untouched an entry whose end is known expires.
    """

    def __init__(self, execute: Execute, max_age_ns: int) -> None:
        self._execute = execute
        self._max_age_ns = max_age_ns
        self._evict_again = 0
        self.forgotten = Expired(execute)

    def get(self, entry_id: str | None) -> Entry | None:
        """Return an entry, or None."""
        found = self._execute(_GET, (entry_id,)) if entry_id is not None else []
        return entry_from(found[0]) if found else None

    def held_by_call(self, scope: str, call_id: str, newest: int | None = None) -> list[Held]:
        """Return the entries of a call id, oldest first; with `newest`, so many that were made last."""
        return self._newest("scope = ? AND call_id = ?", newest, scope, call_id)

    def held_by_action(self, scope: str, tool: str, digest: str, newest: int | None = None) -> list[Held]:
        """Return the entries of an action, oldest first; with `newest`, so many that were made last."""
        return self._newest("scope = ? AND tool = ? AND digest = ?", newest, scope, tool, digest)

    def bearing_on(self, claim: Claim) -> Iterator[Entry]:
        """Yield the entries that bear on a claim, as `genai_processor.ledger.claims` defines it."""
        scope, tool, call_id, digest, turn = claim.scope, claim.tool, claim.call_id, claim.digest, claim.turn
        values = [scope, tool]
        if call_id is not None:
            values += scope, call_id
        if digest is not None:
            values += scope, tool, digest
            if turn is not None:
                values += scope, tool, digest, turn
        statement = _bearing(call_id is not None, digest is not None, turn is not None)
        yield from map(entry_from, self._execute(statement, values))
        outer, seen = self.get(claim.parent), set[str]()
        while outer is not None and outer.entry_id not in seen:
            yield outer
            seen.add(outer.entry_id)
            outer = self.get(outer.parent)

    def leased(self) -> list[Entry]:
        """Return whatever has a lease."""
        return self._select("lease_expires_ns IS NOT NULL")

    def by_call(self, scope: str, call_id: str) -> list[Entry]:
        """Return the entries of a call id, oldest first."""
        return [entry_of(held) for held in self.held_by_call(scope, call_id)]

    def by_action(self, scope: str, tool: str, digest: str | None) -> list[Entry]:
        """Return the entries of an action, oldest first; with None those of the tool whose digest is not known."""
        if digest is None:
            return self._select("scope = ? AND tool = ? AND digest IS NULL ORDER BY created_ns, entry_id", scope, tool)
        return [entry_of(held) for held in self.held_by_action(scope, tool, digest)]

    def pending(self, condition: str, values: Sequence[Any], limit: int) -> list[Entry]:
        """Return the first pending entries that fit, oldest first."""
        where = f"{IS_PENDING}{condition} ORDER BY created_ns, entry_id LIMIT {limit}"
        return self._select(where, *values)

    def counts(self) -> dict[State, int]:
        """Return how many entries are in each state. Reads the whole table, beside those who write."""
        found = dict(self._execute(f"SELECT state, count(*) FROM {_ENTRIES} GROUP BY state"))
        return {state: found.get(state.value, 0) for state in State}

    # -- changes ---------------------------------------------------------------------------------------------------

    def note(self, seen: Sighting, now_ns: int, new_id: Callable[[], str], *, anyhow: bool = False) -> Held | None:
        """Make the entry of a sighting; None, and nothing is done, if it shares a key with another, unless `anyhow`."""
        if not anyhow and (seen.entry_id is not None or self._has(seen.scope, seen.tool, seen.call_id, seen.digest)):
            return None
        entry = entry_of((new_id(), now_ns, 0, seen))
        self.add(entry)
        return entry

    def note_return(self, returned: Returned, now_ns: int, new_id: Callable[[], str]) -> bool:
        """Make the entry of a call that came back; False, and nothing is done, if its call id is known."""
        return self.note(returned.sighting(), now_ns, new_id) is not None

    def add(self, entry: Entry) -> None:
        """Add an entry of a new id."""
        self._execute(_INSERT, row_of(entry))

    def replace(self, old: Entry, new: Entry) -> None:
        """Put an entry in the place of its former version."""
        changes = changes_of(old, new)
        self._execute(_changing(tuple(changes)), [*changes.values(), old.entry_id])

    def evict(self, now_ns: int) -> None:
        """Now and then, let some entries expire that are old enough, and whose end is known; that it was stays known."""
        if now_ns < self._evict_again:
            return
        expired = self._select(
            f"{MAY_EXPIRE} AND updated_ns < ? ORDER BY updated_ns LIMIT {_EXPIRED_AT_ONCE}", now_ns - self._max_age_ns
        )
        for entry in expired:
            self.forgotten.add_call(entry)
            self._execute(f"DELETE FROM {_ENTRIES} WHERE entry_id = ?", [entry.entry_id])
        if len(expired) < _EXPIRED_AT_ONCE:
            self._evict_again = now_ns + min(_EVICT_EVERY_NS, self._max_age_ns // 100)

    # -- statements ------------------------------------------------------------------------------------------------

    def _select(self, condition: str, *values: Any) -> list[Entry]:
        return list(map(entry_from, self._execute(f"{_SELECT} WHERE {condition}", values)))

    def _newest(self, condition: str, newest: int | None, *values: Any) -> list[Held]:
        limit = "" if newest is None else f" LIMIT {newest}"
        found = self._select(f"{condition} ORDER BY created_ns DESC, entry_id DESC{limit}", *values)
        return list(reversed(found))

    def _has(self, scope: str, tool: str, call_id: str | None, digest: str | None) -> bool:
        """Whether an entry has the id, or the action."""
        found: list[Any] = []
        if call_id:
            found = self._execute(f"SELECT 1 FROM {_ENTRIES} WHERE scope = ? AND call_id = ? LIMIT 1", [scope, call_id])
        if digest and not found:
            statement = f"SELECT 1 FROM {_ENTRIES} WHERE scope = ? AND tool = ? AND digest = ? LIMIT 1"
            found = self._execute(statement, [scope, tool, digest])
        return bool(found)


class Expired:
    """What is remembered of entries that are gone: a digest of each call's key, and the tools of which all is unknown."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def add_call(self, entry: Entry) -> None:
        """Remember that an entry whose end was known has expired."""
        for key in keys_of_call(entry.scope, entry.tool, entry.call_id, entry.digest, entry.turn):
            if not self._has(key):
                self._execute(f"INSERT INTO {_EXPIRED} (call_key) VALUES (?)", [digest_of_key(key)])

    def call(self, claim: Claim) -> bool:
        """Whether an earlier attempt at this very call may have expired."""
        keys = keys_of_call(claim.scope, claim.tool, claim.call_id, claim.digest, claim.turn, any_digest=True)
        return bool(keys) and bool(self._execute(_is_any_expired(len(keys)), [digest_of_key(key) for key in keys]))

    def add_tool(self, scope: str, tool: str | None) -> None:
        """Make a tool unknown in a scope, or with None every tool there."""
        name = _EVERY_TOOL if tool is None else tool
        if not self._execute(f"SELECT 1 FROM {_UNKNOWN} WHERE scope = ? AND tool = ?", [scope, name]):
            self._execute(f"INSERT INTO {_UNKNOWN} (scope, tool) VALUES (?, ?)", [scope, name])

    def tool(self, scope: str, tool: str) -> bool:
        """Whether news came of an unsettled entry of the tool that is not there."""
        return bool(self._execute(_IS_UNKNOWN, (scope, tool, _EVERY_TOOL)))

    def sizes(self) -> tuple[int, int]:
        """How many keys of calls are remembered, and how many tools or whole scopes are unknown."""
        calls, tools = (self._execute(f"SELECT count(*) FROM {table}")[0][0] for table in (_EXPIRED, _UNKNOWN))
        return calls, tools

    def _has(self, key: tuple[str | None, ...]) -> bool:
        return bool(self._execute(f"SELECT 1 FROM {_EXPIRED} WHERE call_key = ?", [digest_of_key(key)]))
