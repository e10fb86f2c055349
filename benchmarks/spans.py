# SPDX-License-Identifier: Apache-2.0
"""Per span: start and end through the SDK, with the processor in front of a no-op exporter, beside the same without it.

CPU time of the thread that makes the spans. Each figure is the median over fresh processes of a ratio of minima over
alternating rounds. A second, identical base stands beside the first: what it differs by is the noise.

    python -m benchmarks.spans [--processes 11] [--cases plain,tool_200] [--others]
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.workloads import CASES, Case


class NoExporter(SpanExporter):
    """Exports nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _batch() -> SpanProcessor:
    return BatchSpanProcessor(NoExporter())


def _ours() -> list[SpanProcessor]:
    from genai_processor import GenAISpanProcessor

    return [GenAISpanProcessor(_batch())]


def _recording() -> list[SpanProcessor]:
    from genai_processor import GenAISpanProcessor, Settings

    return [GenAISpanProcessor(_batch(), settings=Settings(record_for_replay=True))]


def _others() -> dict[str, Callable[[], list[SpanProcessor]]]:
    """The processors that users run today; each stands before the exporter, as its documentation says."""
    from openinference.instrumentation.agent_framework import AgentFrameworkToOpenInferenceProcessor
    from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor
    from opentelemetry.processor.baggage import ALLOW_ALL_BAGGAGE_KEYS, BaggageSpanProcessor

    return {
        "OpenInference pydantic-ai": lambda: [OpenInferenceSpanProcessor(), _batch()],
        "OpenInference agent-framework": lambda: [AgentFrameworkToOpenInferenceProcessor(), _batch()],
        "baggage": lambda: [BaggageSpanProcessor(ALLOW_ALL_BAGGAGE_KEYS), _batch()],
    }


def tracer_of(processors: list[SpanProcessor]) -> trace.Tracer:
    """A tracer of a provider with these processors."""
    provider = TracerProvider()
    for processor in processors:
        provider.add_span_processor(processor)
    return provider.get_tracer("benchmark")


def measure(name: str, others: bool, seconds: float) -> dict[str, float]:
    """In this process: seconds per span of each variant, the minimum over alternating rounds."""
    logging.disable(logging.CRITICAL)
    _logs.set_logger_provider(LoggerProvider())
    metrics.set_meter_provider(MeterProvider())
    case = CASES[name]
    tracers = {"base": tracer_of([_batch()]), "twin": tracer_of([_batch()]), "ours": tracer_of(_ours())}
    if case.recorded:
        tracers["recorded for replay"] = tracer_of(_recording())
    if others:
        tracers.update({title: tracer_of(make()) for title, make in _others().items()})
    best = dict.fromkeys(tracers, float("inf"))
    runs = _runs_per_round(case, tracers["base"])
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end or rounds < 5:
        rounds += 1
        order = list(tracers) if rounds % 2 else list(reversed(tracers))
        for variant in order:
            best[variant] = min(best[variant], _round(case, tracers[variant], runs))
    return best


def _runs_per_round(case: Case, tracer: trace.Tracer) -> int:
    _round(case, tracer, 50)
    return max(20, min(1000, int(0.02 / _round(case, tracer, 50))))


def _round(case: Case, tracer: trace.Tracer, runs: int) -> float:
    run = case.run
    gc.collect()
    if case.inside:
        with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
            begin = time.thread_time()
            for _ in range(runs):
                run(tracer)
            return (time.thread_time() - begin) / runs
    begin = time.thread_time()
    for _ in range(runs):
        run(tracer)
    return (time.thread_time() - begin) / runs


def main() -> None:
    """Run the parent, or one child."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=1.5, help="per process and case")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--others", action="store_true", help="also the processors that users run today")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options.others, options.seconds)))
        return
    print(f"{'span':42s} {'SDK us':>7s} {'twin':>6s} {'ratio':>6s} {'extra':>9s}  target")
    for name in options.cases.split(","):
        _report(name, options.processes, options.seconds, options.others)


def _report(name: str, processes: int, seconds: float, others: bool) -> None:
    command = [sys.executable, "-m", "benchmarks.spans", "--child", name, "--seconds", str(seconds)]
    results = []
    for _ in range(processes):
        done = subprocess.run(command + ["--others"] * others, capture_output=True, text=True, check=True)
        results.append(json.loads(done.stdout))
    case = CASES[name]
    base = statistics.median(result["base"] for result in results) * 1e6
    twin = statistics.median(result["twin"] / result["base"] for result in results)
    ratio = statistics.median(result["ours"] / result["base"] for result in results)
    extra = statistics.median(result["ours"] - result["base"] for result in results) * 1e6
    target = f"<= {case.limit:g}" if case.limit else f"<= {case.extra_ms:g} ms more" if case.extra_ms else ""
    print(f"{case.title:42s} {base:7.1f} {twin:6.3f} {ratio:6.3f} {extra:+7.1f}us  {target}", flush=True)
    for title in results[0]:
        if title not in ("base", "twin", "ours"):
            other = statistics.median(result[title] / result["base"] for result in results)
            print(f"{'  beside: ' + title:42s} {'':7s} {'':6s} {other:6.3f}", flush=True)


if __name__ == "__main__":
    main()
