# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: where each thing that can happen to an entry leads from each state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from genai_processor.errors import InvalidTransitionError
from genai_processor.ledger.conformance_bench import Bench, expect
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.requests import Outcome, Sighting

_HAPPENS: Final = (
    *("start", "returned", "awaited", "unseen", "rejected", "paused", "failed", "undeliver", "deliver", "settle"),
    *("saw completed", "saw not_started", "saw paused", "saw quarantined"),
)
"""The columns of the tables: what the guard says, what a person says, what a witness saw."""

_SHORT: Final = {
    "CL": State.CLAIMED,
    "RE": State.RETURNED,
    "CO": State.COMPLETED,
    "NS": State.NOT_STARTED,
    "PA": State.PAUSED,
    "UN": State.UNDELIVERED,
    "QU": State.QUARANTINED,
    "SE": State.SETTLED,
    "--": None,
}
"""How the tables say where it leads; ``--`` is `InvalidTransitionError`, and nothing is changed."""

_GUARDED: Final = {
    State.CLAIMED: "CL CO RE UN NS PA QU CL CL -- CL CL CL QU",
    State.RETURNED: "RE CO RE UN RE RE QU UN CO -- RE RE RE QU",
    State.COMPLETED: "CO CO CO UN CO CO QU UN CO -- CO CO CO QU",
    State.NOT_STARTED: "QU QU QU QU NS NS QU NS NS -- NS NS NS QU",
    State.PAUSED: "QU QU QU QU PA PA QU PA PA -- PA PA PA QU",
    State.UNDELIVERED: "UN UN UN UN UN UN QU UN CO SE UN UN UN QU",
    State.QUARANTINED: "QU CO UN UN NS QU QU QU QU SE QU QU QU QU",
    State.SETTLED: "SE SE SE SE SE SE SE SE SE -- SE SE SE SE",
}
_STARTED: Final = {
    State.CLAIMED: "CL CO RE UN QU PA QU CL CL -- CL CL CL QU",
    State.RETURNED: "RE CO RE UN QU RE QU UN CO -- RE RE RE QU",
    State.COMPLETED: "CO CO CO UN QU CO QU UN CO -- CO CO CO QU",
    State.PAUSED: "QU QU QU QU QU PA QU PA PA -- PA PA PA QU",
    State.UNDELIVERED: "UN UN UN UN QU UN QU UN CO SE UN UN UN QU",
    State.QUARANTINED: "QU CO UN UN QU QU QU QU QU SE QU QU QU QU",
    State.SETTLED: "SE SE SE SE SE SE SE SE SE -- SE SE SE SE",
}
_UNCERTAIN_INSIDE: Final = {State.QUARANTINED: "QU QU QU QU QU QU QU QU QU SE QU QU QU QU"}
_SEEN: Final = {
    State.COMPLETED: ".. .. .. .. .. .. .. .. .. -- CO CO CO QU",
    State.NOT_STARTED: ".. .. .. .. .. .. .. .. .. -- CO NS PA QU",
    State.PAUSED: ".. .. .. .. .. .. .. .. .. -- CO PA PA QU",
    State.QUARANTINED: ".. .. .. .. .. .. .. .. .. SE QU QU QU QU",
    State.SETTLED: ".. .. .. .. .. .. .. .. .. -- SE SE SE SE",
}


def _what_the_guard_claimed_moves_by_the_table(at: Bench) -> None:
    _follow(at, _GUARDED, lambda call_id, state: _brought(at, at.granted(call_id, digest=call_id), state))


def _what_has_begun_moves_by_the_table(at: Bench) -> None:
    def begun(call_id: str, state: State) -> Entry:
        return _brought(at, at.ledger.start(at.granted(call_id, digest=call_id)), state)

    _follow(at, _STARTED, begun)


def _what_has_an_uncertain_call_inside_moves_by_the_table(at: Bench) -> None:
    def outer(call_id: str, state: State) -> Entry:
        entry = at.granted(call_id, digest=call_id)
        at.failed(None, tool="inner", digest=call_id, turn=None, parent=entry.entry_id)
        return at.is_in(entry, state)

    _follow(at, _UNCERTAIN_INSIDE, outer)


def _what_only_witnesses_saw_moves_by_the_table(at: Bench) -> None:
    def seen(call_id: str, state: State) -> Entry:
        settled = state is State.SETTLED
        entry = at.seen(State.QUARANTINED if settled else state, call_id, digest=call_id)
        return at.settle(entry, Resolution.COMMITTED) if settled else entry

    _follow(at, _SEEN, seen)


def _follow(at: Bench, table: Mapping[State, str], make: Callable[[str, State], Entry]) -> None:
    for begin, row in table.items():
        for happens, short in zip(_HAPPENS, row.split(), strict=True):
            if short == "..":  # nobody holds what nobody claimed
                continue
            entry = make(f"toolu_{begin}-{happens}", begin)
            expected = _SHORT[short]
            try:
                _let_happen(at, entry, happens)
            except InvalidTransitionError:
                expect(expected is None, f"{begin} does not allow {happens!r}")
                expected = begin
            else:
                expect(expected is not None, f"{begin} allows {happens!r}")
            found = at.now(entry)
            expect(found.state is expected, f"{happens!r} brings {begin} to {found.state}, not to {expected}")
            if found.state is begin and happens not in set(Outcome) and not happens.startswith(("saw", "start")):
                expect(found == entry, f"{happens!r} leaves {begin} as it is, and changed {found}")


def _brought(at: Bench, entry: Entry, state: State) -> Entry:
    """Bring what is claimed to a state."""
    ends = {
        State.RETURNED: Outcome.AWAITED,
        State.COMPLETED: Outcome.RETURNED,
        State.UNDELIVERED: Outcome.RETURNED,
        State.NOT_STARTED: Outcome.REJECTED,
        State.PAUSED: Outcome.PAUSED,
        State.QUARANTINED: Outcome.FAILED,
        State.SETTLED: Outcome.FAILED,
    }
    if state in ends:
        entry = at.ledger.finish(entry, ends[state])
    if state is State.UNDELIVERED:
        entry = at.ledger.undeliver(entry)
    elif state is State.SETTLED:
        entry = at.settle(entry, Resolution.COMMITTED)
    return at.is_in(entry, state)


def _let_happen(at: Bench, entry: Entry, happens: str) -> None:
    if happens == "settle":
        at.settle(entry, Resolution.COMMITTED)
    elif happens.startswith("saw "):
        state = State(happens.removeprefix("saw "))
        at.ledger.record(Sighting(at.scope, entry.tool, state, entry_id=entry.entry_id))
    elif happens in set(Outcome):
        at.ledger.finish(entry, Outcome(happens))
    else:
        {"start": at.ledger.start, "undeliver": at.ledger.undeliver, "deliver": at.ledger.deliver}[happens](entry)


CHECKS: Final = (
    _what_the_guard_claimed_moves_by_the_table,
    _what_has_begun_moves_by_the_table,
    _what_has_an_uncertain_call_inside_moves_by_the_table,
    _what_only_witnesses_saw_moves_by_the_table,
)
