# SPDX-License-Identifier: Apache-2.0
"""The queue of what waits for a person, page by page, oldest first.

An entry's place never changes, so a walk shows none twice. One that begins to wait behind a walk, because it was made long
before, is shown by the next walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from genai_processor.errors import LedgerError
from genai_processor.ledger.entries import Entry, State
from genai_processor.ledger.protocol import Page, Query

_LARGEST = 2**63 - 1  # what a database holds


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
    """Return one page of entries in any order.

    Raises:
        LedgerError: The cursor is not one that a page gave.
    """
    after = None if cursor is None else place_of(cursor)
    found = sorted(
        (e for e in entries if matches(e, query) and (after is None or (e.created_ns, e.entry_id) > after)),
        key=lambda e: (e.created_ns, e.entry_id),
    )
    return next_page(found, max(1, limit))


def next_page(found: Sequence[Entry], limit: int) -> Page:
    """Return the first `limit` of the entries that come next, and where to go on if there are more."""
    page = tuple(found[:limit])
    return Page(page, f"{page[-1].created_ns}:{page[-1].entry_id}" if len(found) > limit else None)


def where(query: Query, cursor: str | None) -> tuple[str, list[Any]]:
    """Return the same as a condition in SQL, to follow others, with the values of its question marks.

    Raises:
        LedgerError: The cursor is not one that a page gave.
    """
    conditions: list[str] = []
    values: list[Any] = []
    for condition, value in (
        ("tool = ?", query.tool),
        ("scope = ?", query.scope),
        ("state = ?", None if query.state is None else State(query.state).value),
        ("created_ns < ?", query.created_before_ns),
        ("created_ns >= ?", query.created_after_ns),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(max(-_LARGEST, min(value, _LARGEST)) if isinstance(value, int) else value)
    if cursor is not None:
        conditions.append("(created_ns, entry_id) > (?, ?)")
        values.extend(place_of(cursor))
    return "".join(f" AND {condition}" for condition in conditions), values


def place_of(cursor: str) -> tuple[int, str]:
    """Return the time and the id that a cursor stands for.

    Raises:
        LedgerError: It is not one that a page gave.
    """
    created_ns, colon, entry_id = cursor.partition(":")
    try:
        if not colon or not 0 <= int(created_ns) < 2**63:
            raise ValueError("no place in it")
        return int(created_ns), entry_id
    except ValueError as error:
        raise LedgerError(f"cursor {cursor!r} is not one that pending() gave out; begin again without one") from error
