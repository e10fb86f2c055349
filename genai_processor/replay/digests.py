# SPDX-License-Identifier: Apache-2.0
"""Digests that a second run repeats: over what was said, not over what a run mints anew.

The canonical form of a value (`canonical_value`), in this order:

1. Text is stripped of whitespace at both ends. If it then parses as a JSON object, array or string, it is what it parses to,
   up to twice (arguments are often JSON inside of JSON); any other text is itself. So r1 and `"r1"` in quotes are one value,
   and so are the text 5 and the number; the text 5.0 is another.
2. Keys whose values a run mints anew are left out, wherever they stand in an object: `MINTED_IDS`, `MINTED_TIMES`, `USAGE`.
   Only these keys: what merely looks like an id or a time may be content.
3. What is left is written as RFC 8785 writes it (sorted keys, one form for each number; NaN and infinities as Python does).

A result's wrappers are taken off before (`unwrapped`): the same result is `{"result": 7}` on one span and `7` in a prompt.

All digests are BLAKE2b, 16 bytes. A list's is over its parts' digests in order, each with its position if it has one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from genai_processor.replay.records import Part, PartKind, PartList, Role
from genai_processor.spans.canonical import canonical, canonical_text

MINTED_IDS = frozenset(
    {
        "id",
        "call_id",
        "callId",
        "checkpoint_id",
        "checkpoint_ns",
        "conversation_id",
        "event_id",
        "invocation_id",
        "item_id",
        "message_id",
        "messageId",
        "previous_response_id",
        "request_id",
        "response_id",
        "responseId",
        "run_id",
        "runId",
        "session_id",
        "span_id",
        "task_id",
        "thread_id",
        "tool_call_id",
        "toolCallId",
        "tool_use_id",
        "toolUseId",
        "trace_id",
        "system_fingerprint",
    }
)
"""Left out of what a framework wraps around content: messages, parts, results' wrappers. Never out of a tool's own arguments
or its own result, where an `id` is content."""
MINTED_TIMES = frozenset(
    {
        "created",
        "created_at",
        "completed_at",
        "timestamp",
        "ts",
        "duration",
        "duration_ms",
        "elapsed",
        "latency",
        "latency_ms",
    }
)
"""Times and durations, left out likewise."""
USAGE = frozenset({"usage", "usage_metadata", "usageMetadata", "token_usage", "response_metadata"})
"""What was counted, left out likewise."""

_MINTED = MINTED_IDS | MINTED_TIMES | USAGE
_SIZE = 16
_START = hashlib.blake2b(b"genai replay list 1", digest_size=_SIZE)
_START_MARK = 0
_BLANK: Any = object()


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_SIZE).digest()


def canonical_value(value: Any, *, minted: bool = False) -> bytes:
    """The canonical form of a recorded value.

    Args:
        value: Text, or what JSON text says. None (nothing recorded) has the form of JSON's null.
        minted: Leave out the keys that a run mints anew. For what a framework made, not for a tool's arguments or result.
    """
    source: str | None = None
    for left in (1, 0):
        if type(value) is not str:
            break
        value = value.strip()
        if value[:1] not in _STRUCTURED or (parsed := _parsed(value)) is _BLANK:
            return _utf8(value)
        if type(parsed) is not str:
            source = value
        elif not left:
            return _utf8(parsed.strip())
        value = parsed
    if minted:
        value, source = without_minted(value), None
    return _form(value, source)


def _form(value: Any, source: str | None) -> bytes:
    """The form of a structure, or of a number.

    orjson writes what RFC 8785 asks for, but for floats without a fraction, exponents and the order of exotic keys, and
    reads integers beyond 64 bits as floats; wherever a number looks like one of these, the long way is taken, from the text
    itself if there is one.
    """
    try:
        form = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if form[:1] in _CONTAINERS and not _ODD_NUMBER.search(form):
            return bytes(form)
    except TypeError:  # integers beyond 64 bits, lone surrogates, types that are none of JSON's
        form = b""
    try:
        return canonical_text(source) if source is not None else canonical(value)
    except (ValueError, RecursionError):  # nested too deep for any canonical form
        return _utf8(source) if source is not None else b"deep:" + bytes(form)


_CONTAINERS = frozenset({b"{", b"["})
# orjson writes null for NaN. A number stands behind one of these characters, and so may a text: then the long way is taken.
_ODD_NUMBER = re.compile(rb"[:,\[](?:null|-?[0-9]+(?:\.0[,\]}]|(?:\.[0-9]+)?e))")
_STRUCTURED = frozenset('{["')


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    if text[0] != '"':  # NaN and infinities, which Python writes
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return _BLANK


def without_minted(value: Any) -> Any:
    """The value without the keys that a run mints anew, at any depth that JSON content has. Without recursion."""
    root: list[Any] = [value]
    todo: list[tuple[Any, Any]] = [(root, 0)]
    while todo:
        into, at = todo.pop()
        item = into[at]
        if isinstance(item, Mapping):
            made = {key: inner for key, inner in item.items() if key not in _MINTED}
            into[at] = made
            todo.extend([(made, key) for key, inner in made.items() if isinstance(inner, (Mapping, list, tuple))])
        elif isinstance(item, (list, tuple)):
            copied = list(item)
            into[at] = copied
            todo.extend([(copied, index) for index, inner in enumerate(copied) if isinstance(inner, (Mapping, list, tuple))])
    return root[0]


_SOLE_WRAPPERS = ("result", "output", "content", "response", "return_value", "structuredContent")
_TEXT_KEYS = ("text", "content")


def unwrapped(value: Any) -> Any:
    """A tool's result without the wrappers that frameworks put around it.

    Known ones: an object with the single key `result` (or `output`, `content`, `response`); LangChain's ToolMessage, inside
    `output` or not; a list of one text block; MCP's `content` list with `isError`; LlamaIndex' ToolOutput. At most four.
    """
    for _ in range(4):
        if type(value) is str and value[:1] in ("{", "["):
            parsed = _parsed(value.strip())
            if parsed is _BLANK:
                return value
            inner = _inside(parsed)
            if inner is _BLANK:
                return value
        else:
            inner = _inside(value)
            if inner is _BLANK:
                return value
        value = inner
    return value


_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text"})


def _block(value: Mapping[str, Any]) -> Any:
    """The text of a text block."""
    kind = value.get("type", value.get("block_type"))
    if (isinstance(kind, str) and kind in _TEXT_BLOCKS) or (kind is None and len(value) == 1):
        for key in _TEXT_KEYS:
            if isinstance(value.get(key), str):
                return value[key]
    return _BLANK


def _inside(value: Any) -> Any:
    if type(value) is list and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0]
        return _block(value)
    if not isinstance(value, Mapping):
        return _BLANK
    if (text := _block(value)) is not _BLANK:
        return text
    if len(value) == 1:
        for key in _SOLE_WRAPPERS:
            if key in value:
                return value[key]
    kwargs = value.get("kwargs")
    if isinstance(kwargs, Mapping) and ("lc" in value or "tool_call_id" in kwargs) and "content" in kwargs:
        return kwargs["content"]
    if "tool_call_id" in value and "content" in value:
        return value["content"]
    output = value.get("output")
    if isinstance(output, Mapping) and ("kwargs" in output or "tool_call_id" in output):
        return output
    if "raw_output" in value and "tool_name" in value:
        return value["raw_output"]
    data = value.get("data")
    if isinstance(data, Mapping) and "tool_call_id" in data and "content" in data:
        return data["content"]
    if "content" in value and ("isError" in value or "is_error" in value or "toolUseId" in value):
        return value["content"]
    return _BLANK


def part_digest(role: Role, kind: PartKind, tool: str | None, value: Any) -> bytes:
    """16 bytes over what one part says.

    Args:
        role: Its role class.
        kind: Its kind.
        tool: The tool's name, which counts for a call only: many records of a result have none.
        value: Its value; of a result, without wrappers or with them.
    """
    if type(value) is str and len(value) <= _SHORT:
        key = (role, kind, tool if kind is _CALL else None, value)
        known = _recent.get(key)
        if known is None:
            if len(_recent) >= _RECENT:
                _recent.clear()
            known = _recent[key] = _part_digest(role, kind, tool, value)
        return known
    return _part_digest(role, kind, tool, value)


_SHORT, _RECENT = 1_024, 4_096
_recent: dict[tuple[Role, PartKind, str | None, str], bytes] = {}
"""A value is said, run with, read and repeated: its digest is made once if it is short, and once more if it is not."""


def _part_digest(role: Role, kind: PartKind, tool: str | None, value: Any) -> bytes:
    if kind is _RESULT:
        return _hash(b"result\0" + canonical_value(unwrapped(value)))
    if kind is _CALL:
        return _hash(b"call\0" + (tool or "").encode("utf-8", "surrogatepass") + b"\0" + canonical_value(value))
    if kind is _TEXT:
        return _hash(_TEXTS[role] + canonical_value(value))
    return _hash(f"{kind}\0{role}\0".encode() + canonical_value(value, minted=True))


_TEXT, _CALL, _RESULT = PartKind.TEXT, PartKind.CALL, PartKind.RESULT  # reading an enum's member costs more than a global
_TEXTS = {role: f"text\0{role}\0".encode() for role in Role}


def _place(part: Part) -> bytes:
    """What a part adds to the digest of its list."""
    at = part.position
    return part.digest if at is None else part.digest + b"%d" % at


def folded(digest: bytes, part: Part) -> bytes:
    """16 bytes over a digest and one part more, with its position."""
    return _hash(digest + _place(part))


def part_list(parts: Iterable[Part], prefix: PartList | None = None, *, grows: bool = False) -> PartList:
    """An ordered list, its positions as they stand in the parts.

    Args:
        parts: The parts after `prefix`.
        prefix: The list that it extends.
        grows: It will be extended, so keep what makes that cheap.
    """
    tail = tuple(parts)
    if prefix is not None:
        calls, mark = prefix.calls, prefix.mark
        hasher = prefix.hasher.copy() if prefix.hasher is not None else _hasher(prefix)
    else:
        calls, mark, hasher = 0, _START_MARK, _START.copy()
    marks = []
    places = []
    for part in tail:
        digest, at = part.digest, part.position
        if at is None:
            places.append(digest)
        else:
            places.append(digest + b"%d" % at)
            if part.kind is _CALL:
                calls += 1
        mark = hash((mark, digest, at))
        marks.append(mark)
    hasher.update(b"".join(places))
    return PartList(prefix, tail, tuple(marks), mark, calls, hasher.digest(), hasher if grows else None)


def marks_after(parts: PartList, more: PartList) -> int:
    """The mark of a list that goes on with the parts of another one, its calls counted on."""
    mark, calls = parts.mark, parts.calls
    for part in more:
        at = part.position
        if part.kind is _CALL:
            at = calls
            calls += 1
        mark = hash((mark, part.digest, at))
    return mark


def _hasher(parts: PartList) -> Any:
    hasher = _START.copy()
    for part in parts:
        hasher.update(_place(part))
    return hasher


EMPTY = part_list(())
"""The list without parts."""


def input_digest(parts: PartList, *, system: bytes = b"", tools: bytes = b"") -> bytes:
    """16 bytes over a node's whole input.

    Args:
        parts: Its ordered slots.
        system: `content_digest` of its system instructions, b"" if none were recorded apart from the messages.
        tools: `content_digest` of its tool definitions, b"" if none were recorded.
    """
    return _hash(b"input\0" + parts.digest + b"\0" + system + b"\0" + tools)


def content_digest(value: Any) -> bytes:
    """16 bytes over system instructions or tool definitions, without what a run mints anew."""
    return _hash(b"content\0" + canonical_value(value, minted=True))


def output_digest(parts: PartList, finish: str | None = None) -> bytes:
    """16 bytes over what a node returned: its ordered parts and the class of its finish reason."""
    return _hash(b"output\0" + parts.digest + b"\0" + (finish or "").encode())


def failure_digest(error_type: str | None, message: str | None) -> bytes:
    """16 bytes over a failure: the type's own name, and the message. A module path counts for nothing: not all record it."""
    name = (error_type or "").rpartition(".")[2]
    return _hash(b"failure\0" + name.encode("utf-8", "surrogatepass") + b"\0" + canonical_value(message or ""))


_FINISH = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "complete": "stop",
    "finish": "stop",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
}


def finish_class(reason: Any) -> str | None:
    """The class of a finish reason (`stop`, `tool_calls`, `length`, `content_filter`), or None for one that is not known."""
    return _FINISH.get(reason.lower()) if isinstance(reason, str) else None
