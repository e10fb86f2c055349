# SPDX-License-Identifier: Apache-2.0
"""Runs of real agents that are recorded for replay: by the processor on a provider, with hooks on models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from genai_processor import GenAIProcessorInstrumentor
from genai_processor.spans.records import Span
from support.stamps import is_inference, read_back, stamp_of


class Recorder:
    """A provider with the processor in front of an exporter in memory.

    Args:
        limit: The SDK's attribute value length limit.
        **settings: Those of the processor.
    """

    def __init__(self, *, limit: int | None = None, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(max_span_attribute_length=limit))
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.settings = {"guard": "off", "events": False, "metrics": False, **settings}

    def finished(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    def spans(self) -> list[Span]:
        """What was exported."""
        return read_back(self.finished())

    def stamps(self) -> list[dict[str, Any]]:
        """The stamps of models' spans, in the order in which these ended."""
        return [stamp_of(span) for span in self.spans() if is_inference(span)]


@contextmanager
def recording(*, limit: int | None = None, record_for_replay: bool = True, **settings: Any) -> Iterator[Recorder]:
    """What runs inside and makes spans with `provider`, is recorded."""
    recorder = Recorder(limit=limit, record_for_replay=record_for_replay, **settings)
    GenAIProcessorInstrumentor().instrument(tracer_provider=recorder.provider, **recorder.settings)
    try:
        yield recorder
    finally:
        GenAIProcessorInstrumentor().uninstrument()


def digests(stamps: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """Input and output digest of each."""
    return [(stamp["genai.replay.input.digest"], stamp.get("genai.replay.output.digest")) for stamp in stamps]


def sources(stamps: list[dict[str, Any]]) -> list[str]:
    return [stamp["genai.replay.input.source"] for stamp in stamps]


def broken(*_: Any, **__: Any) -> Any:
    """In place of something that a hook calls."""
    raise RuntimeError("broken")


Run = Callable[..., Recorder]
