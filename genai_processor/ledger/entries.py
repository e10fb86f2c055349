# SPDX-License-Identifier: Apache-2.0
"""What a ledger holds: one `Entry` for each tool call that it has heard of.

An entry holds keys and digests, never arguments or results. All times are integer nanoseconds since the Unix epoch, by
the clock of the ledger. Entries are frozen: a change makes a new one with the next `version`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, cast

READ_ONLY: Final = "read_only"
IDEMPOTENT: Final = "idempotent"
NON_IDEMPOTENT: Final = "non_idempotent"


class State(StrEnum):
    """Where a tool call stands."""

    CLAIMED = "claimed"
    """The guard has let it begin; its end is not known yet."""
    RETURNED = "returned"
    """It ended well, in a run that goes on, and no model is known to have seen the result."""
    COMPLETED = "completed"
    """It ended well."""
    NOT_STARTED = "not_started"
    """There is positive proof that the tool's body never began."""
    PAUSED = "paused"
    """A known control-flow signal ended it and nothing shows that it reached the outside first."""
    UNDELIVERED = "undelivered"
    """It ended well, but the run died before a model saw the result."""
    QUARANTINED = "quarantined"
    """It may have committed; only a person, or the body's own end, can say."""
    SETTLED = "settled"
    """A person has said what happened; see `Settlement`."""


PENDING: Final = frozenset({State.QUARANTINED, State.UNDELIVERED})
"""The states that wait for a person."""

OPEN: Final = PENDING | {State.CLAIMED, State.RETURNED}
"""The states in which nobody knows yet how the call ended, or what has become of its result. The last to be evicted."""

EXPIRING: Final = frozenset(set(State) - OPEN - {State.SETTLED})
"""The states that a database does not keep for good. It keeps what a person settled: that is little, and may have released
an attempt that nobody has made yet."""


class Resolution(StrEnum):
    """What a person found out about a call."""

    COMMITTED = "committed"
    """The effect happened. Counts as delivered."""
    NOT_COMMITTED = "not_committed"
    """The effect did not happen. Releases exactly one new attempt."""
    COMPENSATED = "compensated"
    """The effect happened and was undone, by a refund say. Counts as delivered."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A person's answer.

    Attributes:
        resolution: What happened in the world.
        who: Who says so; not blank.
        note: On what ground; not blank.
        at_ns: When it was said.
    """

    resolution: Resolution
    who: str
    note: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Change:
    """One step of an entry's history; a late end that moved nothing is one, too: `before` is `after`.

    Attributes:
        at_ns: When.
        before: The state that it left.
        after: The state that it came to.
        event: The event that moved it, a value of `genai_processor.ledger.transitions.Event`.
        reason: Why, if a reason was given.
        who: The person, for settlements.
    """

    at_ns: int
    before: State
    after: State
    event: str
    reason: str | None = None
    who: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of the ledger: a tool call and what is known of it.

    Attributes:
        entry_id: Random, unique in the world; safe to stamp on a span.
        scope: Where `call_id` and `digest` are unique: conversation, session or trace id, or what the user set.
        tool: Name of the tool.
        state: Where the call stands.
        version: 1 when made, one more with every change; `settle` is conditional on it.
        created_ns: When the entry was made.
        updated_ns: When it last changed.
        call_id: The call id, only if usable.
        digest: Digest of the canonical arguments; None while nobody has computed it, or nobody can.
        turn: Id of the model response that proposed the call; None where none is known.
        parent: `entry_id` of the claim inside which this one was made.
        intent: Of all attempts at one thing: `entry_id` of the first, or, for an idempotent tool, a digest of what its call
            id stands for. The idempotency key.
        effect: What the user declared of the tool: `read_only`, `idempotent` or `non_idempotent`.
        reason: Why it is in its state, as whoever moved it put it.
        guarded: The guard claimed it; the guard's word goes before that of a witness.
        attempt: Number of the current attempt, which is also its fencing token; 0 if the guard never claimed it.
        witnessed: How many spans have told of it.
        started_ns: When the body is known to have begun; None where there is no proof that it did.
        child_uncertain: A call made inside this one may have committed, whatever this one returned.
        lease_expires_ns: When a claim, or a result that no model has seen, counts as orphaned; None for never.
        trace_id: Trace of the latest witness, as hex.
        span_id: Span of the latest witness, as hex.
        settlement: The person's answer, once `settled`.
        released_to: The entry that used up the new attempt that `settled(not_committed)` released.
        released_by: The settled entry whose release this one uses.
        history: The latest changes, oldest first, bounded; making the entry is none.
    """

    entry_id: str
    scope: str
    tool: str
    state: State
    version: int
    created_ns: int
    updated_ns: int
    call_id: str | None = None
    digest: str | None = None
    turn: str | None = None
    parent: str | None = None
    intent: str = ""
    effect: str = NON_IDEMPOTENT
    reason: str | None = None
    guarded: bool = False
    attempt: int = 0
    witnessed: int = 0
    started_ns: int | None = None
    child_uncertain: bool = False
    lease_expires_ns: int | None = None
    trace_id: str | None = None
    span_id: str | None = None
    settlement: Settlement | None = None
    released_to: str | None = None
    released_by: str | None = None
    history: tuple[Change, ...] = ()

    def changed(self, **changes: Any) -> Entry:
        """Return a copy with some fields changed: `dataclasses.replace` in half its time."""
        values = list(_values(self))
        for name, value in changes.items():
            values[_POSITION[name]] = value
        return new_entry(*values)

    @property
    def pending(self) -> bool:
        """Whether it waits for a person."""
        return self.state in PENDING

    @property
    def resolution(self) -> Resolution | None:
        """What a person said of it; None while nobody has."""
        return None if self.settlement is None else self.settlement.resolution

    @property
    def releases(self) -> bool:
        """Whether it grants one new attempt that nobody has used yet."""
        return self.resolution is Resolution.NOT_COMMITTED and self.released_to is None


_POSITION: Final = {spec.name: position for position, spec in enumerate(fields(Entry))}
_values: Final = attrgetter(*_POSITION)
_Draft: Final = make_dataclass(
    "_Draft",
    [(spec.name, spec.type, field(default=spec.default)) for spec in fields(Entry)],
    slots=True,
    eq=False,
    repr=False,
)


def new_entry(*values: Any, **facts: Any) -> Entry:
    """Return ``Entry(...)`` in a third of its time: the fields of what is frozen are slow to set, those of a draft not.

    The two have the same slots, which lets the one become the other.
    """
    draft: Any = _Draft(*values, **facts)
    draft.__class__ = Entry
    return cast(Entry, draft)


def utc(at_ns: int) -> str:
    """Return a time as people read it."""
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
