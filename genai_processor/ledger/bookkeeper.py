# SPDX-License-Identifier: Apache-2.0
"""The operations of a ledger, wherever it keeps its entries; each is one atomic operation, which the ledger sees to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from genai_processor.errors import InvalidSettlementError, InvalidTransitionError, LedgerConflictError
from genai_processor.ledger.changes import Changes
from genai_processor.ledger.claims import decide
from genai_processor.ledger.entries import IDEMPOTENT, Entry, Resolution, Settlement, State, utc
from genai_processor.ledger.keys import intent_of
from genai_processor.ledger.noted import Held
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, Returned, Sighting
from genai_processor.ledger.sightings import is_usable, place
from genai_processor.ledger.transitions import ENDS, SIGHTINGS, Event

_AWAITING: Final = frozenset({State.CLAIMED, State.RETURNED})
"""Somebody is to say more, and has a lease for as long as that takes."""


class Bookkeeper(Changes):
    """Changes entries by the rules. Not thread-safe: the ledger's lock or transaction stands around it."""

    rejected = 0
    """How many sightings could not be used."""

    def record(self, seen: Sighting) -> Held | None:
        """Join the entry that a span tells of, or make one."""
        if not is_usable(seen):
            self.rejected += 1
            return None
        now = self._clock()
        held = self.shelf.note(seen, now, self._new_id) or self._place(seen, now)
        self.shelf.evict(now)
        return held

    def record_return(self, returned: Returned) -> None:
        """Make the entry of a call that came back, or join the one that it belongs to."""
        if not (returned.scope.strip() and returned.tool.strip()):
            self.rejected += 1
            return
        now = self._clock()
        if not self.shelf.note_return(returned, now, self._new_id):
            self._place(returned.sighting(), now)
        self.shelf.evict(now)

    def _place(self, seen: Sighting, now: int) -> Held | None:
        """Join the entry that a sighting with a known key belongs to, or make one after all."""
        entry, released = place(seen, self.shelf)
        if entry is None and released is None:
            return self.shelf.note(seen, now, self._new_id, anyhow=True)
        if entry is None:
            return self._add(
                seen,
                State(seen.state),
                now,
                released,
                witnessed=1,
                reason=seen.reason,
                started_ns=now if seen.started else None,
            )
        filled: dict[str, Any] = {
            "call_id": entry.call_id or seen.call_id or None,
            "digest": entry.digest or seen.digest or None,
            "turn": entry.turn or seen.turn,
            "started_ns": entry.started_ns or (now if seen.started else None),
            "trace_id": seen.trace_id or entry.trace_id,
            "span_id": seen.span_id or entry.span_id,
            "witnessed": entry.witnessed + 1,
        }
        return self._move(entry, SIGHTINGS[State(seen.state)], now, reason=seen.reason, **filled)

    def set_digest(self, entry_id: str, digest: str) -> Entry | None:
        """Bring a digest that nobody had computed."""
        entry = self.shelf.get(entry_id) if isinstance(entry_id, str) else None
        if entry is None or entry.digest is not None or not isinstance(digest, str) or not digest:
            return entry
        now = self._clock()
        entry = self._update(entry, now, digest=digest)
        self.shelf.evict(now)
        return entry

    def claim(self, claim: Claim, observe: bool) -> Granted | Refusal:
        """Grant or refuse an attempt."""
        now = self._clock()
        shelf = self.shelf
        found = list(shelf.bearing_on(claim))
        if found and self._expire(found, now):
            found = list(shelf.bearing_on(claim))
        unknown = shelf.forgotten.tool(claim.scope, claim.tool) or (
            claim.effect != IDEMPOTENT and shelf.forgotten.call(claim)
        )
        answer = decide(claim, found, unknown=unknown)
        overruled = answer if isinstance(answer, Refusal) else None
        if overruled is not None and not observe:
            return overruled
        if isinstance(answer, Refusal):
            entry = self._claim_anew(claim, now, None, intent=None if answer.entry is None else answer.entry.intent)
        elif answer.again is not None:
            entry = self._claim_again(claim, answer.again, now)
        else:
            entry = self._claim_anew(claim, now, answer.releases)
        outer = self._enclosing(entry)
        if outer is not None:  # a body that makes a call has begun
            self._move(outer, Event.STARTED, now, started_ns=outer.started_ns or now)
        shelf.evict(now)
        return Granted(entry, overruled)

    def _claim_anew(self, claim: Claim, now: int, released: Entry | None, intent: str | None = None) -> Entry:
        if intent is None and released is None and claim.effect == IDEMPOTENT:
            intent = intent_of(claim)
        lease_expires_ns = None if claim.lease_ns is None else now + claim.lease_ns
        return self._add(
            claim,
            State.CLAIMED,
            now,
            released,
            intent=intent,
            guarded=True,
            attempt=1,
            parent=claim.parent,
            lease_expires_ns=lease_expires_ns,
        )

    def _claim_again(self, claim: Claim, entry: Entry, now: int) -> Entry:
        resumed = entry.state is State.PAUSED
        changes: dict[str, Any] = {
            "attempt": entry.attempt + 1,
            "guarded": True,
            # A person may have edited the arguments before a resume: those that nobody knows may be any.
            "digest": claim.digest if resumed else claim.digest or entry.digest,
            "turn": claim.turn or entry.turn,
            "parent": claim.parent or entry.parent,
            # An attempt that ended in doubt may have begun; no later one can prove that it did not.
            "started_ns": None if resumed else entry.started_ns or now,
            "lease_expires_ns": None if claim.lease_ns is None else now + claim.lease_ns,
        }
        return self._move(entry, Event.RESUMED, now, **changes) if resumed else self._update(entry, now, **changes)

    def start(self, held: Entry) -> Entry:
        """Mark that the body begins."""
        entry = self._held(held)
        now = self._clock()
        if held.attempt != entry.attempt:
            return self._move(entry, Event.SEEN_QUARANTINED, now, reason="stale_attempt_started")
        return self._move(entry, Event.STARTED, now, started_ns=entry.started_ns or now)

    def renew(self, held: Entry, lease_ns: int) -> Entry:
        """Put off the end of a lease."""
        entry = self.must(held.entry_id)
        # A further attempt of an idempotent tool holds its lease in whatever state the one before has left the entry.
        is_held = entry.state is State.CLAIMED or entry.lease_expires_ns is not None
        if not is_held or entry.attempt != held.attempt:
            raise InvalidTransitionError(
                f"entry {entry.entry_id} is {entry.state} at attempt {entry.attempt}; attempt {held.attempt} does not "
                "hold it any more; its effect may have committed, so let it end and do not start another"
            )
        now = self._clock()
        return self._update(entry, now, lease_expires_ns=now + lease_ns)

    def finish(self, held: Entry, outcome: Outcome, reason: str | None) -> Entry:
        """Note how an attempt ended."""
        event = ENDS[outcome]
        nothing_ran = event in (Event.REJECTED, Event.PAUSED)
        entry = self.must(held.entry_id) if nothing_ran else self._held(held)
        if held.attempt != entry.attempt:
            if nothing_ran:
                return entry
            event, reason = Event.SEEN_QUARANTINED, reason or "stale_attempt_ended"
            return self._move(entry, event, self._clock(), reason=reason, ends_body=True)
        # Who waits for the result keeps the lease. A further attempt of an idempotent tool may leave the state as it is, but
        # it leaves no lease.
        lease = entry.lease_expires_ns if event is Event.RETURNED_AWAITED and entry.state in _AWAITING else None
        return self._move(entry, event, self._clock(), reason=reason, ends_body=True, lease_expires_ns=lease)

    def undeliver(self, held: Entry) -> Entry:
        """Note that no model saw the result."""
        entry = self._held(held, ran=False)
        if entry.state is not State.COMPLETED and entry.state is not State.RETURNED:
            return entry
        return self._move(entry, Event.UNDELIVERED, self._clock())

    def deliver(self, held: Entry) -> Entry:
        """Note that a model saw the result."""
        return self._move(self.must(held.entry_id), Event.DELIVERED, self._clock())

    def expire(self) -> tuple[Entry, ...]:
        """Quarantine the claims whose lease has run out; of what had returned, the result is undelivered."""
        now, leased = self._clock(), list(self.shelf.leased())
        lost = tuple(self._expire(leased, now))
        for entry in map(self.shelf.get, [entry.entry_id for entry in leased if entry.state not in _AWAITING]):
            if entry is not None and _is_overdue(entry, now):  # a further attempt of an idempotent tool is gone
                self._update(entry, now, lease_expires_ns=None)
        return lost

    def _expire(self, entries: Iterable[Entry], now: int) -> list[Entry]:
        overdue = [  # the oldest first: of calls inside each other, each is lost for itself, whatever keeps them
            entry.entry_id
            for entry in sorted(entries, key=lambda entry: (entry.created_ns, entry.entry_id))
            if entry.state in _AWAITING and _is_overdue(entry, now)
        ]
        lost: list[Entry] = []
        for entry_id in dict.fromkeys(overdue):
            entry = self.must(entry_id)  # as it is now: the end of a call changes those that enclose it
            if entry.state in _AWAITING:
                reason = "no_end_recorded" if entry.state is State.CLAIMED else None
                lost.append(self._move(entry, Event.LOST, now, reason=reason))
        return lost

    def settle(self, entry_id: str, resolution: Resolution, who: str, note: str, version: int) -> Entry:
        """Note a person's answer."""
        if not all(isinstance(text, str) and text.strip() for text in (who, note)):
            raise InvalidSettlementError(f"entry {entry_id}: say who settles it, and on what ground; neither is blank")
        if resolution not in set(Resolution):
            raise InvalidSettlementError(f"entry {entry_id}: resolution {resolution!r} is none of {', '.join(Resolution)}")
        entry = self.must(entry_id)
        settled = _settled(entry)
        if entry.version != version:
            raise LedgerConflictError(
                f"entry {entry_id} is at version {entry.version} ({entry.state}), not at {version}; "
                "read it again before you decide" + (f"; {settled}" if settled else ""),
                entry_id=entry_id,
                expected=version,
                found=entry.version,
            )
        if settled:
            raise InvalidTransitionError(f"entry {entry_id} is settled already; {settled}")
        now = self._clock()
        settlement = Settlement(Resolution(resolution), who.strip(), note.strip(), now)
        return self._move(
            entry, Event.SETTLED, now, reason=settlement.resolution.value, who=settlement.who, settlement=settlement
        )


def _settled(entry: Entry) -> str:
    """Who has settled an entry, when, as what and on what ground; "" while nobody has."""
    if (by := entry.settlement) is None:
        return ""
    return f"{by.who} settled it as {by.resolution} on {utc(by.at_ns)}: {by.note}"


def _is_overdue(entry: Entry, now: int) -> bool:
    return entry.lease_expires_ns is not None and entry.lease_expires_ns <= now
