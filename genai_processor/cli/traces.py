# SPDX-License-Identifier: Apache-2.0
"""From a stream of spans to whole traces, in bounded memory.

Nobody says when a trace ends. One is taken as whole when it has been quiet while many others came, or at the end of the
input. One too large to hold is handed out in parts, each marked partial: then what is missing from it proves nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from genai_processor.spans.records import Span

MAX_OPEN_TRACES = 1_000
MAX_OPEN_SPANS = 20_000
MAX_TRACE_SPANS = 200_000


@dataclass(slots=True)
class OpenTrace:
    """The spans of one trace so far.

    Attributes:
        spans: The spans with the files that they come from.
        partial: Other spans of this trace were handed out before, or will be later.
    """

    spans: list[tuple[str, Span]] = field(default_factory=list)
    partial: bool = False


def whole_traces(
    spans: Iterable[tuple[str, Span]],
    *,
    max_traces: int = MAX_OPEN_TRACES,
    max_spans: int = MAX_OPEN_SPANS,
    max_trace_spans: int = MAX_TRACE_SPANS,
) -> Iterator[OpenTrace]:
    """Group spans by trace, oldest first when something must go.

    Args:
        spans: Spans with their files, in any order.
        max_traces: How many traces are held open.
        max_spans: How many spans are held open, over all traces but the one being read.
        max_trace_spans: How many spans of one trace are held.
    """
    held: OrderedDict[str, OpenTrace] = OrderedDict()
    split: OrderedDict[str, None] = OrderedDict()
    count = 0
    for file, span in spans:
        trace = held.get(span.trace_id)
        if trace is None:
            trace = held[span.trace_id] = OpenTrace(partial=span.trace_id in split)
        trace.spans.append((file, span))
        count += 1
        if len(trace.spans) >= max_trace_spans:
            trace.partial = True
            split[span.trace_id] = None
        while len(held) > 1 and (len(held) > max_traces or count > max_spans):
            oldest, done = held.popitem(last=False)
            if oldest == span.trace_id:
                held[oldest] = done
                continue
            count -= len(done.spans)
            split[oldest] = None
            if len(split) > 100 * max_traces:
                split.popitem(last=False)
            yield done
        if len(trace.spans) >= max_trace_spans:
            del held[span.trace_id]
            count -= len(trace.spans)
            yield trace
    yield from held.values()
