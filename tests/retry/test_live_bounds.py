# SPDX-License-Identifier: Apache-2.0
"""However much a process does, what is remembered stays small, what is forgotten is not taken for safe, nothing hangs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

PRELUDE = """
import faulthandler, gc, os, signal, sys, threading
faulthandler.dump_traceback_later(60, exit=True)
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, set_span_in_context,
)
from genai_processor import GenAISpanProcessor, MemoryLedger, Settings

class Last(SpanProcessor):
    def on_end(self, span):
        self.span = span
        if span.name.startswith("execute_tool"):
            self.verdict = span.attributes.get("genai.retry.verdict")

last = Last()
provider = TracerProvider(shutdown_on_exit=False, sampler=ALWAYS_ON)
processor = GenAISpanProcessor(last, settings=Settings(metrics=False, events=False))
provider.add_span_processor(processor)
tracer = provider.get_tracer("app")

def attributes(n, **more):
    return {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": f"call_{n:x}Qz7",
        "gen_ai.tool.call.arguments": '{"n": %d}' % n, **more,
    }

def call(n, context=None, failed=False, tracer=tracer, **more):
    span = tracer.start_span("execute_tool pay", context=context, attributes=attributes(n, **more))
    if failed:
        span.set_status(Status(StatusCode.ERROR))
    span.end()

REJECTED = {"pydantic_ai.tool.failure_stage": "validation", "error.type": "x.ValidationError"}
agents = provider.get_tracer("pydantic-ai")
BROKEN = {"error.type": "_OTHER", "gen_ai.tool.call.arguments": '{"order_id": "o1", "amo'}
strict = provider.get_tracer("opentelemetry.instrumentation.genai.openai_agents")

def memory():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20

def beyond(n):
    return set_span_in_context(NonRecordingSpan(SpanContext(n + 1, n + 1, False, TraceFlags(1))))
"""


def in_a_process(code: str) -> str:
    script = PRELUDE + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script], cwd=TESTS, timeout=80, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
def test_very_many_calls_of_one_trace() -> None:
    in_a_process("""
        root = set_span_in_context(tracer.start_span("root"))
        for n in range(60_000):
            call(n, root)
        before = memory()
        for n in range(60_000, 160_000):
            call(n, root)
        assert memory() - before < 16, memory() - before
        assert last.verdict == "no_retry_needed"
    """)


@linux
def test_many_failed_calls_below_an_agent_that_goes_on() -> None:
    in_a_process("""
        root = set_span_in_context(tracer.start_span("root"))
        def fail(n):
            call(n, root, failed=True, **{"gen_ai.tool.call.arguments": '"' + "x" * 20_000 + str(n) + '"'})
        for n in range(1_000):
            fail(n)
        before = memory()
        for n in range(1_000, 8_000):
            fail(n)
        assert memory() - before < 80, memory() - before
        assert last.verdict == "quarantined"
    """)


@linux
def test_every_call_in_a_trace_of_its_own() -> None:
    in_a_process("""
        for n in range(30_000):
            call(n)
        before = memory()
        for n in range(30_000, 60_000):
            call(n)
        assert memory() - before < 16, memory() - before
    """)


@linux
def test_parents_that_never_end() -> None:
    """Past the bound the older half is forgotten: a call from before may then have had anything below it."""
    in_a_process("""
        early = strict.start_span("execute_tool pay", attributes=attributes(1, **BROKEN))
        for n in range(201_000):
            tracer.start_span("POST", context=beyond(n), kind=SpanKind.CLIENT).end()
        assert memory() < 300, memory()
        early.end()
        assert last.verdict == "quarantined_unknown", last.verdict
        call(2, tracer=strict, **BROKEN)
        assert last.verdict == "retryable_pre_execution", last.verdict
    """)


def test_a_hundred_thousand_open_spans_below_a_call() -> None:
    in_a_process("""
        tool = strict.start_span("execute_tool pay", attributes=attributes(1, **BROKEN))
        below = set_span_in_context(tool)
        spans = [tracer.start_span("thread", context=below) for _ in range(100_000)]
        tool.end()
        assert last.verdict == "quarantined", last.verdict
        for span in spans:
            span.end()
        call(2, tracer=strict, **BROKEN)
        assert last.verdict == "retryable_pre_execution"
    """)


def test_more_open_spans_than_are_remembered() -> None:
    in_a_process("""
        tool = strict.start_span("execute_tool pay", attributes=attributes(1, **BROKEN))
        below = set_span_in_context(tool)
        spans = [tracer.start_span("thread", context=below) for _ in range(200_002)]
        tool.end()
        assert last.verdict.startswith("quarantined"), "nobody knows any more what is open below it"
    """)


def test_the_garbage_collector_may_end_a_span_anywhere() -> None:
    """Here it does so at each of the calls that the processor makes for one span, in its critical sections too."""
    in_a_process("""
        class Held:
            def __init__(self, n):
                self.me = self
                self.span = tracer.start_span("execute_tool pay", attributes=attributes(n))
                if n % 2:
                    self.span.set_status(Status(StatusCode.ERROR))
            def __del__(self):
                self.span.end()
                ended.append(1)

        ended, seen, wanted = [], 0, 0
        def collect(frame, event, argument):
            global seen
            if "call" in event and "genai_processor" in frame.f_code.co_filename:
                seen += 1
                if seen == wanted:
                    Held(wanted)
                    gc.collect(0)

        def success(n):
            call(n)
        def failure(n):
            call(n, failed=True)
        def rejection(n):
            call(n, tracer=strict, **BROKEN)

        for kind in (success, failure, rejection):
            before, wanted = len(ended), 0
            while len(ended) - before == wanted:  # until there is no such place any more
                wanted += 1
                seen = 0
                sys.setprofile(collect)
                kind(1_000_000 + wanted)
                sys.setprofile(None)
            assert wanted > 30, wanted
        assert last.verdict == "retryable_pre_execution"
    """)


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_a_child_forked_while_others_hold_the_locks() -> None:
    in_a_process("""
        running = True
        def hammer(first):
            n = first
            while running:
                n += 1
                call(n, failed=n % 2 == 0)
        threads = [threading.Thread(target=hammer, args=(i * 1_000_000,), daemon=True) for i in range(8)]
        for thread in threads:
            thread.start()
        sys.setswitchinterval(1e-5)
        for attempt in range(25):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                call(9_000_000, failed=True)
                os._exit(0 if last.verdict == "quarantined" else 3)
            assert os.waitpid(child, 0)[1] == 0
        running = False
        for thread in threads:
            thread.join()
    """)


def test_sixteen_threads() -> None:
    in_a_process("""
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        exporter, ledger = InMemorySpanExporter(), MemoryLedger()
        mine = TracerProvider(shutdown_on_exit=False, sampler=ALWAYS_ON)
        mine.add_span_processor(GenAISpanProcessor(
            SimpleSpanProcessor(exporter), ledger=ledger, settings=Settings(metrics=False, events=False)))
        start = threading.Barrier(16)
        def work(first):
            start.wait()
            for n in range(first, first + 300):
                with mine.get_tracer("app").start_as_current_span("root"):
                    call(n, failed=n % 2 == 0, tracer=mine.get_tracer("app"))
                    scope = agents_of_mine
                    with scope.start_as_current_span("execute_tool pay", attributes=attributes(-n - 1, **REJECTED)):
                        if n % 3 == 0:
                            mine.get_tracer("app").start_span("POST", kind=SpanKind.CLIENT).end()
        agents_of_mine = mine.get_tracer("pydantic-ai")
        threads = [threading.Thread(target=work, args=(i * 300,)) for i in range(16)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        spans = [s for s in exporter.get_finished_spans() if s.name == "execute_tool pay"]
        assert len(spans) == 2 * 16 * 300
        for span in spans:
            found = span.attributes
            n = int(found["gen_ai.tool.call.arguments"].split(":")[1].strip(" }"))
            verdict = found["genai.retry.verdict"]
            if n < 0:
                assert verdict == ("quarantined" if (-n - 1) % 3 == 0 else "retryable_pre_execution"), (n, verdict)
            else:
                assert verdict == ("quarantined" if n % 2 == 0 else "no_retry_needed"), (n, verdict)
            assert "genai.retry.duplicate_of" not in found
        assert ledger.stats().entries == len(spans)
    """)
