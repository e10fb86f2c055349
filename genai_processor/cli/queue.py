# SPDX-License-Identifier: Apache-2.0
"""The commands for the person who settles what no machine can know: queue, show, settle, release, export.

None of them makes a ledger. Exit status: 0, or 1 if the ledger refuses (no such entry; it cannot be settled like that), 2 if
the command line is wrong, 3 if the answer cannot be written, 4 if the ledger cannot be used, as where there is none, 141 if
whoever reads the answer left early.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from string import hexdigits
from typing import Annotated, Final

import typer

from genai_processor.cli.answer import answering
from genai_processor.cli.console import console, errors, printable, usage_error, warn
from genai_processor.cli.entries import print_one, print_page, shown
from genai_processor.cli.ledgers import REFUSED, LedgerOption, opened_ledger
from genai_processor.cli.output import dumped_line
from genai_processor.cli.settling import ENFORCED, Answers, meaning
from genai_processor.errors import LedgerError, LedgerUnavailableError
from genai_processor.ledger import Entry, Ledger, Page, Query, Resolution, State
from genai_processor.ledger.entries import PENDING
from genai_processor.ledger.paging import next_page

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_OLDEST_DAYS: Final = 36_500
_LARGEST_PAGE: Final = 10_000
_TRACE_DIGITS: Final = 32


class Waiting(StrEnum):
    """What waits for a person."""

    quarantined = "quarantined"
    undelivered = "undelivered"


ToolOption = Annotated[str | None, typer.Option(help="Only this tool.")]
ScopeOption = Annotated[str | None, typer.Option(help="Only this conversation, session or trace.")]
OlderOption = Annotated[
    str | None,
    typer.Option("--older-than", metavar="AGE", help="Only calls whose entry was made so long ago or longer: 30m, 12h, 7d."),
]
TraceOption = Annotated[
    str | None,
    typer.Option(
        metavar="HEX", help="Only calls of this trace, or of those that begin so. Looks at every entry that waits for that."
    ),
]
DigestsOption = Annotated[
    bool,
    typer.Option(
        "--digests",
        help="Also the digests of the calls' arguments. They are not keyed: who has one can try short arguments.",
    ),
]
StateOption = Annotated[Waiting | None, typer.Option(help="Only calls in this state.")]


class Shown(StrEnum):
    """How entries are printed."""

    table = "table"
    json = "json"


def queue(
    ledger: LedgerOption = None,
    tool: ToolOption = None,
    scope: ScopeOption = None,
    state: StateOption = None,
    older_than: OlderOption = None,
    trace: TraceOption = None,
    limit: Annotated[int, typer.Option(min=1, max=_LARGEST_PAGE, help="How many entries a page has.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Where the page before said to go on.")] = None,
    format: Annotated[Shown, typer.Option(help="table for people; json is one object.")] = Shown.table,
    digests: DigestsOption = False,
) -> None:
    """List the calls that wait for a person, oldest first.

    Times are UTC. Exit status: 0, or 2 if the command line is wrong, 3 if the answer cannot be written, 4 if the ledger
    cannot be used, as where there is none: this makes none; 141 if whoever reads the answer left early.
    """
    query, wanted = _query(tool, scope, state, older_than), _trace(trace)
    with answering(), opened_ledger(ledger) as opened:
        _sweep(opened)
        page = _page(opened, query, wanted, limit, cursor)
        if format is Shown.json:
            rows = [shown(entry, digests=digests) for entry in page.entries]
            sys.stdout.buffer.write(dumped_line({"entries": rows, "cursor": page.cursor}))
            return
        counts = {} if page.entries else opened.counts()
        print_page(console(), page, sum(counts.get(state, 0) for state in PENDING))


def export(
    ledger: LedgerOption = None,
    tool: ToolOption = None,
    scope: ScopeOption = None,
    state: StateOption = None,
    older_than: OlderOption = None,
    trace: TraceOption = None,
    digests: DigestsOption = False,
) -> None:
    """Write every call that waits for a person as JSON lines, with its history.

    Exit status: as of `queue`.
    """
    query, wanted = _query(tool, scope, state, older_than), _trace(trace)
    with answering(), opened_ledger(ledger) as opened:
        _sweep(opened)
        for entry in _everything(opened, query, wanted):
            sys.stdout.buffer.write(dumped_line(shown(entry, digests=digests)))
        sys.stdout.buffer.flush()


def show(
    entry_id: Annotated[str, typer.Argument(metavar="ENTRY", help="Its id, as `queue` prints it.")],
    ledger: LedgerOption = None,
    format: Annotated[Shown, typer.Option(help="table for people; json is one object.")] = Shown.table,
    digests: DigestsOption = False,
) -> None:
    """Show all that is known of one entry, with its history. A ledger holds no arguments and no results.

    Exit status: 0, 1 if there is no such entry, otherwise as of `queue`.
    """
    with answering(), opened_ledger(ledger) as opened:
        _sweep(opened)
        entry = _entry(opened, entry_id)
        if format is Shown.json:
            sys.stdout.buffer.write(dumped_line(shown(entry, digests=digests)))
            return
        print_one(console(), entry, digests=digests)


WhoOption = Annotated[str | None, typer.Option(help="Who settles it.")]
NoteOption = Annotated[str | None, typer.Option(help="On what ground: what was looked at, and what it showed.")]
VersionOption = Annotated[
    int | None,
    typer.Option(min=1, help="The version that you read, as `queue` and `show` print it: of two people, one settles."),
]


def settle(
    entry_id: Annotated[str, typer.Argument(metavar="ENTRY", help="Its id.")],
    resolution: Annotated[Resolution, typer.Argument(help="What the call did in the world.")],
    note: NoteOption = None,
    version: VersionOption = None,
    who: WhoOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Say what a quarantined or undelivered call did in the world.

    committed: the effect happened. compensated: it happened and was undone. not_committed: it did not happen, which
    releases one new attempt. A guard in mode enforce on this ledger holds everybody to that; without one it is a record for
    whoever runs the call again.

    Who settles it, on what ground, and the version that they read have to be said. At a terminal, what is missing is asked
    for, once the entry has been shown; elsewhere the options have to be there.

    Exit status: 0, 1 if it cannot be settled like that (the entry is unknown, has changed, or waits for nobody), otherwise
    as of `queue`.
    """
    _settle(ledger, entry_id, resolution, Answers(who, note, version))


def release(
    entry_id: Annotated[str, typer.Argument(metavar="ENTRY", help="Its id.")],
    note: NoteOption = None,
    version: VersionOption = None,
    who: WhoOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Say that a call had no effect, which releases one new attempt: the same as `settle ENTRY not_committed`.

    A guard in mode enforce on this ledger holds everybody to that; without one it is a record for whoever runs the call
    again. Exit status: as of `settle`.
    """
    _settle(ledger, entry_id, Resolution.NOT_COMMITTED, Answers(who, note, version))


def _settle(url: str | None, entry_id: str, resolution: Resolution, answers: Answers) -> None:
    answers.check()
    with answering(), opened_ledger(url) as opened:
        who, note, version = answers.complete(lambda: _shown_to_settle(opened, entry_id, resolution))
        settled = opened.settle(entry_id, resolution, who=who, note=note, version=version)
        said = f"{settled.entry_id} is settled: {resolution} (by {printable(who)})"
        text = f"{said}\nRecorded: {meaning(settled, resolution)} {ENFORCED}"
        console().print(text, highlight=False, markup=False, soft_wrap=True)


def _shown_to_settle(ledger: Ledger, entry_id: str, resolution: Resolution) -> Entry:
    """Show a person what they are about to settle."""
    entry = _entry(ledger, entry_id)
    print_one(errors(), entry)
    errors().print(f"\n{resolution}: {meaning(entry, resolution)}", highlight=False, markup=False, soft_wrap=True)
    return entry


def _entry(ledger: Ledger, entry_id: str) -> Entry:
    entry = ledger.get(entry_id)
    if entry is None:
        warn(
            f"no entry {printable(entry_id)}: never made in this ledger, or expired; "
            "if a tool ran, its effect may have committed"
        )
        raise typer.Exit(REFUSED)
    return entry


# -- what waits ----------------------------------------------------------------------------------------------------


def _sweep(ledger: Ledger) -> None:
    """Quarantine calls whose process is gone, so that they are among those that wait; who may only read sees them later."""
    with suppress(LedgerError):
        ledger.expire()


def _page(ledger: Ledger, query: Query, trace: str, limit: int, cursor: str | None) -> Page:
    try:
        if not trace:
            return ledger.pending(query, limit=limit, cursor=cursor)
        return next_page([*islice(_everything(ledger, query, trace, cursor), limit + 1)], limit)
    except LedgerUnavailableError:
        raise
    except (LedgerError, OverflowError) as error:
        if cursor is None:
            raise
        sentence = f"{cursor[:100]!r} is not a cursor that a page gave; begin again without one"
        raise usage_error("--cursor", sentence) from error


def _everything(ledger: Ledger, query: Query, trace: str, cursor: str | None = None) -> Iterator[Entry]:
    while True:
        page = ledger.pending(query, limit=1_000, cursor=cursor)
        yield from (entry for entry in page.entries if not trace or (entry.trace_id or "").startswith(trace))
        cursor = page.cursor
        if cursor is None:
            return


def _query(tool: str | None, scope: str | None, state: Waiting | None, older_than: str | None) -> Query:
    before = None if older_than is None else time.time_ns() - int(_seconds(older_than) * 1e9)
    return Query(tool, scope, None if state is None else State(state.value), created_before_ns=before)


def _trace(text: str | None) -> str:
    """The beginning of the trace ids that are wanted; "" for all."""
    if text is None:
        return ""
    if not 0 < len(text) <= _TRACE_DIGITS or not set(text) <= set(hexdigits):
        raise usage_error("--trace", f"{text[:100]!r} is no trace id: write up to {_TRACE_DIGITS} hex digits")
    return text.lower()


def _seconds(age: str) -> float:
    number, unit = age[:-1], age[-1:]
    if unit not in _UNITS or not number.replace(".", "", 1).isdecimal():
        raise usage_error("--older-than", f"{age[:100]!r} is no age: write a number and s, m, h or d, as in 12h")
    seconds = float(number) * _UNITS[unit]
    if seconds > _OLDEST_DAYS * _UNITS["d"]:
        raise usage_error("--older-than", f"{age[:100]!r} is too long ago: {_OLDEST_DAYS}d at most")
    return seconds
