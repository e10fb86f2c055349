# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from ledger_helpers import held

from genai_processor.errors import (
    GenAIProcessorError,
    InvalidSettlementError,
    InvalidTransitionError,
    LedgerConflictError,
    LedgerError,
    UnknownEntryError,
)
from genai_processor.ledger import Claim, MemoryLedger, Outcome, Query, Resolution, Sighting, State


@pytest.fixture
def queue(ledger: MemoryLedger, clock: Any) -> MemoryLedger:
    """e1..e5 quarantined, one every 10 ns from 1,000; e6 undelivered; e7 completed; e8 claimed."""
    for number in range(5):
        tool, scope = ("refund", "s1") if number % 2 else ("mail", "s2")
        ledger.record(Sighting(scope, tool, State.QUARANTINED))
        clock.now += 10
    ledger.claim(Claim("s1", "book"))
    ledger.finish(held(ledger, "e6"), Outcome.RETURNED)
    ledger.undeliver(held(ledger, "e6"))
    ledger.record(Sighting("s1", "refund", State.COMPLETED))
    ledger.claim(Claim("s3", "refund"))
    return ledger


def ids(ledger: MemoryLedger, **query: Any) -> list[str]:
    return [e.entry_id for e in ledger.pending(Query(**query)).entries]


def test_it_holds_what_waits_for_a_person_oldest_first(queue: MemoryLedger) -> None:
    assert ids(queue) == ["e1", "e2", "e3", "e4", "e5", "e6"]


def test_it_is_filtered(queue: MemoryLedger) -> None:
    assert ids(queue, tool="refund") == ["e2", "e4"]
    assert ids(queue, scope="s2") == ["e1", "e3", "e5"]
    assert ids(queue, state=State.UNDELIVERED) == ["e6"]
    assert ids(queue, state=State.COMPLETED) == []
    assert ids(queue, created_before_ns=1_020) == ["e1", "e2"]
    assert ids(queue, created_after_ns=1_040) == ["e5", "e6"]


def test_it_is_walked_page_by_page_while_others_settle(queue: MemoryLedger) -> None:
    first = queue.pending(limit=2)
    assert [e.entry_id for e in first.entries] == ["e1", "e2"]
    queue.settle("e2", Resolution.COMMITTED, who="ann", note="seen in the bank's list", version=1)
    second = queue.pending(limit=3, cursor=first.cursor)
    assert [e.entry_id for e in second.entries] == ["e3", "e4", "e5"]
    last = queue.pending(limit=3, cursor=second.cursor)
    assert ([e.entry_id for e in last.entries], last.cursor) == (["e6"], None)


@pytest.mark.parametrize("cursor", ["", "x", "x:e1"])
def test_a_foreign_cursor_is_an_error(queue: MemoryLedger, cursor: str) -> None:
    with pytest.raises(LedgerError, match="begin again without one"):
        queue.pending(cursor=cursor)


def test_a_settlement_says_who_when_and_why(queue: MemoryLedger) -> None:
    entry = queue.settle("e1", Resolution.COMPENSATED, who=" ann ", note="refunded by hand", version=1)
    assert entry.settlement is not None
    assert (entry.settlement.who, entry.settlement.note) == ("ann", "refunded by hand")
    assert (entry.settlement.at_ns, entry.resolution) == (1_050, Resolution.COMPENSATED)
    assert (entry.state, entry.version, entry.pending) == (State.SETTLED, 2, False)
    assert [(c.before, c.after, c.who) for c in entry.history] == [(State.QUARANTINED, State.SETTLED, "ann")]
    assert ids(queue)[0] == "e2"


def test_two_people_cannot_both_settle(queue: MemoryLedger) -> None:
    queue.settle("e1", Resolution.COMMITTED, who="ann", note="n", version=1)
    with pytest.raises(LedgerConflictError, match="read it again") as caught:
        queue.settle("e1", Resolution.NOT_COMMITTED, who="bob", note="n", version=1)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    with pytest.raises(InvalidTransitionError):
        queue.settle("e1", Resolution.NOT_COMMITTED, who="bob", note="n", version=2)


def test_evidence_since_it_was_read_stops_a_settlement(queue: MemoryLedger) -> None:
    queue.record(Sighting("s2", "mail", State.QUARANTINED, entry_id="e1"))
    with pytest.raises(LedgerConflictError):
        queue.settle("e1", Resolution.NOT_COMMITTED, who="ann", note="n", version=1)


@pytest.mark.parametrize("entry_id", ["e7", "e8"])
def test_only_what_waits_can_be_settled(queue: MemoryLedger, entry_id: str) -> None:
    entry = queue.get(entry_id)
    assert entry is not None
    with pytest.raises(InvalidTransitionError, match=entry.state):
        queue.settle(entry_id, Resolution.COMMITTED, who="ann", note="n", version=entry.version)


@pytest.mark.parametrize("lacking", [{"who": " "}, {"note": ""}, {"resolution": "maybe"}, {"who": None}, {"note": 7}])
def test_a_settlement_that_lacks_something_is_an_error(queue: MemoryLedger, lacking: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"resolution": Resolution.COMMITTED, "who": "ann", "note": "n", "version": 1} | lacking
    with pytest.raises(InvalidSettlementError):
        queue.settle("e1", **whole)
    assert ids(queue)[0] == "e1"


def test_why_an_entry_waited_is_still_said_when_it_is_settled(ledger: MemoryLedger) -> None:
    entry = ledger.record(Sighting("s", "refund", State.QUARANTINED, "a1b2", reason="commitment_marker"))
    assert entry is not None
    settled = ledger.settle(entry.entry_id, Resolution.COMMITTED, who="ann", note="n", version=1)
    assert settled.reason == "commitment_marker"
    assert settled.resolution is Resolution.COMMITTED
    assert settled.history[-1].reason == "committed"


def test_nobody_settles_what_is_not_there(queue: MemoryLedger) -> None:
    with pytest.raises(UnknownEntryError) as caught:
        queue.settle("nobody", Resolution.COMMITTED, who="ann", note="n", version=1)
    assert isinstance(caught.value, GenAIProcessorError)
