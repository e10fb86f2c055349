# SPDX-License-Identifier: Apache-2.0
"""An OTLP receiver on the loopback interface, over HTTP and gRPC, that keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Receiver:
    """What has arrived, as protobuf messages.

    Attributes:
        http: Base URL for OTLP over HTTP.
        grpc: Base URL for OTLP over gRPC.
        requests: Every export request, in order of arrival.
    """

    def __init__(self) -> None:
        self.http = ""
        self.grpc = ""
        self.requests: list[Any] = []
        self._arrived = threading.Condition()

    def take(self, request: Any) -> None:
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()

    def spans(self) -> list[Any]:
        """Every span that has arrived."""
        return [
            span
            for request in self._of(trace_service_pb2.ExportTraceServiceRequest)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def logs(self) -> list[Any]:
        """Every log record that has arrived."""
        return [
            record
            for request in self._of(logs_service_pb2.ExportLogsServiceRequest)
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def metrics(self) -> dict[str, Any]:
        """The metrics that have arrived, the latest of each name."""
        return {
            metric.name: metric
            for request in self._of(metrics_service_pb2.ExportMetricsServiceRequest)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def wait(self, there: Callable[[Receiver], bool], timeout: float = 20.0) -> None:
        """Wait until something has arrived.

        Raises:
            TimeoutError: It has not.
        """
        with self._arrived:
            if not self._arrived.wait_for(lambda: there(self), timeout):
                raise TimeoutError(f"not received; spans: {[span.name for span in self.spans()]}")

    def _of(self, kind: type) -> list[Any]:
        return [request for request in list(self.requests) if isinstance(request, kind)]


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a protobuf span, log record or data point, with the types that OTLP gave them."""
    return {pair.key: _value(pair.value) for pair in message.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


_HTTP = {
    "/v1/traces": (trace_service_pb2.ExportTraceServiceRequest, trace_service_pb2.ExportTraceServiceResponse),
    "/v1/logs": (logs_service_pb2.ExportLogsServiceRequest, logs_service_pb2.ExportLogsServiceResponse),
    "/v1/metrics": (metrics_service_pb2.ExportMetricsServiceRequest, metrics_service_pb2.ExportMetricsServiceResponse),
}


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request, response = _HTTP[self.path]
            receiver.take(request.FromString(body))
            answer = response().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _servicer(base: type, receiver: Receiver, response: type) -> Any:
    class Servicer(base):  # type: ignore[misc]
        def Export(self, request: Any, context: Any) -> Any:
            receiver.take(request)
            return response()

    return Servicer()


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver on free ports."""
    receiver = Receiver()
    web = ThreadingHTTPServer(("127.0.0.1", 0), _handler(receiver))
    web.daemon_threads = True
    receiver.http = f"http://127.0.0.1:{web.server_address[1]}"
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()

    rpc = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(
        _servicer(trace_service_pb2_grpc.TraceServiceServicer, receiver, trace_service_pb2.ExportTraceServiceResponse),
        rpc,
    )
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(
        _servicer(logs_service_pb2_grpc.LogsServiceServicer, receiver, logs_service_pb2.ExportLogsServiceResponse),
        rpc,
    )
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(
        _servicer(
            metrics_service_pb2_grpc.MetricsServiceServicer, receiver, metrics_service_pb2.ExportMetricsServiceResponse
        ),
        rpc,
    )
    receiver.grpc = f"http://127.0.0.1:{rpc.add_insecure_port('127.0.0.1:0')}"
    rpc.start()
    try:
        yield receiver
    finally:
        web.shutdown()
        web.server_close()
        thread.join(5)
        rpc.stop(None).wait(5)
