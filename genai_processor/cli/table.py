# SPDX-License-Identifier: Apache-2.0
"""How rows become a table for people: what needs a decision first, one line each, as wide as the terminal."""

from __future__ import annotations

import collections
import os.path
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from genai_processor.cli.console import as_cell, printable
from genai_processor.cli.output import SECTIONS, Counts, Rows

MAX_LINES = 10_000
"""How many lines of one kind are shown: a table is for people."""

_VERDICTS = {
    "quarantined": ("bold red", "may have committed: settle it before anyone tries again"),
    "quarantined_unknown": ("red", "nobody can tell whether it ran: treat it like the above"),
    "retryable_same_call_id": ("yellow", "may be tried again under the same call id only"),
    "retryable_read_only": ("green", "changes nothing: may be tried again"),
    "retryable_pre_execution": ("green", "never started: may be tried again"),
    "no_retry_needed": ("dim", "ended well, or only paused"),
}
_GAP = 2
_EVIDENCE, _WHERE = 3, 4
# Which column gives way first, and down to which width: tool, reason, call id, evidence, where.
_SHRINKING = ((_WHERE, 24), (_EVIDENCE, 24), (_WHERE, 16), (0, 14), (_EVIDENCE, 8), (2, 10), (1, 12), (0, 8))


class Table:
    """Collects what is to be shown, then prints it.

    Args:
        console: Where to print; it knows the width and whether colours are welcome.
        every_call: Show calls that need no retry, too.
        before_print: Called once everything has been read.
    """

    def __init__(
        self, console: Console, *, every_call: bool = False, before_print: Callable[[], None] = lambda: None
    ) -> None:
        self._console = console
        self._before_print = before_print
        self._every_call = every_call
        self._lines: dict[str, list[tuple[str, ...]]] = collections.defaultdict(list)
        self._more: collections.Counter[str] = collections.Counter()
        self._verdicts: collections.Counter[str] = collections.Counter()
        self._count = dict.fromkeys(SECTIONS, 0)
        self._suspected = self._rebilled = 0

    def print(self, rows: Rows) -> Counts:
        """Print all rows; how many there were of each kind."""
        for kind, row in rows:
            self._count[kind] += 1
            self._add(kind, row)
        self._before_print()
        for verdict, (style, meaning) in _VERDICTS.items():
            self._section(verdict, meaning, style)
        self._section("duplicates", "one action, run more than once", "bold magenta")
        self._section("unobserved calls", "proposed, but no span shows that they ran; they may have run", "bold yellow")
        self._section("re-billed tokens", "input tokens of inferences that asked for a duplicate again", "bold")
        self._section("errors", "not read", "bold red")
        self._console.print(self._total(), highlight=False)
        return self._count

    def _add(self, kind: str, row: dict[str, Any]) -> None:
        if kind == "call":
            verdict = row["verdict"]
            self._verdicts[verdict] += 1
            if self._every_call or verdict != "no_retry_needed" or row["reason"] != "succeeded":
                evidence = ", ".join(row["evidence"])
                where = _where(row["file"], row["trace_id"])
                self._line(verdict, row["tool"], row["reason"], row["call_id"], evidence, where)
        elif kind == "duplicate":
            self._suspected += row["suspected"]
            ids = row["span_ids"]
            sure = "suspected" if row["suspected"] else "certain"
            spans = f"{len(ids)} spans: {' '.join(ids[:4])}{' …' if len(ids) > 4 else ''}"
            self._line("duplicates", row["value"], sure, f"by {row['key']}", spans, _where(row["file"]))
        elif kind == "unobserved_call":
            by = f"by span {row['proposed_by']}"
            where = _where(row["file"], row["trace_id"])
            self._line("unobserved calls", row["tool"], "unobserved", row["call_id"], by, where)
        elif kind == "rebilled":
            self._rebilled += row["input_tokens"]
            self._line("re-billed tokens", _where(row["file"], row["trace_id"]), f"{row['input_tokens']:,}")
        elif kind == "error":
            place = row["file"] if row["line"] is None else f"{row['file']}:{row['line']}"
            self._line("errors", f"{place}: {row['error']}")

    def _line(self, section: str, *cells: str | None) -> None:
        if len(self._lines[section]) < MAX_LINES:
            self._lines[section].append(tuple(printable(cell) if cell else "-" for cell in cells))
        else:
            self._more[section] += 1

    def _section(self, name: str, meaning: str, style: str) -> None:
        lines = self._lines.get(name)
        if not lines:
            return
        number = len(lines) + self._more[name]
        heading = Text(f"{name} ({number:,})", style=style).append(f"  {meaning}", style="not bold dim")
        self._console.print(heading, no_wrap=True, overflow="ellipsis", highlight=False)
        for cells in _laid_out(lines, self._console.width - _GAP) if len(lines[0]) > 2 else lines:
            text = " " * _GAP + (" " * _GAP).join(cells).rstrip()
            self._console.print(Text(text), soft_wrap=True, highlight=False)
        if self._more[name]:
            self._console.print(f"  … and {self._more[name]:,} more: --format jsonl has them all", highlight=False)
        self._console.print()

    def _total(self) -> Text:
        text = Text(_counted(self._count["call"], "call"), style="bold")
        verdicts = [f"{self._verdicts[verdict]:,} {verdict}" for verdict in _VERDICTS if self._verdicts[verdict]]
        if verdicts:
            text.append(": " + ", ".join(verdicts), style="not bold")
        duplicates = _counted(self._count["duplicate"], "duplicate")
        if self._suspected:
            duplicates += f" ({self._suspected:,} suspected)"
        parts = [
            duplicates if self._count["duplicate"] else "",
            f"{self._count['unobserved_call']:,} unobserved" if self._count["unobserved_call"] else "",
            f"{self._rebilled:,} tokens re-billed" if self._rebilled else "",
            _counted(self._count["error"], "error") if self._count["error"] else "",
        ]
        return text.append("".join(f"; {part}" for part in parts if part), style="not bold")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _where(file: str, trace_id: str | None = None) -> str:
    name = os.path.basename(file) or file
    return name if trace_id is None else f"{name}:{trace_id[:8]}"


def _laid_out(lines: Sequence[tuple[str, ...]], width: int) -> Iterator[Iterable[str]]:
    """The cells, padded and cut to columns that fit the width."""
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    for column, least in _SHRINKING:
        taken = max(0, min(excess, widths[column] - least))
        widths[column] -= taken
        excess -= taken
    for line in lines:
        fitted = [as_cell(cell, size) for cell, size in zip(line[:_WHERE], widths, strict=False)]
        where = line[_WHERE]
        while cell_len(where) > widths[_WHERE]:  # its end tells more than its beginning
            where = "…" + where[2:]
        yield [*fitted, where]
