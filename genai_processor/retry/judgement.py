# SPDX-License-Identifier: Apache-2.0
"""What a witness says of a tool span that ended."""

from __future__ import annotations

from typing import NamedTuple

from genai_processor.retry.came_back import CameBack
from genai_processor.retry.verdict import Execution, Reason, RetryVerdict, Verdict


class Judgement(NamedTuple):
    """What was found of one ended span that shows a tool call.

    Attributes:
        trace_id: The trace of that span; 0 if it has none.
        span_id: That span; 0 if it has none.
        name: The span's name, for calls whose tool is not known.
        has_id: The span itself records a call id that is one.
        verdict: The verdict.
        scope: Where ids and actions are unique.
        id_usable: The verdict's call id may serve as a token: it is not bound to two argument sets, nor cut.
        action: Digest of the canonical arguments if it had to be computed, else None.
        duplicate_of: Span id (hex) of the earlier execution that it certainly repeats, or None.
        attempt: Which execution of that effect this is, counted from 1, or None.
        suspected: It may repeat an earlier one, or may be meant.
        late: This is about a call whose span has ended before: the span in hand is only evidence.
        views: Inner spans that show the same call and were judged before.
        inner: An outer span may yet show the same call.
        rebilled_tokens: Input tokens of the turn that proposed a certain duplicate again.
        belies: The judgement of another call, one whose span ended before this one did although it stood above it.
    """

    trace_id: int
    span_id: int
    name: str
    has_id: bool
    verdict: Verdict
    scope: str
    id_usable: bool = True
    action: str | None = None
    duplicate_of: str | None = None
    attempt: int | None = None
    suspected: bool = False
    late: bool = False
    views: tuple[int, ...] = ()
    inner: bool = False
    rebilled_tokens: int = 0
    belies: Judgement | None = None


def judgement_of(call: CameBack, name: str) -> Judgement:
    """What there is to say of a call that came back, where that is not all.

    Args:
        call: The call.
        name: The name of its span.
    """
    return Judgement(call.trace_number, call.span_number, name, call.call_id is not None, call.verdict, call.scope)


def may_be_belied(verdict: Verdict) -> bool:
    """Whether a span that ends late would change a verdict: it rests on nothing having run, or gone outside."""
    return verdict.verdict is RetryVerdict.RETRYABLE_PRE_EXECUTION or verdict.reason is Reason.PAUSED


def belied(before: Judgement) -> Judgement:
    """The judgement of a call that seemed safe, now that something of it ended after it did."""
    verdict = before.verdict._replace(
        verdict=RetryVerdict.QUARANTINED,
        reason=Reason.EXECUTION_STARTED,
        evidence=(*before.verdict.evidence, "a span below it ended later"),
        execution=Execution.STARTED,
    )
    return before._replace(verdict=verdict, late=True)
