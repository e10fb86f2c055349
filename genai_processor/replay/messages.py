# SPDX-License-Identifier: Apache-2.0
"""The slots of a message list, in the order in which it was written, whatever it is wrapped in.

Here it is who said what, and in what order; what one message says is known to `items`. A structure is walked once, without
recursion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genai_processor.replay.items import (
    ROLES,
    Gap,
    Item,
    Unreadable,
    add_call,
    add_flat_call,
    add_parts,
    add_text,
    kind_of,
    role_of,
    without_role,
)
from genai_processor.replay.parts import PartKind, Role
from genai_processor.replay.rendered import add_rendered
from genai_processor.spans.messages import item_of
from genai_processor.spans.records import Result
from genai_processor.spans.values import is_mapping, quick_loads, text

_SYSTEM, _USER, _ASSISTANT, _TOOL = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL
_TEXT, _CALL, _RESULT, _REASONING, _OTHER = PartKind.TEXT, PartKind.CALL, PartKind.RESULT, PartKind.REASONING, PartKind.OTHER
_EVENT_ROLES = {
    "gen_ai.system.message": _SYSTEM,
    "gen_ai.user.message": _USER,
    "gen_ai.assistant.message": _ASSISTANT,
    "gen_ai.tool.message": _TOOL,
    "gen_ai.choice": _ASSISTANT,
    "gen_ai.content.completion": _ASSISTANT,
    "gen_ai.content.prompt": _USER,
}
_LANGCHAIN_TYPES = frozenset({"human", "ai", "system", "tool", "function", "AIMessageChunk"})
_WRAPPERS = (
    "messages",
    "contents",
    "message",
    "generations",
    "choices",
    "candidates",
    "outputs",
    "output",
    "inputs",
    "response",
    "content",
)
_PARTS = ("parts", "content", "contents", "blocks", "text")
_MAX_ITEMS = 1_000_000


def items_of(structure: Any, role: Role | None = None) -> list[Item]:
    """The slots of a parsed structure, in order.

    Args:
        structure: What JSON text or indexed attributes say.
        role: Whose it is where no message says it.

    Raises:
        Unreadable: It holds no message, or one without a role.
        Gap: Indexed messages have a hole.
    """
    found: list[Item] = []
    if type(structure) is list:
        for message in structure:
            # The shape of the conventions, which nearly all have: no need to look further.
            if type(message) is dict and type(parts := message.get("parts")) is list and "role" in message:
                add_parts(parts, role_of(message["role"]), found)
            else:
                _any(message, role, found)
    else:
        _any(structure, role, found)
    return found


def _any(structure: Any, role: Role | None, found: list[Item]) -> None:
    """Add the slots of anything. Wrappers are taken off one by one; what is left are messages."""
    stack: list[tuple[Any, Role | None]] = [(structure, role)]
    for _ in range(_MAX_ITEMS):
        if not stack:
            return
        node, role = stack.pop()
        if isinstance(node, (list, tuple)):
            stack.extend([(item, role) for item in reversed(node)])
        elif is_mapping(node):
            inner = _message(node, role, found)
            if inner is not None:
                stack.append(inner)
        elif isinstance(node, str):
            parsed = quick_loads(node) if node[:1] in ("{", "[") else None
            if isinstance(parsed, (dict, list)):
                stack.append((parsed, role))
            elif node.startswith("ChatMessage("):
                add_rendered(node, found)
            elif role is not None:
                add_text(node, role, found)
            else:
                raise Unreadable("a text that no role goes with")
        elif node is not None:
            raise Unreadable(f"{type(node).__name__} where a message should be")
    raise Unreadable(f"more than {_MAX_ITEMS} messages")


def _message(node: Mapping[str, Any], role: Role | None, found: list[Item]) -> tuple[Any, Role | None] | None:
    """Add the slots of one message; of a wrapper, what is inside, with the role that goes with it."""
    indexed = in_order(node)
    if indexed is not None:
        return indexed, role
    name = node.get("event.name")
    if isinstance(name, str) and name in _EVENT_ROLES:
        inner = node.get("message")
        if inner is not None:
            return inner, _EVENT_ROLES[name]
        role = role_of(node["role"]) if isinstance(node.get("role"), str) else _EVENT_ROLES[name]
        _whole(node, role, found)
        return None
    if isinstance(node.get("role"), str):
        _whole(node, role_of(node["role"]), found)
        return None
    kwargs = node.get("kwargs")
    if is_mapping(kwargs) and kind_of(kwargs) in _LANGCHAIN_TYPES:  # LangChain's constructor form
        node = kwargs
    data = node.get("data")
    if is_mapping(data) and kind_of(node) in _LANGCHAIN_TYPES and "content" in data:
        node = {"type": node["type"], **data}
    if kind_of(node) in _LANGCHAIN_TYPES and "content" in node:
        kind = str(node["type"])
        _whole(node, _ASSISTANT if kind == "AIMessageChunk" else ROLES[kind], found)
        return None
    if (item := item_of(node)) is not None:
        add_call(item, node, found)
        return None
    if node.get("type") == "reasoning":
        found.append(Item(_ASSISTANT, _REASONING, None, None, without_role(node), False))
        return None
    for key in _WRAPPERS:
        if key in node and node[key] is not None and not isinstance(node[key], (str, int, float)):
            return node[key], role
    if role is not None:
        add_parts([node], role, found)
        return None
    raise Unreadable("an object that is no message: it has no role")


def in_order(node: Mapping[str, Any]) -> list[Any] | None:
    """The items of an object whose keys are all numbers (folded attributes), in their order; None if it is another object.

    Raises:
        Gap: A number is left out.
    """
    first = next(iter(node), "")
    if not (isinstance(first, str) and first.isdecimal()):
        return None
    if not all(isinstance(key, str) and key.isdecimal() for key in node):
        return None
    numbers = sorted(map(int, node))
    if numbers[0] != 0 or numbers[-1] + 1 != len(numbers):
        raise Gap("an index is missing")
    return [node[str(number)] for number in numbers]


def _whole(node: Mapping[str, Any], role: Role, found: list[Item]) -> None:
    """One message: its parts, its calls; a tool's message is one result."""
    before = len(found)
    call_id = _answered(node)
    if role is _TOOL and not _holds_results(node):
        contents = _contents(node)
        if call_id is None and isinstance(node.get("id"), str) and "event.name" in node:
            call_id = node["id"]
        many = isinstance(contents, list) and len(contents) > 1 and "contents" in node
        if many and _open_calls(found) >= len(contents):  # results of one turn, folded into one message: whose is which?
            found.extend([Item(_TOOL, _RESULT, None, None, _flat(block), False) for block in contents])
        else:
            value = _flat(contents)
            found.append(Item(_TOOL, _RESULT, text(node.get("name")), call_id, value, value is None))
        return
    for key in _PARTS:
        value = node.get(key)
        if value is None:
            continue
        if isinstance(value, str):
            parsed = quick_loads(value) if value[:1] in ("[", "{") else None
            if _is_parts(parsed):
                add_parts(parsed if isinstance(parsed, list) else [parsed], role, found)
            else:
                add_text(value, role, found)
        elif is_mapping(value):
            inner = in_order(value)
            add_parts(inner if inner is not None else [value], role, found)
        elif isinstance(value, (list, tuple)):
            add_parts(value, role, found)
        else:
            found.append(Item(role, _OTHER, None, None, value, False))
        break
    calls: list[Any] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        more = node.get(key)
        if is_mapping(more):
            more = in_order(more)
        calls.extend(more if isinstance(more, (list, tuple)) else ())
    if not calls and is_mapping(node.get("function_call")):
        calls = [node]
    for call in calls:
        add_flat_call(call, found)
    if len(found) == before and not calls and not any(key in node for key in _PARTS):
        found.append(Item(role, _TEXT, None, None, None, True))


def _answered(node: Mapping[str, Any]) -> str | None:
    extra = node.get("additional_kwargs")
    call_id = text(node.get("tool_call_id"))
    return call_id or (text(extra.get("tool_call_id")) if is_mapping(extra) else None)


def _contents(node: Mapping[str, Any]) -> Any:
    for key in ("content", "contents", "blocks", "parts", "response"):
        value = node.get(key)
        if value is not None:
            return in_order(value) or value if is_mapping(value) else value
    return None


def _flat(value: Any) -> Any:
    """OpenInference's folded block as the block itself."""
    if is_mapping(value) and is_mapping(value.get("message_content")):
        value = value["message_content"]
    if isinstance(value, list) and len(value) == 1:
        return _flat(value[0])
    if is_mapping(value) and isinstance(value.get("text"), str) and value.get("type", "text") == "text":
        return value["text"]
    return value


def _holds_results(node: Mapping[str, Any]) -> bool:
    """Whether a tool's message has results as parts of their own."""
    for key in ("parts", "content"):
        value = node.get(key)
        if isinstance(value, str) and value[:1] == "[" and '"tool' in value:
            value = quick_loads(value)
        if isinstance(value, list) and any(is_mapping(part) and isinstance(item_of(part), Result) for part in value):
            return True
    return False


def _is_parts(parsed: Any) -> bool:
    if is_mapping(parsed):
        parsed = [parsed]
    if not isinstance(parsed, list) or not parsed:
        return False
    return all(
        is_mapping(part) and (set(part) <= {"text", "type"} or item_of(part) is not None or "type" in part)
        for part in parsed
    )


def _open_calls(found: list[Item]) -> int:
    """How many calls the last assistant message made."""
    count = 0
    for item in reversed(found):
        if item.kind is _CALL:
            count += 1
        elif count or item.role is not _ASSISTANT:
            break
    return count
