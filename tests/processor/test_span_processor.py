# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Status, StatusCode
from support.live import FAILED, Keeping, fail_tool, tags

from genai_processor.attributes import METRIC_DUPLICATES, METRIC_FAULTS, METRIC_REBILLED_TOKENS
from genai_processor.errors import LedgerURLError
from genai_processor.ledger import MemoryLedger, State
from genai_processor.processor import GenAISpanProcessor
from genai_processor.settings import Settings
from genai_processor.telemetry import Fault, Totals

Make = Callable[..., TracerProvider]


@pytest.fixture(autouse=True)
def own_totals(monkeypatch: pytest.MonkeyPatch) -> Totals:
    """Totals of this test alone."""
    totals = Totals()
    monkeypatch.setattr("genai_processor.stamper.totals_of", lambda *_, **__: totals)
    return totals


def faults(totals: Totals) -> dict[Any, int]:
    return {labels[0][1]: count for labels, count in totals.read(METRIC_FAULTS).items()}


class RecordOnly(Sampler):
    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        *_: Any,
        **__: Any,
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY, attributes)

    def get_description(self) -> str:
        return "record only"


def break_judge(processor: GenAISpanProcessor, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def on_end(span: ReadableSpan) -> None:
        raise error

    monkeypatch.setattr(processor._stamper.judge, "on_end", on_end)


class Raising(Keeping):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise self.error

    on_end = shutdown = on_start

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        raise self.error


def test_a_failed_tool_call_is_tagged_with_exactly_these_attributes(make_provider: Make, keeping: Keeping) -> None:
    processor = GenAISpanProcessor(keeping)
    fail_tool(make_provider(processor).get_tracer("test"))
    found = tags(keeping.one())
    entry_id = found.pop("genai.retry.entry_id")
    evidence = found.pop("genai.retry.evidence")
    assert found == {
        "genai.retry.verdict": "quarantined",
        "genai.retry.reason": "commitment_marker",
        "genai.retry.execution": "unknown",
        "genai.retry.effect": "non_idempotent",
        "genai.retry.arguments.state": "complete",
        "genai.retry.call_id.source": "span",
    }
    assert {type(value) for value in found.values()} == {str}
    assert isinstance(evidence, tuple)
    assert all(type(piece) is str for piece in evidence)
    entry = processor.ledger.get(entry_id)
    assert entry is not None
    assert entry.state is State.QUARANTINED
    assert (entry.tool, entry.call_id, entry.span_id) == (
        "refund",
        FAILED["gen_ai.tool.call.id"],
        f"{keeping.one().context.span_id:016x}",
    )


def test_everything_else_goes_on_as_it_came(make_provider: Make, keeping: Keeping) -> None:
    beside = Keeping()
    tracer = make_provider(beside, GenAISpanProcessor(keeping)).get_tracer("test")
    with tracer.start_as_current_span("GET /", attributes={"http.request.method": "GET"}):
        fail_tool(tracer)
    assert keeping.started == beside.started == ["GET /", "execute_tool refund"]
    assert keeping.one("GET /") is beside.one("GET /")
    assert tags(beside.one()) == {}
    assert tags(keeping.one()) != {}


def test_one_copy_goes_to_all_behind(make_provider: Make) -> None:
    first, second = Keeping(), Keeping()
    fail_tool(make_provider(GenAISpanProcessor(first, second)).get_tracer("test"))
    assert first.one() is second.one()


def test_a_bare_exporter_gets_a_batch_processor(make_provider: Make) -> None:
    exporter = InMemorySpanExporter()
    processor = GenAISpanProcessor(exporter)
    assert isinstance(processor._downstream[0], BatchSpanProcessor)
    fail_tool(make_provider(processor).get_tracer("test"))
    assert processor.force_flush()
    (span,) = exporter.get_finished_spans()
    assert tags(span)["genai.retry.verdict"] == "quarantined"


def test_something_else_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="neither a SpanProcessor nor a SpanExporter"):
        GenAISpanProcessor("http://localhost")  # type: ignore[arg-type]


def test_with_nothing_behind_it_judges_and_says_so_once(make_provider: Make, caplog: pytest.LogCaptureFixture) -> None:
    processor = GenAISpanProcessor()
    tracer = make_provider(processor).get_tracer("test")
    fail_tool(tracer)
    fail_tool(tracer)
    assert len(processor.ledger.pending().entries) >= 1
    assert [r.message for r in caplog.records if "nothing behind it" in r.message] == [caplog.records[0].message]


def test_a_span_that_is_tagged_already_goes_on_as_it_came(make_provider: Make, keeping: Keeping) -> None:
    inner, between = GenAISpanProcessor(keeping), Keeping()
    fail_tool(make_provider(GenAISpanProcessor(between, inner)).get_tracer("test"))
    assert keeping.one() is between.one()
    assert inner.ledger.pending().entries == ()


def test_a_span_that_is_only_recorded_counts_and_goes_on_as_it_came(make_provider: Make, keeping: Keeping) -> None:
    processor = GenAISpanProcessor(keeping)
    fail_tool(make_provider(processor, sampler=RecordOnly()).get_tracer("test"))
    assert tags(keeping.one()) == {}
    assert len(processor.ledger.pending().entries) == 1


def test_a_judge_that_raises(
    make_provider: Make,
    keeping: Keeping,
    monkeypatch: pytest.MonkeyPatch,
    own_totals: Totals,
    caplog: pytest.LogCaptureFixture,
) -> None:
    processor = GenAISpanProcessor(keeping)
    break_judge(processor, monkeypatch, RecursionError("deep"))
    tracer = make_provider(processor).get_tracer("test")
    fail_tool(tracer)
    fail_tool(tracer)
    with tracer.start_as_current_span("GET /"):
        pass
    assert [tags(span).get("genai.retry.verdict") for span in keeping.ended] == ["quarantined_unknown"] * 2 + [None]
    assert len(processor.ledger.pending().entries) == 2
    assert faults(own_totals) == {"witness": 3}
    assert len([r for r in caplog.records if r.name == "genai_processor.telemetry"]) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_in_the_judge_passes_and_the_span_is_not_lost(
    make_provider: Make, keeping: Keeping, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    processor = GenAISpanProcessor(keeping)
    break_judge(processor, monkeypatch, error)
    tracer = make_provider(processor).get_tracer("test")
    with pytest.raises(type(error)):
        fail_tool(tracer)
    assert tags(keeping.one()) == {}


def rewrite(processor: GenAISpanProcessor, monkeypatch: pytest.MonkeyPatch, verdict: dict[str, Any], **more: Any) -> None:
    """Let the judge say something else."""
    judge = processor._stamper.judge.on_end

    def on_end(span: ReadableSpan) -> Any:
        judgement = judge(span)
        assert judgement is not None
        return judgement._replace(verdict=judgement.verdict._replace(**verdict), **more)

    monkeypatch.setattr(processor._stamper.judge, "on_end", on_end)


def test_what_no_exporter_can_encode_is_not_written(
    make_provider: Make, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = GenAISpanProcessor(keeping)
    rewrite(processor, monkeypatch, {"evidence": ("\ud800" + "x" * 999,), "call_id": "\ud800"}, has_id=False)
    fail_tool(make_provider(processor).get_tracer("test"))
    found = tags(keeping.one())
    assert found["genai.retry.evidence"] == ("?" + "x" * 255,)
    assert "genai.retry.call_id" not in found
    assert encode_spans([keeping.one()]).ByteSize() > 0


@pytest.mark.parametrize(("call_id", "written"), [("toolu_9", "toolu_9"), ("x" * 257, None), (None, None)])
def test_a_call_id_from_elsewhere_is_written_whole_or_not_at_all(
    make_provider: Make, keeping: Keeping, monkeypatch: pytest.MonkeyPatch, call_id: str | None, written: str | None
) -> None:
    processor = GenAISpanProcessor(keeping)
    rewrite(processor, monkeypatch, {"call_id": call_id}, has_id=False)
    fail_tool(make_provider(processor).get_tracer("test"))
    assert tags(keeping.one()).get("genai.retry.call_id") == written


def test_a_call_that_runs_again_is_a_duplicate(make_provider: Make, keeping: Keeping, own_totals: Totals) -> None:
    tracer = make_provider(GenAISpanProcessor(keeping)).get_tracer("test")
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        fail_tool(tracer)
        fail_tool(tracer)
    first, second = (tags(span) for span in keeping.ended[:2])
    assert "genai.retry.duplicate_of" not in first
    assert second["genai.retry.duplicate_of"] == f"{keeping.ended[0].context.span_id:016x}"
    assert second["genai.retry.attempt"] == 2
    assert type(second["genai.retry.attempt"]) is int
    assert own_totals.read(METRIC_DUPLICATES) == {(("genai.retry.suspected", False),): 1}


def test_a_suspected_duplicate_is_counted_and_so_are_its_tokens(
    make_provider: Make, keeping: Keeping, monkeypatch: pytest.MonkeyPatch, own_totals: Totals
) -> None:
    processor = GenAISpanProcessor(keeping)
    rewrite(processor, monkeypatch, {}, duplicate_of=None, attempt=2, suspected=True, rebilled_tokens=120)
    fail_tool(make_provider(processor).get_tracer("test"))
    found = tags(keeping.one())
    assert "genai.retry.duplicate_of" not in found
    assert found["genai.retry.attempt"] == 2
    assert own_totals.read(METRIC_DUPLICATES) == {(("genai.retry.suspected", True),): 1}
    assert own_totals.read(METRIC_REBILLED_TOKENS) == {(): 120}


def test_late_evidence_is_recorded_and_no_span_is_tagged(
    make_provider: Make, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = GenAISpanProcessor(keeping)
    rewrite(processor, monkeypatch, {}, late=True)
    fail_tool(make_provider(processor).get_tracer("test"))
    assert tags(keeping.one()) == {}
    assert len(processor.ledger.pending().entries) == 1


def test_a_ledger_that_raises(make_provider: Make, keeping: Keeping, own_totals: Totals) -> None:
    class Broken(MemoryLedger):
        def record(self, sighting: Any) -> Any:
            raise OSError("disk")

    fail_tool(make_provider(GenAISpanProcessor(keeping, ledger=Broken())).get_tracer("test"))
    found = tags(keeping.one())
    assert found["genai.retry.verdict"] == "quarantined"
    assert "genai.retry.entry_id" not in found
    assert faults(own_totals) == {"ledger": 1}


def test_a_span_that_cannot_be_copied(make_provider: Make, keeping: Keeping, own_totals: Totals) -> None:
    class Slotted(ReadableSpan):
        __slots__ = ("more",)

    processor = GenAISpanProcessor(keeping)
    seen = Keeping()
    fail_tool(make_provider(seen).get_tracer("test"))
    span = Slotted.__new__(Slotted)
    vars(span).update(vars(seen.one()))
    processor.on_end(span)
    assert keeping.ended == [span]
    assert faults(own_totals) == {"tag": 1}


def test_processors_behind_that_raise(
    make_provider: Make, keeping: Keeping, own_totals: Totals, caplog: pytest.LogCaptureFixture
) -> None:
    before = Raising(ValueError("before"))
    processor = GenAISpanProcessor(before, keeping, Raising(OSError("after")))
    tracer = make_provider(processor).get_tracer("test")
    fail_tool(tracer)
    fail_tool(tracer)
    assert len(keeping.started) == len(keeping.ended) == 2
    assert tags(keeping.ended[0])["genai.retry.verdict"] == "quarantined"
    assert processor.force_flush() is False
    processor.shutdown()
    assert (len(keeping.flushed), keeping.shut) == (1, 1)
    assert faults(own_totals) == {
        "downstream_on_start": 4,
        "downstream_on_end": 4,
        "downstream_force_flush": 2,
        "downstream_shutdown": 2,
    }
    assert len([r for r in caplog.records if r.name == "genai_processor.telemetry"]) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_behind_passes_once_everybody_has_the_span(
    make_provider: Make, keeping: Keeping, error: BaseException
) -> None:
    class Interrupted(Keeping):
        def on_end(self, span: ReadableSpan) -> None:
            raise error

    tracer = make_provider(GenAISpanProcessor(Interrupted(), keeping)).get_tracer("test")
    with pytest.raises(type(error)):
        fail_tool(tracer)
    assert tags(keeping.one())["genai.retry.verdict"] == "quarantined"


def test_faults_are_logged_once_by_many_threads(own_totals: Totals, caplog: pytest.LogCaptureFixture) -> None:
    from genai_processor.telemetry import Faults

    counted, together = Faults(own_totals), threading.Barrier(8)

    def count() -> None:
        together.wait()
        for _ in range(200):
            counted.count(Fault.TAG, "odd")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults(own_totals) == {"tag": 1600}
    assert len(caplog.records) == 1


def test_shutdown_twice_reaches_those_behind_once(keeping: Keeping) -> None:
    processor = GenAISpanProcessor(keeping)
    processor.shutdown()
    processor.shutdown()
    assert keeping.shut == 1


def test_a_flush_has_one_time_limit_for_all() -> None:
    class Slow(Keeping):
        def force_flush(self, timeout_millis: int = 30000) -> bool:
            super().force_flush(timeout_millis)
            threading.Event().wait(0.05)
            return True

    first, second, third = Slow(), Slow(), Keeping()
    processor = GenAISpanProcessor(first, second, third)
    assert processor.force_flush(1000) is True
    assert 1000 >= first.flushed[0] > second.flushed[0] > third.flushed[0] > 0
    assert processor.force_flush(60) is False
    assert len(third.flushed) == 1


@pytest.mark.parametrize("millis", [float("nan"), -1, 0, float("-inf")])
def test_a_flush_in_no_time_is_none(millis: float, keeping: Keeping) -> None:
    assert GenAISpanProcessor(keeping).force_flush(millis) is False  # type: ignore[arg-type]


def test_a_flush_without_a_limit_has_a_long_one(keeping: Keeping) -> None:
    assert GenAISpanProcessor(keeping).force_flush(float("inf")) is True  # type: ignore[arg-type]
    assert keeping.flushed[0] > 10**8


def test_who_does_something_when_a_span_begins_or_is_about_to_end_is_asked(make_provider: Make, keeping: Keeping) -> None:
    seen: list[str] = []

    class Batch(BatchSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            seen.append("class")

    class Ending(SpanProcessor):
        def _on_ending(self, span: Any) -> None:
            seen.append("ending")

    exporter = InMemorySpanExporter()
    patched = BatchSpanProcessor(exporter)
    patched.on_start = lambda span, parent_context=None: seen.append("instance")  # type: ignore[method-assign]
    processor = GenAISpanProcessor(Batch(exporter), patched, BatchSpanProcessor(exporter), Ending(), keeping)
    make_provider(processor).get_tracer("test").start_span("a").end()
    assert seen[:2] == ["class", "instance"]
    assert seen[2:] == (["ending"] if hasattr(SpanProcessor, "_on_ending") else [])
    assert len(keeping.started) == 1
    processor.shutdown()


def test_a_ledger_may_be_given_by_its_url(make_provider: Make, keeping: Keeping, tmp_path: Path) -> None:
    processor = GenAISpanProcessor(keeping, ledger=f"sqlite:///{tmp_path}/ledger.db")
    fail_tool(make_provider(processor).get_tracer("test"))
    assert processor.force_flush(10_000)
    assert len(processor.ledger.pending().entries) == 1
    with pytest.raises(LedgerURLError):
        GenAISpanProcessor(keeping, ledger="postgres:what")


class Hanging:
    """A ledger elsewhere that never answers."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def record(self, sighting: Any) -> None:
        self.gate.wait(20)

    def counts(self) -> dict[State, int]:
        return {}


def test_a_flush_reaches_the_exporter_though_the_ledger_hangs(make_provider: Make, keeping: Keeping) -> None:
    ledger = Hanging()
    processor = GenAISpanProcessor(keeping, ledger=ledger)  # type: ignore[arg-type]
    fail_tool(make_provider(processor).get_tracer("test"))
    assert processor.force_flush(100) is False
    assert len(keeping.flushed) == 1
    assert keeping.flushed[0] > 90
    ledger.gate.set()
    assert processor.force_flush(10_000) is True


def test_a_shutdown_reaches_the_exporter_though_the_ledger_hangs(
    make_provider: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    class Last(Keeping):
        def shutdown(self) -> None:
            order.append("exporter")

    ledger = Hanging()
    processor = GenAISpanProcessor(Last(), ledger=ledger)  # type: ignore[arg-type]
    fail_tool(make_provider(processor).get_tracer("test"))
    flush = processor._stamper.recorder.flush

    def noting(timeout: float) -> bool:
        done = flush(timeout)
        order.append("ledger" if done else "ledger gave up")
        return done

    monkeypatch.setattr(processor._stamper.recorder, "flush", noting)
    monkeypatch.setattr("genai_processor.processor._SHUTDOWN_SECONDS", 0.1)
    processor.shutdown()
    assert order == ["exporter", "ledger gave up"]
    ledger.gate.set()
    assert processor.force_flush(10_000) is True


def test_a_flush_that_fails_behind() -> None:
    class Failing(Keeping):
        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return False

    last = Keeping()
    assert GenAISpanProcessor(Failing(), last).force_flush() is False
    assert len(last.flushed) == 1


def test_behind_the_concurrent_multi_processor(make_provider: Make, keeping: Keeping) -> None:
    multi = ConcurrentMultiSpanProcessor(num_threads=2)
    provider = make_provider(active_span_processor=multi)
    provider.add_span_processor(GenAISpanProcessor(keeping))
    provider.add_span_processor(Keeping())
    tracer = provider.get_tracer("test")
    threads = [threading.Thread(target=fail_tool, args=(tracer,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [tags(span)["genai.retry.verdict"] for span in keeping.ended] == ["quarantined"] * 8


@pytest.mark.parametrize(
    "hostile",
    [
        {"gen_ai.tool.name": ""},
        {"gen_ai.tool.name": 7},
        {"gen_ai.tool.name": ("refund", "refund")},
        {"gen_ai.tool.call.id": True},
        {"gen_ai.tool.call.id": "x" * 100_000},
        {"gen_ai.tool.call.id": "\ud800"},
        {"gen_ai.tool.call.arguments": "[" * 100_000},
        {"gen_ai.tool.call.arguments": "{" + '"a":{' * 20_000},
        {"gen_ai.tool.call.arguments": "\x00\ud800"},
        {"gen_ai.tool.call.arguments": (1, 2, 3)},
        {"gen_ai.tool.call.arguments": 1e400},
        {"gen_ai.operation.name": 3.5},
        {"genai.retry.reason": "mine"},
    ],
    ids=lambda hostile: next(iter(hostile)),
)
def test_hostile_values_neither_raise_nor_lose_the_span(
    make_provider: Make, keeping: Keeping, own_totals: Totals, hostile: dict[str, Any]
) -> None:
    fail_tool(make_provider(GenAISpanProcessor(keeping)).get_tracer("test"), **hostile)
    span = keeping.one()
    assert faults(own_totals) == {}
    judged = not {"gen_ai.operation.name", "genai.retry.verdict"} & set(hostile)
    assert ("genai.retry.reason" in tags(span)) is judged
    for key, value in tags(span).items():
        if key != "genai.retry.attempt":
            "".join(value).encode()
            assert all(len(piece) <= 256 for piece in ([value] if isinstance(value, str) else value))


def test_digests_are_stamped_only_if_asked_for(make_provider: Make) -> None:
    stamped = []
    for settings in (Settings(), Settings(stamp_digests=True), Settings(stamp_digests=True, digest_key="key")):
        keeping = Keeping()
        fail_tool(make_provider(GenAISpanProcessor(keeping, settings=settings)).get_tracer("test"))
        stamped.append(tags(keeping.one()).get("genai.retry.action"))
    without, plain, keyed = stamped
    assert without is None
    assert plain is not None
    assert keyed is not None
    assert plain != keyed
    assert len(keyed) == 64


def test_no_argument_value_is_ever_written(make_provider: Make, keeping: Keeping) -> None:
    settings = Settings(stamp_digests=True)
    arguments = '{"iban": "DE00SECRET"}'
    fail_tool(
        make_provider(GenAISpanProcessor(keeping, settings=settings)).get_tracer("test"),
        **{"gen_ai.tool.call.arguments": arguments},
    )
    assert "SECRET" not in repr(tags(keeping.one()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_judges_on(make_provider: Make, keeping: Keeping) -> None:
    processor = GenAISpanProcessor(keeping)
    tracer = make_provider(processor).get_tracer("test")
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            fail_tool(tracer)

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that hangs on an inherited lock must not hang the tests
                try:
                    keeping.ended.clear()
                    fail_tool(tracer)
                    os._exit(0 if tags(keeping.one())["genai.retry.verdict"] == "quarantined" else 1)
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_an_exporter_behind_a_simple_processor(make_provider: Make) -> None:
    exporter = InMemorySpanExporter()
    tracer = make_provider(GenAISpanProcessor(SimpleSpanProcessor(exporter))).get_tracer("test")
    with tracer.start_as_current_span("execute_tool refund", attributes=FAILED) as span:
        span.set_status(Status(StatusCode.OK))
        span.set_attribute("gen_ai.tool.call.result", "done")
    assert tags(exporter.get_finished_spans()[0])["genai.retry.verdict"] == "no_retry_needed"


def test_a_bad_setting_is_one_warning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("GENAI_PROCESSOR_MAX_AGE", "long")
    GenAISpanProcessor(Keeping())
    assert caplog.text.count("GENAI_PROCESSOR_MAX_AGE must be integer above 0") == 1


def test_a_ledger_url_that_names_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        processor = GenAISpanProcessor(Keeping(), settings=Settings(ledger="nowhere://user:pass@host"))
    assert isinstance(processor.ledger, MemoryLedger)
    assert "GENAI_PROCESSOR_LEDGER" in caplog.text
    assert "pass@" not in caplog.text
