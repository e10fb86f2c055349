# SPDX-License-Identifier: Apache-2.0
"""A ledger on one of the servers that the tests of this folder start."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from support.servers import PostgreSQLServer, RedisServer

from genai_processor.ledger import open_ledger
from genai_processor.ledger.shared import SharedLedger


@dataclass
class Shared:
    """A ledger of one test on a server of all tests."""

    server: RedisServer | PostgreSQLServer
    option: str
    """The option that keeps ledgers on one server apart."""
    name: str

    def url(self, port: int | None = None, **options: str) -> str:
        url = self.server.url(port)
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
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            for table in ("entries", "expired", "unknown"):
                connection.execute(f"DELETE FROM {self.name}.genai_ledger_{table}")
        return self

    def make(self, **arguments: Any) -> SharedLedger:
        """Open it with what no URL says."""
        return type(self.open())(self.server.url(), **{self.option: self.name}, **arguments)
