# SPDX-License-Identifier: Apache-2.0
"""Which entry a span that has ended tells of."""

from __future__ import annotations

from typing import Protocol

from genai_processor.ledger.claims import is_index_like
from genai_processor.ledger.entries import Entry, State
from genai_processor.ledger.requests import Sighting
from genai_processor.ledger.transitions import SIGHTINGS


class Found(Protocol):
    """Where entries are looked up."""

    def get(self, entry_id: str | None) -> Entry | None:
        """Return an entry, or None."""
        ...

    def by_call(self, scope: str, call_id: str) -> list[Entry]:
        """Return the entries of a call id, oldest first."""
        ...

    def by_action(self, scope: str, tool: str, digest: str | None) -> list[Entry]:
        """Return the entries of an action, oldest first."""
        ...


def is_usable(seen: Sighting) -> bool:
    """Whether a sighting can be recorded at all: whatever telemetry says, a ledger only takes names as keys."""
    return (
        isinstance(seen, Sighting)
        and isinstance(seen.scope, str)
        and isinstance(seen.tool, str)
        and isinstance(seen.state, str)
        and seen.state in SIGHTINGS
        and seen.scope.strip() != ""
        and seen.tool.strip() != ""
        and (seen.call_id is None or isinstance(seen.call_id, str))
        and (seen.digest is None or isinstance(seen.digest, str))
        and (seen.turn is None or isinstance(seen.turn, str))
        and (seen.entry_id is None or isinstance(seen.entry_id, str))
    )


def place(seen: Sighting, found: Found) -> tuple[Entry | None, Entry | None]:
    """Say where a sighting belongs.

    It joins the entry that it names, else the newest that can be of its call: by id, else by action. A settled entry is
    joined by name only: what looks like its call again is a new attempt.

    Returns:
        The entry to join, or None to make one; and for a new one the settled entry whose release it uses, if any.
    """
    named = found.get(seen.entry_id)
    if named is not None:
        return named, None
    released: Entry | None = None
    by_call = found.by_call(seen.scope, seen.call_id) if seen.call_id else []
    for entry in reversed(by_call):
        if _is_of_call(seen, entry):
            if entry.state is not State.SETTLED:
                return entry, None
            released = entry if entry.releases else released
    by_action = found.by_action(seen.scope, seen.tool, seen.digest) if seen.digest else []
    for entry in reversed(by_action):
        if _fit(seen.call_id, entry.call_id) and _fit(seen.turn, entry.turn):
            if entry.state is not State.SETTLED:
                return entry, None
            released = entry if released is None and entry.releases else released
    return None, released


def _is_of_call(seen: Sighting, entry: Entry) -> bool:
    """Whether an entry of the same id can be of the same call; an id of two tools or argument sets tells nothing."""
    return (
        entry.tool == seen.tool
        and _fit(seen.digest, entry.digest)
        and (_fit(seen.turn, entry.turn) or not is_index_like(entry.call_id or "", seen.tool))
    )


def _fit(one: str | None, other: str | None) -> bool:
    return not one or not other or one == other
