# SPDX-License-Identifier: Apache-2.0
"""The calls of which a span that is none tells: those that a model proposed or read of, and the one that a step runs."""

from __future__ import annotations

import re
from typing import TypeVar

from genai_processor.spans.dialects import Dialect
from genai_processor.spans.messages import from_attributes, from_events, walk
from genai_processor.spans.records import Inference, Proposal, Result, Span
from genai_processor.spans.values import usable_id

_Item = TypeVar("_Item", Proposal, Result)


def proposals(inference: Inference) -> tuple[Proposal, ...]:
    """The calls that a model proposed in this response: the first source that records any, each id once."""
    span, dialect = inference
    structures = from_attributes(span.attributes, dialect.outputs)
    if span.events:
        structures.extend(from_events(span.events, outputs=True))
    for structure in structures:
        found = [_named(item) for item in walk(structure) if type(item) is Proposal]
        if found:
            return _distinct(found)
    return ()


def consumed(inference: Inference) -> tuple[tuple[Proposal, ...], tuple[Result, ...]]:
    """What a model read: earlier proposals that its input repeats, and results."""
    span, dialect = inference
    echoes: list[Proposal] = []
    results: list[Result] = []
    for structure in (*from_attributes(span.attributes, dialect.inputs), *from_events(span.events, outputs=False)):
        for item in walk(structure):
            if isinstance(item, Proposal):
                echoes.append(_named(item))
            else:
                results.append(_named(item))
    return _distinct(echoes), tuple(results)


def _named(item: _Item) -> _Item:
    """The same, without an id that is none: a placeholder names a call no better in a message than on a span."""
    if item.call_id is None or usable_id(item.call_id, item.tool) is not None:
        return item
    return item._replace(call_id=None)


def _distinct(items: list[Proposal]) -> tuple[Proposal, ...]:
    """Two reports of one proposal (a message, and the same message in a wrapper) are one."""
    if len(items) < 2:
        return tuple(items)
    seen: dict[object, Proposal] = {}
    for item in items:
        seen.setdefault(item.call_id if item.call_id is not None else object(), item)
    return tuple(seen.values())


def named_call(span: Span, dialect: Dialect) -> Proposal | None:
    """The one call that a step says it runs (LangGraph's `tools` node, LlamaIndex' `call_tool`), or None."""
    for structure in from_attributes(span.attributes, dialect.steps):
        found = _distinct([_named(item) for item in walk(structure) if type(item) is Proposal])
        if len(found) == 1:
            return found[0]
    event = span.attributes.get("input.value")
    if isinstance(event, str) and "ToolCall(tool_name=" in event:
        match = _RENDERED_CALL.search(event)
        if match:
            return _named(Proposal(match["id"], match["tool"], None))
    return None


_RENDERED_CALL = re.compile(r"ToolCall\(tool_name='(?P<tool>[^']+)'.*?tool_id='(?P<id>[^']+)'\)")
