# SPDX-License-Identifier: Apache-2.0
"""The table of decisions, written down a second time and compared over everything that can be known of a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_processor import ToolSpanCommitmentError
from genai_processor.retry.verdict import (
    CallFacts,
    CallIdSource,
    Effect,
    Ended,
    Execution,
    Reason,
    RetryVerdict,
    Verdict,
    classify,
)
from genai_processor.spans.arguments import ArgumentsState

Row = tuple[Callable[[CallFacts], bool], str, str]

REJECTIONS = (Reason.REJECTED_BEFORE_EXECUTION, Reason.MALFORMED_ARGUMENTS, Reason.UNKNOWN_TOOL)


def usable(call: CallFacts) -> bool:
    return call.call_id is not None and not call.call_id_unstable


TABLE: list[Row] = [
    (lambda c: c.ended == "well", "no_retry_needed", "succeeded"),
    (lambda c: c.ended == "paused" and not c.reached_outside, "no_retry_needed", "paused"),
    *(
        (lambda c, r=r: c.execution == "not_started" and c.rejection == r, "retryable_pre_execution", r)
        for r in ("rejected_before_execution", "malformed_arguments", "unknown_tool")
    ),
    (lambda c: c.execution == "not_started", "retryable_pre_execution", "rejected_before_execution"),
    (lambda c: c.effect == "read_only", "retryable_read_only", "read_only_tool"),
    (
        lambda c: c.effect == "idempotent" and usable(c) and c.call_id_exact,
        "retryable_same_call_id",
        "idempotent_tool",
    ),
    (lambda c: c.ended == "paused", "quarantined", "effect_before_pause"),
    (lambda c: not c.end_recorded and not c.failure_marked, "quarantined_unknown", "no_end_recorded"),
    (lambda c: c.arguments_state == "complete" and usable(c), "quarantined", "commitment_marker"),
    (lambda c: c.execution == "started", "quarantined", "execution_started"),
    (lambda c: c.ended == "unknown", "quarantined_unknown", "no_end_recorded"),
    (lambda c: c.arguments_state == "cut", "quarantined_unknown", "arguments_cut"),
    (lambda c: c.arguments_state == "withheld", "quarantined_unknown", "arguments_withheld"),
    (lambda c: c.call_id is None, "quarantined_unknown", "call_id_missing"),
    (lambda c: c.call_id_unstable, "quarantined_unknown", "call_id_unstable"),
    (lambda c: True, "quarantined_unknown", "arguments_malformed"),
]

EVERY_CALL = [
    CallFacts("t", *values)
    for values in itertools.product(
        Ended,
        Execution,
        (None, *REJECTIONS),
        Effect,
        ArgumentsState,
        (None, "call_7Gh2"),
        CallIdSource,
        (False, True),
        (False, True),
        (False, True),
        (False, True),
        (False, True),
    )
]
"""Whatever can be told apart: a tool's name and the pieces of evidence decide nothing."""

CALLS = st.builds(
    lambda call, tool, call_id, evidence: call._replace(
        tool=tool, call_id=call_id if call.call_id else None, evidence=tuple(evidence)
    ),
    st.sampled_from(EVERY_CALL),
    st.none() | st.text(max_size=5),
    st.text(max_size=3),
    st.lists(st.text(max_size=3), max_size=2),
)
MORE_EVIDENCE = {
    "the body began": {"execution": Execution.STARTED},
    "something reached the outside": {"reached_outside": True},
    "the call id has two meanings": {"call_id_unstable": True},
    "the call id may be another call's": {"call_id_exact": False},
    "it failed": {"ended": Ended.FAILED, "failure_marked": True},
    "its end is in doubt": {"ended": Ended.UNKNOWN},
    "it has no end": {"end_recorded": False},
    "it has no call id": {"call_id": None},
    "nothing was declared": {"effect": Effect.NON_IDEMPOTENT},
    "its arguments were cut": {"arguments_state": ArgumentsState.CUT},
}


def row_of(call: CallFacts) -> int:
    return next(index for index, (fits, _, _) in enumerate(TABLE) if fits(call))


def test_the_first_row_that_fits_decides() -> None:
    for call in EVERY_CALL:
        verdict = classify(call)
        assert (verdict.verdict.value, verdict.reason.value) == TABLE[row_of(call)][1:], call


def test_every_row_decides_some_call() -> None:
    """Else the comparison would say nothing of it."""
    assert {row_of(call) for call in EVERY_CALL} == set(range(len(TABLE)))


@settings(max_examples=300, deadline=None)
@given(CALLS)
def test_no_text_changes_the_decision(call: CallFacts) -> None:
    verdict = classify(call)
    assert (verdict.verdict.value, verdict.reason.value) == TABLE[row_of(call)][1:]


@settings(max_examples=300, deadline=None)
@given(CALLS)
def test_a_verdict_says_what_it_was_read_from(call: CallFacts) -> None:
    verdict = classify(call)
    assert (verdict.tool, verdict.call_id, verdict.call_id_source) == (call.tool, call.call_id, call.call_id_source)
    assert (verdict.arguments_state, verdict.execution) == (call.arguments_state, call.execution)
    assert (verdict.effect, verdict.evidence) == (call.effect, call.evidence)


def test_unknown_is_never_safe() -> None:
    for call in EVERY_CALL:
        verdict = classify(call).verdict
        if verdict is RetryVerdict.RETRYABLE_PRE_EXECUTION:
            assert call.execution is Execution.NOT_STARTED
        elif verdict is RetryVerdict.RETRYABLE_READ_ONLY:
            assert call.effect is Effect.READ_ONLY
        elif verdict is RetryVerdict.RETRYABLE_SAME_CALL_ID:
            assert call.effect is Effect.IDEMPOTENT
            assert usable(call)
        elif verdict is RetryVerdict.NO_RETRY_NEEDED:
            assert call.ended in (Ended.WELL, Ended.PAUSED)


def test_nothing_known_at_all_is_quarantined() -> None:
    assert classify(CallFacts()).quarantined


@pytest.mark.parametrize("more", MORE_EVIDENCE.values(), ids=list(MORE_EVIDENCE))
def test_more_evidence_against_a_call_never_lifts_a_quarantine(more: dict[str, Any]) -> None:
    for call in EVERY_CALL:
        if classify(call).quarantined:
            assert classify(call._replace(**more)).quarantined, call


def test_an_answer_is_one_of_three_and_only_a_quarantine_raises() -> None:
    for call in EVERY_CALL:
        verdict = classify(call)
        nothing_to_do = verdict.verdict is RetryVerdict.NO_RETRY_NEEDED
        assert verdict.quarantined + verdict.retryable + nothing_to_do == 1
        try:
            verdict.raise_if_quarantined()
        except ToolSpanCommitmentError:
            assert verdict.quarantined
        else:
            assert not verdict.quarantined


def test_the_error_names_the_call_and_claims_no_more_than_is_known() -> None:
    call = CallFacts(tool="create_refund", call_id="call_7Gh2", ended=Ended.FAILED)
    with pytest.raises(ToolSpanCommitmentError) as caught:
        classify(call).raise_if_quarantined()
    message = str(caught.value)
    assert "create_refund" in message
    assert "call_7Gh2" in message
    assert "may have committed" in message
    assert "arguments_withheld" in message
    assert (caught.value.tool, caught.value.call_id, caught.value.reason) == (
        "create_refund",
        "call_7Gh2",
        "arguments_withheld",
    )


def test_the_error_carries_what_the_verdict_knows() -> None:
    for call in EVERY_CALL:
        verdict = classify(call._replace(tool="pay"))
        if verdict.quarantined:
            with pytest.raises(ToolSpanCommitmentError) as caught:
                verdict.raise_if_quarantined()
            found = caught.value
            assert (found.tool, found.call_id, found.reason) == (verdict.tool, verdict.call_id, verdict.reason)


def test_a_verdict_cannot_be_changed() -> None:
    verdict = Verdict(RetryVerdict.QUARANTINED, Reason.COMMITMENT_MARKER)
    with pytest.raises(AttributeError):
        verdict.verdict = RetryVerdict.NO_RETRY_NEEDED  # type: ignore[misc]
