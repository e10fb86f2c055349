# SPDX-License-Identifier: Apache-2.0
"""The ledgers that several processes share, each ready to be used: a file, and real servers that are started for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from tests.support.servers import PostgreSQLServer, RedisServer, Server


class Store(NamedTuple):
    """A ledger's store.

    Attributes:
        name: For the table.
        url: Of the ledger.
        server: What keeps it; None for a file.
    """

    name: str
    url: str
    server: Server | None = None

    def restart(self) -> None:
        """Kill its server, and start it again."""
        assert self.server is not None
        self.server.kill()
        self.server.start()


@contextmanager
def sqlite() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        yield Store("SQLite", f"sqlite:///{folder}/ledger.db?timeout_seconds=60")


@contextmanager
def redis() -> Iterator[Store]:
    server = RedisServer(appendonly="yes", appendfsync="always")
    yield from _started("Redis", server)


@contextmanager
def postgresql() -> Iterator[Store]:
    yield from _started("PostgreSQL", PostgreSQLServer())


def _started(name: str, server: Server) -> Iterator[Store]:
    server.start()
    try:
        yield Store(name, server.url(), server)
    finally:
        server.remove()


STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {
    "sqlite": sqlite,
    "redis": redis,
    "postgresql": postgresql,
}
