# SPDX-License-Identifier: Apache-2.0
"""Whether the cost per span stays the same with many threads, and with many spans open at once.

python -m benchmarks.scaling
"""

from __future__ import annotations

import statistics
import threading
import time

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Tracer, set_span_in_context

from benchmarks.spans import NoExporter, tracer_of
from benchmarks.workloads import CASES

_SPANS = 4_000


def _simple() -> SimpleSpanProcessor:
    """No thread of its own, which would take part in what is timed."""
    return SimpleSpanProcessor(NoExporter())


def _ours() -> SpanProcessor:
    from genai_processor import GenAISpanProcessor

    return GenAISpanProcessor(_simple())


def _per_span(tracer: Tracer, threads: int) -> float:
    """Wall seconds per span, over all threads: Python runs one of them at a time."""
    run = CASES["tool_200"].run
    barrier = threading.Barrier(threads + 1)

    def work() -> None:
        barrier.wait()
        for _ in range(_SPANS // threads):
            run(tracer)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    return (time.perf_counter() - begin) / _SPANS


def by_threads() -> None:
    """The ratio with 1, 4 and 16 threads."""
    base, ours = tracer_of([_simple()]), tracer_of([_ours()])
    for tracer in (base, ours):
        _per_span(tracer, 4)
    print(f"{'threads':>10s} {'SDK us':>8s} {'ratio':>6s}")
    for threads in (1, 4, 16):
        rounds = [(_per_span(base, threads), _per_span(ours, threads)) for _ in range(7)]
        sdk = statistics.median(one for one, _ in rounds)
        print(f"{threads:10d} {sdk * 1e6:8.1f} {statistics.median(two / one for one, two in rounds):6.3f}", flush=True)


def by_open_spans() -> None:
    """The ratio with 10 to 100,000 spans open beside the timed ones."""
    print(f"{'open spans':>10s} {'SDK us':>8s} {'ratio':>6s}")
    for count in (10, 1_000, 100_000):
        tracers = tracer_of([_simple()]), tracer_of([_ours()])
        held = []
        for tracer in tracers:
            root = tracer.start_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"})
            context = set_span_in_context(root)
            held.append([root, *(tracer.start_span("execute_tool wait", context, attributes=_OPEN) for _ in range(count))])
        rounds = [tuple(_per_span(tracer, 1) for tracer in tracers) for _ in range(7)]
        sdk = statistics.median(one for one, _ in rounds)
        print(f"{count:10d} {sdk * 1e6:8.1f} {statistics.median(two / one for one, two in rounds):6.3f}", flush=True)
        del held


_OPEN = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "wait"}


def main() -> None:
    """Print both tables."""
    by_threads()
    by_open_spans()


if __name__ == "__main__":
    main()
