# SPDX-License-Identifier: Apache-2.0
"""A ledger with a clock that a test moves by hand, and ids that can be read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from support.servers import PostgreSQLServer, RedisServer, Server

from genai_processor.ledger import Bounds, MemoryLedger, open_ledger
from genai_processor.ledger.shared import SharedLedger


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def new_ledger(clock: Clock) -> Callable[..., MemoryLedger]:
    def make(**bounds: int) -> MemoryLedger:
        ids = itertools.count(1)
        return MemoryLedger(Bounds(**bounds), clock=clock, new_id=lambda: f"e{next(ids)}")

    return make


@pytest.fixture
def ledger(new_ledger: Callable[..., MemoryLedger]) -> MemoryLedger:
    return new_ledger()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSQLServer]:
    server = PostgreSQLServer()
    server.start()
    yield server
    server.remove()


@dataclass
class Shared:
    """A ledger of one test on a server of all tests."""

    server: Server
    option: str
    """The option that keeps ledgers on one server apart."""
    name: str

    def url(self, port: int | None = None, **options: str) -> str:
        url = self.server.url(port)  # type: ignore[attr-defined]
        return f"{url}?" + "&".join(f"{name}={value}" for name, value in {self.option: self.name, **options}.items())

    def open(self, port: int | None = None, **options: str) -> SharedLedger:
        ledger = open_ledger(self.url(port, **options))
        assert isinstance(ledger, SharedLedger)
        return ledger

    def emptied(self) -> Shared:
        """The same, or another one that is quicker to be had, without anything in it."""
        if self.option == "prefix":
            return replace(self, name=f"t{uuid.uuid4().hex}")
        self.open().counts()
        with psycopg.connect(self.server.url(), autocommit=True) as connection:  # type: ignore[attr-defined]
            for table in ("entries", "expired", "unknown"):
                connection.execute(f"DELETE FROM {self.name}.genai_ledger_{table}")
        return self

    def make(self, **arguments: Any) -> SharedLedger:
        """Open it with what no URL says."""
        return type(self.open())(self.server.url(), **{self.option: self.name}, **arguments)  # type: ignore[attr-defined]


@pytest.fixture(params=["redis", "postgresql"])
def shared(request: pytest.FixtureRequest) -> Shared:
    """Each behaviour is that of both."""
    option = {"redis": "prefix", "postgresql": "schema"}[request.param]
    return Shared(request.getfixturevalue(f"{request.param}_server"), option, f"t{uuid.uuid4().hex}")
