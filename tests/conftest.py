# SPDX-License-Identifier: Apache-2.0
"""The servers that tests ask for: started when the first does, one of each kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.servers import PostgreSQLServer, RedisServer


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
