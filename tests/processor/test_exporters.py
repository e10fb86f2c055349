# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from support.live import FAILED, fail_tool
from support.receiver import Receiver, attributes_of, receiving

from genai_processor.processor import GenAISpanProcessor

Make = Callable[..., TracerProvider]


@pytest.fixture(scope="module")
def running() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def receiver(running: Receiver) -> Receiver:
    running.requests.clear()
    return running


def exporters(receiver: Receiver, protocol: str) -> tuple[Any, Any, Any]:
    if protocol == "http":
        base = f"{receiver.http}/v1"
        return (
            HttpSpanExporter(endpoint=f"{base}/traces"),
            HttpLogExporter(endpoint=f"{base}/logs"),
            HttpMetricExporter(endpoint=f"{base}/metrics"),
        )
    end = {"endpoint": receiver.grpc, "insecure": True}
    return GrpcSpanExporter(**end), GrpcLogExporter(**end), GrpcMetricExporter(**end)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_spans_events_and_metrics_arrive(make_provider: Make, receiver: Receiver, protocol: str) -> None:
    spans, records, metrics = exporters(receiver, protocol)
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(BatchLogRecordProcessor(records))
    meters = MeterProvider([PeriodicExportingMetricReader(metrics, 60_000)], shutdown_on_exit=False)
    processor = GenAISpanProcessor(spans, logger_provider=logs, meter_provider=meters)
    tracer = make_provider(processor).get_tracer("test")
    with tracer.start_as_current_span("GET /"):
        fail_tool(tracer)
    assert processor.force_flush()
    assert logs.force_flush()
    assert meters.force_flush()

    by_name = {span.name: span for span in receiver.spans()}
    span = by_name["execute_tool refund"]
    found = attributes_of(span)
    assert {key: value for key, value in found.items() if not key.startswith("genai.")} == FAILED
    assert found["genai.retry.verdict"] == "quarantined"
    assert isinstance(found["genai.retry.evidence"], list)
    assert "genai.retry.attempt" not in found
    assert attributes_of(by_name["GET /"]) == {}

    (record,) = receiver.logs()
    assert record.event_name == "genai.retry.quarantined"
    assert (record.trace_id, record.span_id) == (span.trace_id, span.span_id)
    assert attributes_of(record)["genai.retry.entry_id"] == found["genai.retry.entry_id"]

    (point,) = receiver.metrics()["genai.retry.verdicts"].sum.data_points
    assert point.as_int == 1
    assert receiver.metrics()["genai.retry.verdicts"].sum.is_monotonic
    assert "genai.ledger.entries" in receiver.metrics()
    meters.shutdown()
    logs.shutdown()
