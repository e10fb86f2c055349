# SPDX-License-Identifier: Apache-2.0
"""`scan`: recorded traces through the same code as live ones, as a stream of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from genai_processor.cli.report import Row, call_row, duplicate_row, unobserved_row
from genai_processor.cli.traces import OpenTrace, whole_traces
from genai_processor.errors import TraceFileError
from genai_processor.retry.policy import Policy
from genai_processor.retry.survey import Survey, Usage
from genai_processor.retry.trace import Trace
from genai_processor.spans.otlp import ReadError, read_spans
from genai_processor.spans.records import Span


def scan_rows(
    files: Iterable[str],
    policy: Policy,
    *,
    separate: bool = False,
    length_limit: int | None = None,
    read: Callable[..., Iterator[Span]] = read_spans,
    **options: Any,
) -> Iterator[tuple[str, Row]]:
    """Scan files.

    Args:
        files: Paths; "-" is the standard input.
        policy: What the user declared of tools.
        separate: Each file is a run of its own; else all are read as one.
        length_limit: The SDK's attribute value length limit, if it is known.
        read: Reads one file (tests pass their own).
        **options: Passed to `read`.

    Yields:
        `(kind, row)` with kind `call`, `duplicate`, `unobserved_call`, `rebilled`, `usage` or `error`.
    """
    groups = [[file] for file in files] if separate else [list(files)]
    for group in groups:
        yield from _Run(policy, length_limit).rows(group, read, options)


class _Run:
    """One run: the files that are read together."""

    def __init__(self, policy: Policy, length_limit: int | None) -> None:
        self._survey = Survey(policy)
        self._length_limit = length_limit
        self._errors: list[ReadError] = []
        self._file_of: dict[str, str] = {}

    def rows(self, files: list[str], read: Callable[..., Iterator[Span]], options: dict[str, Any]) -> Iterator[tuple[str, Row]]:
        several = len(files) > 1
        for trace in whole_traces(self._spans(files, read, options)):
            yield from self._drain_errors()
            yield from self._judge(trace, several)
        yield from self._drain_errors()
        first = files[0] if files else ""
        for group in self._survey.duplicates():
            yield "duplicate", duplicate_row(self._file_of.get(group.span_ids[0], first), group)
        for call in self._survey.unobserved():
            yield "unobserved_call", unobserved_row(self._file_of.get(call.trace_id, first), call)

    def _spans(
        self, files: list[str], read: Callable[..., Iterator[Span]], options: dict[str, Any]
    ) -> Iterator[tuple[str, Span]]:
        for file in files:
            try:
                for span in read(file, on_error=self._errors.append, **options):
                    yield file, span
            except TraceFileError as error:
                self._errors.append(ReadError(file, None, str(error)))

    def _judge(self, held: OpenTrace, several: bool) -> Iterator[tuple[str, Row]]:
        trace = Trace((span for _, span in held.spans), length_limit=self._length_limit, partial=held.partial)
        file = held.spans[0][0]
        files = {span.span_id: name for name, span in held.spans} if several else {}
        calls, usage = self._survey.judge(trace)
        if several:
            self._file_of[usage.trace_id] = file
        for call in calls:
            span_id = call.call.node.span.span_id
            own = files.get(span_id, file)
            if several and call.repetition is None and call.call.executed:
                self._file_of[span_id] = own
            yield "call", call_row(own, call)
        yield from _usage_rows(file, usage)

    def _drain_errors(self) -> Iterator[tuple[str, Row]]:
        for error in self._errors:
            yield "error", {"file": error.file, "line": error.line, "error": error.error}
        self._errors.clear()


def _usage_rows(file: str, usage: Usage) -> Iterator[tuple[str, Row]]:
    if usage.input_tokens or usage.output_tokens:
        yield (
            "usage",
            {
                "file": file,
                "trace_id": usage.trace_id,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
            },
        )
    if usage.rebilled_tokens:
        yield "rebilled", {"file": file, "trace_id": usage.trace_id, "input_tokens": usage.rebilled_tokens}
