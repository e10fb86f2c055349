# SPDX-License-Identifier: Apache-2.0
"""An `Entry` as a row of a table, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from enum import Enum
from operator import attrgetter
from typing import Any, Final

import orjson

from genai_processor.ledger.entries import Change, Entry, Resolution, Settlement, State, new_entry

COLUMNS: Final = tuple(spec.name for spec in fields(Entry))
"""The columns of the table of entries, in the order of a row."""

_values: Final = attrgetter(*COLUMNS)
_STATE, _SETTLEMENT, _HISTORY = map(COLUMNS.index, ("state", "settlement", "history"))
_LARGEST: Final = 2**63 - 1  # which is the year 2262
_FLAGS: Final = ("guarded", "child_uncertain")
_AT_FLAGS: Final = tuple(map(COLUMNS.index, _FLAGS))
_NUMBERS: Final = (
    "version",
    "created_ns",
    "updated_ns",
    "attempt",
    "witnessed",
    "started_ns",
    "lease_expires_ns",
    *_FLAGS,
)
_OPTIONAL: Final = frozenset(
    {"call_id", "digest", "turn", "parent", "reason", "started_ns", "lease_expires_ns", "trace_id", "span_id"}
    | {"settlement", "released_to", "released_by"}
)


def column(name: str) -> str:
    """Return the definition of a column."""
    kind = "BIGINT" if name in _NUMBERS else "TEXT"
    key = " PRIMARY KEY" if name == "entry_id" else ""
    return f"{name} {kind}{'' if name in _OPTIONAL else ' NOT NULL'}{key}"


def row_of(entry: Entry) -> list[Any]:
    """Return the values of an entry, in the order of `COLUMNS`."""
    return [
        value if value is None or type(value) is str else _WRITTEN.get(type(value), _written)(value)
        for value in _values(entry)
    ]


def changes_of(old: Entry, new: Entry) -> dict[str, Any]:
    """Return the columns in which two versions of an entry differ, with the new values."""
    return {
        name: _WRITTEN.get(type(after), _written)(after)
        for name, before, after in zip(COLUMNS, _values(old), _values(new))  # noqa: B905 -- the two are of one length
        if after is not before and after != before
    }


def _number(value: int) -> int:
    return value if -_LARGEST <= value <= _LARGEST else max(-_LARGEST, min(value, _LARGEST))


def _changes(history: tuple[Change, ...]) -> str:
    if not history:
        return "[]"
    try:
        return orjson.dumps(history).decode()
    except TypeError:  # a text that UTF-8 cannot hold, or a number that is too large
        return json.dumps([asdict(change) for change in history])


def _written(value: Any) -> Any:
    """Return whatever else a caller may have put into an entry."""
    if value is None:
        return None
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return str.__str__(value)
    return _number(int(value)) if isinstance(value, (int, float)) else json.dumps(asdict(value))


_WRITTEN: Final[Mapping[type, Callable[[Any], Any]]] = {
    str: str,
    int: _number,
    bool: int,
    State: attrgetter("value"),
    tuple: _changes,
}
"""How values of a type are written; all others by `_written`."""


def entry_from(row: Sequence[Any]) -> Entry:
    """Return the entry that a row holds."""
    values = list(row)
    values[_STATE] = State(values[_STATE])
    if values[_SETTLEMENT] is not None:
        values[_SETTLEMENT] = _settlement(json.loads(values[_SETTLEMENT]))
    history = values[_HISTORY]
    values[_HISTORY] = () if history == "[]" else tuple(_change(change) for change in json.loads(history))
    for at in _AT_FLAGS:
        values[at] = bool(values[at])
    return new_entry(*values)


def _settlement(values: Mapping[str, Any]) -> Settlement:
    return Settlement(**{**values, "resolution": Resolution(values["resolution"])})


def _change(values: Mapping[str, Any]) -> Change:
    return Change(**{**values, "before": State(values["before"]), "after": State(values["after"])})


def json_of(entry: Entry) -> bytes:
    """Return an entry as a JSON object, of what is not None."""
    return orjson.dumps(document_of(entry))


def document_of(entry: Entry) -> dict[str, Any]:
    """Return an entry as an object of JSON, of what is not None."""
    return {
        name: value if type(value) is str else _WRITTEN.get(type(value), _written)(value)
        for name, value in zip(COLUMNS, _values(entry), strict=True)
        if value is not None
    }


def entry_of_document(document: Mapping[str, Any]) -> Entry:
    """Return the entry that such an object stands for."""
    return entry_from([document.get(name) for name in COLUMNS])
