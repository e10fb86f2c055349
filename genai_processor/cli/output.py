# SPDX-License-Identifier: Apache-2.0
"""How rows become text for programs: one JSON object, or JSON lines. Rows are written as they come."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

import orjson

Rows = Iterable[tuple[str, dict[str, Any]]]
Counts = dict[str, int]

SECTIONS = {
    "call": "calls",
    "duplicate": "duplicates",
    "unobserved_call": "unobserved_calls",
    "rebilled": "rebilled_tokens",
    "usage": "usage",
    "error": "errors",
    "replay": "replay",
}
"""Each kind of row with the key of the JSON object under which such rows are."""


def write_json_lines(rows: Rows, out: IO[bytes], *, eager: bool = False) -> Counts:
    """One object a line, `kind` first; last a `total`.

    Args:
        rows: The rows.
        out: Where to write.
        eager: The input may pause at any time, so no row is held back.

    Returns:
        How many rows of each kind were written.
    """
    count = dict.fromkeys(SECTIONS, 0)
    tokens = {"input_tokens": 0, "output_tokens": 0, "rebilled_tokens": 0}
    for kind, row in rows:
        count[kind] += 1
        if kind == "usage":
            tokens["input_tokens"] += row["input_tokens"]
            tokens["output_tokens"] += row["output_tokens"]
        elif kind == "rebilled":
            tokens["rebilled_tokens"] += row["input_tokens"]
        out.write(_dumped({"kind": kind, **row}, _LINE))
        if eager:
            out.flush()
    counted = {SECTIONS[kind]: count[kind] for kind in ("call", "duplicate", "unobserved_call", "error")}
    out.write(_dumped({"kind": "total", **counted, **tokens}, _LINE))
    out.flush()
    return count


def write_json(rows: Rows, out: IO[bytes], *, replay: bool = False) -> Counts:
    """One object. Calls are written as they come; the fewer other rows are kept until the end.

    Args:
        rows: The rows.
        out: Where to write.
        replay: There may be decisions on replay among them.

    Returns:
        How many rows of each kind were written.
    """
    count = dict.fromkeys(SECTIONS, 0)
    rest: dict[str, list[bytes]] = {kind: [] for kind in SECTIONS if kind not in ("call", "replay")}
    decisions: dict[str, IO[bytes]] = {}
    out.write(b'{"calls": [')
    for kind, row in rows:
        if kind == "call":
            out.write(b",\n" if count[kind] else b"\n")
            out.write(_dumped(row))
        elif kind == "replay":
            _spool(decisions, row)
        else:
            rest[kind].append(_dumped(row))
        count[kind] += 1
    out.write(b"]")
    for kind, written in rest.items():
        out.write(b',\n"' + SECTIONS[kind].encode() + b'": [' + b",\n".join(written) + b"]")
    if replay:
        _write_decisions(decisions, out)
    out.write(b"}\n")
    out.flush()
    return count


_IN_MEMORY = 4 * 1024 * 1024


def _spool(decisions: dict[str, IO[bytes]], row: dict[str, Any]) -> None:
    """Keep a span's decision until the end, beside the others of its file: in memory only while they are few."""
    file = decisions.get(row["file"])
    if file is None:
        file = decisions[row["file"]] = cast(IO[bytes], SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - closed where it is read
    else:
        file.write(b",\n")
    rest = {key: value for key, value in row.items() if key not in ("file", "span_id")}
    file.write(_dumped(row["span_id"]) + b": " + _dumped(rest))


def _write_decisions(decisions: dict[str, IO[bytes]], out: IO[bytes]) -> None:
    """One object: for each file, each span's decision by its id."""
    out.write(b',\n"replay": {')
    for at, (name, file) in enumerate(decisions.items()):
        out.write((b",\n" if at else b"\n") + _dumped(name) + b": {\n")
        file.seek(0)
        shutil.copyfileobj(file, out)
        out.write(b"}")
        file.close()
    out.write(b"}")


_LINE = orjson.OPT_APPEND_NEWLINE


def dumped_line(row: dict[str, Any]) -> bytes:
    """One object, and the end of its line."""
    return _dumped(row, _LINE)


def _dumped(row: dict[str, Any] | str, options: int = 0) -> bytes:
    try:
        return orjson.dumps(row, str, options)
    except TypeError:  # lone surrogates, integers beyond 64 bits: escape them
        return json.dumps(row, default=str).encode("ascii") + (b"\n" if options & _LINE else b"")
