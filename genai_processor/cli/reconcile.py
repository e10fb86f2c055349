# SPDX-License-Identifier: Apache-2.0
"""The command `reconcile`: ask the user's own functions about what waits, and settle what they can prove."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from genai_processor.cli.answer import answering
from genai_processor.cli.console import console, printable, usage_error, warn
from genai_processor.cli.interrupts import Interrupts
from genai_processor.cli.ledgers import LedgerOption, opened_ledger
from genai_processor.cli.output import dumped_line
from genai_processor.errors import LedgerUnavailableError
from genai_processor.reconcile import Asked, Memory, NotAsked, Outcome, Report
from genai_processor.reconcile import reconcile as reconcile_once
from genai_processor.reconcile.records import Reconciler
from genai_processor.reconcile.registered import Registered
from genai_processor.reconcile.run import KEYS_LIVE, SETTLE_AFTER, TIMEOUT

_DONE: Final = 0
_FAILED: Final = 1
_SIGNALLED: Final = 128
_LONGEST: Final = 10 * 365 * 24 * 3600.0


class Printed(StrEnum):
    """How a pass is printed."""

    table = "table"
    jsonl = "jsonl"


def reconcile(
    reconcilers: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="MODULE:NAME",
            help="A mapping from names or globs of tools to functions. May be given several times. The current directory "
            "is searched first.",
        ),
    ],
    ledger: LedgerOption = None,
    once: Annotated[bool, typer.Option("--once", help="One run, then end: the default.")] = False,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Go on, with so long a rest between passes, until SIGINT or SIGTERM."),
    ] = None,
    settle_after: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Ask about no call that changed less long ago; and between two not_committed."),
    ] = SETTLE_AFTER,
    keys_live: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="How long the provider surely remembers a key. Older calls are never released."
        ),
    ] = KEYS_LIVE,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long a question may take.")] = TIMEOUT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask and print; settle nothing.")] = False,
    format: Annotated[
        Printed, typer.Option(help="table for people; jsonl is one object a line, written as it is known.")
    ] = Printed.table,
) -> None:
    """Ask providers about the calls that are quarantined, and settle what is proven.

    committed settles a call. not_committed settles it, and so releases one new attempt, once it has been answered twice, the
    settling time apart: where it was answered, a single run waits so long and asks again. unknown, an error and a time-out
    leave a call to a person. Calls that the guard did not claim are not asked about: nobody sent a key for them.

    Exit status: 0; 1 if a reconciler failed (the rest is done all the same); 2 if the command line is wrong, or MODULE:NAME
    cannot be loaded; 3 if the answer cannot be written; 4 if the ledger cannot be used (with --every: in the first pass);
    130 or 143 if SIGINT or SIGTERM ended a single run; 141 if whoever reads the answer left early. With --every these
    signals end it with 0, after the question that is being asked.
    """
    if once and every is not None:
        raise usage_error("--once", "it contradicts --every; give one of them")
    for option, seconds, least in (
        ("--every", every, 0.1),
        ("--settle-after", settle_after, 0.0),
        ("--keys-live", keys_live, 0.0),
        ("--timeout", timeout, 0.1),
    ):
        if seconds is not None and not (math.isfinite(seconds) and least <= seconds <= _LONGEST):
            raise usage_error(option, f"{seconds:g} is no number of seconds from {least:g} to {_LONGEST:g}")
    functions = _loaded(reconcilers)
    options: dict[str, Any] = {
        "settle_after": settle_after,
        "keys_live": keys_live,
        "timeout": timeout,
        "dry_run": dry_run,
        "memory": Memory(),
    }
    with answering(), opened_ledger(ledger) as opened, Interrupts() as interrupts:
        printer = _Printer(format)

        def one_pass() -> Report:
            report = reconcile_once(opened, functions, stop=interrupts.came, on_asked=printer.asked, **options)
            printer.done(report)
            return report

        if every is None:
            raise typer.Exit(_single(one_pass, interrupts, confirm=not dry_run))
        one_pass()
        while not interrupts.wait(every):
            try:
                one_pass()
            except LedgerUnavailableError as error:  # it may come back
                warn(f"{printable(str(error))}; asking again in {every:g} s")


def _single(one_pass: Callable[[], Report], interrupts: Interrupts, *, confirm: bool) -> int:
    """Make one run, with the second pass that a first `not_committed` needs; return the exit status."""
    reports = [one_pass()]
    seconds = reports[0].confirm_in_seconds
    if confirm and seconds is not None and interrupts.received is None:
        number = reports[0].count(Outcome.TO_CONFIRM)
        warn(
            f"{number} call{'s' * (number != 1)} answered not_committed: asking once more in {math.ceil(seconds)} s; "
            "what is interrupted stays in the queue"
        )
        if not interrupts.wait(seconds):
            reports.append(one_pass())
    if interrupts.received is not None:
        return _SIGNALLED + interrupts.received
    return _FAILED if any(report.count(Outcome.FAILED) for report in reports) else _DONE


# -- the user's module -----------------------------------------------------------------------------------------------


def _loaded(places: list[str]) -> dict[str, Reconciler]:
    """Import the mappings that are named, and join them."""
    with contextlib.suppress(OSError):  # the directory was removed
        sys.path.insert(0, os.getcwd())  # which a console script does not have, and `python -m` has
    found: dict[str, Reconciler] = {}
    for place in places:
        given = _imported(place)
        try:
            Registered(given)
        except TypeError as error:
            raise usage_error("--with", f"{place}: {error}") from error
        for name in given:
            if name in found:
                raise usage_error("--with", f"{place}: {name!r} has a reconciler already; leave one of them out")
        found.update(given)
    if not found:
        raise usage_error("--with", f"{', '.join(places)}: no reconciler is registered in it")
    return found


def _imported(place: str) -> Any:
    module_name, colon, name = place.partition(":")
    if not (colon and module_name and name):
        raise usage_error("--with", f"{place!r} is not of the form MODULE:NAME, as in shop.reconcilers:BY_TOOL")
    try:
        value: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise usage_error("--with", f"{place}: cannot be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise usage_error("--with", f"{place}: the module {module_name} has no {name}") from error
    return value


# -- what is printed -------------------------------------------------------------------------------------------------

_MEANING: Final = {
    Outcome.SETTLED: "settled",
    Outcome.WOULD_SETTLE: "would be settled",
    Outcome.TO_CONFIRM: "to be asked once more",
    Outcome.LEFT: "left for a person",
    Outcome.FAILED: "failed, left for a person",
    Outcome.OVERTAKEN: "changed by somebody else meanwhile",
}
_WHY_NOT: Final = {
    NotAsked.NO_RECONCILER: "no reconciler for their tool",
    NotAsked.UNGUARDED: "not claimed by the guard, so no key was sent",
    NotAsked.UNDELIVERED: "undelivered: they ended well, a person sees to the result",
    NotAsked.NESTED: "a call inside them is uncertain",
    NotAsked.READ_ONLY: "of read-only tools",
    NotAsked.RUNNING: "an attempt is running",
    NotAsked.YOUNG: "changed too lately",
    NotAsked.BACKING_OFF: "asked about lately",
    NotAsked.RECONCILER_BACKING_OFF: "their reconciler failed lately",
    NotAsked.RECONCILER_BUSY: "their reconciler is still busy with a question that ran out of time",
}


class _Printer:
    def __init__(self, format: Printed) -> None:
        self._out = console()
        self._json = format is Printed.jsonl

    def asked(self, one: Asked) -> None:
        """Print a question as soon as it is known what came of it."""
        if self._json:
            self._line({"kind": "asked", **asdict(one)})
            return
        said = f"{one.entry_id}  {one.tool}: {one.answer or 'no answer'}: {_MEANING[one.outcome]}"
        self._text(said if one.detail is None else f"{said} ({one.detail})")

    def done(self, report: Report) -> None:
        """Print what a pass came to."""
        outcomes = {outcome.value: number for outcome in Outcome if (number := report.count(outcome))}
        if self._json:
            counts: dict[str, Any] = {**outcomes, "not_asked": report.not_asked, "orphaned": report.orphaned}
            self._line({"kind": "pass", "asked": len(report.asked), **counts, "complete": report.complete})
            return
        said = "; ".join(f"{number:,} {_MEANING[Outcome(outcome)]}" for outcome, number in outcomes.items())
        self._text(f"asked about {len(report.asked):,}{': ' * bool(said)}{said}")
        for why_not in NotAsked:
            if why_not in report.not_asked:
                self._text(f"  not asked about {report.not_asked[why_not]:,}: {_WHY_NOT[why_not]}")
        if report.orphaned:
            self._text(f"  newly quarantined {report.orphaned:,}: whoever claimed them is gone")
        if not report.complete:
            self._text("  stopped before the end of the queue")

    def _line(self, row: dict[str, Any]) -> None:
        sys.stdout.buffer.write(dumped_line(row))
        sys.stdout.buffer.flush()

    def _text(self, line: str) -> None:
        self._out.print(Text(printable(line)), highlight=False, soft_wrap=True)
        sys.stdout.flush()
