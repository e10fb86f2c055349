# SPDX-License-Identifier: Apache-2.0
"""A ledger with a clock that a test moves by hand, and ids that can be read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable

import pytest
from shared_helpers import Shared

from genai_processor.ledger import Bounds, MemoryLedger


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


@pytest.fixture(params=["redis", "postgresql"])
def shared(request: pytest.FixtureRequest) -> Shared:
    """Each behaviour is that of both."""
    option = {"redis": "prefix", "postgresql": "schema"}[request.param]
    return Shared(request.getfixturevalue(f"{request.param}_server"), option, f"t{uuid.uuid4().hex}")
