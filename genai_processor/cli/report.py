# SPDX-License-Identifier: Apache-2.0
"""The rows that a scan prints, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from genai_processor.retry.findings import DuplicateGroup, UnobservedCall
from genai_processor.retry.survey import LateSpan, SurveyedCall
from genai_processor.retry.usage import Usage

Row = dict[str, Any]


def call_row(file: str, surveyed: SurveyedCall) -> Row:
    """One tool call, however many spans show it."""
    call, found = surveyed.call, surveyed.repetition
    span, record, facts, verdict = call.node.span, call.node.call, call.facts, call.verdict
    assert record is not None
    return {
        "file": file,
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "span_ids": [view.span.span_id for view in call.node.views()],
        "start_unix_nano": span.start_ns,
        "end_unix_nano": span.end_ns,
        "tool": facts.tool,
        "call_id": facts.call_id,
        "call_id_source": str(facts.call_id_source),
        "arguments_state": str(facts.arguments_state),
        "arguments_source": call.arguments_source,
        "execution": str(facts.execution),
        "effect": str(facts.effect),
        "ended": str(facts.ended),
        "failed": facts.failure_marked,
        "verdict": str(verdict.verdict),
        "reason": str(verdict.reason),
        "evidence": list(verdict.evidence),
        "duplicate_of": found.first if found is not None and not found.suspected else None,
        "dialect": span.scope,
        "scope": call.scope,
    }


def duplicate_row(file: str, group: DuplicateGroup) -> Row:
    """Executions of one effect."""
    return {
        "file": file,
        "span_ids": group.span_ids,
        "key": str(group.key),
        "value": group.value,
        "suspected": group.suspected,
    }


def unobserved_row(file: str, call: UnobservedCall) -> Row:
    """A proposed call that no span shows."""
    return {
        "file": file,
        "trace_id": call.trace_id,
        "proposed_by": call.proposed_by,
        "tool": call.tool,
        "call_id": call.call_id,
    }


def late_row(file: str, late: LateSpan) -> Row:
    """A span that came after the call above it had been judged."""
    return {
        "file": file,
        "line": None,
        "error": f"span {late.span_id} of trace {late.trace_id} came late: below call {late.call_span_id}, which had been "
        "judged as never started. Do not rely on that verdict; sort the input by trace and scan it again",
    }


def usage_rows(file: str, usage: Usage) -> Iterator[tuple[str, Row]]:
    """The tokens of one trace, as far as it has any."""
    if usage.input_tokens or usage.output_tokens:
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        yield "usage", {"file": file, "trace_id": usage.trace_id, **tokens}
    if usage.rebilled_tokens:
        yield "rebilled", {"file": file, "trace_id": usage.trace_id, "input_tokens": usage.rebilled_tokens}
