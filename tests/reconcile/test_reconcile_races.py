# SPDX-License-Identifier: Apache-2.0
"""Two reconcilers on one ledger in a file."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from reconcile_helpers import World

from genai_processor.ledger import State
from genai_processor.ledger.sqlite import SQLiteLedger
from genai_processor.reconcile import Answer, Memory, Outcome, Question, Report, reconcile


def test_two_that_ask_about_the_same_calls_at_the_same_time_settle_each_once(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    world = World(lambda clock: SQLiteLedger(path, clock=clock))
    entries = [world.quarantined(scope=f"conversation-{number}") for number in range(50)]
    world.later(300)
    both_have_read = threading.Barrier(2)
    reports: list[Report] = []

    def ask(question: Question) -> Answer:
        if question.entry_id == entries[0].entry_id:
            both_have_read.wait(30)
        return Answer.COMMITTED

    def one() -> None:
        ledger = SQLiteLedger(path)  # as another process has it: a connection and locks of its own
        reports.append(reconcile(ledger, {"refund": ask}, clock=world.moment, memory=Memory(), timeout=60))
        ledger.close()

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    outcomes = Counter(one.outcome for report in reports for one in report.asked)
    assert outcomes == {Outcome.SETTLED: 50, Outcome.OVERTAKEN: 50}
    assert world.ledger.counts()[State.SETTLED] == 50
    for entry in entries:
        assert [change.event for change in world.entry(entry).history].count("settled") == 1
