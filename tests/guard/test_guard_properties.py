# SPDX-License-Identifier: Apache-2.0
"""Whatever is asked of a guard, in whatever order: no effect twice that may have landed before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.guard import Guard
from genai_processor.ledger import Outcome, State


@dataclass(frozen=True)
class Ask:
    """A call that somebody wants to make."""

    turn: str | None
    call_id: str | None
    order: int
    proposed: int
    end: Outcome
    known: bool


_NOT_RUN = frozenset({Outcome.REJECTED, Outcome.PAUSED})

asks = st.builds(
    Ask,
    turn=st.sampled_from(["t1", "t2", "t3", None]),
    call_id=st.sampled_from(["toolu_a1", "toolu_b2", "call_0", None]),
    order=st.integers(1, 2),
    proposed=st.integers(1, 2),
    end=st.sampled_from(list(Outcome)),
    known=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(asks, max_size=12))
def test_no_uncertain_action_is_run_again(story: list[Ask]) -> None:
    """An action runs only where each earlier run of it ended well, never began, paused, or was a twin of its turn."""
    guard = Guard()
    ran: list[Ask] = []
    for ask in story:
        arguments = {"order": ask.order} if ask.known else None
        try:
            with guard.call("pay", ask.call_id, arguments, scope="s", turn=ask.turn, proposed=ask.proposed) as attempt:
                earlier = [one for one in ran if not (one.known and ask.known) or one.order == ask.order]
                elsewhere = [one for one in earlier if one.turn is None or one.turn != ask.turn]
                uncertain = [one for one in elsewhere if one.end is Outcome.FAILED]
                assert uncertain == [], "it ran again after an end that nobody knows"
                twins = [one for one in earlier if one.known and ask.known and one not in elsewhere]
                resumed = attempt.entry is not None and attempt.entry.attempt > 1  # was counted when it was claimed
                assert resumed or len([one for one in twins if one.end not in _NOT_RUN]) < max(1, ask.proposed)
                attempt.end(ask.end, "as told")
                # A paused call that is resumed where no turn is known is still of its own turn.
                ran.append(replace(ask, turn=attempt.entry.turn if attempt.entry is not None else None))
        except ToolSpanCommitmentError:
            continue
    assert guard.ledger.counts()[State.CLAIMED] == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(asks, max_size=12))
def test_who_observes_never_refuses(story: list[Ask]) -> None:
    guard, ran = Guard(mode="observe"), 0
    for ask in story:
        with guard.call(
            "pay", ask.call_id, {"order": ask.order}, scope="s", turn=ask.turn, proposed=ask.proposed
        ) as attempt:
            attempt.end(ask.end)
            ran += 1
    assert ran == len(story)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=8))
def test_legitimate_calls_are_never_refused(turns: list[tuple[int, int]]) -> None:
    """Turn after turn, each with some identical calls, all of which end well."""
    guard = Guard()
    for turn, (twins, order) in enumerate(turns):
        for twin in range(twins):
            call_id = f"toolu_{turn}x{twin}y"
            with guard.call("pay", call_id, {"order": order}, scope="s", turn=f"t{turn}", proposed=twins):
                pass
    assert guard.ledger.counts()[State.COMPLETED] == sum(twins for twins, _ in turns)
