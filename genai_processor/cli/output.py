# SPDX-License-Identifier: Apache-2.0
"""How rows become text: one JSON object, JSON lines. Rows are written as they come, so memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Any

import orjson

_SECTIONS = {
    "call": "calls",
    "duplicate": "duplicates",
    "unobserved_call": "unobserved_calls",
    "rebilled": "rebilled_tokens",
    "usage": "usage",
    "error": "errors",
}


def write_json_lines(rows: Iterable[tuple[str, dict[str, Any]]], out: IO[bytes]) -> dict[str, int]:
    """One object a line, `kind` first; last a `total`. Returns how many rows of each kind were written."""
    count = dict.fromkeys(_SECTIONS, 0)
    for kind, row in rows:
        count[kind] += 1
        out.write(_dump({"kind": kind, **row}) + b"\n")
    out.write(_dump({"kind": "total", **{_SECTIONS[kind]: number for kind, number in count.items()}}) + b"\n")
    return count


def write_json(rows: Iterable[tuple[str, dict[str, Any]]], out: IO[bytes]) -> dict[str, int]:
    """One object. Calls are written as they come; the few other rows are kept until the end."""
    count = dict.fromkeys(_SECTIONS, 0)
    rest: dict[str, list[bytes]] = {kind: [] for kind in _SECTIONS if kind != "call"}
    out.write(b'{"calls": [')
    for kind, row in rows:
        if kind == "call":
            out.write(b",\n" if count[kind] else b"\n")
            out.write(_dump(row))
        else:
            rest[kind].append(_dump(row))
        count[kind] += 1
    out.write(b"]")
    for kind, written in rest.items():
        out.write(b',\n"' + _SECTIONS[kind].encode() + b'": [' + b",\n".join(written) + b"]")
    out.write(b"}\n")
    return count


def _dump(row: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(row, default=str)
    except (TypeError, ValueError):  # lone surrogates, integers beyond 64 bits: escape them
        import json

        return json.dumps(row, default=str).encode("ascii")
