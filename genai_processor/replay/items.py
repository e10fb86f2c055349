# SPDX-License-Identifier: Apache-2.0
"""The slots of one message: texts, calls, results, whatever else, in every shape that parts have.

What a call or a result looks like is known to `spans.messages`. What is not understood is a slot of its own, as it was
recorded: never is anything left out that was said, except texts without a character, which some frameworks write beside
calls and others do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from genai_processor.replay.parts import PartKind, Role
from genai_processor.spans.messages import item_of
from genai_processor.spans.records import Proposal, Result
from genai_processor.spans.values import is_mapping, text


class Item(NamedTuple):
    """One slot before it has a digest.

    Attributes:
        role: Its role class.
        kind: Its kind.
        tool: The tool's name, for a call or a result that has it.
        call_id: The call id, likewise.
        value: What it says.
        missing: What it says is not recorded.
    """

    role: Role
    kind: PartKind
    tool: str | None
    call_id: str | None
    value: Any
    missing: bool


class Unreadable(ValueError):
    """A structure is no message list, or has a hole."""


class Gap(Unreadable):
    """Of indexed messages, one is not there."""


_SYSTEM, _USER, _ASSISTANT, _TOOL = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL
_TEXT, _CALL, _RESULT, _REASONING, _OTHER = PartKind.TEXT, PartKind.CALL, PartKind.RESULT, PartKind.REASONING, PartKind.OTHER

ROLES: dict[str, Role] = {
    "system": _SYSTEM,
    "developer": _SYSTEM,
    "user": _USER,
    "human": _USER,
    "assistant": _ASSISTANT,
    "model": _ASSISTANT,
    "ai": _ASSISTANT,
    "chatbot": _ASSISTANT,
    "tool": _TOOL,
    "function": _TOOL,
    "tool-response": _TOOL,
}
_new = tuple.__new__  # cheaper than the named tuple's own


def role_of(name: Any) -> Role:
    """The class of a role.

    Raises:
        Unreadable: Nobody is known to write it.
    """
    found = ROLES.get(name) if type(name) is str else None
    if found is None:
        found = ROLES.get(name.lower()) if isinstance(name, str) else None
        if found is None:
            raise Unreadable(f"no role is called {name!r}")
    return found


def add_parts(parts: Iterable[Any], role: Role, found: list[Item]) -> None:
    """Add the slots that a message's parts are.

    Args:
        parts: The parts.
        role: Whose message it is.
        found: Where the slots go.
    """
    for part in parts:
        if type(part) is dict:
            kind = part.get("type")
            if kind == "text" and ("content" in part or "text" in part):
                add_text(part["content"] if "content" in part else part["text"], role, found)
                continue
            if (
                kind == "tool_call"
                and type(name := part.get("name")) is str
                and "arguments" in part
                and "call_id" not in part
            ):
                value = part["arguments"]
                found.append(Item(_ASSISTANT, _CALL, name, text(part.get("id")), value, value is None))
                continue
            if kind == "tool_call_response" and "response" in part and "call_id" not in part and "tool_use_id" not in part:
                value = part["response"]
                found.append(
                    _new(Item, (_TOOL, _RESULT, text(part.get("name")), text(part.get("id")), value, value is None))
                )
                continue
            if (item := item_of(part)) is not None:
                add_call(item, part, found)
                continue
            _other(part, kind_of(part), role, found)
        elif isinstance(part, str):
            add_text(part, role, found)
        elif is_mapping(part):
            add_parts([dict(part)], role, found)
        elif part is not None:
            found.append(Item(role, _OTHER, None, None, part, False))


_TEXT_TYPES = frozenset({"text", "output_text", "input_text", None})
_THOUGHT_TYPES = frozenset({"reasoning", "thinking", "redacted_thinking", "thought"})
_HOLDERS = frozenset({"type", "kind", "media_type", "mime_type", "modality"})


def kind_of(part: Mapping[str, Any], key: str = "type") -> str | None:
    """What a part says that it is, or None."""
    kind = part.get(key)
    return kind if isinstance(kind, str) else None


def _other(part: Mapping[str, Any], kind: str | None, role: Role, found: list[Item]) -> None:
    inner = part.get("message_content")
    if is_mapping(inner):  # OpenInference
        add_parts([dict(inner)], role, found)
        return
    call = part.get("tool_call")
    if is_mapping(call):
        add_flat_call(part, found)
        return
    if "block_type" in part:
        kind = kind_of(part, "block_type")
    if kind in _TEXT_TYPES:
        for key in ("text", "content", "output_text"):
            if isinstance(part.get(key), str):
                add_text(part[key], role, found)
                return
        if kind is not None:
            found.append(Item(role, _TEXT, None, None, None, True))
            return
    if kind in _THOUGHT_TYPES or part.get("thought") is True:
        found.append(Item(role, _REASONING, None, None, without_role(part), set(part) <= _HOLDERS))
        return
    found.append(Item(role, _OTHER, None, None, without_role(part), set(part) <= _HOLDERS))


def without_role(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part without what only its message says."""
    return {key: value for key, value in part.items() if key not in ("role", "event.name", "gen_ai.message.index", "status")}


def add_text(value: Any, role: Role, found: list[Item]) -> None:
    """Add what stands where a text is expected."""
    if isinstance(value, str):
        if value and not value.isspace():
            found.append(_new(Item, (role, _TEXT, None, None, value, False)))
    elif value is None:
        found.append(Item(role, _TEXT, None, None, None, True))
    elif isinstance(value, (list, tuple)):
        add_parts(value, role, found)
    else:
        found.append(Item(role, _OTHER, None, None, value, False))


def add_call(item: Proposal | Result, node: Mapping[str, Any], found: list[Item]) -> None:
    """Add a call or a result that was read from a mapping."""
    if isinstance(item, Proposal):
        found.append(Item(_ASSISTANT, _CALL, item.tool, item.call_id, item.arguments, item.arguments is None))
    else:
        found.append(
            Item(_TOOL, _RESULT, item.tool, item.call_id, item.value, item.value is None and "is_error" not in node)
        )


def add_flat_call(call: Any, found: list[Item]) -> None:
    """A call of a message's list of calls, whatever it is wrapped in."""
    if is_mapping(call):
        inner = call.get("tool_call")
        if is_mapping(inner):
            call = inner
        function = call.get("function")
        if is_mapping(function) and isinstance(function.get("name"), str):
            arguments = function.get("arguments")
            found.append(Item(_ASSISTANT, _CALL, function["name"], text(call.get("id")), arguments, arguments is None))
            return
        if (item := item_of(call)) is not None and isinstance(item, Proposal):
            add_call(item, call, found)
            return
        name = call.get("name")
        if isinstance(name, str):
            value = call.get("arguments", call.get("args"))
            found.append(Item(_ASSISTANT, _CALL, name, text(call.get("id")), value, value is None))
            return
    found.append(Item(_ASSISTANT, _CALL, None, None, None, True))
