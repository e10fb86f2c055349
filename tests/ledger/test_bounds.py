# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from genai_processor.errors import LedgerURLError, UnknownEntryError
from genai_processor.ledger import (
    Bounds,
    Claim,
    Granted,
    MemoryLedger,
    Outcome,
    Refusal,
    RefusalReason,
    Sighting,
    State,
    open_ledger,
)
from genai_processor.ledger.forgotten import Forgotten

Maker = Callable[..., MemoryLedger]


def record(ledger: MemoryLedger, state: State, call_id: str, **more: Any) -> None:
    ledger.record(Sighting(**({"scope": "s", "tool": "refund", "state": state, "call_id": call_id} | more)))


def refusal(ledger: MemoryLedger, claim: Claim) -> RefusalReason | None:
    answer = ledger.claim(claim)
    return answer.reason if isinstance(answer, Refusal) else None


def test_what_is_known_goes_first_and_what_waits_for_a_person_last(new_ledger: Maker) -> None:
    ledger = new_ledger(max_entries=3)
    record(ledger, State.QUARANTINED, "q1x")
    for number in range(5):
        record(ledger, State.COMPLETED, f"c{number}x")
    assert len(ledger.pending().entries) == 1
    stats = ledger.stats()
    assert (stats.entries, stats.evicted, stats.evicted_open) == (3, 3, 0)
    assert not ledger.is_unknown("s", "refund")


def test_past_the_bound_an_unsettled_entry_makes_its_tool_unknown_in_its_scope(new_ledger: Maker) -> None:
    ledger = new_ledger(max_entries=2)
    for number in range(3):
        record(ledger, State.QUARANTINED, f"q{number}x", scope=f"s{number}")
    assert ledger.is_unknown("s0", "refund")
    assert not ledger.is_unknown("s0", "mail")
    assert not ledger.is_unknown("s1", "refund")
    assert refusal(ledger, Claim("s0", "refund", digest="d")) is RefusalReason.LEDGER_UNKNOWN
    assert refusal(ledger, Claim("s0", "refund", effect="read_only")) is None
    assert ledger.stats().evicted_open >= 1


def test_too_many_unknown_tools_make_everything_unknown(new_ledger: Maker) -> None:
    ledger = new_ledger(max_entries=1, max_unknown_tools=2)
    for number in range(4):
        record(ledger, State.QUARANTINED, f"q{number}x", scope=f"s{number}")
    assert ledger.stats().everything_unknown
    assert ledger.is_unknown("never", "heard of")
    assert refusal(ledger, Claim("never", "heard of")) is RefusalReason.LEDGER_UNKNOWN


@pytest.mark.parametrize("state", [State.COMPLETED, State.PAUSED])
def test_an_evicted_call_is_not_granted_again(new_ledger: Maker, state: State) -> None:
    ledger = new_ledger(max_entries=1)
    record(ledger, state, "a1b2")
    record(ledger, state, "c3d4")
    assert ledger.by_call("s", "a1b2") == ()
    assert refusal(ledger, Claim("s", "refund", call_id="a1b2")) is RefusalReason.LEDGER_UNKNOWN
    assert refusal(ledger, Claim("s", "refund", call_id="e5f6")) is None


def test_time_alone_evicts_what_is_known_and_grants_nothing(new_ledger: Maker, clock: Any) -> None:
    ledger = new_ledger(max_age_ns=100)
    record(ledger, State.COMPLETED, "a1b2", turn="t1", digest="d")
    record(ledger, State.QUARANTINED, "q1x", scope="s2")
    clock.now += 101
    record(ledger, State.COMPLETED, "c3d4")
    assert ledger.by_call("s", "a1b2") == ()
    assert [e.call_id for e in ledger.pending().entries] == ["q1x"]
    assert refusal(ledger, Claim("s", "refund", call_id="a1b2")) is RefusalReason.LEDGER_UNKNOWN
    assert refusal(ledger, Claim("s", "refund", turn="t1", digest="d")) is RefusalReason.LEDGER_UNKNOWN


def test_bytes_are_bounded(new_ledger: Maker) -> None:
    ledger = new_ledger(max_bytes=100_000)
    for number in range(50):
        record(ledger, State.COMPLETED, f"{number}x" * 5_000)
    stats = ledger.stats()
    assert 0 < stats.bytes <= 100_000
    assert stats.entries + stats.evicted == 50


def test_an_entry_larger_than_all_room_is_unknown_at_once(new_ledger: Maker) -> None:
    ledger = new_ledger(max_bytes=1_000)
    granted = ledger.claim(Claim("s", "refund"))
    assert isinstance(granted, Granted)
    assert ledger.is_unknown("s", "refund")
    with pytest.raises(UnknownEntryError):
        ledger.finish(granted.entry, Outcome.RETURNED)


def test_late_news_of_an_evicted_call_reaches_the_call_around_it(new_ledger: Maker) -> None:
    ledger = new_ledger(max_entries=3)
    outer = ledger.claim(Claim("s", "refund"))
    assert isinstance(outer, Granted)
    inner = ledger.claim(Claim("s", "mail", parent=outer.entry.entry_id))
    assert isinstance(inner, Granted)
    ledger.finish(inner.entry, Outcome.REJECTED)
    for number in range(2):
        record(ledger, State.COMPLETED, f"c{number}x", tool="other")
    with pytest.raises(UnknownEntryError):
        ledger.undeliver(inner.entry)
    assert not ledger.pending().entries
    with pytest.raises(UnknownEntryError):
        ledger.start(inner.entry)
    assert [(e.tool, e.reason) for e in ledger.pending().entries] == [("refund", "nested_uncertain")]
    assert refusal(ledger, Claim("s", "refund")) is RefusalReason.ACTION_QUARANTINED


def test_a_large_ledger_makes_a_little_more_room_than_it_must_but_never_by_what_waits(new_ledger: Maker) -> None:
    ledger = new_ledger(max_entries=8192)
    for number in range(8192):
        record(ledger, State.COMPLETED, f"c{number}x")
    assert ledger.stats().entries == 8192
    record(ledger, State.COMPLETED, "one more")
    assert (ledger.stats().entries, ledger.stats().evicted) == (8188, 5)
    for number in range(8193):
        record(ledger, State.QUARANTINED, f"q{number}x")
        assert ledger.stats().entries <= 8192
    assert (ledger.stats().entries, ledger.stats().evicted_open) == (8192, 1)


def test_the_filter_forgets_nothing_and_errs_as_seldom_as_it_says() -> None:
    forgotten = Forgotten(max_tools=1, filter_bytes=2**21 // 32)
    for number in range(1_000_000 // 32):
        forgotten.add_call("s", "refund", f"known{number}x", None, None)
    assert all(forgotten.call(Claim("s", "refund", call_id=f"known{n}x")) for n in range(0, 31_250, 10))
    errors = sum(forgotten.call(Claim("s", "refund", call_id=f"new{n}x")) for n in range(20_000))
    assert errors <= 20_000 * 0.003


def test_nothing_is_left_behind_by_what_was_evicted(new_ledger: Maker) -> None:
    ledger = new_ledger(max_entries=5)
    for number in range(500):
        record(ledger, list(State)[number % 6] or State.COMPLETED, f"c{number}x", digest=f"d{number}")
    shelf = ledger._shelf
    assert len(shelf._by_call) <= 5
    assert len(shelf._by_action) <= 5
    assert sum(ledger.counts().values()) == ledger.stats().entries == 5


@pytest.mark.parametrize("name", ["max_entries", "max_bytes", "max_age_ns", "max_unknown_tools", "filter_bytes"])
def test_a_bound_is_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        Bounds(**{name: 0})


def test_a_url_opens_a_ledger_with_its_bounds() -> None:
    ledger = open_ledger("memory:?max_entries=7")
    assert isinstance(ledger, MemoryLedger)
    assert ledger._shelf.bounds == Bounds(max_entries=7)
    assert isinstance(open_ledger("memory:"), MemoryLedger)
    ledger.close()
    ledger.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mongo://ann:secret@host/db", r"'mongo:…' names no known ledger; it must begin with one of: memory:"),
        ("memory", r"'memory' names no known ledger"),
        ("", r"'' names no known ledger"),
        ("memory:?max=1", r"option max=1 is not understood; memory: takes .*max_entries"),
        ("memory:?max_entries=-1", r"option max_entries=-1"),
        ("memory://[secret", r"memory:… is no URL"),
        (f"memory:?max_entries={'9' * 5_000}", r"a number in it that is too large"),
    ],
)
def test_a_url_that_names_no_ledger_says_what_would(url: str, message: str) -> None:
    with pytest.raises(LedgerURLError, match=message) as caught:
        open_ledger(url)
    assert "secret" not in str(caught.value)
