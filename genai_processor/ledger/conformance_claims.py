# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: which claims are granted, and how attempts end."""

from __future__ import annotations

import time
from typing import Final

from genai_processor.errors import InvalidTransitionError
from genai_processor.ledger.conformance_bench import PATIENCE_SECONDS, Bench, expect, raising
from genai_processor.ledger.entries import State
from genai_processor.ledger.requests import Granted, Outcome, Refusal, RefusalReason

# -- one call, one attempt -----------------------------------------------------------------------------------------


def _one_id_is_claimed_once(at: Bench) -> None:
    entry = at.granted()
    expect(entry.guarded and entry.attempt == 1 and entry.state is State.CLAIMED, f"granted as {entry}")
    expect(entry.intent == entry.entry_id, "the intent of a first attempt is its own entry")
    at.refused(RefusalReason.CALL_REPEATED)
    at.refused(RefusalReason.CALL_REPEATED, turn="t2")
    at.granted("toolu_9z8y", digest="d2")


def _a_result_is_handed_back_within_its_turn_only(at: Bench) -> None:
    at.ledger.finish(at.granted(), Outcome.RETURNED)
    expect(at.refused(RefusalReason.CALL_REPEATED).hand_back, "the same call in the same turn gets the result")
    expect(not at.refused(RefusalReason.CALL_REPEATED, turn="t2").hand_back, "in another turn it does not")
    expect(not at.refused(RefusalReason.CALL_REPEATED, digest=None).hand_back, "nor with arguments that nobody knows")


def _an_id_that_counts_calls_is_one_within_its_turn(at: Bench) -> None:
    at.ledger.finish(at.granted("call_0"), Outcome.RETURNED)
    at.refused(RefusalReason.CALL_REPEATED, "call_0")
    at.granted("call_0", turn="t2", digest="d2")


def _a_failed_action_is_quarantined_and_refused_elsewhere(at: Bench) -> None:
    entry = at.is_in(at.failed(), State.QUARANTINED)
    expect(entry.reason == "boom", f"the reason is {entry.reason!r}")
    refusal = at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2")
    expect(
        refusal.entry is not None and refusal.entry.entry_id == entry.entry_id, "the refusal names what stands in the way"
    )
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2", digest=None)
    at.granted("toolu_new2", turn="t2", digest="d2")
    at.granted("toolu_new3", turn="t2", tool="mail")


def _an_action_in_flight_is_refused_to_another_turn(at: Bench) -> None:
    at.granted()
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new1", turn="t2")


def _an_action_may_be_wanted_again_after_a_good_end(at: Bench) -> None:
    at.ledger.finish(at.granted(), Outcome.RETURNED)
    at.granted("toolu_new1", turn="t2")


def _twins_run_as_often_as_they_were_proposed(at: Bench) -> None:
    at.granted("toolu_a1", proposed=2)
    at.granted("toolu_b2", proposed=2)
    at.refused(RefusalReason.TURN_EXCEEDED, "toolu_c3", proposed=2)


def _what_never_began_may_run(at: Bench) -> None:
    at.is_in(at.ledger.finish(at.granted(), Outcome.REJECTED), State.NOT_STARTED)
    at.granted(turn="t2")


def _what_began_was_not_rejected(at: Bench) -> None:
    entry = at.granted()
    expect(at.ledger.start(entry).started_ns is not None, "the start was not noted")
    at.is_in(at.ledger.finish(entry, Outcome.REJECTED), State.QUARANTINED)


def _a_paused_call_is_resumed_once(at: Bench) -> None:
    entry = at.is_in(at.ledger.finish(at.granted(), Outcome.PAUSED), State.PAUSED)
    again = at.granted(turn="t2")
    expect((again.entry_id, again.attempt) == (entry.entry_id, 2), f"resumed as {again.entry_id}, attempt {again.attempt}")
    at.refused(RefusalReason.CALL_REPEATED, turn="t3")


def _a_paused_call_may_be_resumed_with_other_arguments(at: Bench) -> None:
    for number, digest in enumerate(("d2", None)):
        call_id = f"toolu_edited{number}"
        at.ledger.finish(at.granted(call_id, tool=f"mail{number}"), Outcome.PAUSED)
        again = at.granted(call_id, tool=f"mail{number}", digest=digest, turn="t2")
        expect(at.now(again).digest == digest, "the arguments are those of the resumed call, or not known")
        at.ledger.finish(again, Outcome.FAILED)
        at.refused(RefusalReason.ACTION_QUARANTINED, f"toolu_other{number}", tool=f"mail{number}", digest="d2", turn="t3")


def _read_only_tools_are_never_refused(at: Bench) -> None:
    at.failed(effect="read_only")
    at.granted(effect="read_only")


def _an_idempotent_tool_is_tried_again_under_its_id(at: Bench) -> None:
    first = at.failed(effect="idempotent")
    again = at.granted(effect="idempotent")
    expect((again.entry_id, again.attempt) == (first.entry_id, 2), "a further attempt at the same entry")
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2", effect="non_idempotent")


def _who_observes_is_granted_and_told(at: Bench) -> None:
    at.failed()
    answer = at.ledger.claim(at.wish("toolu_new1", turn="t2"), observe=True)
    expect(isinstance(answer, Granted) and answer.overruled is not None, f"answered {answer}")


# -- attempts that are over ------------------------------------------------------------------------------------------


def _an_end_is_said_again_without_harm(at: Bench) -> None:
    entry = at.granted()
    one, two = at.ledger.finish(entry, Outcome.RETURNED), at.ledger.finish(entry, Outcome.RETURNED)
    expect(one.state is two.state is State.COMPLETED, f"{one.state}, then {two.state}")


def _a_late_good_end_of_the_body_lifts_its_quarantine(at: Bench) -> None:
    entry = at.granted()
    at.ledger.finish(entry, Outcome.FAILED)
    at.is_in(at.ledger.finish(entry, Outcome.RETURNED), State.COMPLETED)


def _the_end_of_an_earlier_attempt_is_evidence_only(at: Bench) -> None:
    first = at.granted()
    at.ledger.finish(first, Outcome.PAUSED)
    at.granted()
    at.is_in(at.ledger.finish(first, Outcome.RETURNED), State.QUARANTINED)


def _a_lease_that_ran_out_quarantines(at: Bench) -> None:
    entry = at.granted(lease_ns=1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    lost: list[str] = []
    while entry.entry_id not in lost and time.monotonic() < deadline:  # the ledger's clock may be a coarse one
        lost += [one.entry_id for one in at.ledger.expire()]
        time.sleep(0.001)
    expect(entry.entry_id in lost, f"expire() did not return it within {PATIENCE_SECONDS} s")
    expect(at.is_in(entry, State.QUARANTINED).reason == "no_end_recorded", "the reason is no_end_recorded")


def _a_lease_is_renewed_by_who_holds_it(at: Bench) -> None:
    entry = at.granted(lease_ns=3_600 * 10**9)
    renewed = at.ledger.renew(entry, lease_ns=7_200 * 10**9)
    expect((renewed.lease_expires_ns or 0) > (entry.lease_expires_ns or 0), "the end of the lease was not put off")
    at.ledger.finish(entry, Outcome.RETURNED)
    with raising(InvalidTransitionError):
        at.ledger.renew(entry, lease_ns=1)


def _an_undelivered_result_is_not_bought_again(at: Bench) -> None:
    entry = at.granted()
    at.ledger.finish(entry, Outcome.RETURNED)
    at.is_in(at.ledger.undeliver(entry), State.UNDELIVERED)
    expect(at.refused(RefusalReason.ACTION_UNDELIVERED, "toolu_new1", turn="t2").hand_back, "it may be handed back")


def _a_result_that_was_delivered_late_stands_in_nobodys_way(at: Bench) -> None:
    entry = at.granted()
    at.is_in(at.ledger.deliver(entry), State.CLAIMED)
    at.ledger.finish(entry, Outcome.RETURNED)
    at.ledger.undeliver(entry)
    at.is_in(at.ledger.deliver(entry), State.COMPLETED)
    at.granted("toolu_new1", turn="t2")


def _calls_in_a_call_tell_it(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate", digest="d0")
    inner = at.granted(None, parent=outer.entry_id, turn=None)
    expect(at.now(outer).started_ns is not None, "a body that makes a call has begun")
    at.ledger.finish(inner, Outcome.FAILED)
    at.is_in(outer, State.QUARANTINED)
    at.is_in(at.ledger.finish(outer, Outcome.RETURNED), State.QUARANTINED)
    answer = at.ledger.claim(at.wish(None, parent=outer.entry_id, turn=None))
    expect(isinstance(answer, Refusal), "a second execution in one call, after an uncertain first")


CHECKS: Final = (
    _one_id_is_claimed_once,
    _a_result_is_handed_back_within_its_turn_only,
    _an_id_that_counts_calls_is_one_within_its_turn,
    _a_failed_action_is_quarantined_and_refused_elsewhere,
    _an_action_in_flight_is_refused_to_another_turn,
    _an_action_may_be_wanted_again_after_a_good_end,
    _twins_run_as_often_as_they_were_proposed,
    _what_never_began_may_run,
    _what_began_was_not_rejected,
    _a_paused_call_is_resumed_once,
    _a_paused_call_may_be_resumed_with_other_arguments,
    _read_only_tools_are_never_refused,
    _an_idempotent_tool_is_tried_again_under_its_id,
    _who_observes_is_granted_and_told,
    _an_end_is_said_again_without_harm,
    _a_late_good_end_of_the_body_lifts_its_quarantine,
    _the_end_of_an_earlier_attempt_is_evidence_only,
    _a_lease_that_ran_out_quarantines,
    _a_lease_is_renewed_by_who_holds_it,
    _an_undelivered_result_is_not_bought_again,
    _a_result_that_was_delivered_late_stands_in_nobodys_way,
    _calls_in_a_call_tell_it,
)
