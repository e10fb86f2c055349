# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ledger_helpers import held

from genai_processor.errors import InvalidTransitionError, UnknownEntryError
from genai_processor.ledger import (
    Claim,
    Entry,
    Granted,
    MemoryLedger,
    Outcome,
    Refusal,
    RefusalReason,
    Resolution,
    Sighting,
    State,
)


def wish(**more: Any) -> Claim:
    return Claim(**({"scope": "s", "tool": "refund", "call_id": "a1b2", "digest": "d", "turn": "t1"} | more))


def granted(ledger: MemoryLedger, *, observe: bool = False, **more: Any) -> Entry:
    answer = ledger.claim(wish(**more), observe=observe)
    assert isinstance(answer, Granted), answer
    return answer.entry


def refused(ledger: MemoryLedger, **more: Any) -> Refusal:
    answer = ledger.claim(wish(**more))
    assert isinstance(answer, Refusal), answer
    return answer


def ended(ledger: MemoryLedger, outcome: Outcome, **more: Any) -> Entry:
    entry = granted(ledger, **more)
    return ledger.finish(held(ledger, entry.entry_id, entry.attempt), outcome)


def settle(ledger: MemoryLedger, entry_id: str, resolution: Resolution) -> Entry:
    entry = ledger.get(entry_id)
    assert entry is not None
    return ledger.settle(entry_id, resolution, who="ann", note="asked the bank", version=entry.version)


# -- one call, one attempt -------------------------------------------------------------------------------------------


def test_a_first_claim_is_granted(ledger: MemoryLedger) -> None:
    entry = granted(ledger, lease_ns=50)
    assert (entry.state, entry.attempt, entry.guarded, entry.intent) == (State.CLAIMED, 1, True, "e1")
    assert entry.lease_expires_ns == 1_050


@pytest.mark.parametrize("outcome", [Outcome.RETURNED, Outcome.FAILED])
@pytest.mark.parametrize("turn", ["t1", "t2", None])
def test_the_same_id_again_is_refused_in_any_turn(ledger: MemoryLedger, outcome: Outcome, turn: str | None) -> None:
    ended(ledger, outcome)
    refusal = refused(ledger, turn=turn)
    assert refusal.reason is RefusalReason.CALL_REPEATED
    assert refusal.entry == ledger.get("e1")
    assert refusal.hand_back is (outcome is Outcome.RETURNED and turn == "t1")


def test_the_same_id_in_flight_is_refused(ledger: MemoryLedger) -> None:
    granted(ledger)
    assert refused(ledger).reason is RefusalReason.CALL_REPEATED


def test_an_id_like_call_0_counts_in_its_turn_only(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.RETURNED, call_id="call_0")
    assert refused(ledger, call_id="call_0").reason is RefusalReason.CALL_REPEATED
    granted(ledger, call_id="call_0", turn="t2")


def test_an_id_of_two_argument_sets_counts_as_missing(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED)
    granted(ledger, digest="d2", turn="t2")


def test_what_never_started_stands_in_nobody_s_way(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.REJECTED)
    assert granted(ledger).entry_id == "e2"


def test_a_paused_call_is_claimed_once_more_under_its_id_even_with_edited_arguments(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.PAUSED)
    entry = granted(ledger, digest="edited", turn="t2")
    assert (entry.entry_id, entry.attempt, entry.state, entry.digest) == ("e1", 2, State.CLAIMED, "edited")
    assert refused(ledger, digest="edited", turn="t2").reason is RefusalReason.CALL_REPEATED


def test_a_paused_call_without_an_id_is_resumed_in_its_turn(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.PAUSED, call_id=None)
    assert granted(ledger, call_id=None).entry_id == "e1"


# -- one action, one execution that nobody knows the end of ----------------------------------------------------------


@pytest.mark.parametrize("turn", ["t2", None])
def test_an_action_that_may_have_committed_is_refused_under_a_new_id(ledger: MemoryLedger, turn: str | None) -> None:
    ended(ledger, Outcome.FAILED)
    assert refused(ledger, call_id="c3d4", turn=turn).reason is RefusalReason.ACTION_QUARANTINED


def test_an_action_in_flight_is_refused_to_another_turn(ledger: MemoryLedger) -> None:
    granted(ledger)
    assert refused(ledger, call_id="c3d4", turn="t2").reason is RefusalReason.ACTION_IN_FLIGHT


def test_without_a_turn_an_action_that_runs_beside_it_may_be_a_twin(ledger: MemoryLedger) -> None:
    beside = granted(ledger, call_id=None, turn=None)
    granted(ledger, call_id=None, turn=None, running={beside.entry_id})


@pytest.mark.parametrize("turns", [(None, None), ("t1", None), (None, "t2")])
def test_without_a_turn_a_claim_of_which_nobody_knows_whether_it_runs_is_refused(
    ledger: MemoryLedger, turns: tuple[str | None, str | None]
) -> None:
    granted(ledger, call_id=None, turn=turns[0])
    assert refused(ledger, call_id=None, turn=turns[1]).reason is RefusalReason.ACTION_IN_FLIGHT


@pytest.mark.parametrize("digests", [(None, None), ("d1", None), (None, "d1")])
def test_unknown_arguments_count_as_equal_to_those_of_a_call_in_flight(
    ledger: MemoryLedger, digests: tuple[str | None, str | None]
) -> None:
    granted(ledger, digest=digests[0])
    assert refused(ledger, call_id="c3d4", turn="t2", digest=digests[1]).reason is RefusalReason.ACTION_IN_FLIGHT


@pytest.mark.parametrize("digests", [(None, None), ("d1", None), (None, "d1")])
def test_what_may_have_committed_is_not_run_again_in_its_turn_where_arguments_and_id_are_unknown(
    ledger: MemoryLedger, digests: tuple[str | None, str | None]
) -> None:
    ended(ledger, Outcome.FAILED, call_id=None, digest=digests[0])
    assert refused(ledger, call_id=None, digest=digests[1]).reason is RefusalReason.TURN_EXCEEDED


def test_calls_with_unknown_arguments_that_their_ids_tell_apart_all_run_in_their_turn(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED, call_id="a1b2", digest=None)
    granted(ledger, call_id="c3d4", digest=None)


def test_a_call_that_has_failed_is_not_around_what_is_claimed_in_its_name_later(ledger: MemoryLedger) -> None:
    outer = ended(ledger, Outcome.FAILED)
    answer = refused(ledger, call_id="c3d4", turn="t2", parent=outer.entry_id)
    assert answer.reason is RefusalReason.ACTION_QUARANTINED


def test_an_undelivered_action_is_refused_and_its_result_may_be_handed_back(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.RETURNED)
    assert ledger.undeliver(held(ledger, "e1")).state is State.UNDELIVERED
    refusal = refused(ledger, call_id="c3d4", turn="t2")
    assert (refusal.reason, refusal.hand_back) == (RefusalReason.ACTION_UNDELIVERED, True)


def test_an_action_that_somebody_settled_as_committed_is_done(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED)
    settle(ledger, "e1", Resolution.COMMITTED)
    for turn in ("t2", "t3", None):
        assert refused(ledger, call_id="c3d4", turn=turn).reason is RefusalReason.ACTION_COMMITTED
    granted(ledger, call_id="c3d4", turn="t2", digest="d2")


@pytest.mark.parametrize("resolution", [None, Resolution.COMPENSATED])
def test_the_same_action_in_a_later_turn_after_a_delivered_success_is_granted(
    ledger: MemoryLedger, resolution: Resolution | None
) -> None:
    ended(ledger, Outcome.RETURNED if resolution is None else Outcome.FAILED)
    if resolution is not None:
        settle(ledger, "e1", resolution)
    entry = granted(ledger, call_id="c3d4", turn="t2")
    assert entry.intent == entry.entry_id


def test_a_call_whose_arguments_nobody_recorded_may_have_been_this_action(ledger: MemoryLedger) -> None:
    ledger.record(Sighting("s", "refund", State.QUARANTINED, call_id="x9y8"))
    assert refused(ledger).reason is RefusalReason.ACTION_QUARANTINED
    granted(ledger, tool="mail")
    granted(ledger, scope="s2")


# -- twins -----------------------------------------------------------------------------------------------------------


def test_twins_run_as_often_as_their_turn_proposed_them_and_no_more(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED, proposed=2)
    ended(ledger, Outcome.RETURNED, call_id="c3d4", proposed=2)
    assert refused(ledger, call_id="e5f6", proposed=2).reason is RefusalReason.TURN_EXCEEDED


def test_a_retry_without_an_id_in_its_turn_is_no_twin(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.RETURNED, call_id=None)
    assert refused(ledger, call_id=None).reason is RefusalReason.TURN_EXCEEDED


def test_twins_are_two_intents(ledger: MemoryLedger) -> None:
    assert granted(ledger, proposed=2).intent != granted(ledger, call_id="c3d4", proposed=2).intent


# -- effects ---------------------------------------------------------------------------------------------------------


def test_a_read_only_tool_is_never_refused(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED)
    granted(ledger, effect="read_only")


@pytest.mark.parametrize("outcome", [None, Outcome.FAILED, Outcome.RETURNED])
def test_an_idempotent_tool_is_tried_again_under_its_id(ledger: MemoryLedger, outcome: Outcome | None) -> None:
    first = granted(ledger, effect="idempotent")
    if outcome is not None:
        ledger.finish(held(ledger, "e1"), outcome)
    entry = granted(ledger, effect="idempotent", turn="t2")
    assert (entry.entry_id, entry.attempt, entry.intent) == ("e1", 2, first.intent)
    assert ledger.finish(held(ledger, "e1", 2), Outcome.RETURNED).state is State.COMPLETED


def test_an_idempotent_tool_is_refused_under_a_new_id(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED, effect="idempotent")
    assert refused(ledger, effect="idempotent", call_id="c3d4", turn="t2").reason is RefusalReason.ACTION_QUARANTINED


def test_a_second_attempt_cannot_prove_that_the_first_never_began(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED, effect="idempotent")
    granted(ledger, effect="idempotent")
    assert ledger.finish(held(ledger, "e1", 2), Outcome.REJECTED).state is State.QUARANTINED


# -- released by a person --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [{}, {"turn": "t2"}, {"call_id": "c3d4", "turn": "t2"}, {"call_id": None}])
def test_not_committed_releases_exactly_one_attempt_of_the_same_intent(ledger: MemoryLedger, again: dict[str, Any]) -> None:
    ended(ledger, Outcome.FAILED)
    settle(ledger, "e1", Resolution.NOT_COMMITTED)
    entry = granted(ledger, **again)
    assert (entry.entry_id, entry.intent, entry.released_by) == ("e2", "e1", "e1")
    refused(ledger, **again)
    refused(ledger)


def test_a_release_is_for_one_attempt_even_where_no_turn_is_known(ledger: MemoryLedger) -> None:
    unnamed: dict[str, Any] = {"call_id": None, "turn": None}
    ended(ledger, Outcome.FAILED, **unnamed)
    settle(ledger, "e1", Resolution.NOT_COMMITTED)
    granted(ledger, **unnamed)
    assert refused(ledger, **unnamed).reason is RefusalReason.ACTION_IN_FLIGHT


def test_a_released_attempt_that_never_began_gives_the_release_back(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED)
    settle(ledger, "e1", Resolution.NOT_COMMITTED)
    ended(ledger, Outcome.REJECTED)
    assert granted(ledger).released_by == "e1"


# -- nested ----------------------------------------------------------------------------------------------------------


def test_an_uncertain_child_quarantines_every_enclosing_call_whatever_they_return(ledger: MemoryLedger) -> None:
    granted(ledger, tool="delegate")
    granted(ledger, tool="sub_agent", parent="e1", call_id="c3d4")
    granted(ledger, parent="e2", call_id="e5f6")
    ledger.finish(held(ledger, "e3"), Outcome.FAILED)
    for entry_id in ("e2", "e1"):
        assert ledger.finish(held(ledger, entry_id), Outcome.RETURNED).state is State.QUARANTINED
        entry = ledger.get(entry_id)
        assert entry is not None
        assert (entry.child_uncertain, entry.reason) == (True, "nested_uncertain")


def test_a_second_send_inside_one_call_after_an_uncertain_first_is_refused(ledger: MemoryLedger) -> None:
    granted(ledger)
    nested: dict[str, Any] = {"parent": "e1", "call_id": None, "turn": None}
    ended(ledger, Outcome.FAILED, **nested)
    assert refused(ledger, **nested).reason is RefusalReason.NESTED_UNCERTAIN


def test_the_enclosing_call_does_not_stand_in_its_child_s_way(ledger: MemoryLedger) -> None:
    granted(ledger)
    granted(ledger, parent="e1")  # the same tool, id, arguments and turn, seen one layer further in


def test_a_call_that_made_a_call_has_begun(ledger: MemoryLedger) -> None:
    granted(ledger, tool="delegate")
    ended(ledger, Outcome.REJECTED, parent="e1", call_id="c3d4")
    assert ledger.finish(held(ledger, "e1"), Outcome.REJECTED).state is State.QUARANTINED


# -- the end of an attempt -------------------------------------------------------------------------------------------


def test_the_start_mark_tells_rejected_from_uncertain(ledger: MemoryLedger) -> None:
    granted(ledger)
    assert ledger.start(held(ledger, "e1")).started_ns == 1_000
    assert ledger.finish(held(ledger, "e1"), Outcome.REJECTED).state is State.QUARANTINED


def test_a_body_that_ends_after_it_was_given_up_is_believed(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED)
    assert ledger.finish(held(ledger, "e1"), Outcome.RETURNED).state is State.COMPLETED
    assert ledger.finish(held(ledger, "e1"), Outcome.RETURNED).version == 3  # said again, nothing changes


@pytest.mark.parametrize(
    ("late", "state"),
    [
        (Outcome.RETURNED, State.QUARANTINED),
        (Outcome.FAILED, State.QUARANTINED),
        (Outcome.REJECTED, State.CLAIMED),
        (Outcome.PAUSED, State.CLAIMED),
    ],
)
def test_the_end_of_an_attempt_that_is_not_the_current_one_is_only_evidence(
    ledger: MemoryLedger, late: Outcome, state: State
) -> None:
    ended(ledger, Outcome.PAUSED)
    granted(ledger)
    assert ledger.finish(held(ledger, "e1", 1), late).state is state


def test_a_body_that_starts_after_all_is_quarantined(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.REJECTED)
    assert ledger.start(held(ledger, "e1")).state is State.QUARANTINED


def test_a_lease_that_ran_out_quarantines_and_grants_nothing(ledger: MemoryLedger, clock: Any) -> None:
    granted(ledger, lease_ns=10)
    clock.now += 9
    assert ledger.expire() == ()
    assert ledger.renew(held(ledger, "e1"), lease_ns=10).lease_expires_ns == 1_019
    clock.now += 10
    assert [e.entry_id for e in ledger.expire()] == ["e1"]
    assert refused(ledger, call_id="c3d4", turn="t2").reason is RefusalReason.ACTION_QUARANTINED
    with pytest.raises(InvalidTransitionError, match="may have committed"):
        ledger.renew(held(ledger, "e1"), lease_ns=10)


def test_a_claim_finds_a_lease_that_ran_out_by_itself(ledger: MemoryLedger, clock: Any) -> None:
    granted(ledger, tool="delegate", lease_ns=10)
    granted(ledger, parent="e1", call_id=None, turn=None, lease_ns=10)
    clock.now += 10
    assert refused(ledger, parent="e1", call_id=None, turn=None).reason is RefusalReason.NESTED_UNCERTAIN
    assert ledger.counts()[State.QUARANTINED] == 2


@pytest.mark.parametrize(
    "tell",
    [
        MemoryLedger.start,
        MemoryLedger.undeliver,
        lambda ledger, entry: ledger.finish(entry, Outcome.RETURNED),
        lambda ledger, entry: ledger.finish(entry, Outcome.FAILED),
    ],
)
def test_news_of_an_evicted_entry_makes_its_tool_unknown(
    ledger: MemoryLedger, tell: Callable[[MemoryLedger, Entry], Entry]
) -> None:
    gone = granted(MemoryLedger())
    with pytest.raises(UnknownEntryError, match="may have committed"):
        tell(ledger, gone)
    assert ledger.is_unknown("s", "refund")
    assert not ledger.is_unknown("s", "mail")


def test_an_evicted_entry_that_never_ran_is_an_error_and_no_news(ledger: MemoryLedger) -> None:
    gone = granted(MemoryLedger())
    with pytest.raises(UnknownEntryError):
        ledger.finish(gone, Outcome.REJECTED)
    with pytest.raises(UnknownEntryError):
        ledger.renew(gone, lease_ns=1)
    assert not ledger.is_unknown("s", "refund")


def test_a_call_inside_an_evicted_one_makes_the_scope_unknown(ledger: MemoryLedger) -> None:
    granted(ledger, parent="gone")
    assert ledger.is_unknown("s", "whatever")
    assert not ledger.is_unknown("s2", "whatever")


# -- merely observing ------------------------------------------------------------------------------------------------


def test_who_only_observes_is_told_what_would_have_been_refused(ledger: MemoryLedger) -> None:
    ended(ledger, Outcome.FAILED)
    answer = ledger.claim(wish(call_id="c3d4", turn="t2"), observe=True)
    assert isinstance(answer, Granted)
    assert answer.overruled is not None
    assert answer.overruled.reason is RefusalReason.ACTION_QUARANTINED
    assert (answer.entry.entry_id, answer.entry.intent) == ("e2", "e1")
