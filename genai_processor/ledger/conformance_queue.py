# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: the queue, its filters and pages, and what is found and counted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, cast

from genai_processor.errors import ConformanceError, LedgerError
from genai_processor.ledger.conformance_bench import PATIENCE_SECONDS, Bench, expect, raising
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.protocol import Query
from genai_processor.ledger.requests import Outcome, RefusalReason, Sighting


def _entries_of_several_times(at: Bench) -> list[Entry]:
    """Quarantine some calls: at least five, and not all at one time, if the ledger's clock moves at all."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    made: list[Entry] = []
    while len(made) < 5 or (made[0].created_ns == made[-1].created_ns and time.monotonic() < deadline):
        number = len(made)
        made.append(at.failed(f"toolu_{number}x", digest=f"d{number}", turn=f"t{number}"))
        time.sleep(0.002 if number < 4 else 0.05)
    return made


def _walked(at: Bench, query: Query, limit: int) -> list[tuple[Entry, ...]]:
    """The pages of a walk."""
    pages: list[tuple[Entry, ...]] = []
    cursor = None
    for _ in range(1_000):
        page = at.ledger.pending(query, limit=limit, cursor=cursor)
        pages.append(page.entries)
        cursor = page.cursor
        if cursor is None:
            return pages
    raise ConformanceError("the walk through the queue does not end: no page had None for its cursor")


def _the_queue_is_walked_page_by_page(at: Bench) -> None:
    made = _entries_of_several_times(at)
    for limit in (1, 2, len(made) - 1, len(made), len(made) + 1):
        pages = _walked(at, Query(scope=at.scope), limit)
        walked = [entry for page in pages for entry in page]
        expect(
            sorted(one.entry_id for one in walked) == sorted(one.entry_id for one in made),
            f"{len(made)} wait, and {len(walked)} were shown, in pages of {limit}",
        )
        times = [entry.created_ns for entry in walked]
        expect(times == sorted(times), f"the oldest come first, and it was {times}, in pages of {limit}")
        sizes, full = [len(page) for page in pages], [limit] * (len(made) // limit)
        expect(sizes == full + [len(made) % limit] * (len(made) % limit > 0), f"pages of {limit} had {sizes} entries")
    with raising(LedgerError):
        at.ledger.pending(cursor="not one of yours")


def _the_queue_is_filtered(at: Bench) -> None:
    made = _entries_of_several_times(at)
    tool, elsewhere = f"mail-{at.scope}", f"{at.scope}-elsewhere"
    mail = at.failed("toolu_mail1", tool=tool, turn="t-mail")
    other = at.ledger.record(Sighting(elsewhere, "pay", State.QUARANTINED, "toolu_other1"))
    bought = at.granted("toolu_bought1", digest="d-bought", turn="t-bought")
    at.ledger.finish(bought, Outcome.RETURNED)
    bought = at.ledger.undeliver(bought)
    at.ledger.finish(at.granted("toolu_returned1", digest="d-returned", turn="t-returned"), Outcome.AWAITED)
    expect(other is not None, "a sighting made no entry")
    assert other is not None
    time_ns = made[-1].created_ns
    everything = [*made, mail, bought]
    before = [entry for entry in everything if entry.created_ns < time_ns]
    after = [entry for entry in everything if entry.created_ns >= time_ns]
    for name, query, expected in (
        ("no filter but the scope", Query(scope=at.scope), everything),
        ("another scope", Query(scope=elsewhere), [other]),
        ("a tool", Query(tool=tool), [mail]),
        ("a tool that another scope has", Query(tool=tool, scope=elsewhere), []),
        ("undelivered ones", Query(scope=at.scope, state=State.UNDELIVERED), [bought]),
        ("quarantined ones", Query(scope=at.scope, state=State.QUARANTINED), [*made, mail]),
        ("those made before", Query(scope=at.scope, created_before_ns=time_ns), before),
        ("those made at or after", Query(scope=at.scope, created_after_ns=time_ns), after),
    ):
        found = [entry.entry_id for page in _walked(at, query, 100) for entry in page]
        expect(
            sorted(found) == sorted(entry.entry_id for entry in expected),
            f"asked for {name}: {len(found)} entries, not these {len(expected)}",
        )


def _what_is_settled_leaves_the_queue(at: Bench) -> None:
    entry = at.failed()
    at.settle(entry, Resolution.COMMITTED)
    expect(not at.ledger.pending(Query(scope=at.scope)).entries, "a settled entry still waits")


def _entries_are_counted_by_state(at: Bench) -> None:
    def changed(since: Mapping[State, int]) -> dict[State, int]:
        now = at.ledger.counts()
        return {state: now[state] - since[state] for state in State if now[state] != since[state]}

    first, held = at.ledger.counts(), at.ledger.stats().entries
    expect(set(first) == set(State), "every state is a key of counts()")
    entry = at.granted()
    expect(changed(first) == {State.CLAIMED: 1}, f"one claim changed the counts by {changed(first)}")
    entry = at.ledger.finish(entry, Outcome.FAILED)
    expect(changed(first) == {State.QUARANTINED: 1}, f"a failed one changed the counts by {changed(first)}")
    at.settle(entry, Resolution.COMMITTED)
    expect(changed(first) == {State.SETTLED: 1}, f"a settled one changed the counts by {changed(first)}")
    expect(
        at.ledger.stats().entries == held + 1, f"stats() says {at.ledger.stats().entries} entries after {held} and one more"
    )


def _a_known_digest_stays(at: Bench) -> None:
    entry = at.failed()
    same = at.ledger.set_digest(entry.entry_id, "d-other")
    expect(same is not None and same.digest == "d1", f"set_digest returned {same}")
    expect(at.now(entry).digest == "d1", "set_digest overwrote a digest that was known")
    expect(not at.ledger.by_action(at.scope, "pay", "d-other"), "by the other digest nothing is found")
    expect(at.ledger.set_digest("nobody", "d1") is None, "an entry that was never made is None")
    expect(at.ledger.set_digest(cast(str, 5), "d1") is None, "odd input is not raised")
    unknown = at.granted("toolu_0unknown", tool="mail", digest=None)
    for odd in ("", cast(str, 5)):
        expect(at.ledger.set_digest(unknown.entry_id, odd) == unknown, f"the digest {odd!r} was taken")
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2")


def _entries_are_found_by_what_they_are(at: Bench) -> None:
    entry = at.granted()
    expect([one.entry_id for one in at.ledger.by_call(at.scope, "toolu_1a2b")] == [entry.entry_id], "by call id")
    expect([one.entry_id for one in at.ledger.by_action(at.scope, "pay", "d1")] == [entry.entry_id], "by action")
    expect(at.ledger.get("nobody") is None, "an entry that was never made is None")
    made = [entry, *(at.watched(turn=f"t-again{number}").entry for number in range(5))]
    for way, there in (
        ("by call id", at.ledger.by_call(at.scope, "toolu_1a2b")),
        ("by action", at.ledger.by_action(at.scope, "pay", "d1")),
    ):
        expect(sorted(there, key=repr) == sorted(made, key=repr), f"{way} as they stand, and found {there}")
        expect(list(there) == sorted(there, key=lambda one: one.created_ns), f"{way} in order of time")
    for tool in ("pay", "mail"):
        at.ledger.claim(at.wish(f"toolu_{tool}", tool=tool, digest=None, turn="t9"), observe=True)
    found = [one.call_id for one in at.ledger.by_action(at.scope, "pay", None)]
    expect(found == ["toolu_pay"], f"those of a tool whose digest is not known, and found {found}")
    for nothing in (
        at.ledger.by_call(f"{at.scope}-elsewhere", "toolu_1a2b"),
        at.ledger.by_call(at.scope, "toolu_nobody"),
        at.ledger.by_action(f"{at.scope}-elsewhere", "pay", "d1"),
        at.ledger.by_action(at.scope, "mail", "d1"),
    ):
        expect(not nothing, f"found {nothing}, which is another's")
    expect(not at.ledger.is_unknown(at.scope, "pay"), "nothing was forgotten")


def _closing_twice_is_harmless(at: Bench) -> None:
    ledger = at.connect()
    ledger.counts()
    ledger.close()
    ledger.close()


CHECKS: Final = (
    _the_queue_is_walked_page_by_page,
    _the_queue_is_filtered,
    _what_is_settled_leaves_the_queue,
    _entries_are_counted_by_state,
    _a_known_digest_stays,
    _entries_are_found_by_what_they_are,
    _closing_twice_is_harmless,
)
