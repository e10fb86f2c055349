# SPDX-License-Identifier: Apache-2.0
"""What an agent's own span says that went in and came out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genai_processor.replay.items import Unreadable
from genai_processor.replay.lists import ListReader, ReadList
from genai_processor.replay.messages import items_of
from genai_processor.replay.parts import EMPTY, Role, part_list
from genai_processor.replay.records import OrderEvidence, State
from genai_processor.spans.values import has_marker, is_withheld, quick_loads

_INPUTS = ("gen_ai.input.messages", "input.value", "gen_ai.prompt", "traceloop.entity.input")
_OUTPUTS = ("gen_ai.output.messages", "output.value", "final_result", "gen_ai.completion", "traceloop.entity.output")
_HISTORIES = ("pydantic_ai.all_messages", "all_messages_events")
CONTAINER_TEXTS = (*_INPUTS, *_OUTPUTS, *_HISTORIES)
"""Where they stand."""


def container_lists(texts: Mapping[str, Any]) -> tuple[ReadList | None, ReadList | None]:
    """What a container's span says that went in and came out, read now: most are never asked."""
    reader = ListReader(keep_values=True, length_limit=None)
    found: list[ReadList | None] = [None, None]
    for at, keys, role in ((0, _INPUTS, Role.USER), (1, _OUTPUTS, Role.ASSISTANT)):
        for key in keys:
            if found[at] is None and isinstance(texts.get(key), str):
                found[at] = _any_text(reader, texts[key], role)
    everything = next((texts[key] for key in _HISTORIES if key in texts), None)
    if isinstance(everything, str) and found[0] is None:
        read = reader.text(everything)
        if read.state is State.WHOLE:
            first = next((at for at, part in enumerate(read.parts) if part.role is Role.ASSISTANT), len(read.parts))
            found[0] = read._replace(parts=part_list(read.parts[:first]))
            if found[1] is None and read.parts[-1].role is Role.ASSISTANT:
                found[1] = read._replace(parts=part_list(read.parts[-1:]))
    return found[0], found[1]


def _any_text(reader: ListReader, value: str, role: Role) -> ReadList | None:
    if is_withheld(value) or has_marker(value):
        return ReadList(State.REDACTED, EMPTY, OrderEvidence.NOT_RECORDED)
    parsed = quick_loads(value) if value[:1] in ("[", "{") else None
    try:
        items = items_of(parsed if parsed is not None else value, role)
    except (Unreadable, RecursionError):
        items = []
    return reader.of_items(items, OrderEvidence.ARRAY) if items else None
