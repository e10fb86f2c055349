# SPDX-License-Identifier: Apache-2.0
"""From a stream of spans to whole traces, in bounded memory.

Nobody says when a trace ends. One is taken as whole when many other spans came after its own, or at the end of the input.
One too large to hold is handed out in parts, each marked partial, and so is whatever arrives after its trace went out:
then what is missing from it proves nothing. What cannot be marked in hindsight is the part that went out first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from genai_processor.retry.seen import SeenNames
from genai_processor.spans.records import Span


class OpenTrace:
    """The spans of one trace so far.

    Attributes:
        spans: The spans, in the order in which they came.
        files: The file that the spans come from, or, where they come from several, that of each.
        size: About how many bytes of input they are.
        partial: Other spans of this trace were handed out before, or will be later.
    """

    __slots__ = ("files", "partial", "size", "spans")

    def __init__(self, file: str, partial: bool) -> None:
        self.spans: list[Span] = []
        self.files: str | list[str] = file
        self.size = 0
        self.partial = partial

    def add(self, file: str, span: Span) -> None:
        """Add a span."""
        if self.files is not file:
            if type(self.files) is str:
                self.files = [self.files] * len(self.spans)
            self.files.append(file)  # type: ignore[union-attr]
        self.spans.append(span)


class Bounds(NamedTuple):
    """How much is held at once. The largest trace is not counted with the others: it must not crowd them out.

    Attributes:
        traces: Open traces.
        spans: Spans of open traces.
        size: Bytes of input that they are.
        trace_spans: Spans of one trace; beyond it, it is handed out in parts.
        trace_size: Bytes of input of one trace, likewise.
    """

    traces: int = 1_000
    spans: int = 20_000
    size: int = 32 * 1024 * 1024
    trace_spans: int = 20_000
    trace_size: int = 24 * 1024 * 1024


BOUNDS = Bounds()


def whole_traces(
    batches: Iterable[tuple[str, Sequence[Span]]],
    *,
    bounds: Bounds = BOUNDS,
    read_bytes: Callable[[], int] = int,
) -> Iterator[OpenTrace]:
    """Group spans by trace; the trace that has been quiet for longest goes out first.

    Args:
        batches: The spans of one line of input (or message, or document) with their file, in any order.
        bounds: How much is held.
        read_bytes: How many bytes of input have been read so far.
    """
    max_traces, max_spans, max_size, max_trace_spans, max_trace_size = bounds
    held: OrderedDict[str, OpenTrace] = OrderedDict()
    gone = SeenNames()
    largest = trace = OpenTrace("", False)
    count = size = before = most = 0  # `most` spans has the largest
    last_id = None
    for file, batch in batches:
        if not batch:
            continue
        now = read_bytes()
        new_bytes, before = now - before, now  # the bytes of a line count for the first of its spans
        for span in batch:
            trace_id = span.trace_id
            if trace_id != last_id:
                last_id = trace_id
                found = held.get(trace_id)
                if found is None:
                    trace = held[trace_id] = OpenTrace(file, trace_id in gone)
                else:
                    trace = found
                    held.move_to_end(trace_id)
            if trace.files is file:  # as `add` has it, which is called for every span of a scan otherwise
                trace.spans.append(span)
            else:
                trace.add(file, span)
            count += 1
            if new_bytes:
                trace.size += new_bytes
                size += new_bytes
                new_bytes = 0
            length = len(trace.spans)
            if length > most:
                largest, most = trace, length
            while (
                len(held) > max_traces
                or count - most > max_spans
                or size - largest.size > max_size
                or length >= max_trace_spans
                or trace.size >= max_trace_size
            ):
                full = length >= max_trace_spans or trace.size >= max_trace_size
                done_id = trace_id if full else next(iter(held))
                done = held.pop(done_id)
                done.partial = done.partial or full
                count -= len(done.spans)
                size -= done.size
                gone.add(done_id)
                if done is largest:
                    largest = max(held.values(), key=lambda open_trace: len(open_trace.spans), default=_nothing())
                    most = len(largest.spans)
                if done is trace:
                    last_id, trace, length = None, _nothing(), 0
                yield done
    while held:
        yield held.popitem(last=False)[1]


def _nothing() -> OpenTrace:
    return OpenTrace("", False)
