# SPDX-License-Identifier: Apache-2.0
"""Making and moving entries, and whatever that means for the entries around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from genai_processor.errors import InvalidTransitionError, UnknownEntryError
from genai_processor.ledger.entries import Change, Entry, State, new_entry
from genai_processor.ledger.requests import Claim, Sighting
from genai_processor.ledger.store import Entries
from genai_processor.ledger.transitions import Event, next_state

_HISTORY: Final = 50
_FOR_PEOPLE: Final = frozenset({State.QUARANTINED, State.SETTLED})


class Changes:
    """Changes entries, one step at a time. Not thread-safe: the ledger's lock or transaction stands around it."""

    def __init__(self, shelf: Entries, clock: Callable[[], int], new_id: Callable[[], str]) -> None:
        """Work on a shelf, with the ledger's clock and whatever makes its ids."""
        self.shelf = shelf
        self._clock = clock
        self._new_id = new_id

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

    def _held(self, held: Entry, *, ran: bool = True) -> Entry:
        """Return an entry as it is now; if it was evicted, the news of it at least makes its tool unknown.

        Args:
            held: The entry as it was granted.
            ran: The news is that a body began or ended: then what it did is uncertain for the call around it, too.
        """
        entry = self.shelf.get(held.entry_id)
        if entry is None:
            self.shelf.forgotten.add_tool(held.scope, held.tool)
            if ran:
                self._tell_enclosing(held, self._clock())
            return self.must(held.entry_id)
        return entry

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
        entry = new_entry(
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
        self,
        entry: Entry,
        event: Event,
        now: int,
        *,
        reason: str | None = None,
        who: str | None = None,
        ends_body: bool = False,
        **changes: Any,
    ) -> Entry:
        """Let an event happen to an entry, and to the entries around it.

        Args:
            entry: The entry.
            event: What happens.
            now: When.
            reason: Why.
            who: The person, for settlements.
            ends_body: A body has ended: whoever settles, or has settled already, is to find that in the history, though it
                moves nothing.
            changes: Fields that change with it.
        """
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
            changes = {name: value for name, value in changes.items() if getattr(entry, name) != value}
            if ends_body and state in _FOR_PEOPLE:
                latest = entry.history[-1] if entry.history else None
                if latest is None or (latest.event, latest.reason) != (event.value, reason):  # else it is said again
                    changes["history"] = _with(entry, Change(now, state, state, event.value, reason))
            return self._update(entry, now, **changes) if changes else entry
        change = Change(now, entry.state, state, event.value, reason, who)
        changes["history"] = _with(entry, change)
        if state is not State.CLAIMED and state is not State.RETURNED:
            changes["lease_expires_ns"] = None
        if event is not Event.SETTLED:  # why it had to be settled stays on the entry; the answer is in its settlement
            changes["reason"] = reason
        entry = self._update(entry, now, state=state, **changes)
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


def _with(entry: Entry, change: Change) -> tuple[Change, ...]:
    return (*entry.history, change)[-_HISTORY:]
