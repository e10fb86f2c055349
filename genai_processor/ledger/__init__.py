# SPDX-License-Identifier: Apache-2.0
"""The ledger: what was claimed, what ended how, what is quarantined, what a person settled.

A ledger holds keys and digests, never arguments. `Ledger` says what each of them can do; `open_ledger` makes one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from genai_processor.errors import LedgerError, LedgerURLError
from genai_processor.ledger.claims import decide
from genai_processor.ledger.entries import Change, Entry, Resolution, Settlement, State
from genai_processor.ledger.memory import MemoryLedger
from genai_processor.ledger.protocol import Ledger, Page, Query, Stats
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, RefusalReason, Sighting
from genai_processor.ledger.shelf import Bounds
from genai_processor.ledger.transitions import Event, next_state
from genai_processor.spans.values import index_like as is_index_like

__all__ = [
    "Bounds",
    "Change",
    "Claim",
    "Entry",
    "Event",
    "Granted",
    "Ledger",
    "MemoryLedger",
    "Outcome",
    "Page",
    "Query",
    "Refusal",
    "RefusalReason",
    "Resolution",
    "Settlement",
    "Sighting",
    "State",
    "Stats",
    "decide",
    "is_index_like",
    "next_state",
    "open_ledger",
]

_LEDGERS: Final = {
    "memory": "genai_processor.ledger.memory:MemoryLedger",
    "sqlite": "genai_processor.ledger.sqlite:SQLiteLedger",
    "redis": "genai_processor.ledger.redis:RedisLedger",
    "rediss": "genai_processor.ledger.redis:RedisLedger",
    "postgresql": "genai_processor.ledger.postgresql:PostgreSQLLedger",
    "postgres": "genai_processor.ledger.postgresql:PostgreSQLLedger",
}
"""URL scheme -> the class whose `from_url` opens it, imported only when asked for."""


def open_ledger(url: str) -> Ledger:
    """Open the ledger that a URL names.

    Args:
        url: ``memory:``, with bounds as options (``memory:?max_entries=1000``), ``sqlite:///PATH``
            (``sqlite:////PATH`` from the root; options ``max_age_days`` and ``timeout_seconds``), or
            ``redis://HOST:PORT/DATABASE``, ``rediss://…`` or ``postgresql://HOST:PORT/DATABASE`` (the same options;
            ``prefix`` or ``schema`` keep several apart; the extras ``redis`` and ``postgresql`` bring the clients).

    Raises:
        LedgerURLError: No ledger has that scheme, or the ledger does not know an option.
        LedgerUnavailableError: The client of that server is not installed.
    """
    scheme, colon, _ = url.partition(":")
    path = _LEDGERS.get(scheme.lower()) if colon else None
    if path is None:
        # The rest of a URL may hold a password, so it is not repeated.
        shown = f"{scheme}:…" if colon else url
        schemes = ", ".join(f"{known}:" for known in _LEDGERS)
        raise LedgerURLError(
            f"ledger URL {shown!r} names no known ledger; it must begin with one of: {schemes} (a file is sqlite:///PATH)"
        )
    module, _, name = path.partition(":")
    try:
        return cast(Ledger, getattr(import_module(module), name).from_url(url))
    except LedgerError:
        raise
    except (ValueError, OverflowError):  # whose text may repeat the URL, and a password in it
        raise LedgerURLError(f"ledger URL {scheme}:… is no URL, or has a number in it that is too large") from None
