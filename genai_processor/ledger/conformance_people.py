# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: what people settle, and what that releases."""

from __future__ import annotations

from typing import Any, Final, cast

from genai_processor.errors import InvalidSettlementError, InvalidTransitionError, LedgerConflictError, UnknownEntryError
from genai_processor.ledger.conformance_bench import Bench, expect, raising
from genai_processor.ledger.entries import Change, Resolution, Settlement, State
from genai_processor.ledger.requests import Outcome, RefusalReason


def _a_release_allows_one_attempt(at: Bench) -> None:
    entry = at.failed()
    at.settle(entry, Resolution.NOT_COMMITTED)
    again = at.granted("toolu_new1", turn="t2")
    expect(again.released_by == entry.entry_id and again.intent == entry.intent, "it is an attempt at the same intent")
    expect(at.now(entry).released_to == again.entry_id, "the release is not used up")
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new2", turn="t3")
    at.refused(RefusalReason.CALL_REPEATED)
    at.ledger.finish(again, Outcome.FAILED)
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new2", turn="t3")


def _a_release_allows_one_attempt_where_no_turn_is_known(at: Bench) -> None:
    at.settle(at.failed(None, turn=None), Resolution.NOT_COMMITTED)
    at.granted(None, turn=None)
    at.refused(RefusalReason.ACTION_IN_FLIGHT, None, turn=None)


def _a_release_is_used_in_its_own_turn_under_its_own_id_or_another(at: Bench) -> None:
    for number, again in enumerate(("toolu_own", "toolu_other")):
        call: dict[str, Any] = {"digest": f"d{number}"}
        settled = at.settle(at.failed("toolu_own", **call), Resolution.NOT_COMMITTED)
        expect(at.granted(again, **call).released_by == settled.entry_id, "it uses the release")


def _a_call_uses_its_own_release_before_that_of_another(at: Bench) -> None:
    first = at.failed()
    second = at.ledger.finish(at.watched("toolu_2nd", turn="t2").entry, Outcome.FAILED)
    for entry in (first, second):
        at.settle(entry, Resolution.NOT_COMMITTED)
    expect(at.granted("toolu_2nd", turn="t3").released_by == second.entry_id, "it used the release of another call")


def _a_release_stays_used_however_the_attempt_ends_that_began(at: Bench) -> None:
    for number, outcome in enumerate((Outcome.RETURNED, Outcome.PAUSED, Outcome.FAILED)):
        settled = at.settle(at.failed(f"toolu_{number}x", digest=f"d{number}"), Resolution.NOT_COMMITTED)
        again = at.granted(f"toolu_new{number}", digest=f"d{number}", turn="t2")
        at.ledger.finish(again, outcome)
        expect(at.now(settled).released_to == again.entry_id, f"it was given back by one that {outcome}")


def _a_release_is_for_that_action_only(at: Bench) -> None:
    settled = at.settle(at.failed(), Resolution.NOT_COMMITTED)
    others: tuple[dict[str, Any], ...] = ({"digest": "d2"}, {"tool": "mail"}, {"digest": None})
    for number, other in enumerate(others):
        granted = at.granted(f"toolu_new{number}", **{"turn": "t2", **other})
        expect(granted.released_by is None, f"{other} used it up")
    expect(at.now(settled) == settled, "the release was used up")


def _a_release_is_given_back_by_an_attempt_that_never_began(at: Bench) -> None:
    settled = at.settle(at.failed(), Resolution.NOT_COMMITTED)
    again = at.granted("toolu_new1", turn="t2")
    at.ledger.finish(again, Outcome.REJECTED)
    expect(at.now(settled).released_to is None, "the release was not given back")
    last = at.granted("toolu_new2", turn="t3")
    expect(last.released_by == settled.entry_id, "it can be used again")
    at.ledger.finish(again, Outcome.REJECTED)
    expect(at.now(settled).released_to == last.entry_id, "it was given back by whoever does not have it any more")


def _what_is_settled_as_done_stays_done(at: Bench) -> None:
    for number, resolution in enumerate((Resolution.COMMITTED, Resolution.COMPENSATED)):
        call: dict[str, Any] = {"call_id": f"toolu_done{number}", "digest": f"d{number}"}
        entry = at.settle(at.failed(**call), resolution)
        expect(entry.resolution is resolution and not entry.releases, f"settled as {entry}")
        expect(not at.refused(RefusalReason.CALL_REPEATED, **call, turn="t2").hand_back, "its result is not known")
        new: dict[str, Any] = {"call_id": f"toolu_new{number}", "turn": "t2", "digest": f"d{number}"}
        if resolution is Resolution.COMMITTED:  # no model has seen its result: an agent that asks again would buy it twice
            at.refused(RefusalReason.ACTION_COMMITTED, **new)
            continue
        again = at.granted(**new)
        expect(again.released_by is None and again.intent == again.entry_id, f"granted as {again}")


def _a_settlement_says_who_when_and_on_what_ground(at: Bench) -> None:
    failed = at.failed()
    entry = at.ledger.settle(
        failed.entry_id, Resolution.COMPENSATED, who=" ann ", note="\tasked the provider\n", version=failed.version
    )
    settlement = Settlement(Resolution.COMPENSATED, "ann", "asked the provider", entry.updated_ns)
    expect(entry.settlement == settlement and at.now(failed) == entry, f"settled as {entry}")
    change = Change(entry.updated_ns, State.QUARANTINED, State.SETTLED, "settled", "compensated", "ann")
    expect(entry.history[-1] == change, f"its history ends in {entry.history[-1]}")
    expect(entry.reason == "boom" and entry.version == failed.version + 1, "why it had to be settled stays")


def _two_people_cannot_both_settle(at: Bench) -> None:
    entry = at.failed()
    at.settle(entry, Resolution.COMMITTED)
    with raising(LedgerConflictError):
        at.settle(entry, Resolution.NOT_COMMITTED)
    with raising(InvalidTransitionError):
        at.settle(at.now(entry), Resolution.NOT_COMMITTED)
    expect(at.now(entry).resolution is Resolution.COMMITTED, "the second one overruled the first")


def _evidence_since_it_was_read_stops_a_settlement(at: Bench) -> None:
    entry = at.failed()
    now = at.seen(State.QUARANTINED, entry_id=entry.entry_id)
    try:
        at.settle(entry, Resolution.NOT_COMMITTED)
    except LedgerConflictError as error:
        told = (error.entry_id, error.expected, error.found)
        expect(told == (entry.entry_id, entry.version, now.version), f"the error says {told}")
    else:
        expect(False, "who had not seen the evidence has settled")
    at.is_in(entry, State.QUARANTINED)


def _a_settlement_needs_a_name_and_a_ground(at: Bench) -> None:
    entry = at.failed()
    wanting: tuple[dict[str, Any], ...] = ({"who": " "}, {"note": ""}, {"who": None}, {"note": 5})
    for lacking in wanting:
        with raising(InvalidSettlementError):
            at.ledger.settle(
                entry.entry_id, Resolution.COMMITTED, version=entry.version, **{"who": "ann", "note": "seen", **lacking}
            )
    with raising(InvalidSettlementError):
        at.settle(entry, cast(Resolution, "lost"))
    with raising(UnknownEntryError):
        at.ledger.settle("nobody", Resolution.COMMITTED, who="ann", note="seen", version=1)
    at.is_in(entry, State.QUARANTINED)


CHECKS: Final = (
    _a_release_allows_one_attempt,
    _a_release_allows_one_attempt_where_no_turn_is_known,
    _a_release_is_used_in_its_own_turn_under_its_own_id_or_another,
    _a_call_uses_its_own_release_before_that_of_another,
    _a_release_stays_used_however_the_attempt_ends_that_began,
    _a_release_is_for_that_action_only,
    _a_release_is_given_back_by_an_attempt_that_never_began,
    _what_is_settled_as_done_stays_done,
    _a_settlement_says_who_when_and_on_what_ground,
    _two_people_cannot_both_settle,
    _evidence_since_it_was_read_stops_a_settlement,
    _a_settlement_needs_a_name_and_a_ground,
)
