# SPDX-License-Identifier: Apache-2.0
"""Traps in place of models, tools and the network."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from support.traps import Trap


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    """Fails the test if it is sprung, as any connection does."""
    found = Trap()

    def connect(*_: Any) -> None:
        found.spring("the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    yield found
    assert found.sprung == []
