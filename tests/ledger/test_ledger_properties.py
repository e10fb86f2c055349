# SPDX-License-Identifier: Apache-2.0
"""Random walks: a ledger against a naive one, and a bounded ledger against one that forgets nothing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule
from ledger_helpers import held

from genai_processor.errors import UnknownEntryError
from genai_processor.ledger import (
    Bounds,
    Claim,
    Entry,
    Event,
    Granted,
    MemoryLedger,
    Outcome,
    Refusal,
    RefusalReason,
    Resolution,
    Sighting,
    State,
    decide,
    next_state,
)
from genai_processor.ledger.transitions import ENDS, SIGHTINGS

scopes = st.sampled_from(["s1", "s2"])
tools = st.sampled_from(["refund", "mail"])
call_ids = st.sampled_from([None, "a1b2", "c3d4", "call_0"])
digests = st.sampled_from([None, "d1", "d2"])
turns = st.sampled_from([None, "t1", "t2"])
effects = st.sampled_from(["non_idempotent", "non_idempotent", "idempotent", "read_only"])
calls: dict[str, Any] = {"scope": scopes, "tool": tools, "call_id": call_ids, "digest": digests, "turn": turns}
unsaid = dict.fromkeys(["entry_id", "reason", "trace_id", "span_id"], st.none()) | {"effect": st.just("non_idempotent")}
sightings = st.builds(Sighting, **calls, **unsaid, state=st.sampled_from(sorted(SIGHTINGS)), started=st.booleans())
claims = st.builds(Claim, **calls, effect=effects, proposed=st.integers(1, 2))
outcomes = st.sampled_from(Outcome)
resolutions = st.sampled_from(Resolution)
Pair = tuple[Entry, Entry]


class AgainstANaiveLedger(RuleBasedStateMachine):
    """The naive ledger is a list that is scanned; it knows states only, and takes the rules from the pure functions."""

    entries = Bundle("entries")

    @initialize()
    def begin(self) -> None:
        self.ids = (f"e{n}" for n in itertools.count())
        self.now = 0
        self.ledger = MemoryLedger(clock=lambda: self.now, new_id=lambda: next(self.ids))
        self.states: dict[str, State] = {}
        self.uncertain: set[str] = set()  # entries told of by a child

    def all(self) -> list[Entry]:
        found = [self.ledger.get(entry_id) for entry_id in self.states]
        assert None not in found
        return [entry for entry in found if entry is not None]

    def expect(self, entry: Entry, event: Event, *, started: bool = False) -> None:
        after = next_state(
            self.states[entry.entry_id],
            event,
            started=started,
            child_uncertain=entry.child_uncertain,
            guarded=entry.guarded,
        )
        assert after is not None
        newly = after is State.QUARANTINED and self.states[entry.entry_id] is not State.QUARANTINED
        self.states[entry.entry_id] = after
        if newly and entry.parent in self.states and entry.parent not in self.uncertain:
            outer = self.ledger.get(entry.parent)
            assert outer is not None
            if self.states[entry.parent] is not State.SETTLED:
                self.uncertain.add(entry.parent)
                self.expect(outer, Event.SEEN_QUARANTINED)

    @rule(seconds=st.integers(0, 5))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(target=entries, seen=sightings, unseen=st.booleans())
    def record(self, seen: Sighting, unseen: bool) -> Any:
        before = {entry.entry_id: entry for entry in self.all()}
        entry = self.ledger.get(self.ledger.note(seen) or "") if unseen else self.ledger.record(seen)
        assert entry is not None
        if entry.entry_id in before:
            old = before[entry.entry_id]
            assert (old.scope, old.tool) == (seen.scope, seen.tool)
            assert old.state is not State.SETTLED
            assert None in (old.digest, seen.digest) or old.digest == seen.digest
            self.expect(old, SIGHTINGS[seen.state], started=old.started_ns is not None)
            return multiple()
        if seen.call_id == "a1b2":  # no entry that it would have had to join was passed over
            assert not [
                e
                for e in before.values()
                if (e.scope, e.tool, e.call_id) == (seen.scope, seen.tool, seen.call_id)
                and e.state is not State.SETTLED
                and (None in (e.digest, seen.digest) or e.digest == seen.digest)
            ]
        self.states[entry.entry_id] = seen.state
        return entry.entry_id

    @rule(target=entries, claim=claims, observe=st.booleans())
    def claim(self, claim: Claim, observe: bool) -> Any:
        return self._claim(claim, observe)

    @rule(target=entries, claim=claims, parent=entries)
    def claim_inside(self, claim: Claim, parent: str) -> Any:
        outer = self.ledger.get(parent)
        assert outer is not None
        return self._claim(Claim(outer.scope, claim.tool, claim.call_id, claim.digest, claim.turn, parent=parent), False)

    def _claim(self, claim: Claim, observe: bool) -> Any:
        expected = decide(claim, self.all())  # of everything, not of what an index found
        before = self.ledger.get(claim.parent) if claim.parent else None
        answer = self.ledger.claim(claim, observe=observe)
        if isinstance(answer, Refusal):
            assert answer == expected
            assert not observe
            return multiple()
        entry = answer.entry
        assert answer.overruled == (expected if isinstance(expected, Refusal) else None)
        if entry.entry_id in self.states:
            assert not isinstance(expected, Refusal)
            assert expected.again is not None
            assert expected.again.entry_id == entry.entry_id
            if self.states[entry.entry_id] is State.PAUSED:
                self.states[entry.entry_id] = State.CLAIMED
            result: Any = multiple()
        else:
            self.states[entry.entry_id] = State.CLAIMED
            result = entry.entry_id
        if before is not None and before.entry_id != entry.entry_id:
            self.expect(before, Event.STARTED)
        return result

    @rule(entry_id=entries, outcome=outcomes, stale=st.integers(0, 3))
    def finish(self, entry_id: str, outcome: Outcome, stale: int) -> None:
        entry = self.ledger.get(entry_id)
        assert entry is not None
        attempt = entry.attempt if stale else entry.attempt - 1
        self.ledger.finish(held(self.ledger, entry_id, attempt), outcome)
        if stale:
            self.expect(entry, ENDS[outcome], started=entry.started_ns is not None)
        elif outcome not in (Outcome.REJECTED, Outcome.PAUSED):
            self.expect(entry, Event.SEEN_QUARANTINED)

    @rule(entry_id=entries)
    def undeliver(self, entry_id: str) -> None:
        self.ledger.undeliver(held(self.ledger, entry_id))
        if self.states[entry_id] in (State.COMPLETED, State.RETURNED):
            self.states[entry_id] = State.UNDELIVERED

    @rule(entry_id=entries, digest=st.sampled_from(["d1", "d2"]))
    def set_digest(self, entry_id: str, digest: str) -> None:
        before = self.ledger.get(entry_id)
        after = self.ledger.set_digest(entry_id, digest)
        assert before is not None
        assert after is not None
        assert after.digest == (before.digest or digest)

    @rule(entry_id=entries, resolution=resolutions)
    def settle(self, entry_id: str, resolution: Resolution) -> None:
        entry = self.ledger.get(entry_id)
        assert entry is not None
        if entry.pending:
            after = self.ledger.settle(entry_id, resolution, who="ann", note="n", version=entry.version)
            self.states[entry_id] = State.SETTLED
            assert after.releases == (resolution is Resolution.NOT_COMMITTED)

    @invariant()
    def the_two_agree(self) -> None:
        entries = self.all()
        assert {e.entry_id: e.state for e in entries} == self.states
        counts = Counter(self.states.values())
        assert self.ledger.counts() == {state: counts[state] for state in State}
        in_order = sorted(entries, key=lambda e: (e.created_ns, e.entry_id))
        assert list(self.ledger.pending().entries) == [e for e in in_order if e.pending]
        for scope, tool in itertools.product(["s1", "s2"], ["refund", "mail"]):
            for digest in (None, "d1", "d2"):
                found = [e for e in entries if (e.scope, e.tool, e.digest) == (scope, tool, digest)]
                assert {e.entry_id for e in self.ledger.by_action(scope, tool, digest)} == {e.entry_id for e in found}
            for call_id in ("a1b2", "c3d4", "call_0"):
                found = [e for e in entries if (e.scope, e.call_id) == (scope, call_id)]
                assert {e.entry_id for e in self.ledger.by_call(scope, call_id)} == {e.entry_id for e in found}

    @invariant()
    def a_release_is_used_once(self) -> None:
        users = Counter(e.released_by for e in self.all() if e.released_by and e.state is not State.NOT_STARTED)
        for entry in self.all():
            if entry.released_to is not None:
                assert entry.resolution is Resolution.NOT_COMMITTED
        assert all(entry_id in self.states for entry_id in users)


class ForgettingGrantsNothing(RuleBasedStateMachine):
    """Whatever a bounded ledger grants, one that forgets nothing grants as well.

    But for an idempotent tool: that one runs more often than its turn proposed is no harm, and may be forgotten.
    """

    seen = Bundle("seen")
    held = Bundle("held")  # what a guard was granted: only of these it speaks

    @initialize(entries=st.integers(1, 4), tools=st.integers(1, 4), age=st.integers(1, 10))
    def begin(self, entries: int, tools: int, age: int) -> None:
        self.now = 0
        small = Bounds(max_entries=entries, max_unknown_tools=tools, max_age_ns=age, filter_bytes=1024)
        ids = itertools.count()
        self.small = MemoryLedger(small, clock=lambda: self.now, new_id=lambda: f"small{next(ids):06}")
        self.whole = MemoryLedger(clock=lambda: self.now, new_id=lambda: f"whole{next(ids):06}")

    @rule(seconds=st.integers(0, 5))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(target=seen, seen=sightings)
    def record(self, seen: Sighting) -> Pair:
        small, whole = self.small.record(seen), self.whole.record(seen)
        assert small is not None
        assert whole is not None
        return small, whole

    @rule(target=held, claim=claims)
    def claim(self, claim: Claim) -> Any:
        return self._claim(claim, claim)

    @rule(target=held, claim=claims, outer=held)
    def claim_inside(self, claim: Claim, outer: Pair) -> Any:
        small, whole = (replace(claim, scope=entry.scope, parent=entry.entry_id) for entry in outer)
        return self._claim(small, whole)

    def _claim(self, for_small: Claim, for_whole: Claim) -> Any:
        small = self.small.claim(for_small)
        if isinstance(small, Refusal):  # then it does not run, and nobody has to know of it
            return multiple()
        whole = self.whole.claim(for_whole, observe=True)
        assert isinstance(whole, Granted)
        if whole.overruled is not None:
            # An idempotent tool does no harm under an id that it has seen, whatever became of the first attempt.
            assert for_whole.effect == "idempotent", whole
            assert whole.overruled.reason in (
                RefusalReason.TURN_EXCEEDED,
                RefusalReason.CALL_REPEATED,
                RefusalReason.ACTION_IN_FLIGHT,
                RefusalReason.ACTION_QUARANTINED,
            ), whole
        return small.entry, whole.entry

    @rule(pair=held, outcome=outcomes)
    def finish(self, pair: Pair, outcome: Outcome) -> None:
        for ledger, entry in zip((self.small, self.whole), pair, strict=True):
            self._tell(ledger, entry, lambda ledger, entry: ledger.finish(entry, outcome))

    @rule(pair=held)
    def undeliver(self, pair: Pair) -> None:
        for ledger, entry in zip((self.small, self.whole), pair, strict=True):
            self._tell(ledger, entry, MemoryLedger.undeliver)

    @rule(pair=held)
    def start(self, pair: Pair) -> None:
        for ledger, entry in zip((self.small, self.whole), pair, strict=True):
            self._tell(ledger, entry, MemoryLedger.start)

    def _tell(self, ledger: MemoryLedger, entry: Entry, what: Callable[[MemoryLedger, Entry], Entry]) -> None:
        try:
            what(ledger, entry)
        except UnknownEntryError:
            assert ledger is self.small

    @rule(pair=seen | held, resolution=resolutions)
    def settle(self, pair: Pair, resolution: Resolution) -> None:
        small, whole = self.small.get(pair[0].entry_id), self.whole.get(pair[1].entry_id)
        assert whole is not None
        if small is not None and small.pending and whole.pending:
            for ledger, entry in ((self.small, small), (self.whole, whole)):
                ledger.settle(entry.entry_id, resolution, who="ann", note="n", version=entry.version)

    @invariant()
    def it_keeps_its_bounds(self) -> None:
        stats = self.small.stats()
        assert stats.entries <= self.small._shelf.bounds.max_entries
        assert stats.unknown_tools <= self.small._shelf.bounds.max_unknown_tools


TestAgainstANaiveLedger = AgainstANaiveLedger.TestCase
TestAgainstANaiveLedger.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestForgettingGrantsNothing = ForgettingGrantsNothing.TestCase
TestForgettingGrantsNothing.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
