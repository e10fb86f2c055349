# SPDX-License-Identifier: Apache-2.0
"""An OTLP/HTTP receiver on the loopback: what reaches it is what any backend would get."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


class ReceivedSpan(NamedTuple):
    """A span as it came over the wire."""

    name: str
    span_id: str
    start: int
    failed: bool
    attributes: Mapping[str, Any]


class Receiver:
    """Keeps the spans that exporters send to `url`."""

    def __init__(self) -> None:
        self._spans: list[ReceivedSpan] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    receiver._spans.extend(_decode(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def tool_spans(self) -> list[ReceivedSpan]:
        """The tool calls that arrived, in the order in which they began."""
        tools = [span for span in self._spans if span.attributes.get("gen_ai.operation.name") == "execute_tool"]
        return sorted(tools, key=lambda span: span.start)

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _decode(body: bytes) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            span.name,
            span.span_id.hex(),
            span.start_time_unix_nano,
            span.status.code == 2,
            {item.key: _value(item.value) for item in span.attributes},
        )
        for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
