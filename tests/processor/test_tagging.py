# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import io
import json
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from support.live import Keeping
from support.receiver import attributes_of

from genai_processor.tagging import tagged_copy

TAGS = {"genai.retry.verdict": "quarantined", "genai.retry.evidence": ("a", "b"), "genai.retry.attempt": 2}


@pytest.fixture
def crowded(make_provider: Any, keeping: Keeping) -> ReadableSpan:
    """A span that has dropped 6 attributes, 3 events and 1 link."""
    limits = SpanLimits(max_span_attributes=4, max_events=2, max_links=1)
    tracer = make_provider(keeping, span_limits=limits).get_tracer("test")
    with tracer.start_as_current_span("other") as other:
        pass
    with tracer.start_as_current_span("crowded") as span:
        for number in range(10):
            span.set_attribute(f"key{number}", number)
        for _ in range(5):
            span.add_event("event")
        span.add_link(other.get_span_context())
        span.add_link(other.get_span_context())
    return keeping.one("crowded")


def test_the_original_is_left_alone(crowded: ReadableSpan) -> None:
    fields = dict(vars(crowded))
    before = dict(crowded.attributes or {})
    copied = tagged_copy(crowded, TAGS)
    assert copied is not None
    assert copied is not crowded
    assert dict(crowded.attributes or {}) == before
    assert vars(crowded) == fields
    assert type(copied) is type(crowded)
    assert dict(copied.attributes or {}) == {**before, **TAGS}


def test_dropped_counts_survive_and_no_attribute_is_evicted(crowded: ReadableSpan) -> None:
    copied = tagged_copy(crowded, TAGS)
    assert copied is not None
    assert (copied.dropped_attributes, copied.dropped_events, copied.dropped_links) == (6, 3, 1)
    assert {"key6", "key7", "key8", "key9"} < set(copied.attributes or {})


def test_otlp_sees_the_tags_and_the_counts(crowded: ReadableSpan) -> None:
    copied = tagged_copy(crowded, TAGS)
    assert copied is not None
    span = encode_spans([copied]).resource_spans[0].scope_spans[0].spans[0]
    assert attributes_of(span) == {
        "key6": 6,
        "key7": 7,
        "key8": 8,
        "key9": 9,
        "genai.retry.verdict": "quarantined",
        "genai.retry.evidence": ["a", "b"],
        "genai.retry.attempt": 2,
    }
    assert (span.dropped_attributes_count, span.dropped_events_count, span.dropped_links_count) == (6, 3, 1)


def test_the_console_sees_the_tags(crowded: ReadableSpan) -> None:
    copied = tagged_copy(crowded, TAGS)
    assert copied is not None
    out = io.StringIO()
    ConsoleSpanExporter(out=out).export([copied])
    shown = json.loads(out.getvalue())["attributes"]
    assert shown["genai.retry.verdict"] == "quarantined"
    assert shown["genai.retry.evidence"] == ["a", "b"]
    assert shown["key9"] == 9


def test_zipkin_sees_the_tags(crowded: ReadableSpan) -> None:
    pytest.importorskip("opentelemetry.exporter.zipkin.json")
    from opentelemetry.exporter.zipkin.json.v2 import JsonV2Encoder
    from opentelemetry.exporter.zipkin.node_endpoint import NodeEndpoint

    copied = tagged_copy(crowded, TAGS)
    (span,) = json.loads(JsonV2Encoder().serialize([copied], NodeEndpoint()))
    assert span["tags"]["genai.retry.verdict"] == "quarantined"
    assert span["tags"]["otel.dropped_attributes_count"] == "6"


def test_a_second_copy_replaces_a_tag(crowded: ReadableSpan) -> None:
    once = tagged_copy(crowded, TAGS)
    assert once is not None
    twice = tagged_copy(once, {"genai.retry.verdict": "no_retry_needed"})
    assert twice is not None
    assert (twice.attributes or {})["genai.retry.verdict"] == "no_retry_needed"
    assert (once.attributes or {})["genai.retry.verdict"] == "quarantined"


@pytest.mark.parametrize("attributes", [{"a": 1}, OrderedDict(a=1), None, {}])
def test_plain_dicts_and_nothing_at_all(crowded: ReadableSpan, attributes: Any) -> None:
    span = copy.copy(crowded)
    span._attributes = attributes
    copied = tagged_copy(span, TAGS)
    assert copied is not None
    assert dict(copied.attributes or {}) == {**(attributes or {}), **TAGS}
    assert span._attributes is attributes
    assert "genai.retry.verdict" not in (attributes or {})


@pytest.mark.parametrize("attributes", [MappingProxyType({"a": 1}), [("a", 1)], "a=1", 7])
def test_attributes_of_an_unknown_kind(crowded: ReadableSpan, attributes: Any) -> None:
    span = copy.copy(crowded)
    span._attributes = attributes
    assert tagged_copy(span, TAGS) is None


def test_a_container_whose_insides_have_changed(crowded: ReadableSpan) -> None:
    for insides in ({"_dict": None}, {}):
        container = copy.copy(crowded._attributes)
        del container._dict
        vars(container).update(insides)
        span = copy.copy(crowded)
        span._attributes = container
        assert tagged_copy(span, TAGS) is None


def test_classes_that_keep_fields_elsewhere(crowded: ReadableSpan) -> None:
    import wrapt

    class Slotted(ReadableSpan):
        __slots__ = ("extra",)

    slotted = Slotted("slotted")
    slotted.extra = 1
    assert tagged_copy(slotted, TAGS) is None
    assert tagged_copy(wrapt.ObjectProxy(crowded), TAGS) is None  # type: ignore[arg-type]
    assert tagged_copy(object(), TAGS) is None  # type: ignore[arg-type]


def test_a_class_that_lets_nobody_set_what_it_does_not_know(crowded: ReadableSpan) -> None:
    class Strict(ReadableSpan):
        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") or name == "__dict__":
                raise AttributeError(name)
            super().__setattr__(name, value)

    copied = tagged_copy(Strict("strict", attributes={"a": 1}), TAGS)
    assert copied is not None
    assert dict(copied.attributes or {}) == {"a": 1, **TAGS}


def test_a_subclass_stays_one(crowded: ReadableSpan) -> None:
    class Extended(ReadableSpan):
        def __init__(self, colour: str) -> None:
            super().__init__("extended", attributes={"a": 1})
            self.colour = colour

    copied = tagged_copy(Extended("red"), TAGS)
    assert isinstance(copied, Extended)
    assert copied.colour == "red"
