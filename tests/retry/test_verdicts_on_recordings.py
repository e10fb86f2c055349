# SPDX-License-Identifier: Apache-2.0
"""Verdicts on recorded traces against what the tools wrote down, whole and as telemetry limits shorten them."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.spans import Read, read

from genai_processor.retry.policy import Policy
from genai_processor.retry.verdict import Verdict
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.records import Event, Span, ToolCall

DATA = Path(__file__).parents[1] / "data"
READ_ONLY = ("search_docs", "get_rate")
POLICY = Policy(read_only=READ_ONLY)
NOT_CALM = ("s09", "s10", "s14")
"""Scenarios in which a body ended well, but late, or reported a failure itself, or was interrupted."""

LENGTHS = (20, 32, 64, 100, 128, 200, 256, 512)
COUNTS = (4, 5, 6, 8, 10, 12)


class Recording(NamedTuple):
    """One recorded run: its name, its spans, what its calls really did."""

    name: str
    spans: list[Span]
    calls: list[Mapping[str, Any]]

    @property
    def calm(self) -> bool:
        """Nothing at all went wrong."""
        fine = all(call["outcome"] in ("ok", "framework_tool_not_recorded") for call in self.calls)
        return fine and not self.name.rpartition("/")[2].startswith(NOT_CALM)


@cache
def recordings() -> list[Recording]:
    found = []
    for truth in sorted(DATA.glob("*/*/truth.json")):
        for entry in json.loads(truth.read_text(encoding="utf-8")):
            path = truth.parent / entry["file"]
            spans = list(read_spans(path, on_error=pytest.fail))
            found.append(Recording(f"{truth.parent.name}/{entry['scenario']}", spans, entry["tool_calls"]))
    return found


def judged(
    recording: Recording, change: Callable[[Span], Span], limit: int | None, partial: bool = False
) -> Iterator[tuple[Any, Verdict]]:
    """Each call that really was made, with the verdict on the row that shows it: same tool, in order of start."""
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in recording.spans:
        traces[span.trace_id].append(change(span))
    survey = Read(*traces.values(), policy=POLICY, length_limit=limit, partial=partial)
    rows: dict[str | None, list[Verdict]] = defaultdict(list)
    for row in sorted(survey.rows, key=lambda row: row.call.node.span.start_ns or 0):
        rows[row.call.verdict.tool].append(row.call.verdict)
    for call in recording.calls:
        if rows[call["tool"]]:
            yield call, rows[call["tool"]].pop(0)


def retried_though_committed(change: Callable[[Span], Span], limit: int | None) -> list[str]:
    return [
        f"{recording.name}: {call['tool']} {call['outcome']} {verdict.verdict} {verdict.reason} {verdict.evidence}"
        for recording in recordings()
        for call, verdict in judged(recording, change, limit)
        if call["side_effect_committed"] and verdict.retryable
    ]


def as_recorded(span: Span) -> Span:
    return span


def test_there_is_much_to_judge() -> None:
    calls = [call for recording in recordings() for call in recording.calls]
    assert len(recordings()) > 250
    assert sum(bool(call["side_effect_committed"] and call["outcome"] != "ok") for call in calls) > 60


def test_no_call_whose_effect_landed_may_be_tried_again() -> None:
    assert retried_though_committed(as_recorded, None) == []


def test_nothing_is_quarantined_where_all_went_well() -> None:
    assert [
        (recording.name, verdict)
        for recording in recordings()
        if recording.calm
        for call, verdict in judged(recording, as_recorded, None)
        if verdict.quarantined and call["tool"] not in READ_ONLY
    ] == []


def test_a_proof_on_the_trace_is_found() -> None:
    """Else quarantining everything would pass."""
    never = [
        verdict
        for recording in recordings()
        for call, verdict in judged(recording, as_recorded, None)
        if not call["executed"] and call["outcome"] == "never_executed"
    ]
    assert len(never) > 40
    assert sum(verdict.retryable for verdict in never) > 0.6 * len(never)


def test_most_failures_after_an_effect_are_quarantined() -> None:
    landed = [
        verdict
        for recording in recordings()
        for call, verdict in judged(recording, as_recorded, None)
        if call["side_effect_committed"] and call["outcome"] != "ok"
    ]
    assert sum(verdict.quarantined for verdict in landed) > 0.9 * len(landed)


def shortened(limit: int) -> Callable[[Span], Span]:
    """As the SDK's attribute value length limit leaves a span."""

    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return value[:limit]
        return [cut(item) for item in value] if isinstance(value, (list, tuple)) else value

    def attributes(found: Mapping[str, Any]) -> dict[str, Any]:
        return {key: cut(value) for key, value in found.items()}

    def change(span: Span) -> Span:
        events: Iterable[Event] = (Event(event.name, attributes(event.attributes)) for event in span.events)
        return span._replace(attributes=attributes(span.attributes), events=tuple(events))

    return change


def fewer(count: int) -> Callable[[Span], Span]:
    """As the SDK's attribute count limit leaves a span: the oldest attributes go."""

    def change(span: Span) -> Span:
        kept = dict(list(span.attributes.items())[-count:])
        return span._replace(attributes=kept, dropped_attributes=len(span.attributes) - len(kept))

    return change


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("limit", LENGTHS)
def test_nor_where_telemetry_cut_every_value(limit: int, known: bool) -> None:
    assert retried_though_committed(shortened(limit), limit if known else None) == []


@pytest.mark.parametrize("count", COUNTS)
def test_nor_where_telemetry_dropped_attributes(count: int) -> None:
    assert retried_though_committed(fewer(count), None) == []


@pytest.mark.parametrize("count", COUNTS)
def test_nor_where_it_did_both(count: int) -> None:
    assert retried_though_committed(lambda span: shortened(20 * count)(fewer(count)(span)), None) == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("partial", [True, False], ids=["said", "unsaid"])
def test_nor_where_spans_beside_the_calls_are_missing(seed: int, partial: bool) -> None:
    """A proof from what is missing would be one. With seed 0 nothing but tool spans is left."""
    rng = random.Random(seed)
    found = []
    for recording in recordings():
        spans = [s for s in recording.spans if isinstance(read(s), ToolCall) or (seed and rng.random() < 0.5)]
        for call, verdict in judged(recording._replace(spans=spans), as_recorded, None, partial):
            if call["side_effect_committed"] and verdict.retryable:
                found.append((recording.name, call["tool"], verdict))
    assert found == []
