# SPDX-License-Identifier: Apache-2.0
"""What to ask now, and what an answer proves: pure functions over entries, what was tried before, and the time.

`committed` is evidence: the provider has a record. One such answer settles. `not_committed` is only the absence of one, and
it lets the call run again, so it has to hold up against everything that makes a record late or lost:

* The call may still be on its way: a thread that was given up runs on, a request waits in a queue. So nothing is asked
  before the entry has been left unchanged for the settling time.
* The provider may show its records late, or from a copy that lags, and clocks of hosts differ. So it has to say so twice,
  the settling time apart by the clock of this very process, about an entry that has not changed in between, and must not
  have said anything else meanwhile. (That `updated_ns` is old is what another clock says; the second answer needs no other.)
* The provider forgets keys, often after a day. So of a call older than the time for which keys live it proves nothing.

A new attempt keeps the key, so that a provider that honours it still recognises a call that comes later than all that.

No retry library: they repeat a call within one invocation. Here a question is put off from one pass to a later one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genai_processor.ledger.entries import READ_ONLY, Entry, Resolution, State
from genai_processor.ledger.keys import idempotency_key_of
from genai_processor.reconcile.records import Answer, Moment, NotAsked

SHORTEST_DELAY_NS: Final = 30 * 10**9
LONGEST_DELAY_NS: Final = 3600 * 10**9
ERRORS_IN_A_ROW: Final = 3
"""After so many errors, whatever the calls, a reconciler itself is given a rest."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How careful to be.

    Attributes:
        settle_after_ns: The settling time.
        keys_live_ns: For how long the provider surely remembers a key.
    """

    settle_after_ns: int
    keys_live_ns: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What is remembered of the questions about one entry. Times are monotonic.

    Attributes:
        version: The entry's version when it was last asked about.
        not_before_ns: When it may be asked about again.
        fruitless: How many questions in a row settled nothing, but for a first `not_committed`.
        denied_ns: When `not_committed` was answered for the first time, of this version.
    """

    version: int
    not_before_ns: int
    fruitless: int = 0
    denied_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is remembered of a reconciler that fails. Times are monotonic.

    Attributes:
        failures: How many in a row.
        not_before_ns: When it may be asked again.
    """

    failures: int
    not_before_ns: int


def why_not_asked(entry: Entry, tried: Tried | None, at: Moment, rules: Rules) -> NotAsked | None:
    """Say why nobody is to be asked about an entry now; None if somebody is."""
    if entry.state is State.UNDELIVERED:
        return NotAsked.UNDELIVERED
    if not entry.guarded or not idempotency_key_of(entry):
        return NotAsked.UNGUARDED
    if entry.child_uncertain:
        return NotAsked.NESTED
    if entry.effect == READ_ONLY:
        return NotAsked.READ_ONLY
    if entry.state is State.CLAIMED or (entry.lease_expires_ns is not None and entry.lease_expires_ns > at.wall_ns):
        return NotAsked.RUNNING
    if at.wall_ns - entry.updated_ns < rules.settle_after_ns:
        return NotAsked.YOUNG
    if tried is not None and at.monotonic_ns < tried.not_before_ns:
        return NotAsked.BACKING_OFF
    return None


def proven(entry: Entry, tried: Tried | None, answer: Answer | None, at: Moment, rules: Rules) -> Resolution | None:
    """Say what an answer proves.

    Args:
        entry: What was asked about.
        tried: What was remembered of it before.
        answer: The answer; None if there was none that counts.
        at: When it was asked.
        rules: How careful to be.
    """
    if answer is Answer.COMMITTED:
        return Resolution.COMMITTED
    if answer is Answer.NOT_COMMITTED:
        denied_ns = _denied(entry, tried)
        if denied_ns is not None and at.monotonic_ns - denied_ns >= rules.settle_after_ns and keys_live(entry, at, rules):
            return Resolution.NOT_COMMITTED
    return None


def keys_live(entry: Entry, at: Moment, rules: Rules) -> bool:
    """Whether the provider surely still remembers the key of a call that landed."""
    return at.wall_ns - entry.created_ns <= rules.keys_live_ns


def tried_after(entry: Entry, tried: Tried | None, answer: Answer | None, at: Moment, rules: Rules, jitter: float) -> Tried:
    """Return what to remember of a question that did not settle its entry.

    Args:
        entry: What was asked about.
        tried: What was remembered of it before.
        answer: The answer; None if there was none that counts.
        at: When it was answered.
        rules: How careful to be.
        jitter: A random number from 0 to 1.
    """
    denied_ns = None if answer in (Answer.UNKNOWN, Answer.COMMITTED) else _denied(entry, tried)
    if answer is Answer.NOT_COMMITTED and denied_ns is None and keys_live(entry, at, rules):
        return Tried(entry.version, at.monotonic_ns + rules.settle_after_ns, 0, at.monotonic_ns)
    fruitless = 1 if tried is None else tried.fruitless + 1
    return Tried(entry.version, at.monotonic_ns + delay_ns(fruitless, jitter), fruitless, denied_ns)


def trouble_after(trouble: Trouble | None, at: Moment, jitter: float, *, timed_out: bool) -> Trouble:
    """Return what to remember of a reconciler that failed. One that ran out of time gets its rest at once."""
    failures = 1 if trouble is None else trouble.failures + 1
    rests = failures if timed_out else failures - ERRORS_IN_A_ROW + 1
    return Trouble(failures, at.monotonic_ns + (delay_ns(rests, jitter) if rests > 0 else 0))


def delay_ns(times: int, jitter: float) -> int:
    """Return how long to wait after so many fruitless questions: twice as long each time, up to an hour, less up to half."""
    longest = min(LONGEST_DELAY_NS, SHORTEST_DELAY_NS << min(times - 1, 30))
    return longest // 2 + int(longest // 2 * jitter)


def _denied(entry: Entry, tried: Tried | None) -> int | None:
    return tried.denied_ns if tried is not None and tried.version == entry.version else None
