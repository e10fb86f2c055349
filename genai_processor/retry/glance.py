# SPDX-License-Identifier: Apache-2.0
"""A glance at a tool span that plainly came back, which is what nearly every one does.

It reads the SDK's own fields and makes no record of the span. Whatever takes more than a glance (a failure, an event, a
dialect with marks of its own) is left to the full reading; what a glance takes for well, the full reading would too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from genai_processor.spans.dialects import CONVENTIONS, dialect_of
from genai_processor.spans.dialects.base import Dialect, looks_failed, result_if_arguments
from genai_processor.spans.read import from_cache
from genai_processor.spans.values import usable_id

_ERROR: Final = 2
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


class Glance(NamedTuple):
    """What is seen of a call that came back.

    Attributes:
        tool: The tool's name.
        call_id: The call id, or None.
        conversation: The conversation that the span names, or None.
        arguments: The arguments, as recorded.
        from_cache: A cache answered; nothing was executed.
    """

    tool: str
    call_id: str | None
    conversation: str | None
    arguments: Any
    from_cache: bool


def glance(span: Any, attributes: Any, values: Mapping[str, Any]) -> Glance | None:
    """Look at an ended span whose operation is `execute_tool`; None if it takes more than a glance.

    Args:
        span: The SDK's span.
        attributes: Its `BoundedAttributes`.
        values: The dictionary inside.
    """
    tool = values.get("gen_ai.tool.name")
    if (
        span._status._status_code._value_ == _ERROR
        or span._events
        or getattr(span._events, "dropped", 0)
        or getattr(attributes, "dropped", 1)
        or span._end_time is None
        or tool.__class__ is not str
        or not tool.strip()
        or not _STOPS.isdisjoint(values)
    ):
        return None
    scope = span._instrumentation_scope
    dialect = dialect_of(scope.name if scope is not None else "", values)
    if dialect.tool_name is not CONVENTIONS.tool_name or dialect.failures is not None or dialect.operation is not None:
        return None
    if not _own_keys(dialect).isdisjoint(values):
        return None
    arguments, result = values.get("gen_ai.tool.call.arguments"), values.get("gen_ai.tool.call.result")
    if dialect.has_end_mark is not None and (
        dialect.has_end_mark is not result_if_arguments or (result is None and arguments is not None)
    ):
        return None
    if (result is not None and looks_failed(result) is not None) or ".cancellation." in "\n".join(values):
        return None
    conversation = values.get("gen_ai.conversation.id")
    if conversation.__class__ is not str or not conversation.strip():
        if "session.id" in values or "metadata" in values:
            return None
        conversation = None
    call_id = usable_id(values.get("gen_ai.tool.call.id"), tool)
    return Glance(tool, call_id, conversation, arguments, from_cache(values))


@lru_cache(maxsize=256)
def _own_keys(dialect: Dialect) -> frozenset[str]:
    """Where a dialect keeps arguments and results, apart from where the conventions do."""
    return frozenset((*dialect.arguments, *dialect.results)) - {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"}
