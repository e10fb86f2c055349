# SPDX-License-Identifier: Apache-2.0
"""What every ledger can do, in memory or in a database.

Synchronous, because a span processor runs in synchronous code; each method is one atomic round trip. A method that
changes an entry returns it as it then stands. A ledger that does I/O may raise `LedgerUnavailableError` from every
method, and is called by the processor on a thread of its own, never on the one that ends a span.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, Sighting

DEFAULT_PAGE = 100


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the queue.

    Attributes:
        entries: In order of the time at which they were made.
        cursor: Give it to `Ledger.pending` for the next page; None on the last one.
    """

    entries: tuple[Entry, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """Which pending entries to list; what is None does not filter.

    Attributes:
        tool: Only this tool.
        scope: Only this scope.
        state: Only `quarantined`, or only `undelivered`.
        created_before_ns: Only entries made before, in nanoseconds since the epoch.
        created_after_ns: Only entries made at or after, in nanoseconds since the epoch.
    """

    tool: str | None = None
    scope: str | None = None
    state: State | None = None
    created_before_ns: int | None = None
    created_after_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """What a ledger has had to do to stay within its bounds; all counts are since it was made.

    Attributes:
        entries: Entries held now.
        bytes: Their estimated size now.
        evicted: Entries dropped whose end was known.
        evicted_open: Entries dropped that nobody had settled; each made its tool unknown in its scope.
        unknown_tools: How many (scope, tool) are unknown now.
        everything_unknown: Even the list of unknown tools overflowed: whatever is asked, the answer is unknown.
        rejected: Sightings that could not be used, such as one without a scope.
    """

    entries: int = 0
    bytes: int = 0
    evicted: int = 0
    evicted_open: int = 0
    unknown_tools: int = 0
    everything_unknown: bool = False
    rejected: int = 0


@runtime_checkable
class Ledger(Protocol):
    """What was claimed, what ended how, what is quarantined, what a person settled."""

    # -- a witness ---------------------------------------------------------------------------------------------------

    def record(self, sighting: Sighting) -> Entry | None:
        """Note what a span showed: join the entry of its call, or make one.

        Never raises for odd input. A settled entry takes no more evidence, but for being told so by `entry_id`: a later
        sighting of its call is a new attempt, with an entry of its own, and uses up an open release.

        Returns:
            The entry; None if the sighting is unusable (counted), or comes from a finalizer that the garbage collector
            runs inside another operation of this ledger (noted as soon as that one is done).
        """
        ...

    def set_digest(self, entry_id: str, digest: str) -> Entry | None:
        """Bring the digest of an entry that was recorded without. A known digest stays. Never raises for odd input.

        Returns:
            The entry; None if there is none, or from a finalizer as with `record`.
        """
        ...

    # -- the guard ---------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        """Ask to run a tool once, by the rules of `genai_processor.ledger.claims.decide`.

        Args:
            claim: What is to run.
            observe: Grant it in any case and say in `Granted.overruled` what would have been refused.

        Returns:
            The claimed entry, or the refusal. Of two claims at the same time that exclude each other one is granted.
        """
        ...

    def start(self, entry: Entry) -> Entry:
        """Mark that the body begins, at the last point before it does.

        Args:
            entry: As it was granted: its `attempt` is the token.

        Raises:
            UnknownEntryError: It was evicted; its tool is unknown in its scope from now on, and every enclosing claim
                quarantined.
        """
        ...

    def renew(self, entry: Entry, *, lease_ns: int) -> Entry:
        """Say that the process which holds a claim is still there.

        Args:
            entry: As it was granted: its `attempt` is the token.
            lease_ns: Nanoseconds from now after which the claim counts as orphaned.

        Raises:
            UnknownEntryError: It was evicted.
            InvalidTransitionError: It is neither claimed nor `returned` any more, or by a later attempt. (A further attempt
                of an idempotent tool can be renewed in whatever state the one before has left the entry.)
        """
        ...

    def finish(self, entry: Entry, outcome: Outcome, *, reason: str | None = None) -> Entry:
        """Say how a claimed attempt ended. Says it again without harm.

        Conditional on the attempt, not on the version: witnesses change the version while the body runs. An end that
        is not of the current attempt is evidence only: good or bad, a body that ran quarantines. An uncertain end
        quarantines every enclosing claim. An end that comes after the entry was quarantined or settled is a line of its
        history even where it moves nothing, and so a new version: whoever settles at that moment has to look again.

        Args:
            entry: As it was granted: its `attempt` is the token.
            outcome: How it ended.
            reason: Why, in a word.

        Raises:
            UnknownEntryError: It was evicted; unless it was `rejected` or `paused`, its tool is unknown in its scope
                from now on, and every enclosing claim quarantined.
        """
        ...

    def undeliver(self, entry: Entry) -> Entry:
        """Say that the run of a call that ended well died before another turn began. Leaves all other entries alone.

        Args:
            entry: As it was granted.

        Raises:
            UnknownEntryError: It was evicted; its tool is unknown in its scope from now on.
        """
        ...

    def deliver(self, entry: Entry) -> Entry:
        """Say that a model has seen the result of a `returned` or undelivered call. Leaves other entries alone.

        Args:
            entry: The entry.

        Raises:
            UnknownEntryError: It was evicted.
        """
        ...

    def expire(self) -> tuple[Entry, ...]:
        """Give up what nobody renews any more.

        A claim whose lease has run out is quarantined (`no_end_recorded`); a call that has `returned`, and whose result
        nobody waits for any more, is undelivered.

        Returns:
            The entries that it moved.
        """
        ...

    # -- a person ----------------------------------------------------------------------------------------------------

    def pending(self, query: Query | None = None, *, limit: int = DEFAULT_PAGE, cursor: str | None = None) -> Page:
        """List what waits for a person, oldest first.

        Args:
            query: Which; all if None.
            limit: At most so many, at least 1.
            cursor: From the page before.

        Raises:
            LedgerError: The cursor is not one that this method gave out.
        """
        ...

    def settle(self, entry_id: str, resolution: Resolution, *, who: str, note: str, version: int) -> Entry:
        """Say what a quarantined or undelivered call did in the world. `not_committed` releases one new attempt.

        Args:
            entry_id: The entry.
            resolution: What happened.
            who: Who says so; not blank.
            note: On what ground; not blank.
            version: `Entry.version` as that person read it: of two people, one settles.

        Raises:
            UnknownEntryError: No such entry.
            LedgerConflictError: It has changed since.
            InvalidTransitionError: It is neither quarantined nor undelivered.
            InvalidSettlementError: `who` or `note` is blank, or `resolution` is none.
        """
        ...

    # -- everybody ---------------------------------------------------------------------------------------------------

    def get(self, entry_id: str) -> Entry | None:
        """Return an entry, or None: never made, or evicted."""
        ...

    def by_call(self, scope: str, call_id: str) -> tuple[Entry, ...]:
        """Return the entries of a call id, in order of time."""
        ...

    def by_action(self, scope: str, tool: str, digest: str | None) -> tuple[Entry, ...]:
        """Return the entries of an action, in order of time; with None those of the tool whose digest is not known."""
        ...

    def is_unknown(self, scope: str, tool: str) -> bool:
        """Whether an unsettled entry of the tool was evicted in that scope, so that nothing found proves nothing."""
        ...

    def counts(self) -> Mapping[State, int]:
        """Return how many entries are held in each state; every state is a key. Cheap enough for a gauge."""
        ...

    def stats(self) -> Stats:
        """Return what the ledger had to do to stay within its bounds."""
        ...

    def close(self) -> None:
        """Let go of whatever the ledger holds open. Harmless when repeated."""
        ...
