# SPDX-License-Identifier: Apache-2.0
"""Every list that a span records of a model's input, or of its output, each as one writer wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from genai_processor.replay.items import Gap
from genai_processor.replay.lists import ListReader, ReadList
from genai_processor.replay.messages import in_order
from genai_processor.replay.parts import EMPTY
from genai_processor.replay.records import OrderEvidence, State
from genai_processor.spans.messages import from_events, nested
from genai_processor.spans.records import Span
from genai_processor.spans.values import has_marker, is_mapping, is_withheld, quick_loads

_OUTPUT_EVENT = "gen_ai.choice"
_ANYTHING = frozenset({"input.value", "output.value", "gen_ai.prompt", "gen_ai.completion"})


SPAN_EVENTS = "span events"


def best_source(lists: ListReader, span: Span, keys: tuple[str, ...], *, outputs: bool) -> tuple[ReadList | None, str]:
    """The list that is whole, else the first, as `lists.best`; and where it stands, "" for no list.

    Of whole lists it is the first, unless that leaves open which calls its results answer, and the next one does not.
    """
    first: tuple[ReadList | None, str] = (None, "")
    loose: tuple[ReadList, str] | None = None
    for name, found in sources(lists, span, keys, outputs=outputs):
        if found.state is State.WHOLE:
            if loose is not None:
                return (found, name) if not found.loose and _is_same(found, loose[0]) else loose
            if not found.loose:
                return found, name
            loose = found, name  # another one may say which calls the results answer
        elif first[0] is None:
            first = found, name
    return loose or first


def _is_same(one: ReadList, other: ReadList) -> bool:
    """Whether two lists have parts of the same kinds, in the same order."""
    return [(part.role, part.kind) for part in one.parts] == [(part.role, part.kind) for part in other.parts]


def sources(lists: ListReader, span: Span, keys: tuple[str, ...], *, outputs: bool) -> Iterator[tuple[str, ReadList]]:
    """Read the lists, the most trusted first.

    Args:
        lists: Reads them.
        span: The span.
        keys: Where its dialect has them; a trailing "." asks for indexed attributes.
        outputs: What the model said is meant, not what it read.

    Yields:
        Where a list stands (one of the keys, or `SPAN_EVENTS`), and the list.
    """
    attributes = span.attributes
    names = None
    for key in keys:
        if key[-1] == ".":
            if names is None:
                names = "\n".join(attributes)
            if key in names:
                yield key, _folded(lists, attributes, key)
        elif (value := attributes.get(key)) is not None:
            found = _source(lists, span, key, value, outputs)
            if found is not None:
                yield key, found
    if span.events:
        found = _events(lists, span, outputs)
        if found is not None:
            yield SPAN_EVENTS, found


def _folded(lists: ListReader, attributes: Mapping[str, Any], key: str) -> ReadList:
    folded = nested(attributes, key[:-1])
    if not folded or in_order_or_none(folded) is None:
        return ReadList(State.CUT, EMPTY, OrderEvidence.NOT_RECORDED)
    marked = any(isinstance(value, str) and name.startswith(key) and has_marker(value) for name, value in attributes.items())
    return lists.structure(folded, OrderEvidence.INDEXED, marked=marked)


def _source(lists: ListReader, span: Span, key: str, value: Any, outputs: bool) -> ReadList | None:
    if key in _ANYTHING or key.startswith("traceloop.entity."):
        return _wrapped(lists, value, outputs)
    if key == "events":
        return _event_list(lists, value, outputs)
    if isinstance(value, str):
        if not outputs and value[:1] == "[":
            return lists.history(span.trace_id, value)
        return lists.text(value)
    if isinstance(value, (list, tuple)):
        parsed = [quick_loads(item) if isinstance(item, str) and item[:1] in ("{", "[") else item for item in value]
        marked = any(isinstance(item, str) and has_marker(item) for item in value)
        return lists.structure(parsed, OrderEvidence.ARRAY, marked=marked)
    return lists.structure(value, OrderEvidence.ARRAY)


def _wrapped(lists: ListReader, value: Any, outputs: bool) -> ReadList | None:
    """A vendor's request or response, which may be anything: a list only if there are messages in it."""
    if not isinstance(value, str):
        return None
    if is_withheld(value):
        return ReadList(State.REDACTED, EMPTY, OrderEvidence.NOT_RECORDED)
    if value[:1] not in ("{", "["):
        return None
    found = lists.text(value)
    if found.state is State.UNREADABLE or not len(found.parts):
        if outputs and found.state is State.UNREADABLE:
            parsed = quick_loads(value)
            if is_mapping(parsed) and "output" in parsed and isinstance(parsed["output"], list):
                return lists.structure(parsed["output"], OrderEvidence.ARRAY)
        return None if found.state is not State.CUT else found
    return found


def _event_list(lists: ListReader, value: Any, outputs: bool) -> ReadList | None:
    """pydantic-ai's first format: one JSON array of events, input and output in it."""
    parsed = quick_loads(value)
    if not isinstance(parsed, list):
        return lists.text(value) if isinstance(value, str) else None
    mine = [event for event in parsed if is_mapping(event) and (event.get("event.name") == _OUTPUT_EVENT) is outputs]
    marked = isinstance(value, str) and has_marker(value)
    return lists.structure(mine, OrderEvidence.ARRAY, marked=marked) if mine else None


def _events(lists: ListReader, span: Span, outputs: bool) -> ReadList | None:
    structures = list(from_events(span.events, outputs=outputs))
    if not structures:
        return None
    marked = any(
        isinstance(value, str) and has_marker(value)
        for event in span.events
        if event.name.startswith("gen_ai.")
        for value in event.attributes.values()
    )
    found = lists.structure(structures, OrderEvidence.EVENTS, marked=marked)
    return found._replace(state=State.CUT) if span.dropped_events and found.state is State.WHOLE else found


def in_order_or_none(folded: Mapping[str, Any]) -> list[Any] | None:
    """The items of folded attributes in their order, or None if one is missing."""
    try:
        return in_order(folded)
    except Gap:
        return None
