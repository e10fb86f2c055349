# SPDX-License-Identifier: Apache-2.0
"""How a span says that something failed, was suspended or was cancelled."""

from __future__ import annotations

from genai_processor.replay.parts import PartList
from genai_processor.replay.records import Ending, Outcome, State
from genai_processor.spans.records import Span, StatusCode

_ERROR = int(StatusCode.ERROR)
_CANCELLED = frozenset({"CancelledError", "Cancelled"})
_NAMELESS = frozenset({"_OTHER", "Exception", "tool_error"})
"""What instrumentations write for a type that they do not tell."""


def types_of(span: Span) -> tuple[str, ...]:
    """Every error or exception type on a span."""
    types = [span.attributes.get("error.type")]
    types.extend([event.attributes.get("exception.type") for event in span.events if event.name == "exception"])
    return tuple([name for name in types if isinstance(name, str)])


def error_of(span: Span, types: tuple[str, ...]) -> tuple[str | None, str | None] | None:
    """The failure that a span records: its type and message; None if it records none."""
    message = message_of(span)
    named = [name for name in types if name not in _NAMELESS] or list(types)
    if named:
        return named[-1], message
    if span.status == _ERROR and message:
        return None, message
    return None


def message_of(span: Span) -> str | None:
    """The message of the last exception, else the status' description."""
    for event in reversed(span.events):
        if event.name == "exception" and isinstance(event.attributes.get("exception.message"), str):
            return str(event.attributes["exception.message"])
    return span.status_message or None


def is_cancelled(name: str | None) -> bool:
    """Whether an error type is a cancellation."""
    return name is not None and name.rpartition(".")[2] in _CANCELLED


def failed(ending: Ending, parts: PartList, name: str | None, message: str | None, key: tuple[str, ...]) -> Outcome:
    """An outcome that is no value. It is whole: all that there is to say of it is its type and message."""
    return Outcome(ending, State.WHOLE, parts, None, name, message, key)
