# SPDX-License-Identifier: Apache-2.0
"""What must not be reached, and notices when it is, whatever a framework makes of the exception."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest


class Trap:
    """Remembers what has sprung it."""

    def __init__(self) -> None:
        self.sprung: list[str] = []

    def spring(self, what: str) -> NoReturn:
        """Say that something ran."""
        self.sprung.append(what)
        raise AssertionError(f"{what} was reached")


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    """Stands in place of models and tools, and of the network; fails the test if it is sprung."""
    found = Trap()

    def connect(*_: Any) -> None:
        found.spring("the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    yield found
    assert found.sprung == []
