# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from genai_processor.ledger import Entry, MemoryLedger


def held(ledger: MemoryLedger, entry_id: str, attempt: int = 1) -> Entry:
    """The entry as whoever was granted that attempt holds it."""
    entry = ledger.get(entry_id)
    assert entry is not None
    return entry.changed(attempt=attempt)
