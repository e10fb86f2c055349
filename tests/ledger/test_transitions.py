# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_processor.ledger import Event, State, next_state
from genai_processor.ledger.transitions import SIGHTINGS

FLAGS = list(itertools.product([False, True], [False, True], [False, True]))
SEEN = set(SIGHTINGS.values())
RETURNS = (Event.RETURNED, Event.RETURNED_AWAITED, Event.RETURNED_UNSEEN)
states, events, flags = st.sampled_from(State), st.sampled_from(Event), st.booleans()


def step(state: State, event: Event, flag: tuple[bool, bool, bool] = (False, False, False)) -> State | None:
    return next_state(state, event, started=flag[0], child_uncertain=flag[1], guarded=flag[2])


@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        ("claimed", "returned", "completed"),
        ("claimed", "returned_unseen", "undelivered"),
        ("claimed", "returned_awaited", "returned"),
        ("returned", "delivered", "completed"),
        ("returned", "undelivered", "undelivered"),
        ("returned", "lost", "undelivered"),
        ("returned", "returned_unseen", "undelivered"),
        ("quarantined", "returned_awaited", "undelivered"),
        ("claimed", "rejected", "not_started"),
        ("claimed", "paused", "paused"),
        ("claimed", "failed", "quarantined"),
        ("claimed", "lost", "quarantined"),
        ("claimed", "started", "claimed"),
        ("claimed", "seen_completed", "claimed"),
        ("paused", "resumed", "claimed"),
        ("completed", "undelivered", "undelivered"),
        ("completed", "lost", "completed"),
        ("quarantined", "returned", "completed"),
        ("quarantined", "returned_unseen", "undelivered"),
        ("quarantined", "rejected", "not_started"),
        ("quarantined", "paused", "quarantined"),
        ("not_started", "started", "quarantined"),
        ("not_started", "seen_completed", "completed"),
        ("quarantined", "settled", "settled"),
        ("undelivered", "settled", "settled"),
    ],
)
def test_the_documented_steps(state: str, event: str, after: str) -> None:
    assert step(State(state), Event(event)) is State(after)


@pytest.mark.parametrize("state", set(State) - {State.QUARANTINED, State.UNDELIVERED})
def test_only_what_waits_for_a_person_can_be_settled(state: State) -> None:
    assert step(state, Event.SETTLED) is None


@pytest.mark.parametrize("state", set(State) - {State.PAUSED})
def test_only_a_paused_call_is_resumed(state: State) -> None:
    assert step(state, Event.RESUMED) is None


def test_proof_of_a_start_beats_proof_of_none() -> None:
    assert next_state(State.CLAIMED, Event.REJECTED, started=True) is State.QUARANTINED
    assert next_state(State.QUARANTINED, Event.REJECTED, started=True) is State.QUARANTINED


@pytest.mark.parametrize("event", [*RETURNS, Event.REJECTED, Event.PAUSED])
def test_no_good_end_undoes_an_uncertain_child(event: Event) -> None:
    for state in (State.CLAIMED, State.QUARANTINED):
        assert next_state(state, event, child_uncertain=True) is State.QUARANTINED


def test_it_is_total() -> None:
    for state, event, flag in itertools.product(State, Event, FLAGS):
        assert step(state, event, flag) in {None, *State}


def test_nothing_leaves_settled() -> None:
    for event, flag in itertools.product(Event, FLAGS):
        assert step(State.SETTLED, event, flag) in {None, State.SETTLED}


def test_a_witness_only_ever_adds_a_quarantine() -> None:
    for state, event, flag in itertools.product(State, SEEN, FLAGS):
        after = step(state, event, flag)
        assert after is not None
        if state in (State.QUARANTINED, State.UNDELIVERED, State.RETURNED):
            assert after in (state, State.QUARANTINED)
        if flag[2]:  # guarded
            assert after in (state, State.QUARANTINED)


def test_late_evidence_quarantines_all_but_settled() -> None:
    for state, flag in itertools.product(set(State) - {State.SETTLED}, FLAGS):
        assert step(state, Event.SEEN_QUARANTINED, flag) is State.QUARANTINED


@given(st.permutations(sorted(SEEN) * 2), st.booleans())
def test_what_witnesses_say_in_any_order_comes_to_the_same(seen: list[Event], guarded: bool) -> None:
    state: State | None = State.NOT_STARTED
    for event in seen:
        assert state is not None
        state = next_state(state, event, guarded=guarded)
    assert state is State.QUARANTINED


@given(st.lists(st.tuples(events, flags, flags, flags), max_size=30))
def test_quarantine_is_left_by_the_guard_s_own_word_or_a_person_only(
    path: list[tuple[Event, bool, bool, bool]],
) -> None:
    state = State.QUARANTINED
    for event, *flag in path:
        after = step(state, event, (flag[0], flag[1], flag[2]))
        if state is State.QUARANTINED and after not in (None, State.QUARANTINED):
            assert event in (*RETURNS, Event.REJECTED, Event.SETTLED)
        state = after or state


@given(states, st.lists(st.sampled_from([Event.LOST, *sorted(SEEN)]), max_size=10), flags)
def test_neither_time_nor_telemetry_makes_an_uncertain_call_retryable(
    state: State, path: list[Event], guarded: bool
) -> None:
    if state in (State.NOT_STARTED, State.PAUSED):
        return
    for event in path:
        state = next_state(state, event, guarded=guarded) or state
        assert state not in (State.NOT_STARTED, State.PAUSED)
