# SPDX-License-Identifier: Apache-2.0
"""What the SDK's own encoder writes of a span, read back, says what the live span says."""

import base64

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from genai_processor.spans.live import from_readable
from genai_processor.spans.otlp import read_spans

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = text | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
values = scalars | st.lists(text, max_size=3) | st.lists(st.integers(-9, 9), max_size=3) | st.binary(max_size=9)
attributes = st.dictionaries(text.filter(bool), values, max_size=4)
contexts = st.builds(SpanContext, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
times = st.none() | st.integers(1, 2**63)
statuses = st.sampled_from([Status(), Status(StatusCode.OK)]) | text.map(lambda t: Status(StatusCode.ERROR, t))
spans = st.builds(
    ReadableSpan,
    name=text,
    context=contexts,
    parent=st.none() | contexts,
    resource=attributes.map(Resource),
    attributes=attributes,
    events=st.lists(st.builds(Event, text, attributes, st.integers(1, 2**63)), max_size=2),
    links=st.lists(st.builds(Link, contexts, attributes), max_size=2),
    kind=st.sampled_from(SpanKind),
    status=statuses,
    start_time=times,
    end_time=times,
    instrumentation_scope=st.none() | st.builds(InstrumentationScope, text),
)


def comparable(span):
    """Sequences as lists, as OTLP has them, and the order of spans as no matter."""

    def plain(value):
        if isinstance(value, (list, tuple)):
            return [plain(item) for item in value]
        return {name: plain(item) for name, item in value.items()} if isinstance(value, dict) else value

    return plain(dict(span._asdict(), attributes=dict(span.attributes)))


def as_otlp_json(request):
    """The request with ids in hex, in which OTLP differs from protobuf's JSON mapping."""
    data = MessageToDict(request)
    for resource_spans in data.get("resourceSpans", ()):
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for message in (span, *span.get("links", ())):
                    for name in {"traceId", "spanId", "parentSpanId"} & message.keys():
                        message[name] = base64.b64decode(message[name]).hex()
    return orjson.dumps(data)


@settings(max_examples=150, deadline=None)
@given(st.lists(spans, max_size=4))
def test_round_trip(tmp_path_factory, live):
    request = encode_spans(live)
    content = request.SerializeToString()
    expected = sorted((comparable(from_readable(span)) for span in live), key=repr)
    path = tmp_path_factory.getbasetemp() / "round-trip"
    base64_ids = orjson.dumps(MessageToDict(request))
    for written in (content, len(content).to_bytes(4, "big") + content, as_otlp_json(request), base64_ids):
        path.write_bytes(written)
        errors = []
        read = sorted(map(comparable, read_spans(path, on_error=errors.append)), key=repr)
        assert errors == []
        assert read == expected


@settings(max_examples=20, deadline=None)
@given(spans, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_what_was_dropped_is_counted(tmp_path_factory, live, attributes, events):
    request = encode_spans([live])
    span = request.resource_spans[0].scope_spans[0].spans[0]
    span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count = attributes, events, 7
    path = tmp_path_factory.getbasetemp() / "dropped"
    for written in (request.SerializeToString(), as_otlp_json(request)):
        path.write_bytes(written)
        (read,) = read_spans(path, on_error=pytest.fail)
        assert read == read._replace(dropped_attributes=attributes, dropped_events=events)
