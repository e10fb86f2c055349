# SPDX-License-Identifier: Apache-2.0
"""What the rules of a ledger can ask of a shared store, in terms that know nothing of rules.

An entry stands in a few *places*: with its call id, with its action, among what is open of its tool. A place has a number,
by which a store finds what stands there; that two places have one number is unlikely, and does no harm, for whoever asks
looks at what was found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from genai_processor.ledger.entries import OPEN, Entry, Resolution, State
from genai_processor.spans.values import index_like


class Kind(StrEnum):
    """The kinds of places. An entry is in one place of each kind, or in none."""

    CALL = "call"
    """Scope and call id."""
    TURN = "turn"
    """Scope, call id, turn and tool, of an id that counts calls, such as ``call_0``."""
    ACTION = "action"
    """Scope, tool and digest, which is "" where it is not known."""
    TWIN = "twin"
    """Scope, tool, digest and turn."""
    LIVE = "live"
    """Scope, tool and digest of what bears on a claim of any turn: not known to be over, to be resumed, released, or
    settled as committed."""
    OPEN = "open"
    """Scope and tool of what is open, apart for those with and without a digest."""
    LEASED = "leased"
    """Scope of whatever has a lease."""


class Place(NamedTuple):
    """One place, by its parts."""

    kind: Kind
    parts: tuple[str, ...]

    @property
    def number(self) -> int:
        """A number of 64 bits, with a sign."""
        return _number_of(self)


@lru_cache(1024)  # the end of a call is soon asked about, where its claim was
def _number_of(place: Place) -> int:
    text = "\0".join((place.kind, *place.parts))
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


class Question(NamedTuple):
    """Asks for entries: for one by its id, or for those in a place.

    Attributes:
        entry_id: The id, or "" if it asks for a place.
        place: The place.
        newest: Only so many that were made last; 0 for all.
        until_ns: Of the leased: only those whose lease has run out by then.
    """

    entry_id: str = ""
    place: Place | None = None
    newest: int = 0
    until_ns: int = 0

    def fits(self, entry: Entry) -> bool:
        """Whether an entry is among what it asks for, but for `newest`."""
        if self.place is None:
            return entry.entry_id == self.entry_id
        if self.place.kind is Kind.LEASED and not (entry.lease_expires_ns or 0) <= self.until_ns:
            return False
        return self.place in places_of(entry)


class Remembered(NamedTuple):
    """Asks whether one of some marks has been left: of a call that expired, or of a tool of which all is unknown."""

    expired: bool
    marks: tuple[str, ...]


_KNOWN: Final = "known"
_UNKNOWN: Final = "unknown"


def by_id(entry_id: str) -> Question:
    """Ask for one entry."""
    return Question(entry_id)


def by_call(scope: str, call_id: str, newest: int = 0) -> Question:
    """Ask for the entries of a call id."""
    return Question(place=Place(Kind.CALL, (scope, call_id)), newest=newest)


def by_turn(scope: str, call_id: str, turn: str, tool: str) -> Question:
    """Ask for the entries of a tool, of an id that counts calls, within a turn."""
    return Question(place=Place(Kind.TURN, (scope, call_id, turn, tool)))


def by_action(scope: str, tool: str, digest: str | None, newest: int = 0) -> Question:
    """Ask for the entries of an action; with None for those of the tool whose digest is not known."""
    return Question(place=Place(Kind.ACTION, (scope, tool, digest or "")), newest=newest)


def by_twin(scope: str, tool: str, digest: str, turn: str) -> Question:
    """Ask for the entries of an action within a turn."""
    return Question(place=Place(Kind.TWIN, (scope, tool, digest, turn)))


def live_of(scope: str, tool: str, digest: str) -> Question:
    """Ask for the entries of an action that bear on a claim of any turn."""
    return Question(place=Place(Kind.LIVE, (scope, tool, digest)))


def open_of(scope: str, tool: str, *, digest_known: bool) -> Question:
    """Ask for what is open of a tool."""
    return Question(place=Place(Kind.OPEN, (scope, tool, _KNOWN if digest_known else _UNKNOWN)))


def overdue_in(scope: str, until_ns: int) -> Question:
    """Ask for the claims of a scope whose lease has run out."""
    return Question(place=Place(Kind.LEASED, (scope,)), until_ns=until_ns)


def places_of(entry: Entry) -> list[Place]:
    """Return the places that an entry stands in."""
    scope, tool = entry.scope, entry.tool
    places = [Place(Kind.ACTION, (scope, tool, entry.digest or ""))]
    if entry.call_id:
        places.append(Place(Kind.CALL, (scope, entry.call_id)))
        if entry.turn and index_like(entry.call_id, tool):
            places.append(Place(Kind.TURN, (scope, entry.call_id, entry.turn, tool)))
    if entry.digest and entry.turn:
        places.append(Place(Kind.TWIN, (scope, tool, entry.digest, entry.turn)))
    bears = entry.state in OPEN or entry.state is State.PAUSED or entry.releases or entry.resolution is Resolution.COMMITTED
    if entry.digest and bears:
        places.append(Place(Kind.LIVE, (scope, tool, entry.digest)))
    if entry.state in OPEN:
        places.append(Place(Kind.OPEN, (scope, tool, _KNOWN if entry.digest else _UNKNOWN)))
    if entry.lease_expires_ns is not None:
        places.append(Place(Kind.LEASED, (scope,)))
    return places


def is_crowd(place: Place) -> bool:
    """Whether nothing is ever granted or refused for what stands in a place: all calls of a tool without a digest."""
    return place.kind is Kind.ACTION and not place.parts[2]


def is_of_known_digests(place: Place) -> bool:
    """Whether a place holds what is open of a tool and has a digest."""
    return place.kind is Kind.OPEN and place.parts[2] == _KNOWN


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries oldest first."""
    return sorted(entries, key=lambda entry: (entry.created_ns, entry.entry_id))
