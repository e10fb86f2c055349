# SPDX-License-Identifier: Apache-2.0
"""Attribute limits as an application sets them: what they cut must never make a committed call retryable."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import pytest
from cli_helpers import READ_ONLY, Recorded, recorded

from genai_processor.cli.scan import scan_rows
from genai_processor.retry.policy import Policy
from genai_processor.spans.otlp import read_batches
from genai_processor.spans.records import Event, Span

TRACES = list(recorded())
LENGTHS = (20, 32, 48, 64, 96, 128, 200, 256, 384, 512)
COUNTS = (4, 5, 6, 8, 10, 12)


def cut(value: Any, length: int) -> Any:
    """What the SDK leaves of a value: texts are shortened, also those in a list."""
    if isinstance(value, str):
        return value[:length]
    return [cut(item, length) for item in value] if isinstance(value, list) else value


def shortened(span: Span, length: int) -> Span:
    return span._replace(
        attributes={key: cut(value, length) for key, value in span.attributes.items()},
        events=tuple(
            Event(event.name, {key: cut(value, length) for key, value in event.attributes.items()}) for event in span.events
        ),
    )


def thinned(span: Span, count: int) -> Span:
    """The SDK drops the oldest attributes first."""
    kept = list(span.attributes.items())[-count:]
    return span._replace(
        attributes=dict(kept), dropped_attributes=span.dropped_attributes + len(span.attributes) - len(kept)
    )


def unsafe(trace: Recorded, change: Any, length_limit: int | None) -> list[str]:
    """The committed calls that a scan allows to be tried again."""

    def read(file: str, **options: Any) -> Iterator[list[Span]]:
        return ([change(span) for span in batch] for batch in read_batches(file, **options))

    waiting: dict[str, deque[dict[str, Any]]] = defaultdict(deque)
    rows = [
        row
        for kind, row in scan_rows([str(trace.path)], Policy(read_only=READ_ONLY), length_limit=length_limit, read=read)
        if kind == "call"
    ]
    for row in sorted(rows, key=lambda row: row["start_unix_nano"] or 0):
        waiting[row["tool"]].append(row)
    found = []
    for call in trace.calls:
        row = waiting[call["tool"]].popleft() if waiting[call["tool"]] else None
        if row and call["side_effect_committed"] and row["verdict"].startswith("retryable"):
            found.append(f"{trace.path}: {row['verdict']} {row['reason']} {row['evidence']}")
    return found


def test_there_is_something_to_test() -> None:
    assert sum(call["side_effect_committed"] for trace in TRACES for call in trace.calls) > 100


def test_as_recorded() -> None:
    assert [line for trace in TRACES for line in unsafe(trace, lambda span: span, None)] == []


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("known", [True, False], ids=["limit known", "limit unknown"])
def test_length_limit(length: int, known: bool) -> None:
    found = [
        line for trace in TRACES for line in unsafe(trace, lambda span: shortened(span, length), length if known else None)
    ]
    assert found == []


@pytest.mark.parametrize("count", COUNTS)
def test_count_limit(count: int) -> None:
    assert [line for trace in TRACES for line in unsafe(trace, lambda span: thinned(span, count), None)] == []


@pytest.mark.parametrize("count", COUNTS)
def test_both_limits(count: int) -> None:
    change = lambda span: shortened(thinned(span, count), 10 * count)  # noqa: E731
    assert [line for trace in TRACES for line in unsafe(trace, change, None)] == []
