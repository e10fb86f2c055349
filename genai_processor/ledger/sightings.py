# SPDX-License-Identifier: Apache-2.0
"""Which entry a span that has ended tells of."""

from __future__ import annotations

from typing import Final, Protocol, TypeGuard

from genai_processor.ledger.entries import Entry, State
from genai_processor.ledger.noted import Held, call_of, entry_of
from genai_processor.ledger.requests import Sighting
from genai_processor.ledger.transitions import SIGHTINGS
from genai_processor.spans.values import index_like

LOOKED_AT: Final = 64
"""How many of the newest entries of an id, or of an action, a sighting is compared with."""


class Found(Protocol):
    """Where entries are looked up."""

    def get(self, entry_id: str | None) -> Entry | None:
        """Return an entry, or None."""
        ...

    def held_by_call(self, scope: str, call_id: str, newest: int | None = None) -> list[Held]:
        """Return what is held of the entries of a call id, oldest first; of the newest only, if so many are asked for."""
        ...

    def held_by_action(self, scope: str, tool: str, digest: str, newest: int | None = None) -> list[Held]:
        """Return what is held of the entries of an action, oldest first; of the newest only, if so many are asked for."""
        ...


def is_usable(seen: Sighting) -> bool:
    """Whether a sighting can be recorded at all: whatever telemetry says, a ledger only takes names as keys."""
    if not isinstance(seen, Sighting):
        return False
    scope, tool, state, call_id, digest, turn, entry_id, effect, reason, _, trace_id, span_id = seen
    return (
        isinstance(scope, str)
        and isinstance(tool, str)
        and isinstance(state, str)
        and state in SIGHTINGS
        and scope.strip() != ""
        and tool.strip() != ""
        and (call_id is None or isinstance(call_id, str))
        and (digest is None or isinstance(digest, str))
        and (turn is None or isinstance(turn, str))
        and (entry_id is None or isinstance(entry_id, str))
        and (reason is None or isinstance(reason, str))
        and isinstance(effect, str)
        and (trace_id is None or isinstance(trace_id, str))
        and (span_id is None or isinstance(span_id, str))
    )


def place(seen: Sighting, found: Found) -> tuple[Entry | None, Entry | None]:
    """Say where a sighting belongs.

    It joins the entry that it names, else the newest that can be of its call: by id, else by action. An id that counts
    calls (``call_0``) names one within its turn or its trace only. A settled entry is joined by name only: what looks like
    its call again is a new attempt. Only the newest entries of an id or an action are looked at.

    Returns:
        The entry to join, or None to make one; and for a new one the settled entry whose release it uses, if any.
    """
    named = found.get(seen.entry_id)
    if named is not None:
        return named, None
    released: Entry | None = None
    by_call = found.held_by_call(seen.scope, seen.call_id, LOOKED_AT) if seen.call_id else []
    for held in reversed(by_call):
        if _is_of_call(seen, call_of(held)):
            if not _is_settled(held):
                return entry_of(held), None
            released = held if held.releases else released
    by_action = found.held_by_action(seen.scope, seen.tool, seen.digest, LOOKED_AT) if seen.digest else []
    for held in reversed(by_action):
        call = call_of(held)
        if _fit(seen.turn, call.turn) and (not (seen.call_id and call.call_id) or _is_same_id(seen, call)):
            if not _is_settled(held):
                return entry_of(held), None
            released = held if released is None and held.releases else released
    return None, released


def _is_settled(held: Held) -> TypeGuard[Entry]:
    return call_of(held).state is State.SETTLED


def _is_of_call(seen: Sighting, call: Entry | Sighting) -> bool:
    """Whether an entry of the same id can be of the same call; an id of two tools or argument sets tells nothing."""
    return call.tool == seen.tool and _fit(seen.digest, call.digest) and _is_same_id(seen, call)


def _is_same_id(seen: Sighting, call: Entry | Sighting) -> bool:
    """Whether the two bear one id that means one call: where it counts calls, only within one turn, or one trace."""
    if not seen.call_id or seen.call_id != call.call_id:
        return False
    if not index_like(seen.call_id, seen.tool):
        return True
    if seen.turn and call.turn:
        return seen.turn == call.turn
    return bool(seen.trace_id) and seen.trace_id == call.trace_id


def _fit(one: str | None, other: str | None) -> bool:
    return not one or not other or one == other
