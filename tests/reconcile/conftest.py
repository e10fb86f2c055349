# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from reconcile_helpers import World

from genai_processor.ledger import MemoryLedger
from genai_processor.ledger.sqlite import SQLiteLedger


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "memory":
        return World(lambda clock: MemoryLedger(clock=clock))
    return World(lambda clock: SQLiteLedger(str(tmp_path / "ledger.db"), clock=clock))
