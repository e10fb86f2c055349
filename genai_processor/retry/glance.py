# SPDX-License-Identifier: Apache-2.0
"""A glance at a tool span that plainly came back, which is what nearly every one does.

It reads the SDK's own fields and makes no record of the span. Whatever takes more than a glance (a failure, an event, a
dialect with marks of its own) is left to the full reading; what a glance takes for well, the full reading would too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.trace import StatusCode

from genai_processor.spans.dialects import CONVENTIONS, dialect_of
from genai_processor.spans.dialects.base import Dialect, looks_failed, may_look_failed, result_if_arguments
from genai_processor.spans.read import from_cache
from genai_processor.spans.values import usable_id

_ERROR: Final = StatusCode.ERROR
_MAX_NAMES: Final = 64
_MAX_LAYOUTS: Final = 512
_MAX_LAYOUT_SIZE: Final = 4_096  # characters of all names
_STOPS: Final = frozenset(
    {
        "error.type",
        "mcp.method.name",
        "openinference.span.kind",
        "traceloop.span.kind",
        "langsmith.span.kind",
        "logfire.span_type",
        "pydantic_ai.tool.deferral.name",
        "input.value",
        "output.value",
    }
)
"""Attributes that ask for more than a glance."""


Glance: TypeAlias = tuple[str, str | None, str | None, Any, bool]
"""What is seen of a call that came back: the tool's name; the call id, or None; the conversation that the span names, or
None; the arguments as recorded; whether a cache answered, and nothing was executed. A bare tuple, which is made at once."""


class _Layout(NamedTuple):
    """What the names of a span's attributes tell, whatever their values.

    Attributes:
        needs_result: Without a result, a call with arguments may not have come back.
        may_be_cached: Some attribute says whether a cache answered.
        other_conversation: Where it names no conversation, some other attribute may.
    """

    needs_result: bool
    may_be_cached: bool
    other_conversation: bool


def glance(span: Any, attributes: Any, values: Mapping[str, Any]) -> Glance | None:
    """Look at an ended span whose operation is `execute_tool`; None if it takes more than a glance.

    Args:
        span: The SDK's span.
        attributes: Its `BoundedAttributes`.
        values: The dictionary inside.
    """
    tool = values.get("gen_ai.tool.name")
    events = span._events
    if (
        span._status._status_code is _ERROR
        or getattr(events, "_dq", events)  # the SDK's list itself counts in Python
        or getattr(events, "dropped", 0)
        or getattr(attributes, "dropped", 1)
        or span._end_time is None
        or tool.__class__ is not str
        or not tool.strip()
        or len(values) > _MAX_NAMES
    ):
        return None
    scope = span._instrumentation_scope
    key = (scope.name if scope is not None else "", tuple(values))
    layout = _layouts.get(key, _UNSEEN)
    if layout is _UNSEEN:
        layout = _remembered(key)
    if layout is None:
        return None
    get = values.get
    arguments, result = get("gen_ai.tool.call.arguments"), get("gen_ai.tool.call.result")
    if result is None:
        if arguments is not None and layout.needs_result:
            return None
    elif may_look_failed(result) and looks_failed(result) is not None:
        return None
    conversation = get("gen_ai.conversation.id")
    if conversation.__class__ is not str or not conversation.strip():
        if layout.other_conversation:
            return None
        conversation = None
    call_id = usable_id(get("gen_ai.tool.call.id"), tool)
    return tool, call_id, conversation, arguments, layout.may_be_cached and from_cache(values)


_UNSEEN: Final = _Layout(needs_result=True, may_be_cached=True, other_conversation=True)
_Key: TypeAlias = tuple[str, tuple[str, ...]]
_layouts: Final[dict[_Key, _Layout | None]] = {}


def _remembered(key: _Key) -> _Layout | None:
    """Work a layout out, and remember it. Where every span has names of its own, that is for nothing, and bounded."""
    found = _layout(*key)
    if len(key[0]) + sum(map(len, key[1])) < _MAX_LAYOUT_SIZE:
        if len(_layouts) >= _MAX_LAYOUTS:
            _layouts.clear()
        _layouts[key] = found
    return found


def _layout(scope: str, names: tuple[str, ...]) -> _Layout | None:
    """What a scope and the names of a tool span's attributes tell; None if it takes more than a glance.

    An instrumentation writes its tool spans with the same few sets of names, so this is worked out once for each.
    """
    values = dict.fromkeys(names)
    dialect = dialect_of(scope, values)
    if (
        not _STOPS.isdisjoint(values)
        or dialect.tool_name is not CONVENTIONS.tool_name
        or dialect.failures is not None
        or dialect.operation is not None
        or not _own_keys(dialect).isdisjoint(values)
        or dialect.has_end_mark not in (None, result_if_arguments)
        or any(".cancellation." in name for name in names)
    ):
        return None
    return _Layout(
        needs_result=dialect.has_end_mark is not None,
        may_be_cached=any(name.endswith("from_cache") for name in names),
        other_conversation="session.id" in values or "metadata" in values,
    )


def _own_keys(dialect: Dialect) -> frozenset[str]:
    """Where a dialect keeps arguments and results, apart from where the conventions do."""
    return frozenset((*dialect.arguments, *dialect.results)) - {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
