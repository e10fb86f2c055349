# SPDX-License-Identifier: Apache-2.0
"""Small, total readers of attribute values: whatever an attribute holds, they answer and never raise."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

import orjson

PLACEHOLDERS = frozenset({"", "null", "none", "undefined", "n/a", "na", "nan", "<not specified>", "unknown", "redacted"})
"""Recorded call ids that are none (docs/verdict.md), in lower case."""

_WITHHELD = re.compile(
    r"\s*(?:[\[<(_\"]*\s*(?:redacted|filtered|masked|scrubbed|omitted|hidden)(?![a-z0-9])[^{}]*"
    r"|\*{3,}|N/A|<not specified>)\s*",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"(?:[\[<(]|(?<![a-z0-9])_+)\s*(?:redacted|filtered|masked|scrubbed|truncated)(?![a-z0-9])|[\"']\*{3,}\\*[\"']|\.\.\.\s*\[?truncated",
    re.IGNORECASE,
)


def is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping. Nearly all are dictionaries, and asking the abstract class is slower."""
    return type(value) is dict or (type(value) not in _PLAIN and isinstance(value, Mapping))


SCALARS = frozenset({str, int, float, bool, bytes, type(None)})
"""The types of attribute values that hold no other values."""

_PLAIN = SCALARS | {list}


def first_of(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The first of some attributes that is there; None if none is."""
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def text(value: Any) -> str | None:
    """The value if it is a non-blank string, else None."""
    return value if isinstance(value, str) and value and not value.isspace() else None


def usable_id(value: Any, tool: str | None = None) -> str | None:
    """The value if it can serve as a call id: a string that is neither blank, nor a placeholder, nor the tool's name."""
    if not isinstance(value, str) or value == tool:
        return None
    stripped = value.strip()
    if len(stripped) < 40:  # no placeholder is longer
        if stripped.lower() in PLACEHOLDERS or stripped == tool:
            return None
        if not (stripped[:1].isalnum() and stripped[-1:].isalnum()) and _WITHHELD.fullmatch(stripped):
            return None
    return value


_COUNTING_WORDS = frozenset(
    [
        "action",
        "c",
        "call",
        "calls",
        "fn",
        "fun",
        "func",
        "function",
        "functioncall",
        "functions",
        "id",
        "idx",
        "index",
        "invocation",
        "n",
        "request",
        "run",
        "step",
        "t",
        "task",
        "tc",
        "tool",
        "toolcall",
        "tools",
        "toolu",
        "tooluse",
        "turn",
        "use",
    ]
)
_KIMI = re.compile(r"functions\.[A-Za-z0-9_-]{1,64}:[0-9]{1,4}")  # `functions.NAME:N`, whatever the name
_COUNTING_PART = re.compile(r"[A-Za-z]+|[0-9]+|[\s_.:#/-]")  # one kind of character each: linear whatever the text
_LONGEST_COUNT = 32
_MOST_DIGITS = 4


def index_like(call_id: str, tool: str | None = None) -> bool:
    """Whether an id counts the calls of a run (`call_0`, `functions.refund:1`) rather than naming one.

    Every run, or every turn, has such ids again, so that two calls of one such id need not be one call.

    Args:
        call_id: A usable call id.
        tool: Name of the tool, which some runtimes write into the id.
    """
    if call_id[:10] == "functions." and _KIMI.fullmatch(call_id):
        return True
    rest = call_id.replace(tool, "", 1) if tool and tool in call_id else call_id
    if len(rest) > _LONGEST_COUNT or not ("0" <= rest[-1:] <= "9"):
        return False
    parts = _COUNTING_PART.findall(rest)
    return sum(map(len, parts)) == len(rest) and all(
        len(part) <= _MOST_DIGITS if "0" <= part[0] <= "9" else not part[0].isalpha() or part.lower() in _COUNTING_WORDS
        for part in parts
    )


def is_withheld(value: str) -> bool:
    """Whether the whole text is a marker that says "not recorded" (`__REDACTED__`, `[REDACTED]`, `***`)."""
    return len(value) < 200 and _WITHHELD.fullmatch(value) is not None


_MARKER_WORDS = ("edacted", "EDACTED", "iltered", "ILTERED", "asked", "ASKED", "crubbed", "CRUBBED", "runcated", "RUNCATED")


def has_marker(value: str) -> bool:
    """Whether a redaction or truncation marker stands somewhere in the text."""
    # A search for a character is faster than one for a word, and that than the pattern.
    if "*" in value and ('"***' in value or "'***" in value):
        return _MARKER.search(value) is not None
    if not ("ed" in value or "ED" in value):  # as all of these words do
        return False
    if not ("_" in value or "." in value or "[" in value or "<" in value or "(" in value):
        return False
    for word in _MARKER_WORDS:
        if word in value:
            return _MARKER.search(value) is not None
    return False


def loads(value: Any) -> Any:
    """The JSON value of a text or bytes; a structured value as it is; None for what does not parse.

    Integers of any size stay exact, and `NaN` parses, as in the Python runtimes that these texts come from.
    """
    if isinstance(value, (bytes, bytearray)):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return value if isinstance(value, (list, tuple)) or is_mapping(value) else None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def quick_loads(value: Any) -> Any:
    """As `loads`, faster: for texts whose numbers nobody compares."""
    if value is None:
        return None
    if not isinstance(value, str):
        return loads(value)
    try:
        return orjson.loads(value)
    except (ValueError, RecursionError):
        return loads(value)


def nested_beyond(value: Any, depth: int) -> bool:
    """Whether a JSON-like value is nested deeper than so many levels. Without recursion."""
    level = [value]
    for _ in range(depth + 1):
        inner: list[Any] = []
        for item in level:
            if type(item) is str:
                continue
            if is_mapping(item):
                inner.extend(item.values())
            elif isinstance(item, (list, tuple)):
                inner.extend(item)
        if not inner:
            return False
        level = inner
    return any(isinstance(item, (list, tuple)) or is_mapping(item) for item in level)


def same(one: Any, other: Any) -> bool:
    """Whether two recorded values are equal; False for what is nested too deep to tell."""
    try:
        return bool(one == other)
    except RecursionError:
        return False


_SAYS_FAILED = re.compile(r'"is_?[eE]rror"\s*:\s*true')


def says_failed(value: str) -> bool:
    """Whether a text that does not parse has a failure flag in it: text may add a quarantine."""
    return _SAYS_FAILED.search(value) is not None


_MAX_LITERAL = 65_536


def literal(value: str) -> Any:
    """The Python literal that a text renders (`{'a': 1}`), or None; also for a text beyond 64 KiB, which costs too much."""
    if len(value) > _MAX_LITERAL or value[:1] not in "{[(":
        return None
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
