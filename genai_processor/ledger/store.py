# SPDX-License-Identifier: Apache-2.0
"""What the rules of a ledger need of whatever keeps its entries: a shelf in memory, or the tables of a database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from genai_processor.ledger.entries import Entry
from genai_processor.ledger.noted import Held
from genai_processor.ledger.requests import Claim, Returned, Sighting


class Lost(Protocol):
    """What is remembered of entries that are not kept any more."""

    def add_tool(self, scope: str, tool: str | None) -> None:
        """Make a tool unknown in a scope, or with None every tool there."""
        ...

    def tool(self, scope: str, tool: str) -> bool:
        """Whether an unsettled entry of the tool may be missing."""
        ...

    def call(self, claim: Claim) -> bool:
        """Whether an earlier attempt at this very call may be missing."""
        ...


class Entries(Protocol):
    """Keeps entries. Every method is called inside one atomic operation of its ledger."""

    @property
    def forgotten(self) -> Lost:
        """What is remembered of entries that are gone."""
        ...

    def get(self, entry_id: str | None) -> Entry | None:
        """Return an entry, or None."""
        ...

    def held_by_call(self, scope: str, call_id: str, newest: int | None = None) -> list[Held]:
        """Return the entries of a call id, oldest first; with `newest`, so many that were added last."""
        ...

    def held_by_action(self, scope: str, tool: str, digest: str, newest: int | None = None) -> list[Held]:
        """Return the entries of an action, oldest first; with `newest`, so many that were added last."""
        ...

    def bearing_on(self, claim: Claim) -> Iterable[Entry]:
        """Return the entries that bear on a claim, as `genai_processor.ledger.claims` defines it."""
        ...

    def leased(self) -> Iterable[Entry]:
        """Return whatever has a lease, and possibly other entries."""
        ...

    def note(self, seen: Sighting, now_ns: int, new_id: Callable[[], str], *, anyhow: bool = False) -> Held | None:
        """Make the entry of a sighting; None, and nothing is done, if it shares a key with another, unless `anyhow`."""
        ...

    def note_return(self, returned: Returned, now_ns: int, new_id: Callable[[], str]) -> bool:
        """Make the entry of a call that came back; False, and nothing is done, if its call id is known."""
        ...

    def add(self, entry: Entry) -> None:
        """Add an entry of a new id."""
        ...

    def replace(self, old: Entry, new: Entry) -> None:
        """Put an entry in the place of its former version."""
        ...

    def evict(self, now_ns: int) -> None:
        """Let go of what may go."""
        ...
