# SPDX-License-Identifier: Apache-2.0
"""OTLP protobuf to `Span`.

Strings are UTF-8 or protobuf itself refuses the message; so are values nested more than 100 messages deep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped,unused-ignore]
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData

from genai_processor.spans.otlp_resource import ResourceToken, resource_token
from genai_processor.spans.records import Event, Link, Span

_MAX_TOKENS = 1024
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_new_span = tuple.__new__  # cheaper than the named tuple's own; tests compare each field with every other source


class ProtobufSpans:
    """Reads the spans of serialized OTLP messages."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """Say to `report` what is wrong with what is left out."""
        self._report = report
        self._tokens: dict[bytes, ResourceToken] = {}

    def read(self, content: bytes) -> list[Span]:
        """The spans of one `TracesData` or `ExportTraceServiceRequest`, which are the same on the wire."""
        try:
            data = TracesData.FromString(content)
        except DecodeError as error:
            self._report(f"not an OTLP protobuf message of traces: {error}")
            return []
        spans: list[Span] = []
        for resource_spans in data.resource_spans:
            self._resource_spans(resource_spans, spans)
        return spans

    def read_resource_spans(self, content: bytes) -> list[Span]:
        """The spans of one `ResourceSpans`."""
        spans: list[Span] = []
        try:
            self._resource_spans(ResourceSpans.FromString(content), spans)
        except DecodeError as error:
            self._report(f"not an OTLP protobuf message of traces: {error}")
        return spans

    def _resource_spans(self, resource_spans: ResourceSpans, spans: list[Span]) -> None:
        token = self._token(resource_spans.resource)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name
            for span in scope_spans.spans:
                trace_id = span.trace_id
                span_id = span.span_id
                parent_id = span.parent_span_id
                if wrong := _wrong_id(trace_id, span_id, parent_id):
                    self._report(f"span {span_id.hex()[:40]}: {wrong}")
                    continue
                status = span.status
                events = span.events
                links = span.links
                spans.append(
                    _new_span(
                        Span,
                        (
                            trace_id.hex(),
                            span_id.hex(),
                            parent_id.hex() if parent_id and parent_id != _NO_SPAN else None,
                            span.name,
                            span.kind,
                            scope,
                            span.start_time_unix_nano or None,
                            span.end_time_unix_nano or None,
                            status.code,
                            status.message,
                            _attributes(span.attributes),
                            _events(events) if events else (),
                            self._links(links) if links else (),
                            span.dropped_attributes_count,
                            span.dropped_events_count,
                            token,
                        ),
                    )
                )

    def _links(self, links: Any) -> tuple[Link, ...]:
        read = []
        for link in links:
            if wrong := _wrong_id(link.trace_id, link.span_id, b""):
                self._report(f"link left out: {wrong}")
            else:
                read.append(Link(link.trace_id.hex(), link.span_id.hex(), _attributes(link.attributes)))
        return tuple(read)

    def _token(self, resource: Any) -> ResourceToken:
        key = resource.SerializeToString()
        token = self._tokens.get(key)
        if token is None:
            token = resource_token(_attributes(resource.attributes))
            if len(self._tokens) >= _MAX_TOKENS:
                self._tokens.clear()
            self._tokens[key] = token
        return token


def _events(events: Any) -> tuple[Event, ...]:
    return tuple([Event(event.name, _attributes(event.attributes)) for event in events])


def _wrong_id(trace_id: bytes, span_id: bytes, parent_id: bytes) -> str | None:
    if len(trace_id) != 16 or trace_id == _NO_TRACE:
        return f"trace_id has {len(trace_id)} bytes, not 16" if len(trace_id) != 16 else "trace_id is all zeros"
    if len(span_id) != 8 or span_id == _NO_SPAN:
        return f"span_id has {len(span_id)} bytes, not 8" if len(span_id) != 8 else "span_id is all zeros"
    if parent_id and len(parent_id) != 8:
        return f"parent_span_id has {len(parent_id)} bytes, not 8"
    return None


def _attributes(pairs: Any) -> dict[str, Any]:
    attributes = {}
    for pair in pairs[:]:  # a slice makes its wrappers faster than an iterator does
        value = pair.value
        # Nine attributes in ten are strings with something in them: ask what else it is only if it is none.
        attributes[pair.key] = value.string_value or _decoded(value)
    return attributes


def _decoded(value: AnyValue) -> Any:
    """The Python value of an `AnyValue`; None for an empty one.

    With recursion: protobuf itself refuses what is nested more than 100 messages deep.
    """
    type_name = value.WhichOneof("value")
    if type_name is None:
        return None
    if type_name == "array_value":
        return [item.string_value or _decoded(item) for item in value.array_value.values]
    if type_name == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    return getattr(value, type_name)
