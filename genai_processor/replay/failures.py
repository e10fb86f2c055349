# SPDX-License-Identifier: Apache-2.0
"""How a span says that something failed, was suspended or was cancelled."""

from __future__ import annotations

import re

from genai_processor.replay.parts import PartList
from genai_processor.replay.records import Ending, Outcome, State
from genai_processor.spans.records import Span, StatusCode
from genai_processor.spans.values import literal

_ERROR = int(StatusCode.ERROR)
_CANCELLED = frozenset({"CancelledError", "Cancelled"})
_NAMELESS = frozenset({"_OTHER", "Exception", "tool_error"})
"""What instrumentations write for a type that they do not tell."""


def types_of(span: Span) -> tuple[str, ...]:
    """Every error or exception type on a span."""
    error = span.attributes.get("error.type")
    if error is None and not span.events:
        return ()
    types = [error]
    types.extend([event.attributes.get("exception.type") for event in span.events if event.name == "exception"])
    return tuple([name for name in types if isinstance(name, str)])


def error_of(span: Span, types: tuple[str, ...]) -> tuple[str | None, str | None] | None:
    """The failure that a span records: its type and message; None if it records none."""
    if not types and span.status != _ERROR:
        return None
    message = message_of(span)
    named = [name for name in types if name not in _NAMELESS]
    if named:
        return named[-1], message
    if types or (span.status == _ERROR and message):
        return _spelled_out(types[-1] if types else None, message)
    return None


def _spelled_out(name: str | None, message: str | None) -> tuple[str | None, str | None]:
    """What a message says of a failure whose type the instrumentation does not tell."""
    if message is None:
        return name, message
    shown = _SHOWN.match(message)
    if shown is not None:  # LangSmith: as the exception shows itself, with its traceback behind
        said = literal(f"({shown['arguments']},)") if shown["arguments"] else ("",)
        text = said[0] if isinstance(said, tuple) and len(said) == 1 and isinstance(said[0], str) else shown["arguments"]
        return shown["name"], text
    data = _DATA.search(message)
    found = literal(data["data"]) if data is not None else None
    if isinstance(found, dict) and isinstance(found.get("error"), str):  # OpenAI Agents
        return name, found["error"]
    return name, message


_SHOWN = re.compile(r"(?P<name>[A-Za-z_]\w*)\((?P<arguments>.*?)\)Traceback \(most recent call last\):", re.DOTALL)
_DATA = re.compile(r"Error running tool.*?(?P<data>\{'tool_name':.*?\})\}?$", re.DOTALL)


def is_control_flow(name: str | None) -> bool:
    """Whether a type by its bare name is a framework's control flow: it suspends, and does not fail."""
    return name in _CONTROL_FLOW


_CONTROL_FLOW = frozenset({"GraphInterrupt", "NodeInterrupt"})


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
