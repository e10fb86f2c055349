# SPDX-License-Identifier: Apache-2.0
"""What is said of a judgement beside its span: counted for metrics, and told in a log event if it quarantines."""

from __future__ import annotations

from functools import lru_cache
from time import time_ns
from typing import TYPE_CHECKING, Any

from opentelemetry.context import get_current
from opentelemetry.trace import SpanContext, TraceFlags

from genai_processor import attributes as names
from genai_processor.tags import clean
from genai_processor.telemetry import Events, Fault, Faults, Labels, Totals

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from genai_processor.retry.judgement import Judgement
    from genai_processor.waiting import Then


def count(totals: Totals, judgement: Judgement) -> None:
    """Count a judgement."""
    verdict = judgement.verdict
    if judgement.late:
        return  # its span has been counted already
    totals.add(names.METRIC_VERDICTS, labels_of(verdict.verdict._value_, verdict.reason._value_))
    if judgement.duplicate_of is not None or judgement.suspected:
        totals.add(names.METRIC_DUPLICATES, ((names.GENAI_RETRY_SUSPECTED, judgement.suspected),))
    if judgement.rebilled_tokens:
        totals.add(names.METRIC_REBILLED_TOKENS, (), judgement.rebilled_tokens)


@lru_cache(maxsize=64)
def labels_of(verdict: str, reason: str) -> Labels:
    """The labels by which a verdict is counted."""
    return (names.GENAI_RETRY_VERDICT, verdict), (names.GENAI_RETRY_REASON, reason)


def event_of(events: Events, faults: Faults, judgement: Judgement, span: ReadableSpan) -> Then:
    """Prepare the log event of a judgement, for whoever knows the entry, on whatever thread. Keeps no span alive."""
    verdict = judgement.verdict
    labels: dict[str, Any] = {
        names.GENAI_RETRY_VERDICT: verdict.verdict._value_,
        names.GENAI_RETRY_REASON: verdict.reason._value_,
        names.GENAI_RETRY_LATE: judgement.late,
    }
    if verdict.tool is not None:
        labels[names.GEN_AI_TOOL_NAME] = clean(verdict.tool)
    about = _span_of(judgement, span)
    at_ns = None if judgement.late else span._end_time
    around, now_ns = get_current(), time_ns()

    def emit(entry_id: str | None) -> None:
        if entry_id is not None:
            labels[names.GENAI_RETRY_ENTRY_ID] = entry_id
        try:
            events.quarantined(about, labels, now_ns if at_ns is None else at_ns, around)
        except Exception as error:  # noqa: BLE001
            faults.count(Fault.EVENT, "A log event could not be emitted", error)

    return emit


def _span_of(judgement: Judgement, span: ReadableSpan) -> SpanContext:
    """The span that a judgement is about, which is another one if it is late."""
    own = span._context
    if own is not None and own[1] == judgement.span_id:
        return own
    flags = TraceFlags(own[3] if own is not None else 0)
    return SpanContext(judgement.trace_id, judgement.span_id, is_remote=False, trace_flags=flags)
