# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON: everything that the JSON mapping allows is read, everything else is reported, its neighbours are kept."""

import base64
import copy
import math

import orjson
import pytest

from genai_processor.spans.otlp_json import JsonSpans
from genai_processor.spans.otlp_json_values import MalformedError, decoded
from genai_processor.spans.records import Event, Link, Span

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


def span(**fields):
    return {
        "traceId": TRACE,
        "spanId": SPAN,
        "name": "execute_tool refund",
        "kind": 1,
        "startTimeUnixNano": "1700000000000000001",
        "endTimeUnixNano": "1700000000000000002",
    } | fields


def document(*spans, resource=None, scope=None):
    scope_spans = {"scope": {"name": "lab"} if scope is None else scope, "spans": list(spans)}
    return {"resourceSpans": [{"resource": resource or {}, "scopeSpans": [scope_spans]}]}


def read(data):
    errors = []
    return JsonSpans(errors.append).read(data), errors


def read_one(**fields):
    spans, errors = read(document(span(**fields)))
    assert errors == []
    return spans[0]


def value_of(any_value):
    return read_one(attributes=[{"key": "k", "value": any_value}]).attributes["k"]


def test_every_field_of_a_span():
    assert read_one(
        parentSpanId=PARENT,
        kind=3,
        status={"code": 2, "message": "boom"},
        attributes=[{"key": "a", "value": {"stringValue": "b"}}],
        events=[{"name": "exception", "attributes": [{"key": "exception.type", "value": {"stringValue": "E"}}]}],
        links=[{"traceId": TRACE, "spanId": SPAN, "attributes": []}],
        droppedAttributesCount=4,
        droppedEventsCount=5,
    ) == Span(
        TRACE,
        SPAN,
        PARENT,
        "execute_tool refund",
        3,
        "lab",
        1700000000000000001,
        1700000000000000002,
        2,
        "boom",
        {"a": "b"},
        (Event("exception", {"exception.type": "E"}),),
        (Link(TRACE, SPAN, {}),),
        4,
        5,
        frozenset(),
    )


def test_absent_fields_are_what_proto3_says():
    spans, errors = read(document({"traceId": TRACE, "spanId": SPAN}, scope={}))
    assert errors == []
    assert spans == [Span(TRACE, SPAN, None, "", 0, "", None, None, resource=frozenset())]


@pytest.mark.parametrize("parent", [None, "", "0" * 16])
def test_no_parent(parent):
    assert read_one(parentSpanId=parent).parent_span_id is None


def test_times_are_strings_or_numbers_and_zero_is_absent():
    read = read_one(startTimeUnixNano=1700000000000000001, endTimeUnixNano="0")
    assert (read.start_ns, read.end_ns) == (1700000000000000001, None)


@pytest.mark.parametrize(
    ("trace_id", "span_id"),
    [
        (TRACE.upper(), SPAN.upper()),
        (base64.b64encode(bytes.fromhex(TRACE)).decode(), base64.b64encode(bytes.fromhex(SPAN)).decode()),
        (base64.urlsafe_b64encode(bytes.fromhex(TRACE)).decode().rstrip("="), SPAN),
    ],
)
def test_ids_in_upper_case_and_base64(trace_id, span_id):
    read = read_one(traceId=trace_id, spanId=span_id, parentSpanId=span_id)
    assert (read.trace_id, read.span_id, read.parent_span_id) == (TRACE, SPAN, SPAN)


def test_enums_by_name_by_number_as_text_and_unknown_ones():
    assert read_one(kind="SPAN_KIND_CLIENT", status={"code": "STATUS_CODE_ERROR"})[4::4][:2] == (3, 2)
    assert read_one(kind="3", status={"code": "2"}).kind == 3
    assert read_one(kind=99).kind == 99


def test_snake_case_says_the_same():
    usual = document(
        span(
            parentSpanId=PARENT,
            status={"code": 2},
            attributes=[
                {"key": "i", "value": {"intValue": "1"}},
                {"key": "l", "value": {"arrayValue": {"values": [{"stringValue": "x"}]}}},
                {"key": "m", "value": {"kvlistValue": {"values": [{"key": "b", "value": {"bytesValue": "AA=="}}]}}},
            ],
            events=[{"name": "e", "timeUnixNano": "1"}],
            links=[{"traceId": TRACE, "spanId": SPAN}],
            droppedAttributesCount=1,
            droppedEventsCount=1,
        )
    )
    text = orjson.dumps(usual).decode()
    for camel, snake in {
        "resourceSpans": "resource_spans",
        "scopeSpans": "scope_spans",
        "traceId": "trace_id",
        "spanId": "span_id",
        "parentSpanId": "parent_span_id",
        "startTimeUnixNano": "start_time_unix_nano",
        "endTimeUnixNano": "end_time_unix_nano",
        "intValue": "int_value",
        "stringValue": "string_value",
        "arrayValue": "array_value",
        "kvlistValue": "kvlist_value",
        "bytesValue": "bytes_value",
        "droppedAttributesCount": "dropped_attributes_count",
        "droppedEventsCount": "dropped_events_count",
    }.items():
        text = text.replace(f'"{camel}"', f'"{snake}"')
    assert read(orjson.loads(text)) == read(usual)
    assert read(usual)[0][0].attributes == {"i": 1, "l": ["x"], "m": {"b": b"\0"}}


@pytest.mark.parametrize(
    ("any_value", "expected"),
    [
        ({"stringValue": "x"}, "x"),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 7}, 7),
        ({"boolValue": False}, False),
        ({"doubleValue": 1}, 1.0),
        ({"doubleValue": "Infinity"}, math.inf),
        ({"doubleValue": "-Infinity"}, -math.inf),
        ({"bytesValue": "_-8="}, b"\xff\xef"),
        ({"arrayValue": {}}, []),
        ({"arrayValue": {"values": [{"stringValue": "a"}, {}, {"intValue": "2"}]}}, ["a", None, 2]),
        (
            {"kvlistValue": {"values": [{"key": "a"}, {"key": "b", "value": {"boolValue": True}}]}},
            {"a": None, "b": True},
        ),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"intValue": n}} for n in (1, 2)]}}, {"a": 2}),
        ({}, None),
        (None, None),
        ({"stringValue": None}, None),
        ({"ofTheFuture": 1}, None),
    ],
)
def test_values(any_value, expected):
    assert value_of(any_value) == expected


def test_not_a_number():
    assert math.isnan(value_of({"doubleValue": "NaN"}))


def test_deep_values_need_no_stack():
    value = {"intValue": 1}
    for _ in range(50_000):
        value = {"arrayValue": {"values": [value]}}
    deep = decoded(value)
    for _ in range(50_000):
        (deep,) = deep
    assert deep == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"traceId": TRACE[:-2]}, "traceId"),
        ({"traceId": None}, "traceId is missing"),
        ({"traceId": "0" * 32}, "all zeros"),
        ({"spanId": "xyz"}, "spanId 'xyz' is neither 16 hex digits nor base64 of 8 bytes"),
        ({"spanId": 7}, "spanId is a number"),
        ({"parentSpanId": "ab"}, "parentSpanId"),
        ({"name": 7}, "name is a number, not a string"),
        ({"kind": "SPAN_KIND_FRIEND"}, "kind 'SPAN_KIND_FRIEND'"),
        ({"kind": []}, "kind an array"),
        ({"status": []}, None),
        ({"status": [1]}, "status is an array"),
        ({"status": {"code": "BAD"}}, "code 'BAD'"),
        ({"status": {"code": 2, "message": 3}}, "message is a number"),
        ({"startTimeUnixNano": "yesterday"}, "startTimeUnixNano 'yesterday' is not an integer"),
        ({"endTimeUnixNano": {}}, "endTimeUnixNano an object is not an integer"),
        ({"attributes": {"a": 1}}, "attributes are an object, not a list"),
        ({"attributes": 7}, "attributes are a number"),
        ({"attributes": [7]}, "an attribute is not an object with a key"),
        ({"attributes": [{"key": 7, "value": {"stringValue": ""}}]}, "an attribute is not an object with a key"),
        ({"attributes": [{"key": "k", "value": "v"}]}, "attribute 'k': a value is a string, not an object"),
        ({"attributes": [{"key": "k", "value": {"intValue": "x"}}]}, "attribute 'k': 'x' is not an integer"),
        ({"attributes": [{"key": "k", "value": {"bytesValue": "*"}}]}, "attribute 'k': not base64"),
        ({"attributes": [{"key": "k", "value": {"doubleValue": "x"}}]}, "attribute 'k'"),
        ({"attributes": [{"key": "k", "value": {"boolValue": "x"}}]}, "boolValue is a string"),
        ({"attributes": [{"key": "k", "value": {"arrayValue": {"values": 3}}}]}, "values are a number"),
        ({"attributes": [{"key": "k", "value": {"kvlistValue": {"values": [3]}}}]}, "kvlistValue"),
        ({"events": 5}, "events are not an array of objects"),
        ({"events": [5]}, "events are not an array of objects"),
        ({"links": [{"traceId": "x"}]}, "traceId 'x'"),
        ({"droppedAttributesCount": "many"}, "droppedAttributesCount 'many'"),
    ],
)
def test_a_malformed_span_is_reported_and_its_neighbours_are_kept(fields, reason):
    good = span(spanId=PARENT)
    spans, errors = read(document(good, span(**fields), copy.deepcopy(good)))
    assert [s.span_id for s in spans if s.span_id != SPAN] == [PARENT, PARENT]
    if reason is None and not errors:
        return  # an empty array for an empty object harms nobody
    (error,) = errors
    assert error.startswith("span ")
    assert reason is None or reason in error


@pytest.mark.parametrize("not_a_span", [None, 7, "x", []])
def test_what_is_no_span_at_all(not_a_span):
    spans, errors = read(document(span(), not_a_span))
    assert len(spans) == 1
    assert len(errors) == 1
    assert errors[0].startswith("span 2 of its scope")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (7, "a number is not OTLP/JSON"),
        (None, "null is not OTLP/JSON"),
        ({"name": "x"}, 'no "resourceSpans"'),
        ({"name": "x", "context": {}}, "ConsoleSpanExporter"),
        ({"resourceSpans": 7}, "resourceSpans is a number, not an array"),
        ({"resourceSpans": [7]}, "an element of resourceSpans is a number"),
        ({"resourceSpans": [{"scopeSpans": {"a": 1}}]}, "scopeSpans is an object"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": "abc"}]}]}, "spans is a string"),
    ],
)
def test_what_is_no_document_of_traces(data, reason):
    spans, errors = read(data)
    assert spans == []
    assert len(errors) == 1
    assert reason in errors[0]


@pytest.mark.parametrize("data", [{}, {"resourceSpans": None}, {"resourceSpans": []}, {"resourceLogs": [1]}, []])
def test_documents_without_spans(data):
    assert read(data) == ([], [])


def test_an_array_of_documents():
    assert len(read([document(span()), document(span())])[0]) == 2


def test_spans_of_a_malformed_scope_or_resource_are_kept():
    spans, errors = read(document(span(), scope=[1], resource={"attributes": 7}))
    assert [(s.scope, s.resource) for s in spans] == [("", frozenset())]
    assert len(errors) == 2


def test_resources_are_equal_by_content():
    def token(*pairs):
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in pairs]
        return read(document(span(), resource={"attributes": attributes}))[0][0].resource

    assert token(("a", "1"), ("b", "2")) == token(("b", "2"), ("a", "1"))
    assert token(("a", "1")) != token(("a", "2"))


def test_a_malformed_value_says_so():
    with pytest.raises(MalformedError):
        decoded({"intValue": True})
