# SPDX-License-Identifier: Apache-2.0
"""Recorded text on a page: nothing of it is markup, a script, or longer than a person reads."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from genai_processor.cli.console import printable

_MOST, _LONG = 160, 1_000


def shown(text: str, most: int = _MOST) -> str:
    """The beginning of a recorded text, with what a reader cannot see escaped (controls, bidi marks, lone surrogates).

    It is not HTML yet.
    """
    if len(text) <= most:
        return printable(text)
    size = f" ({len(text):,} characters)" if len(text) > _LONG else ""
    return f"{printable(text[:most])}…{size}"


def shown_value(value: Any, most: int) -> str:
    """A recorded value as text of several lines, or its beginning."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
    lines = "\n".join("\t".join(map(printable, line.split("\t"))) for line in text[:most].split("\n"))
    return lines if len(text) <= most else f"{lines}… ({len(text):,} characters)"


def html(text: str) -> str:
    """Text for an element or a quoted attribute."""
    return escape(text, quote=True)


def island(data: Any) -> str:
    """Data as JSON inside of a script element: ASCII, and nothing that could end the element."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
