# SPDX-License-Identifier: Apache-2.0
"""Digests that a second run repeats: over what was said, not over what a run mints anew (`forms`).

All are BLAKE2b, 16 bytes. A list's is over its parts' digests in order, each with its position if it has one.
"""

from __future__ import annotations

import hashlib
from typing import Any

from genai_processor.replay.forms import canonical_value, unwrapped
from genai_processor.replay.parts import Part, PartKind, PartList, Role, place

_SIZE = 16


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_SIZE).digest()


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


_known: dict[bytes, bytes] = {}
"""Likewise for arguments by their canonical form: they are text on one span, and a structure in a message."""


def _part_digest(role: Role, kind: PartKind, tool: str | None, value: Any) -> bytes:
    if kind is _RESULT:
        return _hash(b"result\0" + canonical_value(unwrapped(value)))
    if kind is _TEXT:
        return _hash(_TEXTS[role] + canonical_value(value))
    if kind is not _CALL:
        return _hash(f"{kind}\0{role}\0".encode() + canonical_value(value, minted=True))
    content = b"call\0" + (tool or "").encode("utf-8", "surrogatepass") + b"\0" + canonical_value(value)
    if len(content) > _SHORT:
        return _hash(content)
    found = _known.get(content)
    if found is None:
        if len(_known) >= _RECENT:
            _known.clear()
        found = _known[content] = _hash(content)
    return found


_TEXT, _CALL, _RESULT = PartKind.TEXT, PartKind.CALL, PartKind.RESULT  # reading an enum's member costs more than a global
_TEXTS = {role: f"text\0{role}\0".encode() for role in Role}


def folded(digest: bytes, part: Part) -> bytes:
    """16 bytes over a digest and one part more, with its position."""
    return _hash(digest + place(part))


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
