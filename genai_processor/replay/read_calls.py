# SPDX-License-Identifier: Apache-2.0
"""What a tool's span says: the arguments that went in and what came out."""

from __future__ import annotations

from typing import Any

from genai_processor.replay.digests import part_digest
from genai_processor.replay.failures import error_of, failed, is_cancelled, is_control_flow, message_of
from genai_processor.replay.forms import unwrapped
from genai_processor.replay.lists import ListReader, ReadList
from genai_processor.replay.parts import EMPTY, Part, PartKind, PartList, Role
from genai_processor.replay.records import Ending, OrderEvidence, Outcome, State
from genai_processor.spans.arguments import ArgumentsState, read_arguments
from genai_processor.spans.dialects import Dialect
from genai_processor.spans.records import Span, StatusCode, ToolCall
from genai_processor.spans.values import first_of, has_marker, is_mapping, is_withheld, quick_loads

_TEXT, _CALL, _RESULT = PartKind.TEXT, PartKind.CALL, PartKind.RESULT
_ASSISTANT, _TOOL = Role.ASSISTANT, Role.TOOL
_COMPLETE, _WHOLE, _VALUE, _NO_LIST = ArgumentsState.COMPLETE, State.WHOLE, Ending.VALUE, OrderEvidence.NO_LIST
_ERROR = int(StatusCode.ERROR)
_new = tuple.__new__  # cheaper than the named tuples' own
NO_OUTCOME = Outcome(Ending.UNKNOWN, State.NOT_RECORDED, EMPTY)
"""Nothing tells how it ended."""


def arguments_of(
    lists: ListReader, call: ToolCall, tool: str | None, call_id: str | None, *, keep: bool
) -> tuple[ReadList, Any]:
    """The arguments as a list of one part with that tool and call id, and what they say."""
    raw = call.arguments
    if call.dialect.empty_is_withheld and raw in ("{}", {}):
        raw = None
    found = read_arguments(raw, rendered=call.arguments_rendered, is_cut=lists.is_cut)
    if found.state is _COMPLETE or found.state is ArgumentsState.MALFORMED:
        value = found.value if found.state is _COMPLETE else raw
        digest = part_digest(_ASSISTANT, _CALL, tool, value)
        part = _new(Part, (_ASSISTANT, _CALL, tool, digest, 0, call_id, value if keep else None, False))
        return _new(ReadList, (_WHOLE, PartList(None, (part,), 1), _NO_LIST, False, 0, 0, b"")), value
    marked = isinstance(raw, str) and (is_withheld(raw) or has_marker(raw))
    marked = marked or (raw is not None and not isinstance(raw, str) and found.state is ArgumentsState.CUT)
    if marked:
        state = State.REDACTED
    elif found.state is ArgumentsState.CUT or call.span.dropped_attributes:
        state = State.CUT
    else:
        state = State.NOT_RECORDED if raw is None else State.WITHHELD
    return ReadList(state, EMPTY, OrderEvidence.NO_LIST), None


def outcome_of(lists: ListReader, call: ToolCall, key: str, *, keep: bool) -> Outcome:
    """How the call ended, as its own span says, whose key is given."""
    span = call.span
    raw = first_of(span.attributes, call.dialect.results)
    if raw is None and span.events:
        raw = _result_event(span)
    state, parts = _result(lists, keep, raw, call.dialect)
    error = error_of(span, call.error_types)
    if call.paused is not None:
        return failed(Ending.PAUSED, parts, call.paused, message_of(span), (key,))
    if error is not None and is_control_flow(error[0]):
        return failed(Ending.PAUSED, parts, error[0], error[1], (key,))
    if (error and is_cancelled(error[0])) or (call.error_types and any(is_cancelled(name) for name in call.error_types)):
        return failed(Ending.WAITS, parts, error[0] if error else None, None, (key,))
    if error is not None:
        return failed(Ending.FAILURE, parts, error[0], error[1], (key,))
    if state is _WHOLE:
        return _new(Outcome, (_VALUE, state, parts, None, None, None, (key,), False))
    if span.status == _ERROR:
        return NO_OUTCOME  # it failed, and nothing says how
    return Outcome(Ending.UNKNOWN, state, EMPTY)


def _result(lists: ListReader, keep: bool, raw: Any, dialect: Dialect) -> tuple[State, PartList]:
    if raw is None or (dialect.empty_is_withheld and raw in ("{}", {})):
        return State.NOT_RECORDED, EMPTY
    if isinstance(raw, str):
        if is_withheld(raw) or has_marker(raw):
            return State.REDACTED, EMPTY
        if lists.is_cut(raw) or (raw[:1] in ("[", "{") and _broken(raw)):
            return State.CUT, EMPTY
    value = unwrapped(raw)
    digest = part_digest(_TOOL, _RESULT, None, value)
    return _WHOLE, PartList(None, (_new(Part, (_TOOL, _RESULT, None, digest, 0, None, value if keep else None, False)),), 0)


def delegated_by(value: Any) -> tuple[bytes, ...]:
    """The digests of a user's part that says a tool's arguments: as a whole, or their only text."""
    if is_mapping(value) and len(value) == 1:
        sole = next(iter(value.values()))
        if isinstance(sole, str):
            return (part_digest(Role.USER, _TEXT, None, sole),)
    return ()


def _result_event(span: Span) -> Any:
    """Strands' tool spans carry the result in an event."""
    for event in span.events:
        if event.name == "gen_ai.choice":
            return event.attributes.get("message")
    return None


def _broken(value: str) -> bool:
    """Whether a text that begins like JSON ends as if it had been cut."""
    return value.rstrip()[-1:] not in ("]", "}") and quick_loads(value) is None
