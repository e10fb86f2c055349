# SPDX-License-Identifier: Apache-2.0
"""The queue of what waits for a person, page by page."""

from __future__ import annotations

from collections.abc import Iterable

from genai_processor.errors import LedgerError
from genai_processor.ledger.entries import Entry
from genai_processor.ledger.protocol import Page, Query


def matches(entry: Entry, query: Query) -> bool:
    """Whether an entry is pending and what the query asks for."""
    return (
        entry.pending
        and query.tool in (None, entry.tool)
        and query.scope in (None, entry.scope)
        and query.state in (None, entry.state)
        and (query.created_before_ns is None or entry.created_ns < query.created_before_ns)
        and (query.created_after_ns is None or entry.created_ns >= query.created_after_ns)
    )


def page_of(entries: Iterable[Entry], query: Query, limit: int, cursor: str | None) -> Page:
    """Return one page, oldest first. An entry's place never changes, so a walk shows none twice and skips none.

    Raises:
        LedgerError: The cursor is not one that a page gave.
    """
    after = None if cursor is None else _place(cursor)
    found = sorted(
        (e for e in entries if matches(e, query) and (after is None or (e.created_ns, e.entry_id) > after)),
        key=lambda e: (e.created_ns, e.entry_id),
    )
    page = tuple(found[: max(1, limit)])
    more = len(found) > len(page)
    return Page(page, f"{page[-1].created_ns}:{page[-1].entry_id}" if more else None)


def _place(cursor: str) -> tuple[int, str]:
    created_ns, colon, entry_id = cursor.partition(":")
    try:
        if not colon:
            raise ValueError("no colon in it")
        return int(created_ns), entry_id
    except ValueError as error:
        raise LedgerError(f"cursor {cursor!r} is not one that pending() gave out; begin again without one") from error
