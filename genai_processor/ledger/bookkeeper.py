# SPDX-License-Identifier: Apache-2.0
"""The operations of a `MemoryLedger`, each of which the ledger runs under its lock, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from genai_processor.errors import (
    InvalidSettlementError,
    InvalidTransitionError,
    LedgerConflictError,
    UnknownEntryError,
)
from genai_processor.ledger.claims import decide
from genai_processor.ledger.entries import IDEMPOTENT, Change, Entry, Resolution, Settlement, State
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, Sighting
from genai_processor.ledger.shelf import Bounds, Shelf
from genai_processor.ledger.sightings import is_usable, place
from genai_processor.ledger.transitions import ENDS, SIGHTINGS, Event, next_state

_HISTORY: Final = 50


class Bookkeeper:
    """Changes the entries of a shelf by the rules. Not thread-safe: the ledger's lock stands around it."""

    def __init__(self, bounds: Bounds, clock: Callable[[], int], new_id: Callable[[], str]) -> None:
        """Begin with an empty shelf."""
        self.shelf = Shelf(bounds)
        self.rejected = 0
        self._clock = clock
        self._new_id = new_id

    def record(self, seen: Sighting) -> Entry | None:
        """Join the entry that a span tells of, or make one."""
        if not is_usable(seen):
            self.rejected += 1
            return None
        now = self._clock()
        entry, released = place(seen, self.shelf)
        if entry is None:
            entry = self._add(
                seen,
                State(seen.state),
                now,
                released,
                witnessed=1,
                reason=seen.reason,
                started_ns=now if seen.started else None,
            )
        else:
            filled: dict[str, Any] = {
                "call_id": entry.call_id or seen.call_id or None,
                "digest": entry.digest or seen.digest or None,
                "turn": entry.turn or seen.turn,
                "started_ns": entry.started_ns or (now if seen.started else None),
                "trace_id": seen.trace_id or entry.trace_id,
                "span_id": seen.span_id or entry.span_id,
                "witnessed": entry.witnessed + 1,
            }
            entry = self._move(entry, SIGHTINGS[State(seen.state)], now, reason=seen.reason, **filled)
        self.shelf.evict(now)
        return entry

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
        self._expire(shelf.bearing_on(claim), now)
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
            "digest": claim.digest or entry.digest,  # a person may have edited the arguments before a resume
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
        if entry.state is not State.CLAIMED or entry.attempt != held.attempt:
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
        return self._move(entry, event, self._clock(), reason=reason)

    def undeliver(self, held: Entry) -> Entry:
        """Note that no model saw the result."""
        entry = self._held(held)
        if entry.state is not State.COMPLETED:
            return entry
        return self._move(entry, Event.UNDELIVERED, self._clock())

    def expire(self) -> tuple[Entry, ...]:
        """Quarantine the claims whose lease has run out."""
        return tuple(self._expire(self.shelf.open_entries(), self._clock()))

    def _expire(self, entries: Iterable[Entry], now: int) -> list[Entry]:
        overdue = [
            entry.entry_id
            for entry in entries
            if entry.state is State.CLAIMED and entry.lease_expires_ns is not None and entry.lease_expires_ns <= now
        ]
        lost: list[Entry] = []
        for entry_id in dict.fromkeys(overdue):
            entry = self.must(entry_id)  # as it is now: the end of a call changes those that enclose it
            if entry.state is State.CLAIMED:
                lost.append(self._move(entry, Event.LOST, now, reason="no_end_recorded"))
        return lost

    def settle(self, entry_id: str, resolution: Resolution, who: str, note: str, version: int) -> Entry:
        """Note a person's answer."""
        if not who.strip() or not note.strip():
            raise InvalidSettlementError(f"entry {entry_id}: say who settles it, and on what ground; neither is blank")
        if resolution not in set(Resolution):
            raise InvalidSettlementError(
                f"entry {entry_id}: resolution {resolution!r} is none of {', '.join(Resolution)}"
            )
        entry = self.must(entry_id)
        if entry.version != version:
            raise LedgerConflictError(
                f"entry {entry_id} is at version {entry.version} ({entry.state}), not {version} any more; "
                "read it again before you decide",
                entry_id=entry_id,
                expected=version,
                found=entry.version,
            )
        now = self._clock()
        settlement = Settlement(Resolution(resolution), who.strip(), note.strip(), now)
        return self._move(
            entry, Event.SETTLED, now, reason=settlement.resolution.value, who=settlement.who, settlement=settlement
        )

    def must(self, entry_id: str) -> Entry:
        """Return an entry.

        Raises:
            UnknownEntryError: There is none.
        """
        entry = self.shelf.get(entry_id)
        if entry is None:
            raise UnknownEntryError(
                f"the ledger has no entry {entry_id!r}: never made here, or evicted; "
                "if a tool ran under it, its effect may have committed"
            )
        return entry

    def _held(self, held: Entry) -> Entry:
        """Return an entry as it is now; if it was evicted, the news of it at least makes its tool unknown."""
        if self.shelf.get(held.entry_id) is None:
            self.shelf.forgotten.add_tool(held.scope, held.tool)
        return self.must(held.entry_id)

    def _add(
        self,
        call: Sighting | Claim,
        state: State,
        now: int,
        released: Entry | None,
        *,
        intent: str | None = None,
        **facts: Any,
    ) -> Entry:
        """Make an entry; if a person released an attempt for it, use that up."""
        entry_id = self._new_id()
        entry = Entry(
            entry_id,
            call.scope,
            call.tool,
            state,
            version=1,
            created_ns=now,
            updated_ns=now,
            call_id=call.call_id or None,
            digest=call.digest or None,
            turn=call.turn or None,
            intent=intent or (entry_id if released is None else released.intent),
            effect=call.effect,
            trace_id=call.trace_id,
            span_id=call.span_id,
            released_by=None if released is None else released.entry_id,
            **facts,
        )
        if released is not None:
            self._update(released, now, released_to=entry_id)
        self.shelf.add(entry)
        return entry

    def _update(self, entry: Entry, now: int, **changes: Any) -> Entry:
        """Change an entry without moving it."""
        changed = entry.changed(version=entry.version + 1, updated_ns=now, **changes)
        self.shelf.replace(entry, changed)
        return changed

    def _move(
        self, entry: Entry, event: Event, now: int, *, reason: str | None = None, who: str | None = None, **changes: Any
    ) -> Entry:
        """Let an event happen to an entry, and to the entries around it."""
        state = next_state(
            entry.state,
            event,
            started=entry.started_ns is not None,
            child_uncertain=entry.child_uncertain,
            guarded=entry.guarded,
        )
        if state is None:
            raise InvalidTransitionError(
                f"entry {entry.entry_id} (tool {entry.tool}) is {entry.state}, which does not allow {event}; "
                "only quarantined and undelivered entries can be settled"
            )
        if state is entry.state:
            changed = any(getattr(entry, name) != value for name, value in changes.items())
            return self._update(entry, now, **changes) if changed else entry
        change = Change(now, entry.state, state, event.value, reason, who)
        changes["history"] = (*entry.history, change)[-_HISTORY:]
        if state is not State.CLAIMED:
            changes["lease_expires_ns"] = None
        entry = self._update(entry, now, state=state, reason=reason, **changes)
        if state is State.QUARANTINED:
            self._tell_enclosing(entry, now)
        elif state is State.NOT_STARTED:
            self._give_back(entry, now)
        return entry

    def _tell_enclosing(self, entry: Entry, now: int) -> None:
        """Quarantine the call that this one was made in; its own good end cannot lift that."""
        outer = self._enclosing(entry)
        if outer is not None and not outer.child_uncertain and outer.state is not State.SETTLED:
            facts: dict[str, Any] = {"child_uncertain": True, "started_ns": outer.started_ns or now}
            self._move(outer, Event.SEEN_QUARANTINED, now, reason="nested_uncertain", **facts)

    def _enclosing(self, entry: Entry) -> Entry | None:
        """Return the call that this one was made in; if it was evicted, news of it makes its scope unknown."""
        outer = self.shelf.get(entry.parent)
        if outer is None and entry.parent is not None:  # which tool it was nobody knows any more
            self.shelf.forgotten.add_tool(entry.scope, None)
        return outer

    def _give_back(self, entry: Entry, now: int) -> None:
        """Open a release again: the attempt that used it never began."""
        settled = self.shelf.get(entry.released_by)
        if settled is not None and settled.released_to == entry.entry_id:
            self._update(settled, now, released_to=None)
