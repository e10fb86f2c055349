# SPDX-License-Identifier: Apache-2.0
"""A ledger with guarded calls in it that may have committed, and a provider that says what a test wants to hear."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from genai_processor.ledger import Claim, Entry, Granted, Ledger, Outcome, Sighting, State
from genai_processor.ledger.entries import READ_ONLY
from genai_processor.reconcile import Asked, Memory, Question, Report, reconcile
from genai_processor.reconcile.records import Moment

SECOND = 10**9
SETTLE_AFTER = 300.0


class World:
    """A ledger, its clock, and a memory that lasts from pass to pass."""

    def __init__(self, new_ledger: Callable[[Callable[[], int]], Ledger]) -> None:
        self.now = 1_000_000 * SECOND
        self.ledger = new_ledger(lambda: self.now)
        self.memory = Memory()
        self.numbers = itertools.count(1)

    def later(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def claimed(self, tool: str = "refund", *, scope: str = "conversation-1", observe: bool = False, **facts: Any) -> Entry:
        number = next(self.numbers)
        self.now += 1  # so that the queue has an order
        facts = {"call_id": f"toolu_{number}x", "digest": f"d{number}", "turn": f"t{number}", **facts}
        granted = self.ledger.claim(Claim(scope, tool, **facts), observe=observe)
        assert isinstance(granted, Granted)
        return self.ledger.start(granted.entry)

    def quarantined(self, tool: str = "refund", **facts: Any) -> Entry:
        return self.ledger.finish(self.claimed(tool, **facts), Outcome.FAILED, reason="commitment_marker")

    def unguarded(self, tool: str = "refund") -> Entry:
        number = next(self.numbers)
        seen = Sighting("conversation-1", tool, State.QUARANTINED, f"toolu_{number}x", f"d{number}")
        entry = self.ledger.record(seen)
        assert entry is not None
        return entry

    def read_only(self) -> Entry:
        return self.quarantined(effect=READ_ONLY)

    def entry(self, entry: Entry) -> Entry:
        found = self.ledger.get(entry.entry_id)
        assert found is not None
        return found

    def moment(self) -> Moment:
        return Moment(self.now, self.now - 999 * SECOND)

    def run(self, reconcilers: Any, **options: Any) -> Report:
        options = {"settle_after": SETTLE_AFTER, "clock": self.moment, "jitter": lambda: 1.0, **options}
        return reconcile(self.ledger, reconcilers, memory=self.memory, **options)


class Provider:
    """Answers as it is told to, and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Question] = []

    def __call__(self, question: Question) -> Any:
        self.asked.append(question)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def only(report: Report) -> Asked:
    (one,) = report.asked
    return one
