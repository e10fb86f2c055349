# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: what witnesses tell, and what people settle."""

from __future__ import annotations

from typing import Final

from genai_processor.errors import InvalidSettlementError, InvalidTransitionError, LedgerConflictError, UnknownEntryError
from genai_processor.ledger.conformance_bench import Bench, expect, raising
from genai_processor.ledger.entries import Resolution, State
from genai_processor.ledger.requests import Outcome, RefusalReason, Sighting

# -- witnesses -------------------------------------------------------------------------------------------------------


def _a_witness_adds_a_quarantine_and_lifts_none(at: Bench) -> None:
    entry = at.granted()
    at.ledger.finish(entry, Outcome.RETURNED)
    seen = Sighting(at.scope, "pay", State.QUARANTINED, "toolu_1a2b", "d1", "t1", reason="commitment_marker")
    joined = at.ledger.record(seen)
    expect(joined is not None and joined.entry_id == entry.entry_id, "the sighting did not join the entry of its call")
    at.is_in(entry, State.QUARANTINED)
    at.ledger.record(seen._replace(state=State.COMPLETED))
    at.is_in(entry, State.QUARANTINED)


def _what_only_a_witness_saw_stands_in_the_way(at: Bench) -> None:
    seen = at.ledger.record(Sighting(at.scope, "pay", State.QUARANTINED, "toolu_1a2b"))
    expect(seen is not None and not seen.guarded and seen.witnessed == 1, f"recorded as {seen}")
    assert seen is not None
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2")
    expect(at.ledger.set_digest(seen.entry_id, "d9"), "set_digest returns the entry")
    at.granted("toolu_new1", turn="t2")


def _odd_sightings_are_counted_not_raised(at: Bench) -> None:
    before = at.ledger.stats().rejected
    for seen in (Sighting("", "pay", State.QUARANTINED), Sighting(at.scope, " ", State.QUARANTINED)):
        expect(at.ledger.record(seen) is None, "a sighting without scope or tool made an entry")
    expect(at.ledger.stats().rejected == before + 2, "they are counted as rejected")


# -- people ----------------------------------------------------------------------------------------------------------


def _a_release_allows_one_attempt(at: Bench) -> None:
    entry = at.failed()
    at.settle(entry, Resolution.NOT_COMMITTED)
    again = at.granted("toolu_new1", turn="t2")
    expect(again.released_by == entry.entry_id and again.intent == entry.intent, "it is an attempt at the same intent")
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new2", turn="t3")


def _what_is_settled_as_done_stays_done(at: Bench) -> None:
    entry = at.settle(at.failed(), Resolution.COMMITTED)
    expect(entry.resolution is Resolution.COMMITTED and entry.history, "the settlement and its history are kept")
    at.refused(RefusalReason.CALL_REPEATED, turn="t2")
    at.granted("toolu_new1", turn="t2")


def _two_people_cannot_both_settle(at: Bench) -> None:
    entry = at.failed()
    at.settle(entry, Resolution.COMMITTED)
    with raising(LedgerConflictError):
        at.settle(entry, Resolution.NOT_COMMITTED)
    with raising(InvalidTransitionError):
        at.settle(at.now(entry), Resolution.NOT_COMMITTED)


def _a_settlement_needs_a_name_and_a_ground(at: Bench) -> None:
    entry = at.failed()
    for lacking in ({"who": " "}, {"note": ""}):
        with raising(InvalidSettlementError):
            at.ledger.settle(
                entry.entry_id, Resolution.COMMITTED, version=entry.version, **{"who": "ann", "note": "seen", **lacking}
            )
    with raising(UnknownEntryError):
        at.ledger.settle("nobody", Resolution.COMMITTED, who="ann", note="seen", version=1)
    at.is_in(entry, State.QUARANTINED)


CHECKS: Final = (
    _a_witness_adds_a_quarantine_and_lifts_none,
    _what_only_a_witness_saw_stands_in_the_way,
    _odd_sightings_are_counted_not_raised,
    _a_release_allows_one_attempt,
    _what_is_settled_as_done_stays_done,
    _two_people_cannot_both_settle,
    _a_settlement_needs_a_name_and_a_ground,
)
