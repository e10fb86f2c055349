# SPDX-License-Identifier: Apache-2.0
"""The slots of a message list, in the order in which it was written, in every shape that providers and frameworks write.

What a call or a result looks like is known to `spans.messages`; here it is who said what, and in what order. A structure is
walked once, without recursion. What is not understood is a slot of its own, as it was recorded: never is anything left out
that was said, except texts without a character, which some frameworks write beside calls and others do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from genai_processor.replay.records import PartKind, Role
from genai_processor.spans.messages import item_of
from genai_processor.spans.records import Proposal, Result
from genai_processor.spans.values import is_mapping, literal, quick_loads, text


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
_new = tuple.__new__  # cheaper than the named tuple's own


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
                _parts(parts, _role(message["role"]), found)
            else:
                _any(message, role, found)
    else:
        _any(structure, role, found)
    return found


def _role(name: Any) -> Role:
    found = ROLES.get(name) if type(name) is str else None
    if found is None:
        found = ROLES.get(name.lower()) if isinstance(name, str) else None
        if found is None:
            raise Unreadable(f"no role is called {name!r}")
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
                _rendered(node, found)
            elif role is not None:
                _add_text(node, role, found)
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
        role = _role(node["role"]) if isinstance(node.get("role"), str) else _EVENT_ROLES[name]
        _whole(node, role, found)
        return None
    if isinstance(node.get("role"), str):
        _whole(node, _role(node["role"]), found)
        return None
    kwargs = node.get("kwargs")
    if is_mapping(kwargs) and _kind(kwargs) in _LANGCHAIN_TYPES:  # LangChain's constructor form
        node = kwargs
    data = node.get("data")
    if is_mapping(data) and _kind(node) in _LANGCHAIN_TYPES and "content" in data:
        node = {"type": node["type"], **data}
    if _kind(node) in _LANGCHAIN_TYPES and "content" in node:
        kind = str(node["type"])
        _whole(node, _ASSISTANT if kind == "AIMessageChunk" else ROLES[kind], found)
        return None
    if (item := item_of(node)) is not None:
        _add_call(item, node, found)
        return None
    if node.get("type") == "reasoning":
        found.append(Item(_ASSISTANT, _REASONING, None, None, _without_role(node), False))
        return None
    for key in _WRAPPERS:
        if key in node and node[key] is not None and not isinstance(node[key], (str, int, float)):
            return node[key], role
    if role is not None:
        _parts([node], role, found)
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
                _parts(parsed if isinstance(parsed, list) else [parsed], role, found)
            else:
                _add_text(value, role, found)
        elif is_mapping(value):
            inner = in_order(value)
            _parts(inner if inner is not None else [value], role, found)
        elif isinstance(value, (list, tuple)):
            _parts(value, role, found)
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
        _add_flat_call(call, found)
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


def _parts(parts: Iterable[Any], role: Role, found: list[Item]) -> None:
    for part in parts:
        if type(part) is dict:
            kind = _kind(part)
            if kind == "text" and ("content" in part or "text" in part):
                _add_text(part["content"] if "content" in part else part["text"], role, found)
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
                _add_call(item, part, found)
                continue
            _other(part, kind, role, found)
        elif isinstance(part, str):
            _add_text(part, role, found)
        elif is_mapping(part):
            _parts([dict(part)], role, found)
        elif part is not None:
            found.append(Item(role, _OTHER, None, None, part, False))


_TEXT_TYPES = frozenset({"text", "output_text", "input_text", None})
_THOUGHT_TYPES = frozenset({"reasoning", "thinking", "redacted_thinking", "thought"})
_HOLDERS = frozenset({"type", "kind", "media_type", "mime_type", "modality"})


def _kind(part: Mapping[str, Any], key: str = "type") -> str | None:
    kind = part.get(key)
    return kind if isinstance(kind, str) else None


def _other(part: Mapping[str, Any], kind: str | None, role: Role, found: list[Item]) -> None:
    inner = part.get("message_content")
    if is_mapping(inner):  # OpenInference
        _parts([dict(inner)], role, found)
        return
    call = part.get("tool_call")
    if is_mapping(call):
        _add_flat_call(part, found)
        return
    if "block_type" in part:
        kind = _kind(part, "block_type")
    if kind in _TEXT_TYPES:
        for key in ("text", "content", "output_text"):
            if isinstance(part.get(key), str):
                _add_text(part[key], role, found)
                return
        if kind is not None:
            found.append(Item(role, _TEXT, None, None, None, True))
            return
    if kind in _THOUGHT_TYPES or part.get("thought") is True:
        found.append(Item(role, _REASONING, None, None, _without_role(part), set(part) <= _HOLDERS))
        return
    found.append(Item(role, _OTHER, None, None, _without_role(part), set(part) <= _HOLDERS))


def _without_role(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in ("role", "event.name", "gen_ai.message.index", "status")}


def _add_text(value: Any, role: Role, found: list[Item]) -> None:
    if isinstance(value, str):
        if value and not value.isspace():
            found.append(_new(Item, (role, _TEXT, None, None, value, False)))
    elif value is None:
        found.append(Item(role, _TEXT, None, None, None, True))
    elif isinstance(value, (list, tuple)):
        _parts(value, role, found)
    else:
        found.append(Item(role, _OTHER, None, None, value, False))


def _add_call(item: Proposal | Result, node: Mapping[str, Any], found: list[Item]) -> None:
    if isinstance(item, Proposal):
        found.append(Item(_ASSISTANT, _CALL, item.tool, item.call_id, item.arguments, item.arguments is None))
    else:
        found.append(
            Item(_TOOL, _RESULT, item.tool, item.call_id, item.value, item.value is None and "is_error" not in node)
        )


def _add_flat_call(call: Any, found: list[Item]) -> None:
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
            _add_call(item, call, found)
            return
        name = call.get("name")
        if isinstance(name, str):
            value = call.get("arguments", call.get("args"))
            found.append(Item(_ASSISTANT, _CALL, name, text(call.get("id")), value, value is None))
            return
    found.append(Item(_ASSISTANT, _CALL, None, None, None, True))


_LLAMA_ROLE = re.compile(r"ChatMessage\(role=<MessageRole\.(\w+): ")
_LLAMA_ANSWERED = re.compile(r"additional_kwargs=\{'tool_call_id': '([^']*)'")
_LLAMA_BLOCK = re.compile(
    r"TextBlock\(block_type='text', text=(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\)"
    r"|ToolCallBlock\(block_type='tool_call', tool_call_id='(?P<id>[^']*)', tool_name='(?P<tool>[^']*)', "
    r"tool_kwargs=(?P<kwargs>\{.*?\}|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\)(?=, \w+Block\(|\]\)$)",
    re.DOTALL,
)


def _rendered(message: str, found: list[Item]) -> None:
    """LlamaIndex' ChatMessage as Python renders it. What the pattern does not cover is a slot as it stands."""
    match = _LLAMA_ROLE.match(message)
    if match is None:
        raise Unreadable("a rendered message without a role")
    role = _role(match[1])
    answered = _LLAMA_ANSWERED.search(message)
    _, _, blocks = message.partition("blocks=[")
    covered = len("])")
    added: list[Item] = []
    for block in _LLAMA_BLOCK.finditer(blocks):
        covered += block.end() - block.start() + (len(", ") if added else 0)
        if block["tool"] is not None:
            kwargs = block["kwargs"]
            value = literal(kwargs) if kwargs[0] == "{" else _unquoted(kwargs)
            added.append(Item(_ASSISTANT, _CALL, block["tool"], text(block["id"]), value, value is None))
            continue
        value = _unquoted(block["text"])
        if role is _TOOL:
            added.append(Item(_TOOL, _RESULT, None, answered[1] if answered else None, value, False))
        else:
            added.append(Item(role, _TEXT, None, None, value, False))
    if covered != len(blocks):
        kind = _RESULT if role is _TOOL else _OTHER
        added = [Item(role, kind, None, answered[1] if answered else None, blocks, False)]
    found.extend(item for item in added if item.kind is not _TEXT or item.value)


def _unquoted(rendered: str) -> str:
    value = literal(f"[{rendered}]")
    return value[0] if isinstance(value, list) and isinstance(value[0], str) else rendered
