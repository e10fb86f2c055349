# SPDX-License-Identifier: Apache-2.0
"""A ledger on a Redis server: for all hosts that reach it. No module of Redis is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import urlsplit

from genai_processor.errors import LedgerUnavailableError, LedgerURLError
from genai_processor.ledger.entries import Entry, State
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.options import Options, place_of_server, positive, split_options, word, yes_or_no
from genai_processor.ledger.paging import matches
from genai_processor.ledger.pool import Pool
from genai_processor.ledger.protocol import Query
from genai_processor.ledger.server_clock import ServerClock, passed_ns
from genai_processor.ledger.shared import SharedLedger
from genai_processor.ledger.shared_store import Reply, lost, telling
from genai_processor.ledger.snapshot import Answers, Request

try:
    import redis
    from redis import exceptions
except ImportError as _error:  # pragma: no cover - shown by a test in a process of its own
    raise LedgerUnavailableError(
        "a redis: ledger needs the client for Redis; pip install 'otel-genai-processor[redis]'"
    ) from _error

from genai_processor.ledger import redis_script
from genai_processor.ledger.redis_server import RedisConnection, RedisServer

_OPTIONS: Final[Options] = {
    "max_age_days": positive,
    "timeout_seconds": positive,
    "create": yes_or_no,
    "prefix": word,
}
_PAGE: Final = 1_000


class RedisLedger(SharedLedger):
    """A `Ledger` on a Redis server (6.2 or newer), or one that speaks its language. Not on a cluster of several nodes.

    It warns, once, if the server is configured to lose data.
    """

    def __init__(
        self,
        url: str,
        *,
        max_age_days: float = 30,
        timeout_seconds: float = 2,
        create: bool = True,
        prefix: str = "genai_ledger",
        clock: Callable[[], int] | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """Name a server; it is connected to with the first operation.

        Args:
            url: ``redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]``, or ``rediss://`` for TLS; options of
                redis-py may follow.
            max_age_days: After how long untouched an entry whose end is known expires.
            timeout_seconds: After how long an operation gives up.
            create: Make the ledger if the server has none.
            prefix: Of all its keys, so that one database may hold several ledgers.
            clock: The time, in nanoseconds since the Unix epoch; by default the server's.
            new_id: Makes entry ids: random, never the same twice.

        Raises:
            LedgerURLError: The URL is not one of a Redis server.
        """
        store = _RedisStore(url, timeout_seconds, prefix, create=create)
        super().__init__(store, max_age_days=max_age_days, clock=clock, new_id=new_id)

    @classmethod
    def from_url(cls, url: str) -> RedisLedger:
        """Make one from ``redis://HOST:PORT/DATABASE`` or ``rediss://…``.

        Options: ``max_age_days`` and ``timeout_seconds``, positive numbers, ``create``, which is true or false, and
        ``prefix``; all others are those of redis-py.

        Raises:
            LedgerURLError: A value that an option does not take.
        """
        rest, values = split_options(url, _OPTIONS)
        return cls(rest, **values)


class _RedisStore:
    """See `genai_processor.ledger.shared_store.SharedStore`."""

    def __init__(self, url: str, timeout_seconds: float, prefix: str, *, create: bool) -> None:
        self.name = place_of_server(url)
        self.timeout_seconds = timeout_seconds
        self.clock = ServerClock()
        self._prefix = f"{{{prefix}}}:"
        try:
            # From the beginning: a pool of RESP 3 brings options with it that a connection of RESP 2 does not take.
            made = redis.ConnectionPool.from_url(url, protocol=2)
            made.connection_kwargs.update(protocol=2, decode_responses=False)
            made.connection_class(**made.connection_kwargs)  # which connects later, and knows its options now
        except (ValueError, TypeError):
            raise LedgerURLError(
                f"ledger URL {urlsplit(url).scheme}:… is not one that the client for Redis understands"
            ) from None
        self._server = RedisServer(made, self.name, self._prefix, create=create, clock=self.clock)
        self._changes = 0  # how often the ledger was changed, as far as is known here
        self._pool: Pool[RedisConnection] = Pool(self._server.connect)

    def open(self, deadline: float) -> None:
        self._ask(["PING"], deadline)

    def ask(self, request: Request, deadline: float) -> Reply:
        arguments = redis_script.arguments_of(request)

        def ask(connection: RedisConnection, deadline: float) -> Any:
            known = [self._server.ledger, self._changes]
            command = ["EVALSHA", redis_script.SCRIPT_SHA, 1, self._prefix, *known, *arguments]
            sent = passed_ns()
            try:
                answer = connection.ask(command, deadline)
            except exceptions.NoScriptError:  # the server is new, or was started again
                answer = connection.ask(["EVAL", redis_script.SCRIPT, *command[2:]], deadline)
            self.clock.sample(int(answer[1]) * 10**9 + int(answer[2]) * 1_000, sent, passed_ns())
            return answer

        with self._told():
            answer, again = self._pool.ask(ask, deadline)
            if answer[0] == 2:
                raise lost(self.name)
            self._changes = max(self._changes, int(answer[3]))
            answers = Answers() if answer[0] == 1 else redis_script.answers_from(request, answer[4], answer[5])
        return Reply(answer[0] == 1, answers, again)

    def overdue(self, now_ns: int, limit: int) -> Sequence[Entry]:
        return self._by_score("leases", now_ns, limit)

    def expirable(self, before_ns: int, limit: int) -> Sequence[Entry]:
        return self._by_score("ages", before_ns, limit)

    def _by_score(self, key: str, score: int, limit: int) -> Sequence[Entry]:
        rows = self._ask(["EVAL", redis_script.BY_SCORE, 1, self._prefix, key, score, limit])
        return self._entries(rows)

    def _entries(self, rows: Sequence[bytes]) -> list[Entry]:
        with self._told():
            return [redis_script.entry_from(row)[0] for row in rows if row]

    def pending(self, query: Query, after: tuple[int, str] | None, limit: int) -> Sequence[Entry]:
        key = self._smallest(query)
        low, high = "-", "+"
        if query.created_after_ns is not None:
            low = f"[{redis_script.member(query.created_after_ns, '')}"
        if query.created_before_ns is not None:
            high = f"({redis_script.member(query.created_before_ns, '')}"
        if after is not None:
            low = max(low, f"({redis_script.member(*after)}", key=lambda bound: bound[1:])
        found: list[Entry] = []
        while len(found) < limit:
            size = min(_PAGE, limit - len(found)) if key == "q" else _PAGE
            last, rows = self._ask(["EVAL", redis_script.QUEUE, 1, self._prefix, key, low, high, size])
            found += [entry for entry in self._entries(rows) if matches(entry, query)]
            if len(rows) < size:
                break
            low = f"({last.decode()}"
        return found[:limit]

    def _smallest(self, query: Query) -> str:
        """The part of the queue that has to be walked."""
        keys = redis_script.queues(None if query.state is None else State(query.state), query.tool, query.scope)
        if len(keys) < 2:
            return keys[0] if keys else "q"
        return min(keys, key=lambda key: int(self._ask(["ZCARD", f"{self._prefix}{key}"])))

    def counts(self) -> Mapping[State, int]:
        flat = self._ask(["HGETALL", f"{self._prefix}counts"])
        found = dict(zip(flat[::2], flat[1::2], strict=True))
        return {state: int(found.get(state.value.encode(), 0)) for state in State}

    def sizes(self) -> tuple[int, int]:
        expired, unknown = (int(self._ask(["SCARD", f"{self._prefix}{key}"])) for key in ("expired", "unknown"))
        return expired, unknown

    def close(self) -> None:
        self._pool.close()

    def _ask(self, command: Sequence[Any], deadline: float | None = None) -> Any:
        if deadline is None:
            deadline = time.monotonic() + self.timeout_seconds
        with self._told():
            return self._pool.ask(lambda connection, by: connection.ask(command, by), deadline)[0]

    def _told(self) -> AbstractContextManager[None]:
        return telling(self.name, exceptions.RedisError)
