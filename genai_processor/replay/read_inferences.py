# SPDX-License-Identifier: Apache-2.0
"""What an inference's span says: the messages that went in and what the model answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from genai_processor.replay.digests import finish_class
from genai_processor.replay.failures import error_of, failed, is_cancelled, types_of
from genai_processor.replay.lists import ReadList
from genai_processor.replay.parts import EMPTY
from genai_processor.replay.read_calls import NO_OUTCOME
from genai_processor.replay.records import Ending, OrderEvidence, Outcome, State
from genai_processor.spans.records import Span

_PREVIOUS = re.compile(r'"(?:previous_response_id|conversation)\\*"\s*:\s*\\*["{]')
_PREVIOUS_KEYS = (
    "gen_ai.request.previous_response.id",
    "gen_ai.request.previous_response_id",
    "openai.request.previous_response_id",
    "gen_ai.openai.request.previous_response_id",
)
_PARAMETERS = ("llm.invocation_parameters", "model_request_parameters")
_COMPACTED = "gen_ai.conversation.compacted"
_TELLING = frozenset((*_PREVIOUS_KEYS, *_PARAMETERS, _COMPACTED))


def held_states(span: Span, inputs: ReadList | None) -> tuple[State, ...]:
    """What marks on the span say of its input: it lost something, a provider has the rest, it was compacted."""
    attributes = span.attributes
    if not span.dropped_attributes and not span.dropped_events and _TELLING.isdisjoint(attributes):
        return ()
    held: list[State] = []
    if span.dropped_attributes or (span.dropped_events and (inputs is None or inputs.order is OrderEvidence.EVENTS)):
        held.append(State.CUT)
    if any(attributes.get(key) for key in _PREVIOUS_KEYS) or _continues(attributes):
        held.append(State.HELD_BY_PROVIDER)
    if attributes.get(_COMPACTED) in (True, "true"):
        held.append(State.COMPACTED)
    return tuple(held)


def _continues(attributes: Mapping[str, Any]) -> bool:
    for key in _PARAMETERS:
        value = attributes.get(key)
        if isinstance(value, str) and "previous_response_id" in value and _PREVIOUS.search(value):
            return True
    return False


def said_by(span: Span, key: str, output: ReadList | None) -> Outcome:
    """What the model answered on a span with a key."""
    error = error_of(span, types_of(span))
    parts = output.parts if output is not None else EMPTY
    if error is not None and not len(parts):
        ending = Ending.WAITS if is_cancelled(error[0]) else Ending.FAILURE
        return failed(ending, parts, error[0], error[1], (key,))
    if output is None:
        return NO_OUTCOME
    finish = _finish_of(span)
    if output.state is not State.WHOLE:
        return Outcome(Ending.UNKNOWN, output.state, parts, finish)
    return Outcome(Ending.VALUE, State.WHOLE, parts, finish, witnesses=(key,))


def _finish_of(span: Span) -> str | None:
    reasons = span.attributes.get("gen_ai.response.finish_reasons")
    if isinstance(reasons, (list, tuple)) and reasons:
        return finish_class(reasons[0])
    return finish_class(reasons) if isinstance(reasons, str) else None
