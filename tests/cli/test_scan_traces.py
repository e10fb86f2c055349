# SPDX-License-Identifier: Apache-2.0
"""Traces put together from a stream: what is held, what goes out in parts, and what a part may still prove."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import REJECTED, span_in, spans_of, tool_span, written

from genai_processor.cli.scan import scan_rows
from genai_processor.cli.traces import Bounds, whole_traces
from genai_processor.retry.history import History
from genai_processor.retry.policy import Policy
from genai_processor.retry.seen import SeenNames
from genai_processor.spans.arguments import Arguments, ArgumentsState
from genai_processor.spans.records import Span


def spans(*trace_ids: str) -> Iterator[tuple[str, list[Span]]]:
    for number, trace_id in enumerate(trace_ids):
        yield "file", [Span(trace_id, f"{number:016x}", None, "n", 1, "", 1, 2)]


def ids(bounds: Bounds, *trace_ids: str) -> list[tuple[str, int, bool]]:
    held = whole_traces(spans(*trace_ids), bounds=bounds)
    return [(trace.spans[0].trace_id, len(trace.spans), trace.partial) for trace in held]


def test_the_quiet_trace_goes_first_and_its_late_spans_are_a_part() -> None:
    assert ids(Bounds(traces=2), "a", "b", "a", "c", "b") == [
        ("b", 1, False),
        ("a", 2, False),
        ("c", 1, False),
        ("b", 1, True),
    ]


def test_a_huge_trace_is_handed_out_in_parts_and_does_not_crowd_out_others() -> None:
    assert ids(Bounds(spans=3, trace_spans=4), "a", *"bbbbbb", "a") == [("b", 4, True), ("b", 2, True), ("a", 2, False)]


def test_bytes_are_bounded() -> None:
    read = 0

    def counted() -> Iterator[tuple[str, list[Span]]]:
        nonlocal read
        for item in spans(*"abcdef"):
            read += 10
            yield item

    sizes = [trace.size for trace in whole_traces(counted(), bounds=Bounds(size=20), read_bytes=lambda: read)]
    assert sizes == [10] * 6


def rows(path: Path, bounds: Bounds, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    return list(scan_rows([str(path)], Policy(), bounds=bounds, **options))


def test_part_of_a_trace_proves_no_rejection() -> None:
    whole = [row["verdict"] for kind, row in rows(REJECTED, Bounds()) if kind == "call"]
    part = [row["verdict"] for kind, row in rows(REJECTED, Bounds(trace_spans=1)) if kind == "call"]
    assert whole == ["retryable_pre_execution"]
    assert part == ["quarantined_unknown"]


def test_span_that_comes_after_the_verdict_on_the_call_above_it_is_reported(tmp_path: Path) -> None:
    documents = spans_of(REJECTED)
    call = next(span_in(document) for document in documents if "create_refund" in span_in(document)["name"])
    late = tool_span(call["traceId"], "fe" * 8, parent=call["spanId"])
    span_in(late).update(name="POST", kind=3, attributes=[])
    others = [tool_span(f"{number:032x}", f"{number:016x}") for number in range(1, 4)]
    path = written(tmp_path / "late.jsonl", [*documents, *others, late])
    found = rows(path, Bounds(traces=2))
    assert next(row["verdict"] for kind, row in found if kind == "call") == "retryable_pre_execution"
    (error,) = [row for kind, row in found if kind == "error"]
    assert "fe" * 8 in error["error"]
    assert call["spanId"] in error["error"]


def test_names_seen_are_never_denied() -> None:
    seen = SeenNames(1024)
    names = [f"conversation {number}" for number in range(100)]
    for name in names:
        seen.add(name)
    assert all(name in seen for name in names)
    assert sum(f"other {number}" in seen for number in range(1_000)) < 10


def test_forgotten_conversation_does_not_make_its_ids_good_again() -> None:
    history = History(scopes=2, evicted=SeenNames(1024))
    arguments = Arguments(ArgumentsState.COMPLETE, {"order": "o1"})
    for name in ("first", "second", "third"):
        history.scope(name)
    assert history.means_otherwise("first", "call_q7Xk2m", "refund", arguments)
    assert history.scope("first").means_otherwise("call_q7Xk2m", "refund", arguments)
    assert not history.means_otherwise("fourth", "call_q7Xk2m", "refund", arguments)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_line_that_cannot_be_read_may_have_held_what_speaks_against_a_proof(tmp_path: Path, where: str) -> None:
    documents = [json.dumps(document) for document in spans_of(REJECTED)]
    path = tmp_path / "damaged.jsonl"
    damaged = '{"resourceSpans": [{"scopeSpans'
    path.write_text("\n".join([damaged, *documents] if where == "before" else [*documents, damaged]) + "\n")
    found = rows(path, Bounds())
    assert [row["verdict"] for kind, row in found if kind == "call"] == ["quarantined_unknown"]
