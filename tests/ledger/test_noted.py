# SPDX-License-Identifier: Apache-2.0
"""What is held of a call that nobody has looked at, against a ledger that makes every entry at once."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_ledger_properties import call_ids, calls, claims, digests, outcomes, scopes, tools

from genai_processor.errors import LedgerError
from genai_processor.ledger import Bounds, Claim, Entry, MemoryLedger, Outcome, Resolution, Sighting, State
from genai_processor.ledger.entries import new_entry
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.index import Index
from genai_processor.ledger.noted import entry_of
from genai_processor.ledger.requests import Returned

empty_or = {name: st.one_of(st.just(""), calls[name]) for name in ("call_id", "digest", "turn")}
sightings = st.builds(
    Sighting,
    **(calls | empty_or),
    state=st.sampled_from(["completed", *(State(s) for s in ("completed", "not_started", "paused", "quarantined"))]),
    entry_id=st.sampled_from([None, None, None, "e1", "e2"]),
    effect=st.sampled_from(["non_idempotent", "idempotent"]),
    reason=st.sampled_from([None, "succeeded"]),
    started=st.booleans(),
    trace_id=st.sampled_from([None, "ab"]),
    span_id=st.none(),
)


returned = st.builds(
    Returned,
    scope=calls["scope"] | st.just(" "),
    tool=calls["tool"] | st.just(""),
    call_id=empty_or["call_id"],
    effect=st.just("idempotent"),
    reason=st.just("succeeded"),
    trace_id=st.sampled_from([0, 0xAB]),
    span_id=st.sampled_from([0, 0xCD]),
)


class EagerLedger(MemoryLedger):
    """Holds an entry for every call."""

    def record(self, sighting: Sighting) -> Entry | None:
        entry = super().record(sighting)
        known = self._shelf._known
        for entry_id, held in known.items():
            known[entry_id] = entry_of(held)
        return entry


class LazyAgainstEager(RuleBasedStateMachine):
    """Whatever is done to the two, they say the same."""

    @initialize(entries=st.integers(1, 8), age=st.integers(1, 20), size=st.integers(1, 8))
    def begin(self, entries: int, age: int, size: int) -> None:
        self.now = 0
        bounds = Bounds(max_entries=entries, max_age_ns=age, max_bytes=size * 1150, filter_bytes=1024)
        self.lazy = MemoryLedger(bounds, clock=self.clock, new_id=self.ids())
        self.eager = EagerLedger(bounds, clock=self.clock, new_id=self.ids())

    def clock(self) -> int:
        return self.now

    def ids(self) -> Callable[[], str]:
        numbers = itertools.count(1)
        return lambda: f"e{next(numbers)}"

    def both(self, what: Callable[[MemoryLedger], Any]) -> None:
        answers: list[Any] = []
        for ledger in (self.lazy, self.eager):
            try:
                answers.append(what(ledger))
            except LedgerError as error:
                answers.append(str(error))
        assert answers[0] == answers[1]

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(seen=sightings)
    def note(self, seen: Sighting) -> None:
        entry = self.eager.record(seen)
        assert self.lazy.note(seen) == (None if entry is None else entry.entry_id)

    @rule(call=returned)
    def record_return(self, call: Returned) -> None:
        self.eager.record(call.sighting())
        self.lazy.record_return(call)

    @rule(seen=sightings)
    def record(self, seen: Sighting) -> None:
        self.both(lambda ledger: ledger.record(seen))

    @rule(claim=claims, parent=st.sampled_from([None, "e1", "e2"]), observe=st.booleans())
    def claim(self, claim: Claim, parent: str | None, observe: bool) -> None:
        self.both(lambda ledger: ledger.claim(replace(claim, parent=parent, lease_ns=3), observe=observe))

    @rule(number=st.integers(1, 20), outcome=outcomes)
    def finish(self, number: int, outcome: Outcome) -> None:
        entry = self.eager.get(f"e{number}")
        if entry is not None:
            self.both(lambda ledger: ledger.finish(entry, outcome))

    @rule(number=st.integers(1, 20))
    def undeliver(self, number: int) -> None:
        entry = self.eager.get(f"e{number}")
        if entry is not None:
            self.both(lambda ledger: ledger.undeliver(entry))

    @rule(number=st.integers(1, 20), resolution=st.sampled_from(Resolution))
    def settle(self, number: int, resolution: Resolution) -> None:
        self.both(lambda ledger: ledger.settle(f"e{number}", resolution, who="ann", note="n", version=1))

    @rule(number=st.integers(1, 20), digest=digests)
    def set_digest(self, number: int, digest: Any) -> None:
        self.both(lambda ledger: ledger.set_digest(f"e{number}", digest))

    @rule()
    def expire(self) -> None:
        self.both(lambda ledger: ledger.expire())

    @rule(scope=scopes, tool=tools, digest=digests, call_id=call_ids)
    def look(self, scope: str, tool: str, digest: str | None, call_id: str | None) -> None:
        self.both(lambda ledger: ledger.by_action(scope, tool, digest))
        self.both(lambda ledger: ledger.by_call(scope, call_id or ""))

    @invariant()
    def the_two_agree(self) -> None:
        self.both(lambda ledger: ledger.stats())
        self.both(lambda ledger: ledger.counts())
        self.both(lambda ledger: ledger.pending())
        assert list(self.lazy._shelf._known) == list(self.eager._shelf._known)
        for held in self.eager._shelf.everything():
            assert isinstance(held, Entry)
            assert self.lazy.get(held.entry_id) == held


TestLazyAgainstEager = LazyAgainstEager.TestCase
TestLazyAgainstEager.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)


def test_a_call_that_ended_well_is_held_as_its_sighting_and_shown_as_an_entry(ledger: MemoryLedger) -> None:
    seen = Sighting("s", "refund", State.COMPLETED, call_id="a1b2", digest="", started=True)
    assert ledger.note(seen) == "e1"
    assert not isinstance(ledger._shelf._known["e1"], Entry)
    entry = ledger.get("e1")
    assert entry == Entry(
        "e1", "s", "refund", State.COMPLETED, 1, 1_000, 1_000, "a1b2", intent="e1", witnessed=1, started_ns=1_000
    )
    assert ledger.by_call("s", "a1b2") == ledger.by_action("s", "refund", None) == (entry,)


def test_many_calls_of_one_action_are_held_so_too(ledger: MemoryLedger) -> None:
    for number in range(3):
        ledger.note(Sighting("s", "refund", State.COMPLETED, call_id=f"c{number}x", digest="d"))
    assert not [held for held in ledger._shelf.everything() if isinstance(held, Entry)]
    assert [entry.entry_id for entry in ledger.by_action("s", "refund", "d")] == ["e1", "e2", "e3"]


def test_a_call_that_came_back_is_shown_as_an_entry(ledger: MemoryLedger) -> None:
    ledger.record_return(Returned("s", "refund", "a1b2", "idempotent", "succeeded", 0xAB, 0xCD))
    assert not isinstance(ledger._shelf._known["e1"], Entry)
    assert ledger.by_call("s", "a1b2") == (entry := ledger.get("e1"),)
    assert entry is not None
    assert (entry.state, entry.reason, entry.span_id, entry.digest) == (State.COMPLETED, "succeeded", f"{0xCD:016x}", None)


def test_to_note_is_to_record(ledger: MemoryLedger) -> None:
    assert ledger.note(Sighting("", "refund", State.COMPLETED)) is None
    assert ledger.note(Sighting("s", "refund", State.QUARANTINED, call_id="a1b2")) == "e1"
    assert ledger.note(Sighting("s", "refund", State.COMPLETED, call_id="a1b2")) == "e1"
    entry = ledger.get("e1")
    assert entry is not None
    assert (entry.state, entry.witnessed) == (State.QUARANTINED, 2)


def test_what_there_was_no_room_for_is_returned_all_the_same(new_ledger: Callable[..., MemoryLedger]) -> None:
    ledger = new_ledger(max_bytes=100)
    entry = ledger.record(Sighting("s", "refund", State.COMPLETED))
    assert entry is not None
    assert ledger.get(entry.entry_id) is None


def test_a_sighting_is_frozen_and_has_defaults() -> None:
    seen: Any = Sighting(scope="s", tool="refund", state=State.COMPLETED)
    assert (seen.call_id, seen.effect, seen.started) == (None, "non_idempotent", False)
    with pytest.raises(AttributeError):
        seen.scope = "other"


def test_a_new_entry_is_an_entry() -> None:
    values = ("e1", "s", "refund", State.COMPLETED, 1, 1_000, 1_000)
    entry: Any = new_entry(*values, reason="succeeded")
    assert type(entry) is Entry
    assert entry == Entry(*values, reason="succeeded")
    assert hash(entry) == hash(Entry(*values, reason="succeeded"))
    assert entry.changed(version=2) == replace(entry, version=2)
    assert [getattr(entry, field.name) for field in fields(Entry)][:7] == list(values)
    for changed in (entry, entry.changed(version=2)):
        with pytest.raises(FrozenInstanceError):
            changed.version = 3
    with pytest.raises(TypeError):
        new_entry(*values, nonsense=1)


def test_an_index_holds_one_id_or_several_in_order() -> None:
    index: Index[str] = Index()
    for number in range(3):
        index.add("k", f"e{number}")
    index.add("other", "e9")
    assert (index.ids("k"), index.ids("other"), index.ids("none")) == (("e0", "e1", "e2"), ("e9",), ())
    index.remove("k", "e1")
    index.add("k", "e1")
    assert index.ids("k") == ("e0", "e2", "e1")
    for entry_id in ("e0", "e1", "e2"):
        index.remove("k", entry_id)
    index.remove("other", "e9")
    assert not index


def test_ids_do_not_repeat_whatever_is_done_to_the_common_generator() -> None:
    found: set[str] = set()
    for _ in range(100):
        random.seed(1)
        found.add(random_id())
    assert len(found) == 100
    assert {len(entry_id) for entry_id in found} == {32}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forks_make_other_ids_than_their_parent_and_their_siblings() -> None:
    found: list[str] = []
    for _ in range(3):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:  # the child may only leave by os._exit
            os.write(writing, random_id().encode())
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as answer:
            found.append(answer.read().decode())
        os.waitpid(pid, 0)
    assert len({*found, random_id()}) == 4
