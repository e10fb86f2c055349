# SPDX-License-Identifier: Apache-2.0
"""Telling a ledger how claimed calls end, and what becomes of their results; later, where it is away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

from genai_processor.errors import LedgerError, UnknownEntryError
from genai_processor.guard.attempt import NOT_KEPT, Attempt
from genai_processor.guard.deliveries import Deliveries
from genai_processor.guard.leases import Leases
from genai_processor.guard.notes import Notes
from genai_processor.guard.results import Results
from genai_processor.guard.runs import Fate, Result, Run
from genai_processor.ledger.entries import Entry
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import Claim, Outcome

_log = logging.getLogger(__name__)

_MOST_LOST: Final = 10_000  # then nothing is known of any tool


class Ends:
    """Tells one ledger. A `genai_processor.guard.runs.Teller`.

    Args:
        ledger: The ledger.
        results: Where what calls returned is kept.
        leases: Renews the leases of a ledger that outlives the process; None for one that does not.
        notes: Counts what goes wrong, and tells later what cannot be told now.
    """

    def __init__(self, ledger: Ledger, results: Results, leases: Leases | None, notes: Notes) -> None:
        self._ledger = ledger
        self._results = results
        self._leases = leases
        self.notes = notes
        self._never_told: set[tuple[str, str]] = set()
        self._deliveries = Deliveries()

    def finish(self, attempt: Attempt, outcome: Outcome, reason: str | None, value: Any) -> None:
        """Tell how an attempt has ended, and keep its result if there is one to keep."""
        entry = attempt.entry
        if entry is None:
            return
        if outcome is Outcome.RETURNED and value is not NOT_KEPT:
            try:
                self._results.save(entry.entry_id, value)
            except Exception as error:  # noqa: BLE001 - the user's store
                self.notes.fault("A result could not be kept in the user's store", error)
        run = attempt.run
        if outcome is not Outcome.RETURNED or run is None or entry.turn is None:
            self.write(lambda ledger: ledger.finish(entry, outcome, reason=reason), entry)
        elif self._returned_in(run, entry, reason):
            return
        self.let_go(entry)

    def _returned_in(self, run: Run, entry: Entry, reason: str | None) -> bool:
        """Tell of a call that ended well in a run; returns whether the ledger waits to hear what becomes of the result."""
        with run.ending(entry):
            # In one step where that is known: whoever runs the agent again may be asking already.
            fate = run.fate_of(entry)
            awaited = fate is Fate.AWAITED and self._leases is not None  # else the ledger ends with this process
            known = Outcome.UNSEEN if fate is Fate.LOST else Outcome.AWAITED if awaited else Outcome.RETURNED
            self.write(lambda ledger: ledger.finish(entry, known, reason=reason), entry)
            if known is Outcome.UNSEEN:
                return False
            fate = run.returned(Result(entry, self, awaited))
            if fate is Fate.LOST:
                self.undelivered((entry,))
            elif fate is Fate.SEEN and awaited:
                self.delivered((entry,))
            return awaited and fate is Fate.AWAITED

    def not_delivered(self, run: Run | None, entries: tuple[Entry, ...]) -> None:
        """Note that nobody got the results of calls that ended well."""
        if run is not None:
            for entry in entries:
                run.not_returned(entry)
        self.undelivered(entries)

    def abandoned(self, entry: Entry) -> None:
        """Quarantine a call whose end nobody can tell any more. No I/O: the garbage collector may call this anywhere."""
        if self._leases is not None:
            self._leases.let_go(entry)  # it runs out
        else:
            self.write(lambda ledger: ledger.finish(entry, Outcome.FAILED, reason="no_end_recorded"), entry)

    def write(self, change: Callable[[Ledger], object], entry: Entry) -> bool:
        """Tell the ledger, now or when it is back. What was evicted there is unknown there, which is all there is to do.

        Returns:
            Whether it has been, or will be told.
        """
        if self.notes.is_behind(entry.scope, entry.tool):  # in order: it may be about the very same call
            return self.notes.later(change, entry, None)
        try:
            change(self._ledger)
        except UnknownEntryError as error:
            _log.debug("%s", error)
        except LedgerError as error:
            return self.notes.later(change, entry, error)
        except Exception as error:  # noqa: BLE001 - a ledger of somebody else's
            self.notes.fault("The end of a call could not be told to the ledger", error)
            return False
        return True

    def is_lost(self, claim: Claim) -> bool:
        """Whether the ledger was never told something that would stand in the way of a call."""
        never_told = len(self._never_told) >= _MOST_LOST or (claim.scope, claim.tool) in self._never_told
        return never_told or self.notes.has_lost(claim.scope, claim.tool)

    def let_go(self, entry: Entry) -> None:
        """Renew a lease no more. No I/O: the garbage collector may call this anywhere."""
        if self._leases is not None:
            self._leases.let_go(entry)

    def undelivered(self, entries: tuple[Entry, ...]) -> None:
        """Note results that no model has seen."""
        for entry in entries:
            self.let_go(entry)  # first: after an interrupt it runs out
            told = self.write(methodcaller("undeliver", entry), entry)
            if not told and len(self._never_told) < _MOST_LOST:  # there it goes on to count as delivered
                self._never_told.add((entry.scope, entry.tool))

    def delivered(self, entries: tuple[Entry, ...]) -> None:
        """Tell the ledger of results that a model has seen."""
        self._deliveries.add(entries)
        for entry in entries:
            self.let_go(entry)
            if self.write(methodcaller("deliver", entry), entry) or self._deliveries.are_many():
                self._deliveries.told(entry)

    def tell_of(self, scope: str, tool: str) -> None:
        """Tell what should stand in nobody's way any more, and does as long as the ledger has not been told."""
        self.delivered(self._deliveries.of(scope, tool))

    def will_tell(self, entries: tuple[Entry, ...]) -> None:
        """Note results that a model has seen, and of which `delivered` will soon be told."""
        self._deliveries.add(entries)
