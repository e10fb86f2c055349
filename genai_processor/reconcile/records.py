# SPDX-License-Identifier: Apache-2.0
"""What a reconciler is asked, what it may answer, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from genai_processor.ledger.entries import Entry
from genai_processor.ledger.keys import idempotency_key_of


class Answer(StrEnum):
    """What a provider can say of a call."""

    COMMITTED = "committed"
    """It has a record of the effect."""
    NOT_COMMITTED = "not_committed"
    """It has looked, and has no record. A provider that could not look, or may have forgotten, has said nothing."""
    UNKNOWN = "unknown"
    """It cannot tell."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a reconciler is asked: did the effect of this call happen?

    Attributes:
        entry_id: The entry of the ledger that waits.
        tool: Name of the tool.
        key: The idempotency key that the tool's body sent to the provider: ask by it.
        scope: The conversation, session or trace of the call, or what the user set.
        call_id: The call id, if it is usable.
        created_ns: When the entry was made, in nanoseconds since the Unix epoch.
        updated_ns: When it last changed.
        attempt: Number of its latest attempt.
        trace_id: Trace of the latest span that told of it, as hex.
        span_id: That span, as hex.
    """

    entry_id: str
    tool: str
    key: str
    scope: str
    call_id: str | None
    created_ns: int
    updated_ns: int
    attempt: int
    trace_id: str | None
    span_id: str | None

    @classmethod
    def about(cls, entry: Entry) -> Question:
        """Return the question about an entry."""
        return cls(
            entry.entry_id,
            entry.tool,
            idempotency_key_of(entry),
            entry.scope,
            entry.call_id,
            entry.created_ns,
            entry.updated_ns,
            entry.attempt,
            entry.trace_id,
            entry.span_id,
        )


Reconciler: TypeAlias = Callable[[Question], str | Awaitable[str]]
"""A function, or a coroutine function, whose result is an `Answer`; the values of `Resolution` of the same name do, too."""


class NotAsked(StrEnum):
    """Why nobody is asked about a call."""

    NO_RECONCILER = "no_reconciler"
    """No reconciler is registered for its tool."""
    UNGUARDED = "unguarded"
    """The guard did not claim it, so no idempotency key was ever sent."""
    UNDELIVERED = "undelivered"
    """It is known to have ended well; only a person can see to its result."""
    NESTED = "nested"
    """It waits because of a call made inside it, of which its own key tells nothing."""
    READ_ONLY = "read_only"
    """Its tool is declared to change nothing."""
    RUNNING = "running"
    """An attempt holds a lease that has not run out."""
    YOUNG = "young"
    """It changed less than the settling time ago, so the call may still be on its way."""
    BACKING_OFF = "backing_off"
    """It was asked about lately, and nothing came of it."""
    RECONCILER_BACKING_OFF = "reconciler_backing_off"
    """Its reconciler failed lately."""
    RECONCILER_BUSY = "reconciler_busy"
    """Its reconciler has not come back yet from a question that ran out of time."""


class Outcome(StrEnum):
    """What came of a question."""

    SETTLED = "settled"
    WOULD_SETTLE = "would_settle"
    """It would have been settled, but for the dry run."""
    TO_CONFIRM = "to_confirm"
    """Answered `not_committed` for the first time: nothing is settled before it is answered so once more."""
    LEFT = "left"
    """For a person."""
    FAILED = "failed"
    """The reconciler raised, ran out of time, or answered nothing that counts. Left for a person, too."""
    OVERTAKEN = "overtaken"
    """Somebody else was faster: the entry has changed since it was read."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and what came of it.

    Attributes:
        entry_id: The entry.
        tool: Its tool.
        reconciler: Name or glob under which the reconciler is registered.
        answer: The answer; None if there was none that counts.
        outcome: What came of it.
        detail: Why it failed, or was left in spite of its answer. Never an exception's text, which may hold secrets.
    """

    entry_id: str
    tool: str
    reconciler: str
    answer: Answer | None
    outcome: Outcome
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass over the queue did.

    Attributes:
        asked: The questions, in the order in which they were asked.
        not_asked: How many calls were left alone, and why; reasons that did not occur are missing.
        orphaned: How many claims were found whose lease had run out, and were quarantined.
        complete: The whole queue was looked at; False if the pass was stopped.
        confirm_in_seconds: After so many seconds a further pass can confirm every first `not_committed`; None if there is
            none.
    """

    asked: tuple[Asked, ...]
    not_asked: Mapping[NotAsked, int]
    orphaned: int = 0
    complete: bool = True
    confirm_in_seconds: float | None = None

    def count(self, outcome: Outcome) -> int:
        """Return how many questions came to that."""
        return sum(one.outcome is outcome for one in self.asked)


class Moment(NamedTuple):
    """A moment by two clocks.

    Attributes:
        wall_ns: Nanoseconds since the Unix epoch: comparable with the times of entries, and sometimes set.
        monotonic_ns: Nanoseconds since anything: comparable within this process only, and never set.
    """

    wall_ns: int
    monotonic_ns: int


def moment() -> Moment:
    """Return this moment."""
    return Moment(time.time_ns(), time.monotonic_ns())
