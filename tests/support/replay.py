# SPDX-License-Identifier: Apache-2.0
"""Recorded spans made once more by the real SDK, and what a witness says of each as it ends."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from genai_processor.retry.came_back import CameBack
from genai_processor.retry.judgement import judgement_of
from genai_processor.retry.policy import Policy
from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.witness import Judgement, Witness
from genai_processor.spans.records import Span

_UNLIMITED = {
    "max_attributes": SpanLimits.UNSET,
    "max_span_attributes": SpanLimits.UNSET,
    "max_events": SpanLimits.UNSET,
    "max_event_attributes": SpanLimits.UNSET,
    "max_links": SpanLimits.UNSET,
    "max_link_attributes": SpanLimits.UNSET,
    "max_attribute_length": SpanLimits.UNSET,
    "max_span_attribute_length": SpanLimits.UNSET,
}
_IS_REMOTE = 0x200  # SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK of OTLP


class Step(NamedTuple):
    """A span begins, or ends."""

    span: Span
    ends: bool


def remote_parents(path: Path) -> set[str]:
    """The spans (by id) of an OTLP/JSON file whose parent was in another process, or came in a carrier."""
    found = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        for resource in json.loads(line).get("resourceSpans", ()) if line.strip() else ():
            for scope in resource["scopeSpans"]:
                found |= {span["spanId"] for span in scope["spans"] if span.get("flags", 0) & _IS_REMOTE}
    return found


def steps(spans: Iterable[Span], rng: random.Random | None = None) -> list[Step]:
    """Begins and ends in the order of the recorded times: parents begin before their children, and end after them.

    Args:
        spans: Recorded spans, in the order in which they ended. One without an end never ends.
        rng: Delays ends at random, never past the end of what a span stands in.
    """
    by_id = {span.span_id: span for span in spans}
    ends = _ends(by_id, rng)
    order = {span_id: index for index, span_id in enumerate(by_id)}
    found = []
    for span in by_id.values():
        depth = len(_above(span, by_id))
        found.append(((span.start_ns or 0, 0, depth, order[span.span_id]), Step(span, False)))
        if span.end_ns is not None:
            found.append(((ends[span.span_id], 1, -depth, order[span.span_id]), Step(span, True)))
    return [step for _, step in sorted(found, key=lambda pair: pair[0])]


def _above(span: Span, by_id: dict[str, Span]) -> list[Span]:
    above: list[Span] = []
    parent = by_id.get(span.parent_span_id or "")
    while parent is not None and parent not in above and len(above) < 100:
        above.append(parent)
        parent = by_id.get(parent.parent_span_id or "")
    return above


def _ends(by_id: dict[str, Span], rng: random.Random | None) -> dict[str, float]:
    ends: dict[str, float] = {}
    last = max((span.end_ns or 0 for span in by_id.values()), default=0)
    for span in sorted(by_id.values(), key=lambda span: len(_above(span, by_id))):
        end = span.end_ns or span.start_ns or 0
        parent = by_id.get(span.parent_span_id or "")
        if parent is None:
            limit: float = last if rng is not None else end
        else:
            limit = ends[parent.span_id] if parent.end_ns is not None else last
        ends[span.span_id] = end if rng is None or limit <= end else rng.choice((end, rng.uniform(end, limit), limit))
    return ends


def interleaved(one: Sequence[Step], two: Sequence[Step], rng: random.Random) -> list[Step]:
    """The steps of two runs, each in its own order."""
    left, right, found = list(one), list(two), []
    while left or right:
        found.append((left if not right or (left and rng.random() < 0.5) else right).pop(0))
    return found


class _Ids(IdGenerator):
    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Witnessing(SpanProcessor):
    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self.judgements: list[Judgement] = []

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        self.witness.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        judgement = self.witness.on_end(span)
        if isinstance(judgement, CameBack):
            judgement = judgement_of(judgement, span.name)
        if judgement is not None:
            self.judgements.append(judgement)


class Replay:
    """Spans made by the SDK with recorded ids, times, attributes, events, links, status, scope; judged by a witness.

    Args:
        played: Steps, as `steps` orders them.
        policy: What is declared of tools.
        remote: Spans whose parents are remote.
        early: Spans have all their attributes from the start; else they get them just before they end.
        beside: Another processor that gets the spans.
    """

    def __init__(
        self,
        played: Iterable[Step],
        *,
        policy: Policy,
        remote: Iterable[str] = (),
        early: bool = True,
        beside: SpanProcessor | None = None,
    ) -> None:
        self._beside = beside
        self._ids = _Ids()
        self._remote = set(remote)
        self._early = early
        self._processor = _Witnessing(Witness(policy=policy, length_limit=0, recent=RecentRuns()))
        self._providers: dict[object, TracerProvider] = {}
        self._open: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        self.ended: list[ReadableSpan] = []
        for span, ends in played:
            if ends:
                self._end(span)
            else:
                self._begin(span)
        self.stamped = {f"{one.span_id:016x}": one for one in self._processor.judgements if not one.late}
        """The judgement that was stamped on each span, by id."""

    def _begin(self, span: Span) -> None:
        self._ids.trace_id, self._ids.span_id = int(span.trace_id, 16), int(span.span_id, 16)
        context = Context()
        if span.parent_span_id is not None:
            remote = span.span_id in self._remote
            above = SpanContext(self._ids.trace_id, int(span.parent_span_id, 16), remote, TraceFlags(1))
            made = None if remote else self._made.get(span.parent_span_id)
            context = set_span_in_context(made or NonRecordingSpan(above), context)
        self._open[span.span_id] = self._made[span.span_id] = (
            self._provider(span.resource)
            .get_tracer(span.scope)
            .start_span(
                span.name,
                context=context,
                kind=SpanKind(max(span.kind - 1, 0)),
                attributes=dict(span.attributes) if self._early else None,
                links=[_link(link) for link in span.links],
                start_time=span.start_ns,
            )
        )

    def _end(self, span: Span) -> None:
        made = self._open.pop(span.span_id)
        if not self._early:
            made.set_attributes(dict(span.attributes))
        made._attributes.dropped = span.dropped_attributes
        for event in span.events:
            made.add_event(event.name, dict(event.attributes), span.end_ns)
        if span.status:
            message = span.status_message if span.status == StatusCode.ERROR.value else None
            made.set_status(Status(StatusCode(span.status), message or None))
        made.end(span.end_ns)
        self.ended.append(made)

    def _provider(self, resource: object) -> TracerProvider:
        provider = self._providers.get(resource)
        if provider is None:
            provider = TracerProvider(
                sampler=ALWAYS_ON,
                resource=Resource({"service.instance.id": str(len(self._providers))}),
                shutdown_on_exit=False,
                id_generator=self._ids,
                span_limits=SpanLimits(**_UNLIMITED),
            )
            provider.add_span_processor(self._processor)
            if self._beside is not None:
                provider.add_span_processor(self._beside)
            self._providers[resource] = provider
        return provider


def _link(link: Any) -> Link:
    return Link(SpanContext(int(link.trace_id, 16), int(link.span_id, 16), False, TraceFlags(1)), dict(link.attributes))
