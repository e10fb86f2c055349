# SPDX-License-Identifier: Apache-2.0
"""What the callers of a ledger say to it, and what a claim is answered with."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from genai_processor.ledger.entries import NON_IDEMPOTENT, Entry, State


class Sighting(NamedTuple):
    """A witness: a span of a tool call has ended, and this is what it showed.

    Joins the entry named by `entry_id`; else the newest of the same scope and call id; else of the same scope, tool
    and digest; else it makes a new one.

    Attributes:
        scope: Where call id and action are unique; not blank.
        tool: Name of the tool; not blank.
        state: `completed`, `not_started`, `paused` or `quarantined`; anything else is refused.
        call_id: The call id, only if usable.
        digest: Digest of the canonical arguments, if already computed; `Ledger.set_digest` brings it later.
        turn: Id of the model response that proposed the call, if known.
        entry_id: The entry that this span is known to belong to.
        effect: What the user declared of the tool.
        reason: Why this state, one of the documented values of ``genai.retry.reason``.
        started: The span is positive proof that the body began.
        trace_id: Trace of the span, as hex.
        span_id: The span, as hex.
    """

    scope: str
    tool: str
    state: State
    call_id: str | None = None
    digest: str | None = None
    turn: str | None = None
    entry_id: str | None = None
    effect: str = NON_IDEMPOTENT
    reason: str | None = None
    started: bool = False
    trace_id: str | None = None
    span_id: str | None = None


class Returned(NamedTuple):
    """A witness: the span of a call that came back, and that was compared with no other. All that there is to note of it.

    Nearly all calls are like that. Of each a ledger in memory keeps just this.

    Attributes:
        scope: As in `Sighting`.
        tool: As in `Sighting`.
        call_id: As in `Sighting`.
        effect: As in `Sighting`.
        reason: As in `Sighting`.
        trace_id: Trace of the span, as a number; 0 for none.
        span_id: The span, as a number; 0 for none.
    """

    scope: str
    tool: str
    call_id: str | None
    effect: str
    reason: str
    trace_id: int
    span_id: int

    def sighting(self) -> Sighting:
        """Return the same in the words of a `Sighting`."""
        return Sighting(
            self.scope,
            self.tool,
            State.COMPLETED,
            self.call_id,
            effect=self.effect,
            reason=self.reason,
            trace_id=f"{self.trace_id:032x}" if self.trace_id else None,
            span_id=f"{self.span_id:016x}" if self.span_id else None,
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish to run a tool once, made before its body begins.

    Attributes:
        scope: Where call id and action are unique; a nested claim has the scope of its parent.
        tool: Name of the tool.
        call_id: The call id, only if usable.
        digest: Digest of the canonical arguments; None stands in the way of more, never of less.
        turn: Id of the model response that proposed the call, unique in the world. None where no model proposed it,
            such as an MCP request that a tool's body sends.
        proposed: How many identical calls that turn proposed; at least 1.
        parent: `entry_id` of the enclosing claim.
        effect: What the user declared of the tool.
        lease_ns: After how long without `renew` the claim counts as orphaned, in nanoseconds; None for never.
        trace_id: Trace in which the claim is made, as hex, for whoever has to look into it later.
        span_id: Span in which it is made, as hex.
        running: Ids of entries whose bodies run in the claimant's process right now. Where no turn is known, only these
            may be twins of it: of every other claim nobody knows whether it still runs. Of the calls around it, only these
            still are the same call, unless they are claimed. Not kept.
    """

    scope: str
    tool: str
    call_id: str | None = None
    digest: str | None = None
    turn: str | None = None
    proposed: int = 1
    parent: str | None = None
    effect: str = NON_IDEMPOTENT
    lease_ns: int | None = None
    trace_id: str | None = None
    span_id: str | None = None
    running: Container[str] = field(default=(), compare=False, repr=False)


class Outcome(StrEnum):
    """How a claimed attempt ended, as the guard saw it."""

    RETURNED = "returned"
    """The body itself ended well."""
    AWAITED = "awaited"
    """The same, in a run that goes on: `Ledger.deliver` or `undeliver` says what became of the result. Until then its lease
    is renewed, and if nobody does, the run is gone, and the call undelivered."""
    UNSEEN = "unseen"
    """The same, when no model could see the result any more: its run had died. Completed and undelivered in one."""
    REJECTED = "rejected"
    """The body provably never began."""
    PAUSED = "paused"
    """A known control-flow signal ended it and nothing went outside first."""
    FAILED = "failed"
    """Anything else: an exception, a cancellation, a failure value, an effect before a pause."""


class RefusalReason(StrEnum):
    """Why a claim is refused."""

    CALL_REPEATED = "call_repeated"
    """The same call id has been claimed before."""
    ACTION_IN_FLIGHT = "action_in_flight"
    """The same action, proposed by another turn, has not ended yet."""
    ACTION_QUARANTINED = "action_quarantined"
    """The same action may have committed already."""
    ACTION_UNDELIVERED = "action_undelivered"
    """The same action ended well, but no model ever saw the result."""
    ACTION_COMMITTED = "action_committed"
    """Somebody has settled the same action as committed: it is done, though no model has seen its result."""
    TURN_EXCEEDED = "turn_exceeded"
    """The turn has run the action as often as it proposed it."""
    NESTED_UNCERTAIN = "nested_uncertain"
    """An earlier execution inside the same call may have committed."""
    LEDGER_UNKNOWN = "ledger_unknown"
    """The ledger had to forget what it would need to know, so it must assume the worst."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The claim is refused.

    Attributes:
        reason: Why.
        entry: The entry that stands in the way; None only for `ledger_unknown`.
        hand_back: The recorded result of `entry` is the answer to this very call: hand it back if it is at hand.
    """

    reason: RefusalReason
    entry: Entry | None
    hand_back: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """The claim is granted: this attempt, and no other, may run.

    Attributes:
        entry: The claimed entry; give it to `start`, `renew`, `finish` and `undeliver`: its `attempt` is the token.
        overruled: The refusal that only a caller who merely observes was spared.
    """

    entry: Entry
    overruled: Refusal | None = None
