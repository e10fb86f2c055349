# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: which claims are granted, and which are refused and why."""

from __future__ import annotations

from typing import Final

from genai_processor.ledger.conformance_bench import Bench, expect
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.keys import intent_of
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, RefusalReason

# -- one call, one attempt -----------------------------------------------------------------------------------------


def _one_id_is_claimed_once(at: Bench) -> None:
    entry = at.granted()
    expect(entry.guarded and entry.attempt == 1 and entry.state is State.CLAIMED, f"granted as {entry}")
    expect(entry.version == 1 and entry.created_ns == entry.updated_ns, f"granted as {entry}")
    expect(entry.intent == entry.entry_id, "the intent of a first attempt is its own entry")
    expect(not at.refused(RefusalReason.CALL_REPEATED).hand_back, "what has not ended has no result to hand back")
    at.refused(RefusalReason.CALL_REPEATED, turn="t2")
    at.granted("toolu_9z8y", digest="d2")
    elsewhere = at.ledger.claim(Claim(f"{at.scope}-elsewhere", "pay", "toolu_1a2b", "d1", "t1"))
    expect(isinstance(elsewhere, Granted), "another scope has ids of its own")


def _a_claim_is_kept_as_it_was_made(at: Bench) -> None:
    wish = at.wish(effect="idempotent", trace_id="ab" * 16, span_id="cd" * 8)
    answer = at.ledger.claim(wish)
    assert isinstance(answer, Granted)
    kept = at.now(answer.entry)
    for name in ("scope", "tool", "call_id", "digest", "turn", "parent", "effect", "trace_id", "span_id"):
        expect(getattr(kept, name) == getattr(wish, name), f"{name} is kept as {getattr(kept, name)!r}")
    expect(kept == answer.entry, "it is not kept as it was granted")


def _a_result_is_handed_back_within_its_turn_only(at: Bench) -> None:
    at.ledger.finish(at.granted(), Outcome.RETURNED)
    expect(at.refused(RefusalReason.CALL_REPEATED).hand_back, "the same call in the same turn gets the result")
    expect(not at.refused(RefusalReason.CALL_REPEATED, turn="t2").hand_back, "in another turn it does not")
    expect(not at.refused(RefusalReason.CALL_REPEATED, digest=None).hand_back, "nor with arguments that nobody knows")
    at.ledger.finish(at.granted("toolu_0unknown", digest=None), Outcome.RETURNED)
    for digest in ("d1", None):
        refusal = at.refused(RefusalReason.CALL_REPEATED, "toolu_0unknown", digest=digest)
        expect(not refusal.hand_back, "nor where those of the call that ran are not known")


def _an_id_that_counts_calls_is_one_within_its_turn(at: Bench) -> None:
    at.ledger.finish(at.granted("call_0"), Outcome.RETURNED)
    at.refused(RefusalReason.CALL_REPEATED, "call_0")
    at.refused(RefusalReason.CALL_REPEATED, "call_0", digest=None)
    at.ledger.finish(at.granted("call_1", digest=None), Outcome.RETURNED)
    at.refused(RefusalReason.CALL_REPEATED, "call_1")
    at.granted("call_0", turn="t2", digest="d2")
    at.granted("call_0", turn=None, digest="d3")
    at.granted("call_0", turn=None, digest="d4")


def _an_id_of_two_tools_or_argument_sets_tells_nothing(at: Bench) -> None:
    at.ledger.finish(at.granted(), Outcome.RETURNED)
    at.granted(turn="t2", digest="d2")
    at.granted(turn="t2", tool="mail")
    at.refused(RefusalReason.CALL_REPEATED, turn="t2", digest=None)
    at.ledger.finish(at.granted("toolu_0unknown", tool="chat", digest=None), Outcome.RETURNED)
    at.refused(RefusalReason.CALL_REPEATED, "toolu_0unknown", tool="chat", turn="t2")


# -- one action ------------------------------------------------------------------------------------------------------


def _a_failed_action_is_quarantined_and_refused_elsewhere(at: Bench) -> None:
    entry = at.is_in(at.failed(), State.QUARANTINED)
    expect(entry.reason == "boom", f"the reason is {entry.reason!r}")
    refusal = at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2")
    expect(
        refusal.entry is not None and refusal.entry.entry_id == entry.entry_id, "the refusal names what stands in the way"
    )
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2", digest=None)
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn=None)
    at.granted("toolu_new2", turn="t2", digest="d2")
    at.granted("toolu_new3", turn="t2", tool="mail", proposed=2)
    at.granted(turn="t2", tool="mail", proposed=2)


def _the_newest_that_stands_in_the_way_is_named(at: Bench) -> None:
    failed = [at.failed()]
    for number in range(5):
        entry = at.watched(f"toolu_watched{number}", turn=f"t-watched{number}").entry
        failed.append(at.ledger.finish(entry, Outcome.FAILED))
    _names(at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2"), failed)
    again = [at.failed("toolu_again", digest="d2", turn="t3")]
    again += [at.watched("toolu_again", digest="d2", turn=f"t-again{number}").entry for number in range(5)]
    _names(at.refused(RefusalReason.CALL_REPEATED, "toolu_again", digest="d2", turn="t4"), again)
    granted = at.granted("toolu_again", digest="d2", turn="t4", effect="idempotent")
    newest = max(entry.created_ns for entry in again)
    expect(granted.created_ns == newest, "an idempotent tool goes on from the newest")


def _names(refusal: Refusal, entries: list[Entry]) -> None:
    newest = max(entry.created_ns for entry in entries)
    ids = [entry.entry_id for entry in entries if entry.created_ns == newest]  # by a coarse clock all are as new
    expect(refusal.entry is not None and refusal.entry.entry_id in ids, f"it names {refusal.entry}")


def _an_action_in_flight_is_refused_to_another_turn(at: Bench) -> None:
    at.granted()
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new1", turn="t2")
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new3", turn="t2", digest=None)
    at.granted("toolu_new2", turn="t2", digest="d2")


def _without_a_turn_an_action_that_runs_beside_it_may_be_a_twin(at: Bench) -> None:
    running = {at.granted(turn=None).entry_id}
    running.add(at.granted("toolu_new1", turn="t2", running=running).entry_id)
    at.granted("toolu_new2", turn=None, running=running)


def _without_a_turn_a_claim_that_may_not_run_any_more_is_no_twin(at: Bench) -> None:
    at.granted(turn=None)
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new1", turn="t2")
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new2", turn=None)
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_new3", turn=None, digest=None)


def _what_may_have_been_this_very_call_of_its_turn_counts(at: Bench) -> None:
    at.failed(None, digest=None)
    at.refused(RefusalReason.TURN_EXCEEDED, None)
    at.refused(RefusalReason.TURN_EXCEEDED, "toolu_new1", digest=None)


def _calls_that_their_ids_tell_apart_do_not_count(at: Bench) -> None:
    at.failed("toolu_new1", digest=None)
    at.granted("toolu_new2", digest=None)


def _an_action_may_be_wanted_again_after_a_good_end(at: Bench) -> None:
    at.ledger.finish(at.granted(), Outcome.RETURNED)
    at.granted("toolu_new1", turn="t2")


def _an_undelivered_result_is_not_bought_again(at: Bench) -> None:
    entry = at.granted()
    at.ledger.finish(entry, Outcome.RETURNED)
    at.is_in(at.ledger.undeliver(entry), State.UNDELIVERED)
    expect(at.refused(RefusalReason.ACTION_UNDELIVERED, "toolu_new1", turn="t2").hand_back, "it may be handed back")
    refusal = at.refused(RefusalReason.ACTION_UNDELIVERED, "toolu_new1", turn="t2", digest=None)
    expect(not refusal.hand_back, "but not to a call whose arguments nobody knows")
    expect(at.refused(RefusalReason.CALL_REPEATED, turn="t2").hand_back, "its own id gets it in any turn")


def _a_result_that_no_model_has_seen_yet_is_not_bought_again(at: Bench) -> None:
    entry = at.granted()
    at.is_in(at.ledger.finish(entry, Outcome.AWAITED), State.RETURNED)
    expect(at.refused(RefusalReason.ACTION_UNDELIVERED, "toolu_new1", turn="t2").hand_back, "it may be handed back")
    refusal = at.refused(RefusalReason.ACTION_UNDELIVERED, "toolu_new1", turn="t2", digest=None)
    expect(not refusal.hand_back, "but not to a call whose arguments nobody knows")
    expect(at.refused(RefusalReason.CALL_REPEATED).hand_back, "its own id gets it")
    at.is_in(at.ledger.deliver(entry), State.COMPLETED)
    at.granted("toolu_new1", turn="t2")


def _a_result_of_unknown_arguments_that_no_model_has_seen_stands_in_the_way(at: Bench) -> None:
    at.ledger.finish(at.granted(digest=None), Outcome.AWAITED)
    at.refused(RefusalReason.ACTION_UNDELIVERED, "toolu_new1", turn="t2")
    at.refused(RefusalReason.ACTION_UNDELIVERED, "toolu_new1", turn="t2", digest=None)


def _a_result_that_was_delivered_late_stands_in_nobodys_way(at: Bench) -> None:
    entry = at.granted()
    at.ledger.finish(entry, Outcome.RETURNED)
    at.ledger.undeliver(entry)
    at.is_in(at.ledger.deliver(entry), State.COMPLETED)
    at.granted("toolu_new1", turn="t2")


def _twins_run_as_often_as_they_were_proposed(at: Bench) -> None:
    first = at.granted("toolu_a1", proposed=2)
    second = at.granted("toolu_b2", proposed=2)
    expect(first.intent != second.intent, "twins are two intents")
    _names(at.refused(RefusalReason.TURN_EXCEEDED, "toolu_c3", proposed=2), [first, second])
    at.ledger.finish(at.granted(None, digest="d2"), Outcome.RETURNED)
    at.refused(RefusalReason.TURN_EXCEEDED, None, digest="d2")
    at.granted("toolu_d4", digest="d3", proposed=0)
    at.refused(RefusalReason.TURN_EXCEEDED, "toolu_e5", digest="d3", proposed=0)
    at.granted("toolu_f6", digest=None)
    at.granted("toolu_g7", digest=None)
    at.granted("toolu_h8", digest="d4")


def _what_never_began_may_run(at: Bench) -> None:
    at.is_in(at.ledger.finish(at.granted(), Outcome.REJECTED), State.NOT_STARTED)
    expect(at.granted().attempt == 1, "it is a new attempt, in its own turn too")


# -- declared effects, and who observes ------------------------------------------------------------------------------


def _read_only_tools_are_never_refused(at: Bench) -> None:
    at.failed(effect="read_only")
    at.granted(effect="read_only")


def _an_idempotent_tool_is_tried_again_under_its_id(at: Bench) -> None:
    first = at.failed(effect="idempotent")
    again = at.granted(effect="idempotent", turn="t2", lease_ns=10**12)
    expect((again.entry_id, again.attempt) == (first.entry_id, 2), "a further attempt at the same entry")
    expect(again.turn == "t2" and again.lease_expires_ns == again.updated_ns + 10**12, f"granted again as {again}")
    kept = at.granted(effect="idempotent", turn=None, digest=None)
    expect((kept.turn, kept.digest, kept.lease_expires_ns) == ("t2", "d1", None), f"granted again as {kept}")
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t3", effect="idempotent")
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t3", effect="non_idempotent")
    at.is_in(at.ledger.finish(kept, Outcome.REJECTED), State.QUARANTINED)
    outer = at.granted("toolu_outer", tool="delegate")
    at.granted(effect="idempotent", parent=outer.entry_id)
    expect(at.granted(effect="idempotent").parent == outer.entry_id, "the call around it is forgotten")


def _an_idempotent_tool_goes_on_from_what_a_witness_saw(at: Bench) -> None:
    seen = at.seen(State.QUARANTINED)
    again = at.granted(effect="idempotent")
    expect((again.entry_id, again.attempt, again.guarded) == (seen.entry_id, 1, True), f"granted as {again}")


def _an_idempotent_tools_intent_is_in_its_id(at: Bench) -> None:
    """So that the key is the same where the first attempt has been forgotten, as in another ledger."""
    first = at.granted(effect="idempotent")
    expect(first.intent == intent_of(at.wish(effect="idempotent")), "the intent is not `intent_of` the claim")
    failed = at.ledger.finish(first, Outcome.FAILED)
    expect(at.granted(effect="idempotent").intent == first.intent, "a further attempt has another intent")
    at.settle(at.now(failed), Resolution.NOT_COMMITTED)
    released = at.granted("toolu_new1", turn="t2", effect="idempotent")
    expect(released.intent == first.intent, "a released attempt is one at the same intent")


def _an_id_that_tells_nothing_tells_no_intent(at: Bench) -> None:
    """A provider takes two calls of one key for one, and leaves the second one out."""
    wishes = [("call_0", "d1"), ("call_0", "d2"), ("call_0", "d1"), ("toolu_1a2b", "d1"), ("toolu_1a2b", "d2")]
    entries = []
    for call_id, digest in wishes:
        entries.append(at.granted(call_id, digest=digest, turn=None, effect="idempotent"))
        at.ledger.finish(entries[-1], Outcome.RETURNED)
    expect(len({entry.intent for entry in entries}) == len(wishes), "two calls have one intent")


def _who_observes_is_granted_and_told(at: Bench) -> None:
    failed = at.failed()
    answer = at.watched("toolu_new1", turn="t2", effect="idempotent")
    expect(answer.entry.entry_id != failed.entry_id, "what is granted in spite of a refusal has an entry of its own")
    expect(answer.entry.intent == failed.intent, "it is an attempt at the intent of what stood in its way")
    told = at.ledger.claim(at.wish("toolu_new2", turn="t2", digest="d2"), observe=True)
    expect(isinstance(told, Granted) and told.overruled is None, "nothing would have been refused")


CHECKS: Final = (
    _one_id_is_claimed_once,
    _a_claim_is_kept_as_it_was_made,
    _a_result_is_handed_back_within_its_turn_only,
    _an_id_that_counts_calls_is_one_within_its_turn,
    _an_id_of_two_tools_or_argument_sets_tells_nothing,
    _a_failed_action_is_quarantined_and_refused_elsewhere,
    _the_newest_that_stands_in_the_way_is_named,
    _an_action_in_flight_is_refused_to_another_turn,
    _without_a_turn_an_action_that_runs_beside_it_may_be_a_twin,
    _without_a_turn_a_claim_that_may_not_run_any_more_is_no_twin,
    _what_may_have_been_this_very_call_of_its_turn_counts,
    _calls_that_their_ids_tell_apart_do_not_count,
    _an_action_may_be_wanted_again_after_a_good_end,
    _an_undelivered_result_is_not_bought_again,
    _a_result_that_no_model_has_seen_yet_is_not_bought_again,
    _a_result_of_unknown_arguments_that_no_model_has_seen_stands_in_the_way,
    _a_result_that_was_delivered_late_stands_in_nobodys_way,
    _twins_run_as_often_as_they_were_proposed,
    _what_never_began_may_run,
    _read_only_tools_are_never_refused,
    _an_idempotent_tool_is_tried_again_under_its_id,
    _an_idempotent_tool_goes_on_from_what_a_witness_saw,
    _an_idempotent_tools_intent_is_in_its_id,
    _an_id_that_tells_nothing_tells_no_intent,
    _who_observes_is_granted_and_told,
)
