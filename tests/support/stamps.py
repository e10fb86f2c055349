# SPDX-License-Identifier: Apache-2.0
"""Runs recorded for replay: made by the SDK, stamped by the processor, written by an exporter; and what collectors do."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from genai_processor.processor import GenAISpanProcessor
from genai_processor.retry.policy import Policy
from genai_processor.settings import Settings
from genai_processor.spans.otlp_protobuf import ProtobufSpans
from genai_processor.spans.read import operation_of
from genai_processor.spans.records import Operation, Span
from support.replay import Replay, steps


def stamped(spans: Iterable[Span], *, secret: str | None = None) -> list[Span]:
    """Spans made once more by the real SDK, stamped for replay, exported and read."""
    exporter = InMemorySpanExporter()
    settings = Settings(record_for_replay=True, digest_key=secret, events=False, metrics=False)
    processor = GenAISpanProcessor(SimpleSpanProcessor(exporter), settings=settings)
    Replay(steps(spans), policy=Policy(), beside=processor)
    return read_back(exporter.get_finished_spans())


def read_back(spans: Sequence[ReadableSpan]) -> list[Span]:
    """Spans as OTLP has them."""

    def fail(error: object) -> None:
        raise AssertionError(error)

    return list(ProtobufSpans(fail).read(encode_spans(spans).SerializeToString()))


def as_json_line(spans: Sequence[ReadableSpan]) -> str:
    """One line of OTLP/JSON, as the Collector's file exporter writes it."""
    data = MessageToDict(encode_spans(spans))
    for resource_spans in data.get("resourceSpans", ()):
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                    span[name] = base64.b64decode(span[name]).hex()
    return json.dumps(data) + "\n"


def is_inference(span: Span) -> bool:
    return operation_of(span)[0] is Operation.INFERENCE


def stamp_of(span: Span) -> dict[str, Any]:
    """What was stamped on a span."""
    return {name: value for name, value in span.attributes.items() if name.startswith("genai.replay.")}


def without_inputs(span: Span) -> Span:
    """What is left of an inference's span when a collector drops what the model read."""
    kind, dialect = operation_of(span)
    if kind is not Operation.INFERENCE or dialect is None:
        return span
    keys = tuple(dialect.inputs)
    kept = {
        name: value
        for name, value in span.attributes.items()
        if not any(name == key or (key[-1] == "." and name.startswith(key)) for key in keys)
    }
    events = tuple(event for event in span.events if event.name == "gen_ai.choice" or not event.name.startswith("gen_ai."))
    return span._replace(attributes=kept, events=events)


def edited(span: Span, edit: Callable[[str], str]) -> Span:
    """A span whose texts somebody changed behind the processor; its stamp is as it was."""
    attributes = {
        name: value
        if name.startswith("genai.replay.")
        else edit(value)
        if isinstance(value, str)
        else [edit(item) if isinstance(item, str) else item for item in value]
        if isinstance(value, list)
        else value
        for name, value in span.attributes.items()
    }
    events = tuple(
        event._replace(
            attributes={name: edit(value) if isinstance(value, str) else value for name, value in event.attributes.items()}
        )
        for event in span.events
    )
    return span._replace(attributes=attributes, events=events)
