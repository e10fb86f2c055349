# SPDX-License-Identifier: Apache-2.0
"""Recorded arguments: whole, broken by the model, cut by telemetry, or withheld.

"Absent" and "does not parse" are facts about the record. Only `MALFORMED` is one about the model's call, and even that
proves nothing by itself: some runtimes repair such arguments and run (docs/verdict.md).
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from genai_processor.spans import values
from genai_processor.spans.canonical import canonical, canonical_text, digest
from genai_processor.spans.values import is_mapping


class ArgumentsState(enum.StrEnum):
    """How whole the recorded arguments are."""

    COMPLETE = "complete"
    MALFORMED = "malformed"
    CUT = "cut"
    WITHHELD = "withheld"


class Violation(enum.StrEnum):
    """What is wrong with malformed arguments, as far as no runtime would coerce it."""

    JSON = "json"
    REQUIRED = "required"
    TYPES = "types"


class Arguments(NamedTuple):
    """Recorded arguments, read.

    Attributes:
        state: How whole they are.
        value: The parsed value where there is one.
        violations: What is wrong with them, for `MALFORMED`.
        text: The JSON text that `value` was parsed from, if it was.
    """

    state: ArgumentsState
    value: Any = None
    violations: frozenset[Violation] = frozenset()
    text: str | None = None


_COMPLETE = ArgumentsState.COMPLETE  # reading a member of an enum class costs more than reading a global
_NO_VIOLATIONS: frozenset[Violation] = frozenset()
WITHHELD = Arguments(ArgumentsState.WITHHELD)
CUT = Arguments(ArgumentsState.CUT)
_BROKEN = Arguments(ArgumentsState.MALFORMED, None, frozenset({Violation.JSON}))
_MERGED = Arguments(ArgumentsState.MALFORMED)  # more than one document: at least one of them may have run


def never_cut(value: str) -> bool:
    """The cut test of a record that nothing shortens."""
    return False


def read_arguments(raw: Any, *, rendered: bool = False, is_cut: Callable[[str], bool] = never_cut) -> Arguments:
    """Read recorded arguments.

    Args:
        raw: The attribute's value: text, mapping, anything.
        rendered: The text is made for people (docs/verdict.md): if it does not parse, the arguments are withheld.
        is_cut: Tells whether a text was shortened by telemetry, by its length.

    Returns:
        The arguments; never raises.
    """
    if raw is None:
        return WITHHELD
    if type(raw) is str:
        return _read_text(raw, rendered, is_cut)
    if isinstance(raw, Mapping) or (isinstance(raw, Sequence) and not isinstance(raw, (str, bytes))):
        try:
            if values.has_marker(repr(raw)):
                return CUT
        except RecursionError:  # nobody can compare it, so it is as good as incomplete
            return CUT
        return Arguments(ArgumentsState.COMPLETE, raw)
    if isinstance(raw, (bytes, bytearray)):
        raw = raw.decode("utf-8", "replace")
    if not isinstance(raw, str):
        return WITHHELD if isinstance(raw, bool) else Arguments(ArgumentsState.COMPLETE, raw)
    return _read_text(raw, rendered, is_cut)


def _read_text(raw: str, rendered: bool, is_cut: Callable[[str], bool]) -> Arguments:
    stripped = raw.strip()
    if not stripped:
        return WITHHELD if rendered else Arguments(_COMPLETE, {})
    if stripped[0] != "{" and values.is_withheld(stripped):  # no marker begins like an object
        return WITHHELD
    try:
        value = orjson.loads(raw)  # rounds integers beyond 64 bits, which only matters to a digest: that reads the text
    except ValueError:
        try:
            value = json.loads(raw)
        except json.JSONDecodeError as error:
            return _unparsable(raw, stripped, rendered, is_cut, str(error))
        except (ValueError, RecursionError):  # too deep, or a number too long: for this parser, perhaps for no other
            return CUT
    marked = values.has_marker(raw)
    if type(value) is dict:
        return CUT if marked else Arguments(_COMPLETE, value, _NO_VIOLATIONS, raw)
    if isinstance(value, str):  # encoded twice
        inner = values.loads(value)
        if isinstance(inner, Mapping):
            return CUT if marked else Arguments(ArgumentsState.COMPLETE, inner, text=value)
        if values.is_withheld(value.strip()):
            return WITHHELD
    if marked:
        return CUT
    if rendered:  # for people, and no mapping
        return WITHHELD
    return Arguments(_COMPLETE, value, text=raw)


def _unparsable(raw: str, stripped: str, rendered: bool, is_cut: Callable[[str], bool], error: str) -> Arguments:
    if is_cut(raw) or values.has_marker(raw):
        return CUT
    python = values.literal(stripped)
    if isinstance(python, Mapping):
        return Arguments(ArgumentsState.COMPLETE, python)
    if rendered:
        return WITHHELD
    return _MERGED if error.startswith("Extra data") else _BROKEN


def fingerprint(arguments: Arguments) -> str | None:
    """SHA-256 (hex) of the canonical form of complete arguments, or None.

    What is not whole cannot be compared, and what is nested deeper than a hundred levels is not.
    """
    if arguments.state is not _COMPLETE:
        return None
    text = arguments.text
    try:
        if text is None:
            return digest(canonical(arguments.value))
        return _recent_fingerprint(text) if len(text) <= _SMALL else digest(canonical_text(text))
    except (ValueError, RecursionError):
        return None


_SMALL = 65_536


@functools.lru_cache(maxsize=32)
def _recent_fingerprint(text: str) -> str:
    """One call's arguments are asked for by its verdict, its ledger entry and the search for duplicates."""
    return digest(canonical_text(text))


def violations(value: Any, schema: Any) -> frozenset[Violation]:
    """How a mapping breaks a JSON schema in ways that no runtime coerces (docs/verdict.md).

    A missing required parameter without default that may not be null; text that is no number for a number; null or a
    container for a scalar. Extra properties and `"500"` for an integer are no violation.
    """
    if not is_mapping(value) or not is_mapping(schema):
        return _NO_VIOLATIONS
    properties = schema.get("properties")
    properties = properties if is_mapping(properties) else {}
    required = schema.get("required")
    found = set()
    for name in required if isinstance(required, (list, tuple)) else ():
        if isinstance(name, str) and name not in value:
            rule = properties.get(name)
            if not ("default" in _rule(rule) or "null" in _types(rule)):
                found.add(Violation.REQUIRED)
    for name, item in value.items():
        if name in properties and _mistyped(item, _types(properties[name])):
            found.add(Violation.TYPES)
            break
    return frozenset(found) if found else _NO_VIOLATIONS


def needs_nothing(schema: Any) -> bool:
    """Whether an empty argument set satisfies the schema because it names no parameter at all."""
    return isinstance(schema, Mapping) and "properties" in schema and not schema["properties"] and not schema.get("required")


def _rule(rule: Any) -> Mapping[str, Any]:
    return rule if is_mapping(rule) else {}


_KNOWN_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_ONE_TYPE = {name: frozenset({name}) for name in _KNOWN_TYPES}

_MAX_NESTED_RULES = 16


def _types(rule: Any, depth: int = 0) -> frozenset[str]:
    """The JSON types that a property accepts; empty if the schema does not say so plainly."""
    rule = _rule(rule)
    kind = rule.get("type")
    if type(kind) is str and kind in _ONE_TYPE and "nullable" not in rule:
        return _ONE_TYPE[kind]
    if isinstance(kind, str):
        kinds = {kind.lower()}
    elif isinstance(kind, (list, tuple)):
        if not all(isinstance(item, str) for item in kind):
            return frozenset()
        kinds = {item.lower() for item in kind}
    elif isinstance(rule.get("anyOf"), (list, tuple)) and depth < _MAX_NESTED_RULES:
        parts = [_types(part, depth + 1) for part in rule["anyOf"]]
        kinds = set().union(*parts) if all(parts) else set()
    else:
        return frozenset()
    if rule.get("nullable") is True:
        kinds.add("null")
    return frozenset(kinds) if kinds <= _KNOWN_TYPES else frozenset()


def _mistyped(item: Any, kinds: frozenset[str]) -> bool:
    if not kinds or "object" in kinds or "array" in kinds:
        return False
    if type(item) is str and "string" in kinds:  # as most are
        return False
    if item is None:
        return "null" not in kinds
    if isinstance(item, (Mapping, list, tuple)):
        return True
    numeric = kinds & {"integer", "number"}
    if isinstance(item, str) and numeric and "string" not in kinds and "boolean" not in kinds:
        try:
            float(item)
        except ValueError:
            return True
    return False
