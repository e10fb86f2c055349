# SPDX-License-Identifier: Apache-2.0
"""From an alert to the entry: what the log event of a quarantine carries where the ledger is a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry.context import attach, detach, get_current
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from support.live import Keeping, fail_tool, tags
from support.receiver import Receiver, attributes_of, receiving

from genai_processor.ledger import MemoryLedger, open_ledger
from genai_processor.processor import GenAISpanProcessor

Make = Callable[..., TracerProvider]


class Noting:
    """A log processor that keeps what it gets, and whatever is around it."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, Any], Any]] = []

    def on_emit(self, record: Any) -> None:
        self.got.append((dict(record.log_record.attributes), baggage.get_baggage("tenant", get_current())))

    def shutdown(self) -> None: ...

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
def logs(noting: Noting) -> LoggerProvider:
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(noting)  # type: ignore[arg-type]
    return provider


def test_an_event_that_arrives_leads_to_the_entry(make_provider: Make, keeping: Keeping, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with receiving() as receiver:
        logs = LoggerProvider(shutdown_on_exit=False)
        logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{receiver.http}/v1/logs")))
        processor = GenAISpanProcessor(keeping, ledger=url, logger_provider=logs)
        tracer = make_provider(processor).get_tracer("test")
        with tracer.start_as_current_span("invoke_agent"):
            fail_tool(tracer)
        assert processor.force_flush()
        assert logs.force_flush()
        receiver.wait(lambda one: bool(Receiver.logs(one)))
        logs.shutdown()
    (record,) = receiver.logs()
    span = keeping.ended[0]
    assert record.trace_id.hex() == f"{span.context.trace_id:032x}"
    assert record.span_id.hex() == f"{span.context.span_id:016x}"
    assert record.time_unix_nano == span.end_time
    said = attributes_of(record)
    assert said["gen_ai.tool.name"] == "refund"
    assert "genai.retry.entry_id" not in tags(span)  # nobody waits for a disk to end a span
    command = [sys.executable, "-m", "genai_processor", "show", said["genai.retry.entry_id"], "--format", "json"]
    environ = {**os.environ, "GENAI_PROCESSOR_LEDGER": url}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ, timeout=60)
    entry = json.loads(done.stdout)
    assert (entry["trace_id"], entry["span_id"]) == (record.trace_id.hex(), record.span_id.hex())
    assert entry["state"] == "quarantined"


def test_a_sighting_of_a_known_call_names_the_entry_that_it_joined(
    make_provider: Make, noting: Noting, logs: LoggerProvider, tmp_path: Path
) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    processor = GenAISpanProcessor(Keeping(), ledger=ledger, logger_provider=logs)
    tracer = make_provider(processor).get_tracer("test")
    with tracer.start_as_current_span("invoke_agent"):
        fail_tool(tracer)
        fail_tool(tracer)
    assert processor.force_flush()
    (entry,) = ledger.pending().entries
    assert [said["genai.retry.entry_id"] for said, _ in noting.got] == [entry.entry_id] * 2


def test_a_ledger_that_fails_keeps_no_event_back(make_provider: Make, noting: Noting, logs: LoggerProvider) -> None:
    class Away(MemoryLedger):
        def record(self, sighting: Any) -> Any:
            raise OSError("away")

    processor = GenAISpanProcessor(Keeping(), ledger=Remote(Away()), logger_provider=logs)  # type: ignore[arg-type]
    fail_tool(make_provider(processor).get_tracer("test"))
    processor.force_flush()
    ((said, _),) = noting.got
    assert said["genai.retry.verdict"] == "quarantined"
    assert "genai.retry.entry_id" not in said


def test_the_context_of_the_call_is_that_of_its_event(make_provider: Make, noting: Noting, logs: LoggerProvider) -> None:
    processor = GenAISpanProcessor(Keeping(), ledger=Remote(MemoryLedger()), logger_provider=logs)  # type: ignore[arg-type]
    token = attach(baggage.set_baggage("tenant", "acme"))
    try:
        fail_tool(make_provider(processor).get_tracer("test"))
    finally:
        detach(token)
    processor.force_flush()
    assert [tenant for _, tenant in noting.got] == ["acme"]


def test_what_a_log_processor_traces_on_the_recorders_thread_is_not_judged(make_provider: Make, keeping: Keeping) -> None:
    class Chatty(Noting):
        def on_emit(self, record: Any) -> None:
            super().on_emit(record)
            fail_tool(tracer)

    chatty = Chatty()
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(chatty)  # type: ignore[arg-type]
    processor = GenAISpanProcessor(keeping, ledger=Remote(MemoryLedger()), logger_provider=logs)  # type: ignore[arg-type]
    tracer = make_provider(processor).get_tracer("test")
    fail_tool(tracer)
    assert processor.force_flush()
    assert len(chatty.got) == 1
    assert sorted(tags(span) != {} for span in keeping.ended) == [False, True]


class Remote:
    """A ledger that is not in memory, as far as the recorder can see."""

    def __init__(self, inner: MemoryLedger) -> None:
        self.record = inner.record
        self.counts = inner.counts


def test_an_event_is_not_lost_when_the_process_ends(tmp_path: Path) -> None:
    """The logger provider is the last to be made, as the distro does, and so the first to be shut down."""
    script = f"""
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, ConsoleLogRecordExporter
from genai_processor import GenAISpanProcessor
provider, logs = TracerProvider(), LoggerProvider()
provider.add_span_processor(GenAISpanProcessor(ledger="sqlite:///{tmp_path}/ledger.db", logger_provider=logs))
logs.add_log_record_processor(BatchLogRecordProcessor(ConsoleLogRecordExporter()))
tool = {{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "refund"}}
with provider.get_tracer("t").start_as_current_span("execute_tool refund", attributes=tool):
    raise SystemExit("the tool's")
"""
    if "ConsoleLogRecordExporter" not in dir(__import__("opentelemetry.sdk._logs.export", fromlist=["x"])):
        script = script.replace("ConsoleLogRecordExporter", "ConsoleLogExporter")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "genai.retry.entry_id" in done.stdout, done.stderr
