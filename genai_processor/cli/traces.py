# SPDX-License-Identifier: Apache-2.0
"""From a stream of spans to whole traces, in bounded memory.

Nobody says when a trace ends. One is taken as whole when many other spans came after its own, or at the end of the input.
One too large to hold is handed out in parts, each marked partial, and so is whatever arrives after its trace went out:
then what is missing from it proves nothing. What cannot be marked in hindsight is the part that went out first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

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
    """How much is held at once.

    Attributes:
        traces: Open traces.
        spans: Spans, over all open traces but the one that is growing.
        trace_spans: Spans of one trace; beyond it, it is handed out in parts.
        size: Bytes of input, over all open traces.
    """

    traces: int = 1_000
    spans: int = 20_000
    trace_spans: int = 50_000
    size: int = 48 * 1024 * 1024


_MAX_SPLIT = 200_000
_BOUNDS = Bounds()


class _Gone:
    """Which traces were handed out, in bounded memory.

    Once some had to be forgotten, every trace that begins might be the rest of one of them. But most late spans come
    soon after their trace: what is remembered are the latest, and the rest is taken for new.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def add(self, trace_id: str) -> None:
        self._ids[trace_id] = None
        if len(self._ids) > _MAX_SPLIT:
            self._ids.popitem(last=False)

    def __contains__(self, trace_id: str) -> bool:
        return trace_id in self._ids


def whole_traces(
    spans: Iterable[tuple[str, Span]],
    *,
    bounds: Bounds = _BOUNDS,
    read_bytes: Callable[[], int] = int,
) -> Iterator[OpenTrace]:
    """Group spans by trace; the trace that began first goes out first when something must go.

    Args:
        spans: Spans with their files, in any order.
        bounds: How much is held.
        read_bytes: How many bytes of input the spans so far were, to know how much is held.
    """
    held: OrderedDict[str, OpenTrace] = OrderedDict()
    gone = _Gone()
    count = size = before = 0
    max_traces, max_spans, max_trace_spans, max_size = bounds
    for file, span in spans:
        trace = held.get(span.trace_id)
        if trace is None:
            trace = held[span.trace_id] = OpenTrace(file, span.trace_id in gone)
        trace.add(file, span)
        count += 1
        now = read_bytes()
        if now != before:  # a line's bytes count for the first of its spans
            trace.size += now - before
            size += now - before
            before = now
        while len(held) > 1 and (len(held) > max_traces or count > max_spans or size > max_size):
            oldest = next(iter(held))
            if oldest == span.trace_id:
                held.move_to_end(oldest)
                continue
            done = held.pop(oldest)
            count -= len(done.spans)
            size -= done.size
            gone.add(oldest)
            yield done
        if len(trace.spans) >= max_trace_spans or size > max_size:
            trace.partial = True
            gone.add(span.trace_id)
            del held[span.trace_id]
            count -= len(trace.spans)
            size -= trace.size
            yield trace
    while held:
        yield held.popitem(last=False)[1]
