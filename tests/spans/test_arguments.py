# SPDX-License-Identifier: Apache-2.0
"""Recorded arguments: whole, broken by the model, cut by telemetry, or withheld."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_processor.spans.arguments import (
    Arguments,
    ArgumentsState,
    Violation,
    fingerprint,
    needs_nothing,
    read_arguments,
    violations,
)

COMPLETE, MALFORMED = ArgumentsState.COMPLETE, ArgumentsState.MALFORMED
CUT, WITHHELD = ArgumentsState.CUT, ArgumentsState.WITHHELD

STATES: list[tuple[str, Any, ArgumentsState, Any]] = [
    ("an object", '{"a": 1}', COMPLETE, {"a": 1}),
    ("nothing to send", "", COMPLETE, {}),
    ("blanks", " \n", COMPLETE, {}),
    ("a mapping", {"a": 1}, COMPLETE, {"a": 1}),
    ("a mapping of another kind", MappingProxyType({"a": 1}), COMPLETE, {"a": 1}),
    ("a sequence", ("x", "y"), COMPLETE, ("x", "y")),
    ("JSON in JSON", json.dumps('{"a": 1}'), COMPLETE, {"a": 1}),
    ("a number that is none", '{"a": Infinity}', COMPLETE, {"a": float("inf")}),
    ("a Python literal", "{'a': True, 'b': None}", COMPLETE, {"a": True, "b": None}),
    ("bytes", b'{"a": 1}', COMPLETE, {"a": 1}),
    ("a bare value", "7", COMPLETE, 7),
    ("absent", None, WITHHELD, None),
    ("a switch", True, WITHHELD, None),
    ("redacted as a whole", "__REDACTED__", WITHHELD, None),
    ("redacted in brackets", "[REDACTED]", WITHHELD, None),
    ("redacted in quotes", '"[REDACTED]"', WITHHELD, None),
    ("stars", "***", WITHHELD, None),
    ("scrubbed", "[Scrubbed due to 'session']", WITHHELD, None),
    ("redacted inside", '{"card": "[REDACTED]"}', CUT, None),
    ("redacted inside of a mapping", {"card": "[REDACTED]"}, CUT, None),
    ("redacted inside, twice encoded", json.dumps('{"card": "[REDACTED]"}'), CUT, None),
    ("stars inside", '{"card": "***"}', CUT, None),
    ("stars inside of a mapping", {"card": "***"}, CUT, None),
    ("a flag that is called so", '{"is_filtered": true}', COMPLETE, {"is_filtered": True}),
    ("cut by a marker", '{"a": "bcd... [truncated', CUT, None),
    ("broken", '{"order_id": "o1", "amount', MALFORMED, None),
    ("no JSON at all", "refund o1", MALFORMED, None),
    ("two documents", '{"a": 1}{"a": 2}', MALFORMED, None),
]


@pytest.mark.parametrize(("raw", "state", "value"), [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_arguments_have_a_state(raw: Any, state: ArgumentsState, value: Any) -> None:
    found = read_arguments(raw)
    assert found.state is state
    if state is COMPLETE:
        assert found.value == value


def test_not_a_number_parses() -> None:
    assert read_arguments('{"a": NaN}').state is COMPLETE


def test_two_documents_are_no_broken_json() -> None:
    """The runtime may have split them and run one: no parser has rejected anything."""
    assert read_arguments('{"a": 1}{"a": 2}').violations == frozenset()
    assert read_arguments('{"a": 1').violations == {Violation.JSON}


@pytest.mark.parametrize("raw", ['{"order_id": "o1", "amount', "{'order_id': 'o1', 'am"])
def test_text_as_long_as_the_limit_is_cut_and_not_broken(raw: str) -> None:
    assert read_arguments(raw, is_cut=lambda text: len(text) >= len(raw)).state is CUT
    assert read_arguments(raw, is_cut=lambda text: len(text) > len(raw)).state is MALFORMED


def test_text_that_parses_is_whole_however_long() -> None:
    assert read_arguments('{"a": 1}', is_cut=lambda text: True).state is COMPLETE


@pytest.mark.parametrize("raw", ["refund order o1", "7", '"o1"', "[1]", "", '{"order_id": "o1"'])
def test_a_rendering_for_people_that_is_no_object_is_withheld(raw: str) -> None:
    assert read_arguments(raw, rendered=True).state is WITHHELD


@pytest.mark.parametrize("raw", ['{"a": 1}', "{'a': 1}"])
def test_a_rendering_that_is_an_object_is_the_arguments(raw: str) -> None:
    assert read_arguments(raw, rendered=True) == Arguments(COMPLETE, {"a": 1}, text=raw if '"' in raw else None)


@settings(max_examples=400, deadline=None)
@given(st.none() | st.text() | st.binary() | st.floats() | st.lists(st.text()) | st.dictionaries(st.text(), st.text()))
def test_reading_never_raises(raw: Any) -> None:
    found = read_arguments(raw)
    assert (fingerprint(found) is None) is (found.state is not COMPLETE)


@pytest.mark.parametrize("raw", ["[" * 200_000, '{"a":' * 200_000])
def test_nesting_beyond_the_parser_proves_nothing(raw: str) -> None:
    found = read_arguments(raw)
    assert found.state in (CUT, MALFORMED)
    assert Violation.TYPES not in found.violations
    assert fingerprint(found) is None


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_one_argument_set_has_one_fingerprint_however_it_is_recorded(value: dict[str, Any]) -> None:
    text = json.dumps(value)
    ways = [value, text, json.dumps(value, indent=2), text.encode(), json.dumps(text)]
    read = [read_arguments(raw) for raw in ways]
    assert len({fingerprint(found) for found in read if found.state is COMPLETE}) <= 1
    assert len({found.state for found in read}) == 1


def test_long_and_short_texts_have_the_same_kind_of_fingerprint() -> None:
    value = {"a": "x" * 70_000}
    assert fingerprint(read_arguments(json.dumps(value))) == fingerprint(read_arguments(value))


# -- schemas ---------------------------------------------------------------------------------------------------------

TYPES, REQUIRED = {Violation.TYPES}, {Violation.REQUIRED}
NONE: set[Violation] = set()


def of(kind: Any, **more: Any) -> dict[str, Any]:
    return {"properties": {"a": {"type": kind, **more}}, "required": ["a"]}


SCHEMAS: list[tuple[str, Any, Any, set[Violation]]] = [
    ("as declared", {"a": 1}, of("integer"), NONE),
    ("missing", {}, of("integer"), REQUIRED),
    ("missing with a default", {}, of("integer", default=5), NONE),
    ("missing but may be null", {}, of(["integer", "null"]), NONE),
    ("missing but nullable", {}, of("integer", nullable=True), NONE),
    ("missing without a rule", {}, {"required": ["a"]}, REQUIRED),
    ("missing one of any", {}, {"properties": {"a": {"anyOf": [{"type": "null"}]}}, "required": ["a"]}, NONE),
    ("not required", {}, {"properties": {"a": {"type": "integer"}}}, NONE),
    ("words for a number", {"a": "lots"}, of("integer"), TYPES),
    ("digits for a number", {"a": "500"}, of("integer"), NONE),
    ("a fraction for an integer", {"a": "1.5"}, of("integer"), NONE),
    ("words where text is allowed", {"a": "lots"}, of(["integer", "string"]), NONE),
    ("words for a truth value", {"a": "yes"}, of("boolean"), NONE),
    ("a number for text", {"a": 5}, of("string"), NONE),
    ("null for a scalar", {"a": None}, of("string"), TYPES),
    ("null where it is allowed", {"a": None}, of(["string", "null"]), NONE),
    ("a list for text", {"a": ["x"]}, of("string"), TYPES),
    ("an object for a number", {"a": {"x": 1}}, of("number"), TYPES),
    ("a list for a list", {"a": ["x"]}, of("array"), NONE),
    ("text for a list", {"a": "x"}, of("array"), NONE),
    ("more than was asked for", {"a": 1, "b": 2}, {**of("integer"), "additionalProperties": False}, NONE),
    ("a type that nobody knows", {"a": None}, of("money"), NONE),
    ("any of some", {"a": "lots"}, {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "number"}]}}}, TYPES),
    ("any of some, one unknown", {"a": "lots"}, {"properties": {"a": {"anyOf": [{"type": "integer"}, {}]}}}, NONE),
    ("no schema", {"a": 1}, None, NONE),
    ("no object", [1], of("integer"), NONE),
    ("a schema of odd parts", {"a": None}, {"properties": 5, "required": "a"}, NONE),
    ("odd names", {"a": 1}, {"properties": {"a": 5}, "required": [None, 3]}, NONE),
]


@pytest.mark.parametrize(("value", "schema", "found"), [row[1:] for row in SCHEMAS], ids=[row[0] for row in SCHEMAS])
def test_only_what_no_runtime_coerces_violates_a_schema(value: Any, schema: Any, found: set[Violation]) -> None:
    assert violations(value, schema) == found


@pytest.mark.parametrize(
    ("schema", "nothing"),
    [
        ({"properties": {}}, True),
        ({"properties": {}, "required": []}, True),
        ({"properties": {}, "required": ["a"]}, False),
        ({"properties": {"a": {}}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_schema_without_parameters_needs_nothing(schema: Any, nothing: bool) -> None:
    assert needs_nothing(schema) is nothing
