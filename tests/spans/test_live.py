# SPDX-License-Identifier: Apache-2.0
"""The record of a live span: the span's own data, without a copy."""

import subprocess
import sys
from types import MappingProxyType, SimpleNamespace

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode

from genai_processor.spans.live import from_readable
from genai_processor.spans.records import Event, Span
from genai_processor.spans.records import Link as LinkRecord


class Kept(SpanProcessor):
    def __init__(self):
        self.spans = []

    def on_end(self, span):
        self.spans.append(span)


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def tracer(kept):
    limits = SpanLimits(max_span_attributes=3, max_events=1)
    provider = TracerProvider(resource=Resource({"service.name": "lab"}), span_limits=limits, shutdown_on_exit=False)
    provider.add_span_processor(kept)
    return provider.get_tracer("lab.scope")


def test_every_field(tracer, kept):
    linked = SpanContext(1, 2, False)
    with tracer.start_as_current_span("parent") as parent:
        child = tracer.start_span(
            "execute_tool", kind=SpanKind.CLIENT, links=[Link(linked, {"l": 1})], attributes={"a": 1, "b": 2, "c": [3]}
        )
        child.set_attribute("d", 4)
        child.add_event("dropped")
        child.add_event("dropped, too")
        child.add_event("exception", {"exception.type": "E"})
        child.set_status(Status(StatusCode.ERROR, "boom"))
        child.end()
    live = kept.spans[0]
    assert from_readable(live) == Span(
        f"{live.context.trace_id:032x}",
        f"{live.context.span_id:016x}",
        f"{parent.get_span_context().span_id:016x}",
        "execute_tool",
        3,
        "lab.scope",
        live.start_time,
        live.end_time,
        2,
        "boom",
        {"b": 2, "c": (3,), "d": 4},
        (Event("exception", {"exception.type": "E"}),),
        (LinkRecord(f"{1:032x}", f"{2:016x}", {"l": 1}),),
        1,
        2,
        frozenset({("service.name", "'lab'")}),
    )


def test_attributes_are_the_spans_own(tracer, kept):
    tracer.start_span("s", attributes={"a": 1}).end()
    (live,) = kept.spans
    assert from_readable(live).attributes is live._attributes._dict
    own = {"a": 1}
    assert from_readable(ReadableSpan("s", attributes=own)).attributes is own


@pytest.mark.parametrize("kind", SpanKind)
def test_kinds_are_numbered_as_in_otlp(kind):
    assert from_readable(ReadableSpan("s", kind=kind)).kind == kind.value + 1


def test_a_span_with_nothing():
    record = from_readable(ReadableSpan("s", resource=Resource({})))
    assert record == Span("", "", None, "s", 1, "", None, None, resource=frozenset())
    assert record.attributes == {}


def test_what_only_has_the_public_properties():
    live = ReadableSpan("s", SpanContext(1, 2, False), attributes={"a": 1}, resource=Resource({}))
    names = "name context parent attributes events links kind status start_time end_time resource instrumentation_scope"
    quacks = SimpleNamespace(**{name: getattr(live, name) for name in names.split()})
    assert isinstance(quacks.attributes, MappingProxyType)
    assert from_readable(quacks) == from_readable(live)


def test_resources_are_told_apart_by_content():
    tokens = [from_readable(ReadableSpan("s", resource=Resource({"n": n % 100}))).resource for n in range(300)]
    assert len(set(tokens)) == 100
    assert tokens[:100] == tokens[100:200] == tokens[200:]


def test_the_sdk_is_not_imported():
    script = "import sys, genai_processor.spans.live; assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    subprocess.run([sys.executable, "-c", script], check=True)
