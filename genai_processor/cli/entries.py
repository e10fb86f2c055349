# SPDX-License-Identifier: Apache-2.0
"""How entries of a ledger are printed, for people and for programs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from genai_processor.cli.console import as_cell, printable
from genai_processor.ledger import Entry, Page
from genai_processor.ledger.entries import OPEN, utc

_NAMES: Final = tuple(spec.name for spec in fields(Entry))
_PLAIN: Final = tuple(name for name in _NAMES if name != "digest")
_GAP: Final = 2
_WHOLE: Final = ("entry", "v", "state", "trace", "made")
_CUT: Final = ("tool", "reason", "call id", "scope")
_SHORTEST: Final = 8
"""A column that may be cut keeps so many characters; where that is too wide, an entry takes two lines."""
_TRACE_PREFIX: Final = 8

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_TIMES: Final = {
    "created_ns": "made",
    "updated_ns": "last changed",
    "started_ns": "begun by",  # the latest that it can have begun: when the proof came
    "lease_expires_ns": "lease ends",
}

_FIRST: Final = ("entry", "v", "state", "trace", "tool")
_SECOND: Final = ("made", "reason", "call id", "scope")


def shown(entry: Entry, *, digests: bool = False) -> dict[str, Any]:
    """Return an entry for a program: every field by its name, times in nanoseconds since the epoch.

    Args:
        entry: The entry.
        digests: Also the digest of the arguments; without it there is no such key.
    """
    found = {name: getattr(entry, name) for name in (_NAMES if digests else _PLAIN)}  # `asdict` takes ten times as long
    if entry.settlement is not None:
        found["settlement"] = asdict(entry.settlement)
    found["history"] = [asdict(change) for change in entry.history]
    return found


def print_page(out: Console, page: Page, waiting: int) -> None:
    """Print a page of the queue as a table: an entry a line, or on a narrow terminal two.

    Args:
        out: Where to.
        page: The page.
        waiting: How many entries wait in all, whatever was asked for.
    """
    if not page.entries:
        others = f" that fits; {waiting} in all wait for somebody" if waiting else ""
        out.print(f"nothing waits for anybody{others}", highlight=False)
        return
    headings = {name: name for name in (*_WHOLE, *_CUT)}
    rows = [headings, *map(_cells, page.entries)]
    widths = {name: max(cell_len(row[name]) for row in rows) for name in headings}
    one = _fitted(widths, (*_WHOLE, *_CUT), out.width)
    if one is not None:
        layout: tuple[tuple[str, dict[str, int]], ...] = (("", one),)
    else:
        layout = (
            ("", _fitted(widths, _FIRST, out.width) or _least(widths, _FIRST)),
            ("  ", _fitted(widths, _SECOND, out.width - 2) or _least(widths, _SECOND)),
        )
    for number, row in enumerate(rows):
        for indent, columns in layout:
            line = indent + (" " * _GAP).join(_cut(row[name], width, name) for name, width in columns.items())
            out.print(Text(line.rstrip(), style="" if number else "bold"), highlight=False, soft_wrap=True)
    if page.cursor is not None:
        out.print(Text(f"\nthere are more: --cursor {page.cursor}"), highlight=False, soft_wrap=True)


def _cells(entry: Entry) -> dict[str, str]:
    cells = {
        "entry": entry.entry_id,
        "v": str(entry.version),
        "state": str(entry.state),
        "trace": (entry.trace_id or "-")[:_TRACE_PREFIX],
        "made": utc(entry.created_ns),
        "tool": entry.tool,
        "reason": entry.reason or "-",
        "call id": entry.call_id or "-",
        "scope": entry.scope,
    }
    return {name: printable(text) for name, text in cells.items()}


def _fitted(widths: dict[str, int], names: Sequence[str], room: int) -> dict[str, int] | None:
    """Return the widths of some columns side by side, the widest of those that may be cut made narrower; None: no room."""
    fitted = {name: widths[name] for name in names}
    least = _least(widths, names)
    while sum(fitted.values()) + _GAP * (len(fitted) - 1) > room:
        narrower = [name for name in names if fitted[name] > least[name]]
        if not narrower:
            return None
        fitted[max(narrower, key=fitted.__getitem__)] -= 1
    return fitted


def _least(widths: dict[str, int], names: Sequence[str]) -> dict[str, int]:
    return {name: min(widths[name], _SHORTEST) if name in _CUT else widths[name] for name in names}


def _cut(text: str, width: int, name: str) -> str:
    if name == "call id" and cell_len(text) > width:  # its beginning is that of all others
        return "…" + set_cell_size(text[::-1], width - 1)[::-1]
    return as_cell(text, width)


def print_one(out: Console, entry: Entry, *, digests: bool = False) -> None:
    """Print what is known of one entry."""
    for name, value in shown(entry, digests=digests).items():
        if name == "started_ns" and value is None and entry.state in OPEN:
            out.print(f"{_TIMES[name]:18s} no proof that it did, and none that it did not", highlight=False)
        if name in ("history", "settlement") or value in (None, "", False):
            continue
        text = f"{utc(value)} ({_distance(value - time.time_ns())})" if name in _TIMES else str(value)
        out.print(Text(f"{_TIMES.get(name, name):18s} {printable(text)}"), highlight=False)
    if entry.settlement is not None:
        settled = entry.settlement
        text = f"{'settled':18s} {settled.resolution} by {settled.who} on {utc(settled.at_ns)}: {settled.note}"
        out.print(Text(printable(text)), highlight=False)
    for change in entry.history:
        who = f" by {change.who}" if change.who else ""
        text = f"  {utc(change.at_ns)}  {change.before} -> {change.after}  {change.event} {change.reason or ''}{who}"
        out.print(Text(printable(text)), highlight=False)


def _distance(ns: int) -> str:
    """How far a time is from now, in its largest unit."""
    seconds = abs(ns) // 10**9
    unit, size = next((one for one in _UNITS if seconds >= one[1]), _UNITS[-1])
    text = f"{seconds // size} {unit}"
    return f"in {text}" if ns > 0 else f"{text} ago"
