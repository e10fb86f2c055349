# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from ledger_helpers import held

from genai_processor.ledger import (
    Claim,
    Entry,
    Granted,
    Ledger,
    MemoryLedger,
    Outcome,
    Resolution,
    Sighting,
    State,
)


def seen(state: str = "completed", **more: Any) -> Sighting:
    return Sighting(**({"scope": "s", "tool": "refund", "state": State(state)} | more))


def record(ledger: MemoryLedger, state: str = "completed", **more: Any) -> Entry:
    entry = ledger.record(seen(state, **more))
    assert entry is not None
    return entry


def test_it_is_a_ledger(ledger: MemoryLedger) -> None:
    assert isinstance(ledger, Ledger)


def test_a_first_sighting_makes_an_entry(ledger: MemoryLedger) -> None:
    entry = record(ledger, "quarantined", call_id="a1b2", digest="d", reason="commitment_marker", span_id="01")
    assert (entry.entry_id, entry.state, entry.version, entry.created_ns) == ("e1", State.QUARANTINED, 1, 1_000)
    assert (entry.reason, entry.span_id, entry.witnessed, entry.intent) == ("commitment_marker", "01", 1, "e1")
    assert ledger.get("e1") == entry


def test_ids_are_random_by_default() -> None:
    one, two = record(MemoryLedger()), record(MemoryLedger())
    assert one.entry_id != two.entry_id
    assert len(one.entry_id) == 32


def test_the_same_call_id_is_the_same_entry(ledger: MemoryLedger) -> None:
    record(ledger, call_id="a1b2")
    again = record(ledger, "quarantined", call_id="a1b2", digest="d", reason="late_child")
    assert (again.entry_id, again.state, again.witnessed, again.version) == ("e1", State.QUARANTINED, 2, 2)
    assert again.digest == "d"
    assert [(c.before, c.after, c.reason) for c in again.history] == [(State.COMPLETED, State.QUARANTINED, "late_child")]


def test_a_later_success_does_not_lift_a_quarantine(ledger: MemoryLedger) -> None:
    record(ledger, "quarantined", call_id="a1b2")
    assert record(ledger, "completed", call_id="a1b2").state is State.QUARANTINED
    assert record(ledger, "not_started", call_id="a1b2").state is State.QUARANTINED


def test_without_an_id_the_action_is_the_key(ledger: MemoryLedger) -> None:
    record(ledger, digest="d")
    assert record(ledger, "quarantined", digest="d").entry_id == "e1"
    assert record(ledger, digest="other").entry_id == "e2"


def test_an_id_seen_by_one_view_and_not_by_the_other_is_one_call(ledger: MemoryLedger) -> None:
    record(ledger, digest="d")
    assert record(ledger, call_id="a1b2", digest="d").entry_id == "e1"
    assert [e.entry_id for e in ledger.by_call("s", "a1b2")] == ["e1"]
    assert record(ledger, call_id="c3d4", digest="d").entry_id == "e2"


def test_with_neither_every_sighting_is_a_call_of_its_own(ledger: MemoryLedger) -> None:
    assert [record(ledger).entry_id, record(ledger).entry_id] == ["e1", "e2"]


@pytest.mark.parametrize("other", [{"scope": "s2"}, {"tool": "mail"}, {"digest": "d2"}])
def test_one_id_under_another_scope_tool_or_argument_set_is_another_call(
    ledger: MemoryLedger, other: dict[str, str]
) -> None:
    record(ledger, "quarantined", call_id="a1b2", digest="d1")
    assert record(ledger, **({"call_id": "a1b2", "digest": "d1"} | other)).entry_id == "e2"


def test_an_id_that_every_turn_has_means_nothing_in_another_turn(ledger: MemoryLedger) -> None:
    record(ledger, "quarantined", call_id="call_0", turn="t1")
    assert record(ledger, call_id="call_0", turn="t2").entry_id == "e2"
    assert record(ledger, call_id="call_0", turn="t1").entry_id == "e1"


def test_a_named_entry_is_joined_whatever_the_keys(ledger: MemoryLedger) -> None:
    record(ledger)
    assert record(ledger, "quarantined", entry_id="e1", call_id="a1b2").entry_id == "e1"
    assert record(ledger, entry_id="gone", call_id="x9y8").entry_id == "e2"


def test_a_witness_joins_what_the_guard_claimed_and_leaves_the_end_to_it(ledger: MemoryLedger) -> None:
    granted = ledger.claim(Claim("s", "refund", call_id="a1b2", digest="d", turn="t1"))
    assert isinstance(granted, Granted)
    entry = record(ledger, "completed", call_id="a1b2")
    assert (entry.entry_id, entry.state, entry.guarded) == (granted.entry.entry_id, State.CLAIMED, True)
    assert record(ledger, "quarantined", call_id="a1b2").state is State.QUARANTINED
    assert ledger.finish(held(ledger, entry.entry_id), Outcome.RETURNED).state is State.COMPLETED


def test_a_settled_call_seen_again_is_a_new_attempt_and_uses_the_release(ledger: MemoryLedger) -> None:
    old = record(ledger, "quarantined", call_id="a1b2")
    ledger.settle("e1", Resolution.NOT_COMMITTED, who="ann", note="asked the bank", version=old.version)
    new = record(ledger, "quarantined", call_id="a1b2")
    assert (new.entry_id, new.released_by) == ("e2", "e1")
    settled = ledger.get("e1")
    assert settled is not None
    assert (settled.state, settled.released_to, settled.releases) == (State.SETTLED, "e2", False)
    # and evidence that names the settled entry changes no answer that a person has given
    assert record(ledger, "quarantined", entry_id="e1").state is State.SETTLED


def test_a_digest_may_come_later_and_is_never_replaced(ledger: MemoryLedger) -> None:
    record(ledger, call_id="a1b2")
    assert [e.entry_id for e in ledger.by_action("s", "refund", None)] == ["e1"]
    with_digest = ledger.set_digest("e1", "d1")
    assert with_digest is not None
    assert (with_digest.digest, with_digest.state) == ("d1", State.COMPLETED)
    assert ledger.by_action("s", "refund", None) == ()
    assert ledger.by_action("s", "refund", "d1") == (with_digest,)
    assert ledger.set_digest("e1", "d2") == with_digest
    assert ledger.set_digest("nobody", "d") is None


def test_look_ups_are_in_order_of_time(ledger: MemoryLedger, clock: Any) -> None:
    for call_id in ("x1y", "x2y"):
        clock.now += 1
        record(ledger, call_id=call_id)
    ledger.set_digest("e2", "d")
    ledger.set_digest("e1", "d")
    assert [e.entry_id for e in ledger.by_action("s", "refund", "d")] == ["e1", "e2"]


ODD: list[Any] = [
    {"scope": ""},
    {"scope": None},
    {"scope": ["unhashable"]},
    {"tool": "  "},
    {"tool": 7},
    {"state": State.CLAIMED},
    {"state": "nonsense"},
    {"state": []},
    {"call_id": ["x"]},
    {"digest": b"d"},
    {"turn": 1},
    {"entry_id": {}},
    {"reason": 7},
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_input_is_counted_and_never_raises(ledger: MemoryLedger, odd: dict[str, Any]) -> None:
    values: dict[str, Any] = {"scope": "s", "tool": "t", "state": State.COMPLETED} | odd
    assert ledger.record(Sighting(**values)) is None
    assert (ledger.stats().rejected, ledger.stats().entries) == (1, 0)


def test_not_even_a_sighting_is_odd_input_too(ledger: MemoryLedger) -> None:
    nothing: Any = None
    assert ledger.record(nothing) is None
    assert ledger.set_digest(nothing, nothing) is None


def test_counts_know_every_state(ledger: MemoryLedger) -> None:
    record(ledger, "quarantined", call_id="a1b2")
    record(ledger, call_id="c3d4")
    assert ledger.counts() == dict.fromkeys(State, 0) | {State.QUARANTINED: 1, State.COMPLETED: 1}


def test_no_field_of_an_entry_can_hold_arguments() -> None:
    assert not [f.name for f in fields(Entry) if "argument" in f.name or "result" in f.name]


FAILED = {"state": "quarantined", "call_id": "call_0"}


@pytest.mark.parametrize("digest", [None, "d"], ids=["content off", "content on"])
@pytest.mark.parametrize("call_id", ["call_0", "functions.refund:0", "refund_1"])
def test_an_id_that_counts_calls_joins_only_within_a_trace(ledger: MemoryLedger, call_id: str, digest: str | None) -> None:
    for trace in ("t1", "t2", "t3"):
        record(ledger, "quarantined", call_id=call_id, trace_id=trace, digest=digest)
    first = record(ledger, "quarantined", call_id=call_id, trace_id="t1", digest=digest, reason="late_child")
    assert first.entry_id == "e1"
    pending = ledger.pending().entries
    assert [entry.trace_id for entry in pending] == ["t1", "t2", "t3"], "three payments to look at"
    ledger.settle("e1", Resolution.COMMITTED, who="me", note="paid", version=first.version)
    assert len(ledger.pending().entries) == 2


def test_an_id_that_counts_calls_joins_within_a_turn(ledger: MemoryLedger) -> None:
    record(ledger, "quarantined", call_id="call_0", trace_id="t1", turn="r1")
    assert record(ledger, call_id="call_0", trace_id="t2", turn="r1").entry_id == "e1"
    assert record(ledger, call_id="call_0", trace_id="t1", turn="r2").entry_id == "e2"
    assert record(ledger, call_id="call_0").entry_id == "e3", "no turn, no trace: nobody can tell"
    assert record(ledger, call_id="call_0").entry_id == "e4"


def test_many_calls_of_one_counting_id_are_told_of_in_constant_time() -> None:
    ledger = MemoryLedger()
    steps = [steps_of(lambda n=number: ledger.note(seen(call_id="call_0", trace_id=f"t{n}"))) for number in range(5_000)]
    assert max(steps[4_000:]) < 2 * max(steps[100:1_000])
    assert len(ledger.by_call("s", "call_0")) == 5_000


def steps_of(function: Callable[[], object]) -> int:
    """How many calls it takes, of functions in Python and in C."""
    taken = itertools.count()
    sys.setprofile(lambda frame, event, argument: next(taken))
    try:
        function()
    finally:
        sys.setprofile(None)
    return next(taken)
