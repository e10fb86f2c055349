# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from support.live import FAILED, Keeping, fail_tool, tags

from genai_processor.attributes import METRIC_FAULTS, METRIC_VERDICTS
from genai_processor.ledger import MemoryLedger
from genai_processor.processor import GenAISpanProcessor
from genai_processor.settings import Settings
from genai_processor.telemetry import Totals, totals_of

try:
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter
except ImportError:  # its name until SDK 1.39
    from opentelemetry.sdk._logs.export import InMemoryLogExporter as InMemoryLogRecordExporter

Make = Callable[..., TracerProvider]


def points(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], Any]]:
    data = reader.get_metrics_data()
    return {
        metric.name: {tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points}
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_metrics_are_read_from_integers(make_provider: Make) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    first = GenAISpanProcessor(Keeping(), meter_provider=meters)
    second = GenAISpanProcessor(Keeping(), meter_provider=meters, ledger=first.ledger)
    fail_tool(make_provider(first).get_tracer("test"))
    fail_tool(make_provider(second).get_tracer("test"))
    found = points(reader)
    verdict = (("genai.retry.reason", "commitment_marker"), ("genai.retry.verdict", "quarantined"))
    assert found["genai.retry.verdicts"] == {verdict: 2}
    assert found["genai.ledger.entries"][(("genai.ledger.state", "quarantined"),)] == 2
    assert "genai.retry.duplicates" not in found
    assert not any("call" in key for labels in found.values() for label in labels for key, _ in label)
    meters.shutdown()


def test_a_counter_outlives_its_processor(make_provider: Make) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    for total in (1, 2, 3):
        fail_tool(make_provider(GenAISpanProcessor(Keeping(), meter_provider=meters)).get_tracer("test"))
        gc.collect()
        assert sum(points(reader)["genai.retry.verdicts"].values()) == total
    meters.shutdown()


def test_nobody_waits_to_count_and_nothing_is_lost() -> None:
    totals = Totals()
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with totals._lock:
            inside.set()
            go_on.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(10)
    for _ in range(3):
        totals.add(METRIC_VERDICTS, (("a", "b"),), 2)  # would hang, if it waited
    go_on.set()
    holder.join()
    totals.add(METRIC_VERDICTS, (("a", "b"),))
    assert not totals._waiting, "also where nobody ever reads"
    assert totals.read(METRIC_VERDICTS) == {(("a", "b"),): 7}


def test_metrics_can_be_switched_off(make_provider: Make) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    processor = GenAISpanProcessor(Keeping(), meter_provider=meters, settings=Settings(metrics=False))
    fail_tool(make_provider(processor).get_tracer("test"))
    assert points(reader) == {}
    meters.shutdown()


def test_the_same_provider_has_the_same_totals() -> None:
    meters = MeterProvider(shutdown_on_exit=False)
    assert totals_of(meters, offer=False) is totals_of(meters, offer=True)
    assert totals_of(None, offer=False) is not totals_of(meters, offer=False)
    meters.shutdown()


def test_a_ledger_is_watched_once_and_not_kept_alive() -> None:
    totals, ledger = Totals(), MemoryLedger()
    totals.watch(ledger)
    totals.watch(ledger)
    assert len(totals._ledgers) == 1
    del ledger
    gc.collect()
    assert totals.entries() == {}


def test_a_ledger_that_cannot_be_counted_hides_no_other() -> None:
    class Away:
        __slots__ = ()

        def counts(self) -> Any:
            raise OSError("away")

    totals, ledger = Totals(), MemoryLedger()
    totals.watch(Away())
    totals.watch(ledger)
    assert totals.entries()["quarantined"] == 0


def test_a_quarantine_is_a_log_event_of_its_span(make_provider: Make, keeping: Keeping) -> None:
    exporter = InMemoryLogRecordExporter()
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    processor = GenAISpanProcessor(keeping, logger_provider=logs)
    tracer = make_provider(processor).get_tracer("test")
    with tracer.start_as_current_span("chat"):
        fail_tool(tracer)
    with tracer.start_as_current_span("execute_tool refund", attributes=FAILED) as fine:
        fine.set_attribute("gen_ai.tool.call.result", "done")
    (written,) = exporter.get_finished_logs()
    record, span = written.log_record, keeping.ended[0]
    assert record.event_name == "genai.retry.quarantined"
    assert (record.trace_id, record.span_id) == (span.context.trace_id, span.context.span_id)
    assert record.trace_flags.sampled
    assert record.timestamp == span.end_time
    assert "may have committed" in str(record.body)
    assert dict(record.attributes or {}) == {
        "genai.retry.verdict": "quarantined",
        "genai.retry.reason": "commitment_marker",
        "genai.retry.late": False,
        "gen_ai.tool.name": "refund",
        "genai.retry.entry_id": tags(span)["genai.retry.entry_id"],
    }


def test_events_can_be_switched_off(make_provider: Make) -> None:
    exporter = InMemoryLogRecordExporter()
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    processor = GenAISpanProcessor(Keeping(), logger_provider=logs, settings=Settings(events=False))
    fail_tool(make_provider(processor).get_tracer("test"))
    assert exporter.get_finished_logs() == ()


def test_a_log_exporter_that_makes_tool_spans_is_not_judged(make_provider: Make, keeping: Keeping) -> None:
    logs = LoggerProvider(shutdown_on_exit=False)
    processor = GenAISpanProcessor(keeping, logger_provider=logs)
    tracer = make_provider(processor).get_tracer("test")

    class Chatty:
        calls = 0

        def on_emit(self, record: Any) -> None:
            self.calls += 1
            fail_tool(tracer)

        def shutdown(self) -> None: ...

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return True

    chatty = Chatty()
    logs.add_log_record_processor(chatty)  # type: ignore[arg-type]
    fail_tool(tracer)
    assert chatty.calls == 1
    assert [tags(span) != {} for span in keeping.ended] == [False, True]
    fail_tool(tracer)
    assert chatty.calls == 2


def test_a_log_processor_that_raises(make_provider: Make, keeping: Keeping) -> None:
    class Raising:
        def on_emit(self, record: Any) -> None:
            raise OSError("disk")

        def shutdown(self) -> None: ...

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return True

    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(Raising())  # type: ignore[arg-type]
    meters = MeterProvider(shutdown_on_exit=False)
    processor = GenAISpanProcessor(keeping, logger_provider=logs, meter_provider=meters)
    fail_tool(make_provider(processor).get_tracer("test"))
    assert tags(keeping.one())["genai.retry.verdict"] == "quarantined"
    assert totals_of(meters, offer=False).read(METRIC_FAULTS) == {(("genai.processor.fault", "event"),): 1}
    meters.shutdown()


@pytest.mark.parametrize("module", ["genai_processor", "genai_processor.processor"])
def test_the_import_is_light(module: str) -> None:
    script = (
        f"import sys, {module}\n"
        "heavy = [m for m in ('wrapt', 'opentelemetry.instrumentation', 'grpc', 'requests', 'jsonschema')"
        " if m in sys.modules]\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
