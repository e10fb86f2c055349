# SPDX-License-Identifier: Apache-2.0
"""Small, total readers of attribute values: whatever an attribute holds, they answer and never raise."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import orjson

PLACEHOLDERS = frozenset({"", "null", "none", "undefined", "n/a", "na", "nan", "<not specified>", "unknown", "redacted"})
"""Recorded call ids that are none (VERDICT, section 4), in lower case."""

_WITHHELD = re.compile(
    r"\s*(?:[\[<(_\"]*\s*(?:redacted|filtered|masked|scrubbed|omitted|hidden)(?![a-z0-9])[^{}]*"
    r"|\*{3,}|N/A|<not specified>)\s*",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"(?:[\[<(]|(?<![a-z0-9])_+)\s*(?:redacted|filtered|masked|scrubbed|truncated)(?![a-z0-9])|[\"']\*{3,}\\*[\"']|\.\.\.\s*\[?truncated",
    re.IGNORECASE,
)


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


def is_withheld(value: str) -> bool:
    """Whether the whole text is a marker that says "not recorded" (`__REDACTED__`, `[REDACTED]`, `***`)."""
    return len(value) < 200 and _WITHHELD.fullmatch(value) is not None


_MARKER_WORDS = ("edacted", "EDACTED", "iltered", "ILTERED", "asked", "ASKED", "crubbed", "CRUBBED", "runcated", "RUNCATED")


def has_marker(value: str) -> bool:
    """Whether a redaction or truncation marker stands somewhere in the text."""
    # A search for a character is many times faster than one for a word, and that than the pattern.
    if "*" in value and ('"***' in value or "'***" in value):
        return _MARKER.search(value) is not None
    if not any(opener in value for opener in "[<(_."):
        return False
    return any(word in value for word in _MARKER_WORDS) and _MARKER.search(value) is not None


def loads(value: Any) -> Any:
    """The JSON value of a text or bytes; a structured value as it is; None for what does not parse.

    Integers of any size stay exact, and `NaN` parses, as in the Python runtimes that these texts come from.
    """
    if isinstance(value, (bytes, bytearray)):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        return value if isinstance(value, (Mapping, list, tuple)) else None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def quick_loads(value: Any) -> Any:
    """As `loads`, faster: for texts whose numbers nobody compares."""
    if not isinstance(value, str):
        return loads(value)
    try:
        return orjson.loads(value)
    except (ValueError, RecursionError):
        return loads(value)


def literal(value: str) -> Any:
    """The Python literal that a text renders (`{'a': 1}`), or None."""
    if len(value) > 1_000_000 or value[:1] not in "{[(":
        return None
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
