# SPDX-License-Identifier: Apache-2.0
"""The state machine of an entry: pure, total, and the same for every ledger.

Three parties move an entry. The *guard* stands around the body and is believed. A *witness* is a span that has ended:
it may add a quarantine and never lift one. A *person* settles. Time moves nothing: an expired lease is the guard's
own word that nobody is there any more, and leads into quarantine.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from genai_processor.ledger.entries import State
from genai_processor.ledger.requests import Outcome


class Event(StrEnum):
    """What can happen to an entry."""

    # the guard
    RESUMED = "resumed"
    """A paused call is claimed once more."""
    STARTED = "started"
    """The body has begun."""
    RETURNED = "returned"
    """The body's own end, a good one."""
    RETURNED_AWAITED = "returned_awaited"
    """The same, in a run that goes on: a model may yet see the result."""
    RETURNED_UNSEEN = "returned_unseen"
    """The same, after the run has died in which a model would have seen the result."""
    REJECTED = "rejected"
    """Positive proof that the body never began."""
    PAUSED = "paused"
    """A known control-flow signal ended it."""
    FAILED = "failed"
    """It ended in a way that leaves open what it did."""
    LOST = "lost"
    """The process that held the claim, or the run that had the result, is gone."""
    UNDELIVERED = "undelivered"
    """The run died before a model saw the result."""
    DELIVERED = "delivered"
    """A model saw the result: of its own run, or of a later one that was handed it."""
    # a witness
    SEEN_COMPLETED = "seen_completed"
    SEEN_NOT_STARTED = "seen_not_started"
    SEEN_PAUSED = "seen_paused"
    SEEN_QUARANTINED = "seen_quarantined"
    """Evidence, in time or late, that it may have committed."""
    # a person
    SETTLED = "settled"


ENDS: Final = {
    Outcome.RETURNED: Event.RETURNED,
    Outcome.AWAITED: Event.RETURNED_AWAITED,
    Outcome.UNSEEN: Event.RETURNED_UNSEEN,
    Outcome.REJECTED: Event.REJECTED,
    Outcome.PAUSED: Event.PAUSED,
    Outcome.FAILED: Event.FAILED,
}
"""The event that each way to end a claim stands for."""

SIGHTINGS: Final = {
    State.COMPLETED: Event.SEEN_COMPLETED,
    State.NOT_STARTED: Event.SEEN_NOT_STARTED,
    State.PAUSED: Event.SEEN_PAUSED,
    State.QUARANTINED: Event.SEEN_QUARANTINED,
}
"""The event that each state shown by a span stands for; a span cannot show the other states."""

_QUARANTINING: Final[dict[tuple[State, Event], State]] = {
    (state, event): State.QUARANTINED
    for state in State
    if state is not State.SETTLED
    for event in (Event.FAILED, Event.SEEN_QUARANTINED)
}

_MOVES: Final[dict[tuple[State, Event], State]] = _QUARANTINING | {
    (State.CLAIMED, Event.RETURNED): State.COMPLETED,
    (State.CLAIMED, Event.RETURNED_AWAITED): State.RETURNED,
    (State.CLAIMED, Event.REJECTED): State.NOT_STARTED,
    (State.CLAIMED, Event.PAUSED): State.PAUSED,
    (State.CLAIMED, Event.LOST): State.QUARANTINED,
    (State.PAUSED, Event.RESUMED): State.CLAIMED,
    (State.RETURNED, Event.RETURNED): State.COMPLETED,
    (State.RETURNED, Event.RETURNED_UNSEEN): State.UNDELIVERED,
    (State.RETURNED, Event.DELIVERED): State.COMPLETED,
    (State.RETURNED, Event.UNDELIVERED): State.UNDELIVERED,
    (State.RETURNED, Event.LOST): State.UNDELIVERED,
    (State.CLAIMED, Event.RETURNED_UNSEEN): State.UNDELIVERED,
    (State.COMPLETED, Event.RETURNED_UNSEEN): State.UNDELIVERED,
    (State.COMPLETED, Event.UNDELIVERED): State.UNDELIVERED,
    (State.UNDELIVERED, Event.DELIVERED): State.COMPLETED,
    # Only the guard, which stood around this very body, may lift a quarantine.
    (State.QUARANTINED, Event.RETURNED): State.COMPLETED,
    (State.QUARANTINED, Event.RETURNED_AWAITED): State.UNDELIVERED,  # its lease is lost: nobody would hear of its run
    (State.QUARANTINED, Event.RETURNED_UNSEEN): State.UNDELIVERED,
    (State.QUARANTINED, Event.REJECTED): State.NOT_STARTED,
    # A body that runs, or ends, after the guard had word that it did not: nobody knows what it has done.
    (State.NOT_STARTED, Event.STARTED): State.QUARANTINED,
    (State.NOT_STARTED, Event.RETURNED): State.QUARANTINED,
    (State.NOT_STARTED, Event.RETURNED_AWAITED): State.QUARANTINED,
    (State.NOT_STARTED, Event.RETURNED_UNSEEN): State.QUARANTINED,
    (State.PAUSED, Event.STARTED): State.QUARANTINED,
    (State.PAUSED, Event.RETURNED): State.QUARANTINED,
    (State.PAUSED, Event.RETURNED_AWAITED): State.QUARANTINED,
    (State.PAUSED, Event.RETURNED_UNSEEN): State.QUARANTINED,
    # Without a guard a later span of the same call is the later truth, as long as it says no less.
    (State.NOT_STARTED, Event.SEEN_PAUSED): State.PAUSED,
    (State.NOT_STARTED, Event.SEEN_COMPLETED): State.COMPLETED,
    (State.PAUSED, Event.SEEN_COMPLETED): State.COMPLETED,
    (State.QUARANTINED, Event.SETTLED): State.SETTLED,
    (State.UNDELIVERED, Event.SETTLED): State.SETTLED,
}

_ONLY_WHERE_LISTED: Final = frozenset({Event.RESUMED, Event.UNDELIVERED, Event.SETTLED})
_LIFTING: Final = frozenset({Event.RETURNED, Event.RETURNED_AWAITED, Event.RETURNED_UNSEEN, Event.REJECTED, Event.PAUSED})
_CALM: Final = frozenset({Event.SEEN_COMPLETED, Event.SEEN_NOT_STARTED, Event.SEEN_PAUSED})


def next_state(
    state: State,
    event: Event,
    *,
    started: bool = False,
    child_uncertain: bool = False,
    guarded: bool = False,
) -> State | None:
    """Say where an event leads. Total: every state and event has an answer.

    Args:
        state: Where the entry stands.
        event: What happens.
        started: There is positive proof that the body began; it beats proof that it did not.
        child_uncertain: A call made inside this one may have committed, which no good end of this one undoes.
        guarded: The guard claimed the entry; a witness can then add a quarantine and nothing else.

    Returns:
        The next state, the same one if the event is noted and changes nothing, or None if the state does not allow it.
    """
    if (child_uncertain and event in _LIFTING) or (started and event is Event.REJECTED):
        event = Event.FAILED
    elif guarded and event in _CALM:
        return state
    moved = _MOVES.get((state, event))
    if moved is not None:
        return moved
    return None if event in _ONLY_WHERE_LISTED else state
