# SPDX-License-Identifier: Apache-2.0
"""Checks of `genai_processor.ledger.conformance`: calls in calls, and news of entries that are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from genai_processor.errors import UnknownEntryError
from genai_processor.ledger.conformance_bench import Bench, expect, raising
from genai_processor.ledger.entries import Entry, Resolution, State
from genai_processor.ledger.requests import Outcome, RefusalReason

_WITHOUT: Final = {"call_id": None, "turn": None}
"""What a request has that a body sends, and no model proposed."""


def _a_body_that_makes_a_call_has_begun(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate")
    inner = at.granted(**_WITHOUT, parent=outer.entry_id)
    began = at.now(outer)
    expect(began.started_ns is not None and began.state is State.CLAIMED, "a body that makes a call has begun")
    at.granted(**_WITHOUT, parent=outer.entry_id, running={inner.entry_id})
    expect(at.now(outer).started_ns == began.started_ns, "it began only once")
    at.is_in(at.ledger.finish(outer, Outcome.REJECTED), State.QUARANTINED)


def _an_uncertain_call_is_told_to_all_that_enclose_it(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate", turn="t-outer")
    middle = at.granted("toolu_middle", tool="ask", turn="t-middle", parent=outer.entry_id)
    inner = at.granted(**_WITHOUT, parent=middle.entry_id)
    at.ledger.finish(inner, Outcome.FAILED)
    for entry in (middle, outer):
        found = at.is_in(entry, State.QUARANTINED)
        expect(found.child_uncertain and found.reason == "nested_uncertain", f"told as {found}")
        at.is_in(at.ledger.finish(entry, Outcome.RETURNED), State.QUARANTINED)


def _who_is_settled_is_told_of_no_uncertain_call(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate")
    inner = at.granted(**_WITHOUT, parent=outer.entry_id)
    settled = at.settle(at.ledger.finish(outer, Outcome.FAILED), Resolution.COMMITTED)
    at.ledger.finish(inner, Outcome.FAILED)
    expect(at.now(outer) == settled, "a settled call is left as it was settled")


def _a_good_end_inside_is_told_to_nobody(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate")
    for outcome in (Outcome.RETURNED, Outcome.REJECTED, Outcome.PAUSED):
        at.ledger.finish(at.granted(None, digest=outcome, turn=None, parent=outer.entry_id), outcome)
    expect(not at.is_in(outer, State.CLAIMED).child_uncertain, "nothing uncertain happened inside")


def _after_an_uncertain_call_its_like_is_refused_in_the_same_call(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate")
    inside = {"parent": outer.entry_id, "turn": None}
    failed = at.failed(None, **inside)
    refusal = at.refused(RefusalReason.NESTED_UNCERTAIN, None, **inside)
    expect(refusal.entry is not None and refusal.entry.entry_id == failed.entry_id, f"it names {refusal.entry}")
    at.refused(RefusalReason.NESTED_UNCERTAIN, None, digest=None, **inside)
    at.refused(RefusalReason.ACTION_QUARANTINED, None, turn=None)
    other = at.granted("toolu_other", tool="delegate", digest="d-other")
    at.refused(RefusalReason.ACTION_QUARANTINED, None, turn=None, parent=other.entry_id)
    at.granted(None, digest="d2", **inside)
    at.failed("toolu_inner", digest="d3", **inside)
    at.granted("toolu_inner", digest="d4", **inside)


def _what_is_certain_inside_a_call_may_be_done_again_there(at: Bench) -> None:
    outer = at.granted("toolu_outer", tool="delegate")
    inside = {"parent": outer.entry_id, "turn": None}
    running = at.granted(None, **inside)
    at.ledger.finish(at.granted(None, **inside, running={running.entry_id}), Outcome.RETURNED)
    at.ledger.finish(running, Outcome.RETURNED)
    at.granted(None, **inside)
    twin = {"parent": outer.entry_id, "turn": "t-twin", "digest": "d-twin", "proposed": 2}
    at.failed("toolu_twin1", **twin)
    at.granted("toolu_twin2", **twin)


def _the_calls_around_do_not_stand_in_the_way(at: Bench) -> None:
    outer = at.granted("toolu_outer")
    middle = at.granted("toolu_middle", tool="ask", turn="t2", parent=outer.entry_id)
    at.granted("toolu_inner", turn="t3", parent=middle.entry_id)
    at.refused(RefusalReason.ACTION_IN_FLIGHT, "toolu_other", turn="t4")


def _one_that_runs_on_after_an_uncertain_call_does_not_either(at: Bench) -> None:
    outer = at.granted("toolu_outer")
    at.failed(None, tool="log", turn=None, parent=outer.entry_id)
    at.granted("toolu_inner", turn="t2", parent=outer.entry_id, running={outer.entry_id})


def _one_that_is_over_is_a_call_like_any_other(at: Bench) -> None:
    outer = at.granted("toolu_outer")
    at.failed(None, tool="log", turn=None, parent=outer.entry_id)
    at.is_in(at.ledger.finish(outer, Outcome.RETURNED), State.QUARANTINED)
    at.refused(RefusalReason.CALL_REPEATED, "toolu_outer", parent=outer.entry_id)
    at.refused(RefusalReason.ACTION_QUARANTINED, "toolu_again", turn="t2", parent=outer.entry_id)
    other = at.granted("toolu_other", digest="d2")
    at.ledger.finish(other, Outcome.RETURNED)
    at.refused(RefusalReason.CALL_REPEATED, "toolu_other", digest="d2", parent=other.entry_id)


# -- entries that are gone -------------------------------------------------------------------------------------------


def _gone(at: Bench, tool: str, parent: str | None = None) -> Entry:
    """An entry as somebody may hold it that the ledger has not, or has not any more."""
    entry = at.granted(f"toolu_{tool}", tool=tool)
    return entry.changed(entry_id=f"{entry.entry_id}-gone", parent=parent)


def _news_of_an_entry_that_is_gone_makes_its_tool_unknown(at: Bench) -> None:
    def finish(outcome: Outcome) -> Callable[[Entry], Any]:
        return lambda entry: at.ledger.finish(entry, outcome)

    for number, (news, is_told) in enumerate(
        (
            (at.ledger.start, True),
            (finish(Outcome.RETURNED), True),
            (finish(Outcome.FAILED), True),
            (at.ledger.undeliver, False),
        )
    ):
        outer = at.granted(f"toolu_outer{number}", tool=f"delegate{number}")
        entry = _gone(at, f"mail{number}", outer.entry_id)
        with raising(UnknownEntryError):
            news(entry)
        expect(at.ledger.is_unknown(at.scope, entry.tool), "its tool is not unknown")
        at.refused(RefusalReason.LEDGER_UNKNOWN, "toolu_new1", tool=entry.tool, digest="d2", turn="t2")
        at.granted("toolu_new1", tool=entry.tool, digest="d2", turn="t2", effect="read_only")
        found = at.is_in(outer, State.QUARANTINED if is_told else State.CLAIMED)
        expect((found.started_ns is not None) == is_told, "a body that made a call has begun")
    expect(not at.ledger.is_unknown(at.scope, "pay"), "another tool is unknown, too")
    expect(not at.ledger.is_unknown(f"{at.scope}-elsewhere", "mail0"), "the tool is unknown in another scope, too")


def _news_that_nothing_ran_is_none(at: Bench) -> None:
    entry = _gone(at, "mail")
    calls: tuple[Callable[[], object], ...] = (
        lambda: at.ledger.finish(entry, Outcome.REJECTED),
        lambda: at.ledger.finish(entry, Outcome.PAUSED),
        lambda: at.ledger.deliver(entry),
        lambda: at.ledger.renew(entry, lease_ns=1),
    )
    for news in calls:
        with raising(UnknownEntryError):
            news()
    expect(not at.ledger.is_unknown(at.scope, "mail"), "that nothing ran makes nothing unknown")


def _a_call_in_one_that_is_gone_makes_its_scope_unknown(at: Bench) -> None:
    expect(not at.ledger.is_unknown(at.scope, "mail"), "nothing was forgotten")
    at.granted(**_WITHOUT, parent="nobody")
    expect(at.ledger.is_unknown(at.scope, "mail"), "which tool it was that is gone nobody knows")
    at.refused(RefusalReason.LEDGER_UNKNOWN, "toolu_new1", tool="chat")


CHECKS: Final = (
    _a_body_that_makes_a_call_has_begun,
    _an_uncertain_call_is_told_to_all_that_enclose_it,
    _who_is_settled_is_told_of_no_uncertain_call,
    _a_good_end_inside_is_told_to_nobody,
    _after_an_uncertain_call_its_like_is_refused_in_the_same_call,
    _what_is_certain_inside_a_call_may_be_done_again_there,
    _the_calls_around_do_not_stand_in_the_way,
    _one_that_runs_on_after_an_uncertain_call_does_not_either,
    _one_that_is_over_is_a_call_like_any_other,
    _news_of_an_entry_that_is_gone_makes_its_tool_unknown,
    _news_that_nothing_ran_is_none,
    _a_call_in_one_that_is_gone_makes_its_scope_unknown,
)
