# SPDX-License-Identifier: Apache-2.0
"""The SDK's own spans as `Span`, at the cost that a span's end can bear.

Reads the private fields of `ReadableSpan` where they are what SDK 1.38 to 1.45 have, because the public properties copy
or wrap; of anything else that quacks like a span, the properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from genai_processor.spans.otlp_resource import ResourceToken, resource_token
from genai_processor.spans.records import Event, Link, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_MAX_RESOURCES = 64
_new_span = tuple.__new__  # cheaper than the named tuple's own; tests compare each field with every other source

# Keyed by identity (hashing a `Resource` serializes it), with the resource itself, so that the identity stays its own.
_tokens: dict[int, tuple[Any, ResourceToken]] = {}


def from_readable(span: ReadableSpan) -> Span:
    """The record of a live span. Its attributes are the span's own dictionary, never a copy: do not change them."""
    try:
        context: Any = span._context
        parent: Any = span._parent
        attributes: Any = span._attributes
        events: Any = span._events
        links: Any = span._links
        scope: Any = span._instrumentation_scope
        status: Any = span._status
        resource: Any = span._resource
        name, kind, start_ns, end_ns = span._name, span._kind, span._start_time, span._end_time
    except AttributeError:
        context, parent, attributes = span.context, span.parent, span.attributes
        events, links, scope = span.events, span.links, span.instrumentation_scope
        status, resource = span.status, span.resource
        name, kind, start_ns, end_ns = span.name, span.kind, span.start_time, span.end_time
    known = _tokens.get(id(resource))
    return _new_span(
        Span,
        (
            f"{context.trace_id:032x}" if context else "",
            f"{context.span_id:016x}" if context else "",
            f"{parent.span_id:016x}" if parent else None,
            name,
            # `_value_` is what `value` returns, without the descriptor that it goes through. OTLP counts from one.
            kind._value_ + 1,
            scope.name if scope else "",
            start_ns,
            end_ns,
            status._status_code._value_,
            status._description or "",
            _plain(attributes),
            _events(events) if events else (),
            _links(links) if links else (),
            getattr(attributes, "dropped", 0),
            getattr(events, "dropped", 0),
            known[1] if known is not None and known[0] is resource else _token(resource),
        ),
    )


def _plain(attributes: Any) -> Mapping[str, Any]:
    """The dictionary inside the SDK's `BoundedAttributes`; a mapping of another kind as it is."""
    if attributes is None:
        return {}
    if type(attributes) is dict:
        return attributes
    inner = getattr(attributes, "_dict", None)
    return inner if type(inner) is dict else attributes


def _events(events: Iterable[Any]) -> tuple[Event, ...]:
    return tuple([Event(event.name, _plain(event.attributes)) for event in events])


def _links(links: Iterable[Any]) -> tuple[Link, ...]:
    return tuple(
        [Link(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}", _plain(link.attributes)) for link in links]
    )


def _token(resource: Any) -> ResourceToken:
    token = resource_token(resource.attributes)
    if len(_tokens) >= _MAX_RESOURCES:
        _tokens.clear()
    _tokens[id(resource)] = (resource, token)
    return token
