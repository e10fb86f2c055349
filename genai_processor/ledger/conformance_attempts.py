# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: pauses, ends, starts and leases, and whose word counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from genai_processor.errors import InvalidTransitionError
from genai_processor.ledger.conformance_bench import PATIENCE_SECONDS, Bench, expect, raising
from genai_processor.ledger.entries import Change, Entry, Resolution, State
from genai_processor.ledger.requests import Outcome, Refusal, RefusalReason

_HOUR_NS: Final = 3_600 * 10**9

# -- pauses ----------------------------------------------------------------------------------------------------------


def _a_paused_call_is_resumed_once(at: Bench) -> None:
    entry = at.is_in(at.ledger.finish(at.ledger.start(at.granted()), Outcome.PAUSED), State.PAUSED)
    again = at.granted(turn="t2", lease_ns=_HOUR_NS)
    expect((again.entry_id, again.attempt) == (entry.entry_id, 2), f"resumed as {again.entry_id}, attempt {again.attempt}")
    expect(again.started_ns is None, "the new attempt has not begun")
    expect(again.turn == "t2" and again.lease_expires_ns == again.updated_ns + _HOUR_NS, f"resumed as {again}")
    expect(again.history[-1].event == "resumed", f"its history ends in {again.history[-1:]}")
    at.refused(RefusalReason.CALL_REPEATED, turn="t3")
    at.is_in(at.ledger.finish(again, Outcome.REJECTED), State.NOT_STARTED)


def _a_paused_call_may_be_resumed_with_other_arguments(at: Bench) -> None:
    for number, digest in enumerate(("d2", None)):
        call_id = f"toolu_edited{number}"
        at.ledger.finish(at.granted(call_id, tool=f"mail{number}"), Outcome.PAUSED)
        again = at.granted(call_id, tool=f"mail{number}", digest=digest, turn="t2")
        expect(at.now(again).digest == digest, "the arguments are those of the resumed call, or not known")
        at.ledger.finish(again, Outcome.FAILED)
        at.refused(RefusalReason.ACTION_QUARANTINED, f"toolu_other{number}", tool=f"mail{number}", digest="d2", turn="t3")


def _a_paused_call_without_a_lasting_id_is_resumed_by_all_that_it_has(at: Bench) -> None:
    for call_id in (None, "call_0"):
        paused = at.ledger.finish(at.granted(call_id, tool=f"mail-{call_id}"), Outcome.PAUSED)
        another = {"digest": "d2"} if call_id is None else {"tool": "chat"}
        others: tuple[dict[str, Any], ...] = ({"turn": "t2"}, another, {"call_id": "toolu_new1"})
        for other in others:
            entry = at.granted(**{"call_id": call_id, "tool": paused.tool, "proposed": 9, **other})
            expect(entry.entry_id != paused.entry_id, f"it was resumed by another call: {other}")
            at.ledger.finish(entry, Outcome.RETURNED)
        again = at.granted(call_id, tool=paused.tool, proposed=9)
        expect(again.entry_id == paused.entry_id, f"it was not resumed by its own call, but {again} made")


def _the_pause_of_another_tool_is_not_resumed(at: Bench) -> None:
    paused = at.ledger.finish(at.granted(tool="mail"), Outcome.PAUSED)
    expect(at.granted().entry_id != paused.entry_id, "an id of two tools tells nothing")
    expect(at.granted(tool="mail", turn="t2").entry_id == paused.entry_id, "it is still to be resumed")


# -- what is written of an attempt -----------------------------------------------------------------------------------


def _each_change_is_a_version_and_a_line_of_the_history(at: Bench) -> None:
    entry = at.granted()
    begun = at.ledger.start(entry)
    expect(begun.started_ns == begun.updated_ns and begun.version == 2, f"begun as {begun}")
    expect(at.ledger.start(entry) == begun, "a second start changes nothing")
    done = at.ledger.finish(entry, Outcome.FAILED, reason="boom")
    change = Change(done.updated_ns, State.CLAIMED, State.QUARANTINED, "failed", "boom")
    expect(done.version == 3 and done.history == (change,), f"ended as {done}")
    lifted = at.ledger.finish(entry, Outcome.RETURNED)
    expect(lifted.reason is None and len(lifted.history) == 2, f"lifted as {lifted}")
    expect(lifted == at.now(entry), "an operation returns the entry as it then stands")


def _an_end_is_said_again_without_harm(at: Bench) -> None:
    entry = at.granted(lease_ns=_HOUR_NS)
    one, two = at.ledger.finish(entry, Outcome.RETURNED), at.ledger.finish(entry, Outcome.RETURNED)
    expect(one == two and one.state is State.COMPLETED, f"{one}, then {two}")
    expect(one.lease_expires_ns is None, "what has ended has no lease")


def _a_late_good_end_of_the_body_lifts_its_quarantine(at: Bench) -> None:
    entry = at.granted()
    at.ledger.finish(entry, Outcome.FAILED)
    at.is_in(at.ledger.finish(entry, Outcome.RETURNED), State.COMPLETED)


def _an_end_that_comes_late_is_a_line_of_the_history(at: Bench) -> None:
    entry = at.failed()
    read = at.ledger.finish(entry, Outcome.FAILED, reason="late")
    change = Change(read.updated_ns, State.QUARANTINED, State.QUARANTINED, "failed", "late")
    expect(read.history[-1] == change and read.version == entry.version + 1, f"ended late as {read}")
    expect(at.ledger.finish(entry, Outcome.FAILED, reason="late") == read, "it was said again, and changed something")
    settled = at.settle(read, Resolution.NOT_COMMITTED)
    late = at.ledger.finish(entry, Outcome.RETURNED)
    change = Change(late.updated_ns, State.SETTLED, State.SETTLED, "returned")
    expect(late.history[-1] == change and late.settlement == settled.settlement, f"ended after it was settled as {late}")


# -- attempts that are over ------------------------------------------------------------------------------------------


def _the_end_of_an_earlier_attempt_is_evidence_only(at: Bench) -> None:
    for number, outcome in enumerate(Outcome):
        first, second = _two_attempts(at, f"toolu_end{number}")
        ended = at.ledger.finish(first, outcome)
        if outcome in (Outcome.REJECTED, Outcome.PAUSED):
            expect(ended == second, f"that nothing ran then says nothing of now, and changed {ended}")
        else:
            expect(at.is_in(second, State.QUARANTINED).reason == "stale_attempt_ended", f"the reason is {ended.reason}")
    first, second = _two_attempts(at, "toolu_why")
    expect(at.ledger.finish(first, Outcome.FAILED, reason="boom").reason == "boom", "a reason that was given is kept")


def _the_start_of_an_earlier_attempt_is_evidence_only(at: Bench) -> None:
    first, second = _two_attempts(at, "toolu_start")
    at.ledger.start(first)
    found = at.is_in(second, State.QUARANTINED)
    expect(found.reason == "stale_attempt_started", f"the reason is {found.reason!r}")
    expect(found.started_ns is None, "that an earlier attempt began says nothing of this one")


def _an_earlier_attempt_holds_no_lease(at: Bench) -> None:
    first, second = _two_attempts(at, "toolu_lease")
    with raising(InvalidTransitionError):
        at.ledger.renew(first, lease_ns=1)
    expect(at.now(second) == second, "the lease of another attempt was changed")


def _two_attempts(at: Bench, call_id: str) -> tuple[Entry, Entry]:
    first = at.granted(call_id, digest=call_id)
    at.ledger.finish(first, Outcome.PAUSED)
    return first, at.granted(call_id, digest=call_id)


# -- leases ----------------------------------------------------------------------------------------------------------


def _a_lease_that_ran_out_quarantines(at: Bench) -> None:
    forever, longer, entry = (  # this one last: a claim may quarantine what it finds
        at.granted(f"toolu_lease{number}", digest=f"d{number}", lease_ns=lease_ns)
        for number, lease_ns in enumerate((None, _HOUR_NS, 1))
    )
    expect(entry.lease_expires_ns == entry.created_ns + 1, f"the lease ends at {entry.lease_expires_ns}")
    lost: list[str] = []

    def is_lost() -> bool:
        lost.extend(one.entry_id for one in at.ledger.expire())
        return entry.entry_id in lost

    expect(_in_time(is_lost), f"expire() did not return it within {PATIENCE_SECONDS} s")
    found = at.is_in(entry, State.QUARANTINED)
    expect(found.reason == "no_end_recorded" and found.lease_expires_ns is None, f"quarantined as {found}")
    expect(lost.count(entry.entry_id) == 1, "it is returned once")
    for other in (forever, longer):
        expect(at.now(other) == other and other.entry_id not in lost, "a claim whose lease had not run out was changed")


def _a_claim_finds_a_lease_that_ran_out_by_itself(at: Bench) -> None:
    entry = at.granted(lease_ns=1)

    def is_found() -> bool:
        answer = at.ledger.claim(at.wish("toolu_new1", turn="t2"))
        return isinstance(answer, Refusal) and answer.reason is RefusalReason.ACTION_QUARANTINED

    expect(_in_time(is_found), "the claim that nobody holds any more counts as running")
    expect(at.is_in(entry, State.QUARANTINED).reason == "no_end_recorded", "the reason is no_end_recorded")


def _a_result_that_nobody_waits_for_any_more_is_undelivered(at: Bench) -> None:
    """Its process was killed before a model saw it."""
    kept, entry = at.granted("toolu_kept1", digest="d2", lease_ns=_HOUR_NS), at.granted(lease_ns=1)
    kept = at.ledger.finish(kept, Outcome.AWAITED)
    expect(kept.lease_expires_ns is not None, "whoever waits for a result has no lease any more")
    at.ledger.finish(entry, Outcome.AWAITED)

    def is_lost() -> bool:
        at.ledger.expire()
        return at.now(entry).state is not State.RETURNED

    expect(_in_time(is_lost), "expire() left it as it was")
    expect(at.is_in(entry, State.UNDELIVERED).lease_expires_ns is None, "what nobody waits for has a lease")
    at.is_in(kept, State.RETURNED)
    expect(at.ledger.renew(kept, lease_ns=2 * _HOUR_NS).lease_expires_ns != kept.lease_expires_ns, "nothing was renewed")
    for one in (kept, entry):
        at.ledger.deliver(one)
        expect(at.is_in(one, State.COMPLETED).lease_expires_ns is None, "what a model has seen has a lease")


def _calls_in_a_call_are_lost_each_for_itself(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate", lease_ns=1)
    inner = at.granted("toolu_inner", parent=outer.entry_id, lease_ns=1)

    def are_lost() -> bool:
        at.ledger.expire()
        return all(at.now(entry).state is State.QUARANTINED for entry in (outer, inner))

    expect(_in_time(are_lost), "a lease that ran out did not quarantine")


def _a_lease_is_renewed_by_who_holds_it(at: Bench) -> None:
    entry = at.granted(lease_ns=_HOUR_NS)
    renewed = at.ledger.renew(entry, lease_ns=2 * _HOUR_NS)
    expect(renewed.lease_expires_ns == renewed.updated_ns + 2 * _HOUR_NS, "the lease does not end that long from now")
    at.ledger.finish(entry, Outcome.RETURNED)
    with raising(InvalidTransitionError):
        at.ledger.renew(entry, lease_ns=1)


def _a_further_attempt_of_an_idempotent_tool_holds_its_lease(at: Bench) -> None:
    """Else nobody could tell that it still runs, and a reconciler would release one more."""
    at.failed(effect="idempotent")
    again = at.granted(effect="idempotent", lease_ns=_HOUR_NS)
    renewed = at.ledger.renew(again, lease_ns=2 * _HOUR_NS)
    expect(renewed.state is State.QUARANTINED, f"the doubt about the first attempt is gone: {renewed}")
    expect(renewed.lease_expires_ns == renewed.updated_ns + 2 * _HOUR_NS, "the lease does not end that long from now")
    at.seen(State.QUARANTINED)
    expect(at.now(again).lease_expires_ns == renewed.lease_expires_ns, "a witness ended the lease")


def _a_further_attempt_that_has_ended_holds_no_lease(at: Bench) -> None:
    """Else it is looked at for ever, by whoever looks for claims that nobody holds any more."""
    for number, outcome in enumerate(Outcome):
        at.ledger.finish(at.granted(f"toolu_{number}again", digest=f"d{number}", effect="idempotent"), Outcome.RETURNED)
        again = at.granted(f"toolu_{number}again", digest=f"d{number}", effect="idempotent", lease_ns=_HOUR_NS)
        at.ledger.finish(again, outcome)
        expect(at.now(again).lease_expires_ns is None, f"what has ended ({outcome}) has no lease")


def _a_further_attempt_whose_lease_ran_out_holds_none_any_more(at: Bench) -> None:
    at.failed(effect="idempotent")
    again = at.granted(effect="idempotent", lease_ns=1)

    def is_over() -> bool:
        at.ledger.expire()
        return at.now(again).lease_expires_ns is None

    expect(_in_time(is_over), "a lease that ran out is still there")
    at.is_in(again, State.QUARANTINED)


def _in_time(is_so: Callable[[], bool]) -> bool:
    """Whether something comes to be so; the ledger's clock may be a coarse one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


CHECKS: Final = (
    _a_paused_call_is_resumed_once,
    _a_paused_call_may_be_resumed_with_other_arguments,
    _a_paused_call_without_a_lasting_id_is_resumed_by_all_that_it_has,
    _the_pause_of_another_tool_is_not_resumed,
    _each_change_is_a_version_and_a_line_of_the_history,
    _an_end_is_said_again_without_harm,
    _a_late_good_end_of_the_body_lifts_its_quarantine,
    _an_end_that_comes_late_is_a_line_of_the_history,
    _the_end_of_an_earlier_attempt_is_evidence_only,
    _the_start_of_an_earlier_attempt_is_evidence_only,
    _an_earlier_attempt_holds_no_lease,
    _a_lease_that_ran_out_quarantines,
    _a_claim_finds_a_lease_that_ran_out_by_itself,
    _a_result_that_nobody_waits_for_any_more_is_undelivered,
    _calls_in_a_call_are_lost_each_for_itself,
    _a_lease_is_renewed_by_who_holds_it,
    _a_further_attempt_of_an_idempotent_tool_holds_its_lease,
    _a_further_attempt_that_has_ended_holds_no_lease,
    _a_further_attempt_whose_lease_ran_out_holds_none_any_more,
)
