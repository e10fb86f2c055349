# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: what witnesses tell, and of which call."""

from __future__ import annotations

from typing import Any, Final

from genai_processor.ledger.conformance_bench import Bench, expect
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.requests import Outcome, RefusalReason, Sighting


def _a_witness_adds_a_quarantine_and_lifts_none(at: Bench) -> None:
    entry = at.granted()
    at.ledger.finish(entry, Outcome.RETURNED)
    joined = at.seen(State.QUARANTINED, reason="commitment_marker")
    expect(joined.entry_id == entry.entry_id, "the sighting did not join the entry of its call")
    expect(at.is_in(entry, State.QUARANTINED).reason == "commitment_marker", "the reason is that of the witness")
    at.seen(State.COMPLETED)
    at.is_in(entry, State.QUARANTINED)


def _what_only_a_witness_saw_stands_in_the_way(at: Bench) -> None:
    seen = at.seen(State.QUARANTINED, digest=None, turn=None)
    expect(not seen.guarded and seen.attempt == 0 and seen.witnessed == 1, f"recorded as {seen}")
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_new1", turn="t2")
    expect(at.ledger.set_digest(seen.entry_id, "d9"), "set_digest returns the entry")
    at.granted("toolu_new1", turn="t2")


def _a_sighting_is_kept_as_it_was_made(at: Bench) -> None:
    seen = Sighting(at.scope, "mail", State.QUARANTINED, "toolu_5c6d", "d5", "t5", None, "idempotent", "no_proof", True)
    seen = seen._replace(trace_id="ab" * 16, span_id="cd" * 8)
    entry = at.ledger.record(seen)
    assert entry is not None
    for name in ("scope", "tool", "state", "call_id", "digest", "turn", "effect", "reason", "trace_id", "span_id"):
        expect(getattr(at.now(entry), name) == getattr(seen, name), f"{name} is kept as {getattr(entry, name)!r}")
    expect(entry.started_ns == entry.created_ns, "it began at the latest when it was seen")
    expect(at.seen(State.QUARANTINED, "toolu_7e8f", digest="d7").started_ns is None, "there is no proof that it began")


def _a_witness_brings_what_was_not_known(at: Bench) -> None:
    first = at.seen(State.QUARANTINED, digest=None, turn=None, trace_id="ab" * 16, span_id="cd" * 8)
    for seen in (
        at.seen(State.COMPLETED, reason="other", started=True),
        at.seen(
            State.COMPLETED, None, entry_id=first.entry_id, digest="d2", turn="t2", trace_id="ef" * 16, span_id="01" * 8
        ),
    ):
        expect(seen.entry_id == first.entry_id, "it did not join the entry of its call")
    expect((seen.call_id, seen.digest, seen.turn) == ("toolu_1a2b", "d1", "t1"), f"what was known stays, and is {seen}")
    expect(seen.witnessed == 3 and seen.started_ns is not None, f"three told of it, one that it began: {seen}")
    expect((seen.trace_id, seen.span_id) == ("ef" * 16, "01" * 8), "the latest witness is named")
    silent = at.seen(State.COMPLETED)
    expect((silent.trace_id, silent.span_id) == ("ef" * 16, "01" * 8), "one that names no span takes none away")
    unnamed = at.seen(State.QUARANTINED, None, digest="d8")
    expect(at.seen(State.QUARANTINED, "toolu_late", digest="d8").entry_id == unnamed.entry_id, "by its action")
    expect(at.now(unnamed).call_id == "toolu_late", "the call id was not brought")


def _a_sighting_joins_only_what_can_be_its_call(at: Bench) -> None:
    """By id it has to be the same tool and arguments, by action the same turn and no other id, as far as they are known."""
    first = at.seen(State.COMPLETED)
    _joins(at, first, {"digest": None}, {"turn": "t2"}, {"call_id": None}, {"call_id": None, "turn": None})
    _makes(at, first, {"tool": "mail"}, {"digest": "d2"}, {"call_id": "toolu_new1"}, {"call_id": None, "turn": "t2"})
    counted = at.seen(State.COMPLETED, "call_0", tool="count", trace_id="ab" * 16)
    same = {"call_id": "call_0", "tool": "count", "digest": None}
    _joins(at, counted, {**same}, {**same, "turn": None, "trace_id": "ab" * 16})
    _makes(at, counted, {**same, "turn": "t2"}, {**same, "turn": None}, {**same, "turn": None, "trace_id": "ef" * 16})


def _joins(at: Bench, entry: Entry, *calls: dict[str, Any]) -> None:
    for call in calls:
        expect(at.seen(State.COMPLETED, **call).entry_id == entry.entry_id, f"{call} did not join {entry}")


def _makes(at: Bench, entry: Entry, *calls: dict[str, Any]) -> None:
    for call in calls:
        expect(at.seen(State.COMPLETED, **call).entry_id != entry.entry_id, f"{call} joined {entry}")


def _a_sighting_joins_the_newest_of_its_call(at: Bench) -> None:
    entries = [at.granted()]
    entries += [at.watched(turn=f"t-again{number}").entry for number in range(5)]
    newest = max(entry.created_ns for entry in entries)
    for call_id in ("toolu_1a2b", None):
        joined = at.seen(State.COMPLETED, call_id, turn=None)
        expect(joined.created_ns == newest, f"it joined {joined}")


def _what_looks_like_a_settled_call_is_a_new_attempt(at: Bench) -> None:
    others: tuple[dict[str, Any], ...] = ({"turn": "t2"}, {"call_id": None, "turn": None})
    for number, again in enumerate(others):
        call = {"call_id": f"toolu_again{number}", "digest": f"d{number}"}
        settled = at.settle(at.failed(**call), Resolution.NOT_COMMITTED)
        named = at.seen(State.COMPLETED, **call, entry_id=settled.entry_id)
        expect(named.entry_id == settled.entry_id and named.state is State.SETTLED, "by its name it takes evidence")
        expect(named.witnessed == settled.witnessed + 1, "by its name it takes evidence")
        seen = at.seen(State.QUARANTINED, **{**call, **again}, started=True, reason="no_proof")
        expect(seen.entry_id != settled.entry_id and not seen.guarded, "it is no new attempt")
        expect((seen.state, seen.witnessed, seen.reason) == (State.QUARANTINED, 1, "no_proof"), f"recorded as {seen}")
        expect(seen.started_ns is not None and seen.released_by == settled.entry_id, f"recorded as {seen}")
        expect(seen.intent == settled.intent, "it is an attempt at the same intent")
        expect(at.now(settled).released_to == seen.entry_id, "it uses the release up")
        at.refused(RefusalReason.ACTION_QUARANTINED, f"toolu_new{number}", digest=call["digest"], turn="t4")


def _odd_sightings_are_counted_not_raised(at: Bench) -> None:
    before = at.ledger.stats().rejected
    usable = Sighting(at.scope, "pay", State.QUARANTINED)
    changes: list[dict[str, Any]] = [{"scope": ""}, {"tool": " "}, {"tool": None}]
    changes += [{"state": state} for state in (State.CLAIMED, State.SETTLED, "odd")]
    changes += [{name: 5} for name in ("scope", "call_id", "digest", "turn", "entry_id", "reason", "effect", "trace_id")]
    odd: list[Any] = [None, *(usable._replace(**change) for change in changes)]
    for seen in odd:
        expect(at.ledger.record(seen) is None, f"{seen} made an entry")
    expect(at.ledger.stats().rejected == before + len(odd), "they are counted as rejected")


CHECKS: Final = (
    _a_witness_adds_a_quarantine_and_lifts_none,
    _what_only_a_witness_saw_stands_in_the_way,
    _a_sighting_is_kept_as_it_was_made,
    _a_witness_brings_what_was_not_known,
    _a_sighting_joins_only_what_can_be_its_call,
    _a_sighting_joins_the_newest_of_its_call,
    _what_looks_like_a_settled_call_is_a_new_attempt,
    _odd_sightings_are_counted_not_raised,
)
