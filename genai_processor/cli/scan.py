# SPDX-License-Identifier: Apache-2.0
"""`scan`: recorded traces through the same code as live ones, as a stream of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from genai_processor.cli.report import Row, call_row, duplicate_row, late_row, unobserved_row, usage_rows
from genai_processor.cli.traces import BOUNDS, Bounds, OpenTrace, whole_traces
from genai_processor.errors import TraceFileError
from genai_processor.retry.findings import DuplicateGroup, Finding
from genai_processor.retry.policy import Policy
from genai_processor.retry.survey import Survey
from genai_processor.retry.trace import Trace
from genai_processor.spans.otlp import ReadError, read_batches
from genai_processor.spans.read import is_marked
from genai_processor.spans.records import Span

if TYPE_CHECKING:
    from genai_processor.cli.decisions import Decisions

MAX_ERRORS = 100
"""How many errors of one file are rows; what comes after them is counted."""

Kinds = Iterator[tuple[str, Row]]
Read = Callable[..., Iterable[Sequence[Span]]]


def scan_rows(
    files: Iterable[str],
    policy: Policy,
    *,
    separate: bool = False,
    length_limit: int | None = None,
    bounds: Bounds = BOUNDS,
    read: Read = read_batches,
    replay: bool = False,
    **options: Any,
) -> Kinds:
    """Scan files.

    Args:
        files: Paths; "-" is the standard input.
        policy: What the user declared of tools.
        separate: Each file is a run of its own; else all are read as one.
        length_limit: The SDK's attribute value length limit, 0 if it had none, None if that is not known.
        bounds: How much of the input is held at once.
        read: Reads one file, as `read_batches` does.
        replay: Also say what a replay would do with every span.
        **options: Passed to `read`.

    Yields:
        `(kind, row)` with kind `call`, `duplicate`, `unobserved_call`, `rebilled`, `usage`, `error` or `replay`, as soon as
        it is known.
    """
    groups = [[file] for file in files] if separate else [list(files)]
    for group in groups:
        yield from _Run(group, policy, length_limit, bounds, replay).rows(read, options)


class _Run:
    """One run: the files that are read together."""

    def __init__(self, files: list[str], policy: Policy, length_limit: int | None, bounds: Bounds, replay: bool) -> None:
        self._files = files
        self._survey = Survey(policy)
        self._length_limit = length_limit
        self._bounds = bounds
        self._errors: list[ReadError] = []
        self._damaged = False
        self._read_bytes = 0
        self._decisions: Decisions | None = None
        if replay:
            from genai_processor.cli.decisions import Decisions

            self._decisions = Decisions(length_limit)

    def rows(self, read: Read, options: dict[str, Any]) -> Kinds:
        for held in whole_traces(self._batches(read, options), bounds=self._bounds, read_bytes=lambda: self._read_bytes):
            if self._errors:
                yield from self._error_rows()
            yield from self._judge(held)
            for finding in self._survey.settled():
                yield self._finding_row(finding)
        yield from self._error_rows()
        for finding in self._survey.rest():
            yield self._finding_row(finding)
        if self._decisions is not None:
            yield from self._decisions.rows()

    def _batches(self, read: Read, options: dict[str, Any]) -> Iterator[tuple[str, Sequence[Span]]]:
        for file in self._files:
            count = 0

            def note(error: ReadError) -> None:
                nonlocal count
                count += 1
                self._damaged = True  # whose spans those were, nobody can tell
                if count <= MAX_ERRORS:
                    self._errors.append(error)

            try:
                for spans in read(file, on_error=note, on_content=self._note_content, **options):
                    yield file, spans
            except TraceFileError as error:
                note(ReadError(file, None, str(error).removeprefix(f"{file}: ")))
            if count > MAX_ERRORS:
                self._errors.append(ReadError(file, None, f"{count - MAX_ERRORS} more errors in this file are not listed"))

    def _note_content(self, size: int) -> None:
        self._read_bytes += size

    def _judge(self, held: OpenTrace) -> Kinds:
        if not held.partial and not any(map(is_marked, held.spans)):
            return  # nothing of an agent, as in most traces of most services
        trace = Trace(held.spans, length_limit=self._length_limit, partial=held.partial, damaged=self._damaged)
        file_of = _file_of(held)
        calls, usage = self._survey.judge(trace, file_of if len(self._files) > 1 else None)
        for call in calls:
            yield "call", call_row(file_of(call.call.node.span.span_id), call)
        for late in self._survey.belied(trace):
            yield "error", late_row(file_of(late.span_id), late)
        yield from usage_rows(file_of(""), usage)
        trace.release()
        if self._decisions is not None:
            yield from self._decisions.add(held.spans, file_of)

    def _finding_row(self, finding: Finding) -> tuple[str, Row]:
        file = finding.origin or (self._files[0] if self._files else "")
        if isinstance(finding, DuplicateGroup):
            return "duplicate", duplicate_row(file, finding)
        return "unobserved_call", unobserved_row(file, finding)

    def _error_rows(self) -> Kinds:
        for error in self._errors:
            yield "error", {"file": error.file, "line": error.line, "error": error.error}
        self._errors.clear()


def _file_of(held: OpenTrace) -> Callable[[str], str]:
    """From which file a span of a trace comes; of one that it does not have, the file in which the trace began."""
    files = held.files
    if isinstance(files, str):
        return lambda span_id: files
    by_id = {span.span_id: file for span, file in zip(reversed(held.spans), reversed(files), strict=True)}
    return lambda span_id: by_id.get(span_id, files[0])
