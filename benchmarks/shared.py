# SPDX-License-Identifier: Apache-2.0
"""What a ledger on a server costs beside the same script, or statement, sent by the bare client with the same arguments.

    python -m benchmarks.shared [--calls N] [--redis URL] [--postgresql URL]

Both claim a call and note its end: two round trips. What the ledger sends is kept, and sent again by the client on top of
which nothing is, to an emptied store. The rounds alternate; each figure is the median over them. Without a URL it starts
servers as the tests do, which write every change through to the disk.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import redis

from genai_processor.ledger import Claim, Granted, Outcome, open_ledger
from genai_processor.ledger import redis as redis_ledger
from genai_processor.ledger.postgresql_wire import Wire
from genai_processor.ledger.redis_server import RedisConnection
from genai_processor.ledger.shared import SharedLedger

_ROUNDS = 15
_numbers = count()
Sent = list[tuple[Any, ...]]


def claim_and_finish(ledger: SharedLedger) -> None:
    """Do it by the rules."""
    number = next(_numbers)
    answer = ledger.claim(Claim(f"s{number % 50}", "pay", f"toolu_{number}x", f"d{number}", f"t{number}"))
    assert isinstance(answer, Granted), answer
    ledger.finish(answer.entry, Outcome.RETURNED)


def _each(work: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    for argument in arguments:
        work(argument)


class OnRedis:
    """A ledger on a Redis server, and what it sends."""

    def __init__(self, url: str) -> None:
        self.name = "Redis"
        self._client = redis.Redis.from_url(url)
        self._prefix = f"bench{uuid.uuid4().hex}"
        self.ledger = redis_ledger.RedisLedger(url, prefix=self._prefix)

    def listen(self, work: Callable[[], None]) -> Sent:
        """Return what is sent while something is done."""
        sent: Sent = []
        ask = RedisConnection.ask

        def listening(connection: RedisConnection, command: Sequence[Any], deadline: float) -> Any:
            if command[0] == "EVALSHA":  # now and then it also looks for what has expired
                sent.append(tuple(command))
            return ask(connection, command, deadline)

        RedisConnection.ask = listening  # type: ignore[method-assign]
        try:
            work()
        finally:
            RedisConnection.ask = ask  # type: ignore[method-assign]
        return sent

    def empty(self) -> None:
        """Remove what there is, but for the version."""
        for key in self._client.scan_iter(match=f"{{{self._prefix}}}:*", count=10_000):
            if not key.endswith(b":meta"):
                self._client.delete(key)

    def send(self, request: tuple[Any, ...]) -> None:
        """Send with the bare client."""
        assert self._client.evalsha(*request[1:])[0] == 1

    def close(self) -> None:
        """Leave nothing behind."""
        self.empty()
        self.ledger.close()


class OnPostgreSQL:
    """A ledger in a PostgreSQL database, and what it sends."""

    def __init__(self, url: str) -> None:
        self.name = "PostgreSQL"
        self._schema = f"bench{uuid.uuid4().hex}"
        mark = "&" if "?" in url else "?"
        ledger = open_ledger(f"{url}{mark}schema={self._schema}")
        assert isinstance(ledger, SharedLedger)
        self.ledger = ledger
        self._client = psycopg.connect(url, autocommit=True)
        self._client.execute(f"SET search_path = {self._schema}")

    def listen(self, work: Callable[[], None]) -> Sent:
        """Return what is sent while something is done."""
        sent: Sent = []
        call = Wire.call

        def listening(wire: Wire, name: bytes, parameters: Sequence[bytes], deadline: float) -> bytes:
            sent.append(tuple(parameters))
            return call(wire, name, parameters, deadline)

        Wire.call = listening  # type: ignore[method-assign]
        try:
            work()
        finally:
            Wire.call = call  # type: ignore[method-assign]
        return sent

    def empty(self) -> None:
        """Remove what there is."""
        self._client.execute("TRUNCATE genai_ledger_entries")

    def send(self, request: tuple[Any, ...]) -> None:
        """Send with the bare client."""
        statement = "SELECT genai_ledger_ask(%s::jsonb, %s::json)"
        found = self._client.execute(statement, [one.decode() for one in request], prepare=True).fetchone()
        assert found is not None
        assert "answers" not in found[0]

    def close(self) -> None:
        """Leave nothing behind."""
        self._client.execute(f"DROP SCHEMA {self._schema} CASCADE")
        self._client.close()
        self.ledger.close()


def measure(on: OnRedis | OnPostgreSQL, calls: int) -> None:
    """Print both, their ratio, and how often the ledger went to the server."""
    times: dict[str, list[float]] = {"the bare client": [], "the ledger": []}
    trips: list[float] = []
    claim_and_finish(on.ledger)  # which connects, and looks for what has expired
    for round_number in range(_ROUNDS + 1):
        sent = on.listen(partial(_each, claim_and_finish, [on.ledger] * calls))
        on.empty()
        ways: list[tuple[str, Callable[[], Any]]] = [
            ("the bare client", partial(_each, on.send, sent)),
            ("the ledger", partial(_each, claim_and_finish, [on.ledger] * calls)),
        ]
        for name, work in ways if round_number % 2 else reversed(ways):
            begin = time.perf_counter()
            work()
            if round_number:  # the first warms up
                times[name].append((time.perf_counter() - begin) / calls)
        on.empty()
        trips.append(len(sent) / calls / 2)
    for name, found in times.items():
        ratio = statistics.median(one / two for one, two in zip(found, times["the bare client"], strict=True))
        beside = f"<= 1.3   {statistics.median(trips):.2f} round trips per transition" if name == "the ledger" else ""
        print(f"{on.name:11s} {name:16s} {statistics.median(found) * 1e6:8.1f} {ratio:6.2f}  {beside}", flush=True)


def main() -> None:
    """Measure on both servers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100, help="per round")
    parser.add_argument("--redis", help="URL of a server; by default one is started")
    parser.add_argument("--postgresql", help="URL of a database; by default a server is started")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from support.servers import PostgreSQLServer, RedisServer

    print(f"{'claim and finish a call':28s} {'µs':>8s} {'ratio':>6s}")
    for url, server_kind, kind in (
        (options.redis, RedisServer, OnRedis),
        (options.postgresql, PostgreSQLServer, OnPostgreSQL),
    ):
        server = None if url else server_kind()
        if server is not None:
            server.start()
        try:
            on = kind(url or server.url())
            measure(on, options.calls)
            on.close()
        finally:
            if server is not None:
                server.remove()


if __name__ == "__main__":
    main()
