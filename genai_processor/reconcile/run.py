# SPDX-License-Identifier: Apache-2.0
"""One pass over the queue: ask about what is due, settle what is proven, remember the rest."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from genai_processor.errors import InvalidTransitionError, LedgerConflictError, UnknownEntryError
from genai_processor.ledger.entries import Entry, Resolution, State, utc
from genai_processor.ledger.keys import idempotency_key_of
from genai_processor.ledger.protocol import Ledger, Query
from genai_processor.reconcile.ask import ask
from genai_processor.reconcile.plan import (
    Rules,
    Tried,
    Trouble,
    keys_live,
    proven,
    tried_after,
    trouble_after,
    why_not_asked,
)
from genai_processor.reconcile.records import (
    Answer,
    Asked,
    Moment,
    NotAsked,
    Outcome,
    Question,
    Reconciler,
    Report,
    moment,
)
from genai_processor.reconcile.registered import Registered
from genai_processor.reconcile.release import in_the_way

SETTLE_AFTER: Final = 300.0
KEYS_LIVE: Final = 12 * 3600.0
TIMEOUT: Final = 10.0
_PAGE: Final = 1_000


class Memory:
    """What one pass leaves to the next, in this process: first answers, and who is to be left in peace until when.

    It holds no more than the calls that wait and were asked about. Not for two passes at the same time.
    """

    def __init__(self) -> None:
        self._tried: dict[str, Tried] = {}
        self._trouble: dict[str, Trouble] = {}
        self._running: dict[str, threading.Thread] = {}


def reconcile(
    ledger: Ledger,
    reconcilers: Mapping[str, Reconciler],
    *,
    settle_after: float = SETTLE_AFTER,
    keys_live: float = KEYS_LIVE,
    timeout: float = TIMEOUT,
    dry_run: bool = False,
    memory: Memory | None = None,
    stop: Callable[[], bool] = bool,
    on_asked: Callable[[Asked], object] = bool,
    clock: Callable[[], Moment] = moment,
    jitter: Callable[[], float] = random.random,
) -> Report:
    """Go once over the calls that are quarantined, and ask the reconcilers of their tools.

    `committed` settles a call. `not_committed` settles it, and so releases one new attempt, when it has been answered in
    two passes, at least `settle_after` apart; so keep a `Memory` and call this again. Everything else leaves the call to a
    person.

    Args:
        ledger: Whose queue.
        reconcilers: Names or globs of tools, and for each a function that takes a `Question` and returns an `Answer`. It
            runs on a thread of its own, and may be a coroutine function. The tool has to send its idempotency key.
        settle_after: Seconds for which a call must have been left unchanged before anybody is asked about it: longer than a
            request can be on its way and than the provider takes to show what it did.
        keys_live: Seconds for which the provider surely remembers a key; `not_committed` proves nothing of older calls.
        timeout: Seconds after which a question counts as failed.
        dry_run: Ask, and settle nothing.
        memory: What passes before this one left.
        stop: Asked before each question; once it says True, the pass ends.
        on_asked: Called with each question as soon as it is known what came of it.
        clock: The time.
        jitter: Makes random numbers from 0 to 1, which keep processes from asking all at once.

    Raises:
        TypeError: `reconcilers` is no mapping from names or globs to functions.
        ValueError: A number of seconds is negative, or none.
        LedgerUnavailableError: The ledger cannot be asked. What was settled before that stays settled.
    """
    numbers = (("settle_after", settle_after, 0.0), ("keys_live", keys_live, 0.0), ("timeout", timeout, 1e-3))
    for name, seconds, least in numbers:
        if not (math.isfinite(seconds) and seconds >= least):
            raise ValueError(f"{name} must be a number of seconds, {least:g} or more, but is {seconds!r}")
    one_pass = _Pass(
        ledger,
        Registered(reconcilers),
        Rules(int(settle_after * 10**9), int(keys_live * 10**9)),
        timeout,
        dry_run,
        Memory() if memory is None else memory,
        clock,
        jitter,
    )
    return one_pass.run(stop, on_asked)


@dataclass
class _Pass:
    _ledger: Ledger
    _registered: Registered
    _rules: Rules
    _timeout: float
    _dry_run: bool
    _memory: Memory
    _clock: Callable[[], Moment]
    _jitter: Callable[[], float]
    _left: Counter[NotAsked] = field(default_factory=Counter)
    _to_confirm: int = 0

    def run(self, stop: Callable[[], bool], on_asked: Callable[[Asked], object]) -> Report:
        lost = () if self._dry_run else self._ledger.expire()
        orphaned = sum(entry.state is State.QUARANTINED for entry in lost)
        waiting = self._ledger.counts()
        asked: list[Asked] = []
        seen = 0
        still_waiting: dict[str, Tried] = {}
        tried = self._memory._tried
        complete = True
        for entry in self._waiting():
            if stop():
                complete = False
                break
            seen += 1
            done = self._consider(entry)
            if done is not None:
                asked.append(done)
                on_asked(done)
            if entry.entry_id in tried:
                still_waiting[entry.entry_id] = tried[entry.entry_id]
        if complete:
            self._memory._tried = still_waiting
            self._left[NotAsked.NO_RECONCILER] += max(0, waiting[State.QUARANTINED] - seen)
            self._left[NotAsked.UNDELIVERED] = waiting[State.UNDELIVERED]
        confirm_in = None
        if any(one.outcome is Outcome.TO_CONFIRM for one in asked):
            confirm_in = max(0, self._to_confirm - self._clock().monotonic_ns) / 10**9
        return Report(tuple(asked), dict(+self._left), orphaned, complete, confirm_in)

    def _waiting(self) -> Iterator[Entry]:
        for tool in self._registered.tools():
            cursor = None
            while True:
                page = self._ledger.pending(Query(tool=tool, state=State.QUARANTINED), limit=_PAGE, cursor=cursor)
                yield from page.entries
                cursor = page.cursor
                if cursor is None:
                    break

    def _consider(self, entry: Entry) -> Asked | None:
        found = self._registered.of(entry.tool)
        if found is None:
            self._left[NotAsked.NO_RECONCILER] += 1
            return None
        name, reconciler = found
        tried = self._memory._tried.get(entry.entry_id)
        at = self._clock()
        why_not = why_not_asked(entry, tried, at, self._rules) or self._why_not_now(name, at)
        if why_not is not None:
            self._left[why_not] += 1
            return None
        reply = ask(reconciler, Question.about(entry), self._timeout)
        after = self._clock()
        if reply.answer is None:
            if reply.running is not None:
                self._memory._running[name] = reply.running
            trouble = self._memory._trouble.get(name)
            self._memory._trouble[name] = trouble_after(trouble, after, self._jitter(), timed_out=reply.timed_out)
        else:
            self._memory._trouble.pop(name, None)
        outcome, detail = self._conclude(entry, name, tried, reply.answer, at)
        if outcome in (Outcome.SETTLED, Outcome.OVERTAKEN):
            self._memory._tried.pop(entry.entry_id, None)
        else:
            now = tried_after(entry, tried, reply.answer, after, self._rules, self._jitter())
            self._memory._tried[entry.entry_id] = now
            if outcome is Outcome.TO_CONFIRM:
                self._to_confirm = max(self._to_confirm, now.not_before_ns)
        return Asked(entry.entry_id, entry.tool, name, reply.answer, outcome, reply.failure or detail)

    def _why_not_now(self, name: str, at: Moment) -> NotAsked | None:
        running = self._memory._running.get(name)
        if running is not None:
            if running.is_alive():
                return NotAsked.RECONCILER_BUSY
            del self._memory._running[name]
        trouble = self._memory._trouble.get(name)
        resting = trouble is not None and at.monotonic_ns < trouble.not_before_ns
        return NotAsked.RECONCILER_BACKING_OFF if resting else None

    def _conclude(
        self, entry: Entry, name: str, tried: Tried | None, answer: Answer | None, at: Moment
    ) -> tuple[Outcome, str | None]:
        """Settle what an answer proves, and say what came of it."""
        if answer is None:
            return Outcome.FAILED, None
        resolution = proven(entry, tried, answer, at, self._rules)
        if resolution is None:
            if answer is not Answer.NOT_COMMITTED:
                return Outcome.LEFT, None
            if not keys_live(entry, at, self._rules):
                return Outcome.LEFT, "so old that the provider may have forgotten its key"
            return Outcome.TO_CONFIRM, None
        if resolution is Resolution.NOT_COMMITTED:
            obstacle = in_the_way(self._ledger, entry, self._registered)
            if obstacle is not None:
                return Outcome.LEFT, obstacle
        if self._dry_run:
            return Outcome.WOULD_SETTLE, None
        note = f"asked by idempotency key {idempotency_key_of(entry)} at {utc(at.wall_ns)}: answered {answer}"
        if resolution is Resolution.NOT_COMMITTED:
            note += f", twice, at least {self._rules.settle_after_ns / 10**9:g} s apart"
        try:
            self._ledger.settle(entry.entry_id, resolution, who=f"reconciler {name}", note=note, version=entry.version)
        except (LedgerConflictError, InvalidTransitionError, UnknownEntryError):
            return Outcome.OVERTAKEN, None
        return Outcome.SETTLED, None
