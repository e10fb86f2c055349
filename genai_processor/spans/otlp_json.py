# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON to `Span`: proto3's JSON mapping with OTLP's exceptions (ids in hex, enums as numbers).

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

Each `TracesData` takes one of two ways. `_usual` reads the shape that exporters write, with hardly a test. Where it
does not fit, the whole is read again by `_any`, which accepts all that the JSON mapping allows (and, because exporters
do it, snake-case keys, names of enum values and base64 ids), and says of anything else what is wrong with it.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from genai_processor.spans.otlp_json_values import (
    UNFIT,
    MalformedError,
    attributes_of,
    base64_decoded,
    field,
    integer,
    named,
    shown,
    text,
    usual_attributes,
)
from genai_processor.spans.otlp_resource import ResourceToken, resource_token
from genai_processor.spans.records import Event, Link, Span, SpanKind, StatusCode

_KINDS: dict[int | str, int] = {key: int(kind) for kind in SpanKind for key in (int(kind), f"SPAN_KIND_{kind.name}")}
_STATUSES: dict[int | str, int] = {key: int(code) for code in StatusCode for key in (int(code), f"STATUS_CODE_{code.name}")}
_SIGNALS = frozenset({"resourceSpans", "resource_spans", "resourceMetrics", "resourceLogs", "resourceProfiles"})
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_MAX_TOKENS = 1024
_new_span = tuple.__new__  # cheaper than the named tuple's own; tests compare each field with every other source


class JsonSpans:
    """Reads the spans of parsed OTLP/JSON documents."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """Say to `report` what is wrong with what is left out."""
        self._report = report
        self._tokens: dict[bytes, ResourceToken] = {}

    def read(self, document: Any) -> list[Span]:
        """The spans of one `TracesData`, or of an array of them. What cannot be read is reported and left out."""
        if type(document) is list:
            return [span for data in document for span in self._one(data)]
        return self._one(document)

    def _one(self, data: Any) -> list[Span]:
        try:
            return self._usual(data)
        except (*UNFIT, RecursionError):
            return list(self._any(data))

    def _usual(self, data: Any) -> list[Span]:
        """The spans of one `TracesData` as exporters write it; any other raises one of `UNFIT`."""
        read: list[Span] = []
        last_trace_id = trace_id = None
        for resource_spans in data["resourceSpans"]:
            token = self._token(resource_spans.get("resource"))
            for scope_spans in resource_spans["scopeSpans"]:
                scope = scope_spans["scope"].get("name", "")
                if type(scope) is not str:
                    raise TypeError
                for span in scope_spans["spans"]:
                    get = span.get
                    if span["traceId"] != last_trace_id:
                        last_trace_id = span["traceId"]
                        trace = unhexlify(last_trace_id)
                        if len(trace) != 16 or trace == _NO_TRACE:
                            raise ValueError
                        trace_id = trace.hex()
                    span_id = unhexlify(span["spanId"])
                    if len(span_id) != 8 or span_id == _NO_SPAN:
                        raise ValueError
                    name = span["name"]
                    if type(name) is not str:
                        raise TypeError
                    parent_id = get("parentSpanId") or None
                    if parent_id is not None:
                        parent = unhexlify(parent_id)
                        if len(parent) != 8 or parent == _NO_SPAN:
                            raise ValueError
                        parent_id = parent.hex()
                    code, message = 0, ""
                    if status := get("status"):
                        code = _STATUSES[status.get("code", 0)]
                        message = status.get("message", "")
                        if type(message) is not str:
                            raise TypeError
                    read.append(
                        _new_span(
                            Span,
                            (
                                trace_id,
                                span_id.hex(),
                                parent_id,
                                name,
                                _KINDS[get("kind", 0)],
                                scope,
                                int(span["startTimeUnixNano"]) or None,
                                int(span["endTimeUnixNano"]) or None,
                                code,
                                message,
                                usual_attributes(attributes) if (attributes := get("attributes")) else {},
                                _usual_events(events) if (events := get("events")) else (),
                                _links(links) if (links := get("links")) else (),
                                integer(dropped) if (dropped := get("droppedAttributesCount")) else 0,
                                integer(dropped) if (dropped := get("droppedEventsCount")) else 0,
                                token,
                            ),
                        )
                    )
        return read

    def _any(self, data: Any) -> Iterator[Span]:
        """The spans of one `TracesData`, with everything tested."""
        if type(data) is not dict:
            self._report(f'{named(data)} is not OTLP/JSON; expected {{"resourceSpans": […]}}')
            return
        every_resource = field(data, "resourceSpans")
        if data and _SIGNALS.isdisjoint(data):  # one file may hold several signals
            hint = " (ConsoleSpanExporter's output cannot be read; use an OTLP file exporter)" if "context" in data else ""
            self._report(f'not OTLP/JSON: the object has no "resourceSpans"{hint}')
        for resource_spans in self._objects("resourceSpans", every_resource):
            token = self._checked_token(resource_spans.get("resource"))
            for scope_spans in self._objects("scopeSpans", field(resource_spans, "scopeSpans")):
                scope = self._scope(scope_spans.get("scope"))
                for index, span in enumerate(_array("spans", scope_spans.get("spans"), self._report)):
                    try:
                        yield _any_span(span, scope, token)
                    except UNFIT as error:
                        self._report(f"{_where(span, index)}: {error}")

    def _objects(self, name: str, values: Any) -> Iterator[dict[str, Any]]:
        for value in _array(name, values, self._report):
            if type(value) is dict:
                yield value
            else:
                self._report(f"an element of {name} is {named(value)}, not an object")

    def _scope(self, scope: Any) -> str:
        if type(scope) is dict and type(name := scope.get("name", "")) is str:
            return name
        if scope is not None:
            self._report("scope is malformed; its spans are read as if it had no name")
        return ""

    def _token(self, resource: Any) -> ResourceToken:
        # Hardly any file has more than a few resources; their bytes are the cheapest key to tell them apart.
        key = orjson.dumps(resource)
        token = self._tokens.get(key)
        if token is None:
            if resource is not None and type(resource) is not dict:
                raise MalformedError(f"{named(resource)}, not an object")
            token = resource_token(attributes_of(resource and resource.get("attributes")))
            if len(self._tokens) >= _MAX_TOKENS:
                self._tokens.clear()
            self._tokens[key] = token
        return token

    def _checked_token(self, resource: Any) -> ResourceToken:
        try:
            return self._token(resource)
        except (*UNFIT, RecursionError) as error:
            self._report(f"resource: {error}; its spans are read as if it had no attributes")
            return frozenset()


def _usual_events(events: Any) -> tuple[Event, ...]:
    read = []
    for event in events:
        name = event["name"]
        if type(name) is not str:
            raise TypeError
        read.append(
            _new_span(Event, (name, usual_attributes(attributes) if (attributes := event.get("attributes")) else {}))
        )
    return tuple(read)


def _any_span(span: Any, scope: str, token: ResourceToken) -> Span:
    """The span, with every field tested.

    Raises:
        MalformedError: It has a wrong field.
    """
    if type(span) is not dict:
        raise MalformedError(f"{named(span)}, not an object")
    status = field(span, "status")
    if status is None:
        status = {}
    if type(status) is not dict:
        raise MalformedError(f"status is {named(status)}, not an object")
    return Span(
        trace_id=_id(span, "traceId", 16),
        span_id=_id(span, "spanId", 8),
        parent_span_id=_id(span, "parentSpanId", 8, optional=True) or None,
        name=text(span, "name"),
        kind=_enum(span, "kind", _KINDS),
        scope=scope,
        start_ns=_number(span, "startTimeUnixNano") or None,
        end_ns=_number(span, "endTimeUnixNano") or None,
        status=_enum(status, "code", _STATUSES),
        status_message=text(status, "message"),
        attributes=attributes_of(span.get("attributes")),
        events=_events(span.get("events")),
        links=_links(span.get("links")),
        dropped_attributes=_number(span, "droppedAttributesCount"),
        dropped_events=_number(span, "droppedEventsCount"),
        resource=token,
    )


def _events(events: Any) -> tuple[Event, ...]:
    return tuple(
        [Event(text(event, "name"), attributes_of(event.get("attributes"))) for event in _all_objects("events", events)]
    )


def _links(links: Any) -> tuple[Link, ...]:
    return tuple(
        [
            Link(_id(link, "traceId", 16), _id(link, "spanId", 8), attributes_of(link.get("attributes")))
            for link in _all_objects("links", links)
        ]
    )


def _array(name: str, values: Any, report: Callable[[str], None]) -> list[Any]:
    if values is not None and type(values) is not list:
        report(f"{name} is {named(values)}, not an array")
        return []
    return values or []


def _all_objects(name: str, values: Any) -> list[dict[str, Any]]:
    if values is None:
        return []
    if type(values) is not list or any(type(value) is not dict for value in values):
        raise MalformedError(f"{name} are not an array of objects")
    return values


def _id(message: dict[str, Any], name: str, size: int, *, optional: bool = False) -> str:
    """An id as lower-case hex: OTLP writes hex, plain protobuf JSON mapping base64; their lengths tell them apart."""
    value = field(message, name)
    if optional and not value:
        return ""
    if type(value) is not str:
        raise MalformedError(f"{name} is {'missing' if value is None else named(value)}")
    try:
        read = unhexlify(value) if len(value) == 2 * size else base64_decoded(value)
    except ValueError:
        read = b""
    if len(read) != size:
        raise MalformedError(f"{name} {shown(value)} is neither {2 * size} hex digits nor base64 of {size} bytes")
    if not any(read):
        if optional:
            return ""
        raise MalformedError(f"{name} is all zeros")
    return read.hex()


def _enum(message: dict[str, Any], name: str, names: dict[int | str, int]) -> int:
    value = field(message, name)
    if value is None:
        return 0
    if type(value) is str and value in names:
        return names[value]
    try:
        return integer(value)
    except MalformedError:
        known = ", ".join(key for key in names if isinstance(key, str))
        raise MalformedError(f"{name} {shown(value)} is neither a number nor one of {known}") from None


def _number(message: dict[str, Any], name: str) -> int:
    value = field(message, name)
    if value is None:
        return 0
    try:
        return integer(value)
    except MalformedError as error:
        raise MalformedError(f"{name} {error}") from None


def _where(span: Any, index: int) -> str:
    """Which span of a document it is: by its id if it has one, else by its place in the scope."""
    span_id = field(span, "spanId") if type(span) is dict else None
    return f"span {span_id}" if type(span_id) is str and len(span_id) <= 40 else f"span {index + 1} of its scope"
