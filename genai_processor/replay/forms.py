# SPDX-License-Identifier: Apache-2.0
"""The canonical form of a recorded value: what two runs that say the same have in common.

In this order:

1. Text is stripped of whitespace at both ends. If it then parses as a JSON object, array or string, it is what it parses to,
   up to twice (arguments are often JSON inside of JSON); any other text is itself. So r1 and `"r1"` in quotes are one value,
   and so are the text 5 and the number; the text 5.0 is another.
2. Keys whose values a run mints anew are left out, wherever they stand in an object: `MINTED_IDS`, `MINTED_TIMES`, `USAGE`.
   Only these keys: what merely looks like an id or a time may be content.
3. What is left is written as RFC 8785 writes it (sorted keys, one form for each number; NaN and infinities as Python does).

A result's wrappers are taken off before (`unwrapped`): the same result is `{"result": 7}` on one span and `7` in a prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

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
_BLANK: Any = object()


def canonical_value(value: Any, *, minted: bool = False) -> bytes:
    """The canonical form of a recorded value.

    Args:
        value: Text, or what JSON text says. None (nothing recorded) has the form of JSON's null.
        minted: Leave out the keys that a run mints anew. For what a framework made, not for a tool's arguments or result.
    """
    if type(value) is dict and not minted:
        return _form(value, None)
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
        value, source = _without_minted(value), None
    return _form(value, source)


def _form(value: Any, source: str | None) -> bytes:
    """The form of a structure, or of a number.

    orjson writes what RFC 8785 asks for, but for floats without a fraction, exponents and the order of exotic keys, and
    reads integers beyond 64 bits as floats; wherever a number looks like one of these, the long way is taken, from the text
    itself if there is one.
    """
    try:
        form = orjson.dumps(value, option=_SORTED)
        if type(value) is dict and _PLAIN.issuperset(map(type, value.values())):
            return bytes(form)
        if form[:1] in _CONTAINERS and not _ODD_NUMBER.search(form):
            return bytes(form)
    except TypeError:  # integers beyond 64 bits, lone surrogates, types that are none of JSON's
        form = b""
    try:
        return canonical_text(source) if source is not None else canonical(value)
    except (ValueError, RecursionError):  # nested too deep for any canonical form
        return _utf8(source) if source is not None else b"deep:" + bytes(form)


_SORTED = orjson.OPT_SORT_KEYS
_PLAIN = frozenset({str, int, bool})
"""Nothing that orjson would write otherwise is in an object that only has these."""
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


def _without_minted(value: Any) -> Any:
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
        if type(value) is str:
            if value[:1] not in _OPENING:
                return value
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


_OPENING = frozenset("{[")
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
