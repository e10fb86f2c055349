# SPDX-License-Identifier: Apache-2.0
"""Attribute values of any kind are read without a complaint; what stands for nothing counts as nothing."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_processor.ledger import is_index_like
from genai_processor.spans import values

anything = st.none() | st.text() | st.binary() | st.booleans() | st.integers() | st.floats() | st.lists(st.integers())


@pytest.mark.parametrize(
    "value",
    ["", "  ", "null", "NULL", "None", "undefined", "n/a", "NaN", "<not specified>", "unknown", "[REDACTED]", "***"],
)
def test_a_placeholder_is_no_call_id(value: str) -> None:
    assert values.usable_id(value, "create_refund") is None


@pytest.mark.parametrize("value", ["__REDACTED__", "create_refund", " create_refund ", None, 7, True, ["call_1"], b"call_1"])
def test_neither_is_a_marker_nor_the_tools_name_nor_what_is_no_text(value: Any) -> None:
    assert values.usable_id(value, "create_refund") is None


@pytest.mark.parametrize("value", ["call_0", "toolu_01AbCd", "1", "nullable-7", "create_refund_1", "x" * 500, "none-1"])
def test_whatever_else_is_text_is_one(value: str) -> None:
    assert values.usable_id(value, "create_refund") == value


@pytest.mark.parametrize(
    "text",
    ["__REDACTED__", "[REDACTED]", "<redacted>", "***", "*****", "N/A", "[Filtered]", "[Scrubbed due to 'auth']"],
)
def test_a_marker_says_that_nothing_was_recorded(text: str) -> None:
    assert values.is_withheld(text)


@pytest.mark.parametrize("text", ["{}", "**", "red", "o1", '{"a": "[REDACTED]"}', "filter", "[1, 2]", "none"])
def test_other_text_is_no_marker(text: str) -> None:
    assert not values.is_withheld(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "[REDACTED]"}',
        '{"a": "<filtered>"}',
        '{"a": "***"}',
        '{"a": "x... truncated"}',
        "[SCRUBBED]",
        "__masked__",
    ],
)
def test_a_marker_is_found_inside_of_text(text: str) -> None:
    assert values.has_marker(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"filter": "red"}',
        '{"is_masked": true}',
        '{"unfiltered": 1}',
        '{"a": "truncated cone"}',
        '{"note": "it was redacted"}',
        "**",
    ],
)
def test_plain_words_are_no_markers(text: str) -> None:
    assert not values.has_marker(text)


@settings(max_examples=300, deadline=None)
@given(anything)
def test_readers_never_raise(value: Any) -> None:
    values.text(value)
    values.usable_id(value, "x")
    values.loads(value)
    values.quick_loads(value)
    if isinstance(value, str):
        values.literal(value)
        values.is_withheld(value)
        values.has_marker(value)


@settings(max_examples=300, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists, max_leaves=5))
def test_both_readers_of_json_agree(value: Any) -> None:
    text = json.dumps(value)
    assert values.loads(text) == values.quick_loads(text) == value


def test_integers_of_any_size_stay_exact_where_somebody_compares_them() -> None:
    assert values.loads(str(2**70 + 1)) == 2**70 + 1


@pytest.mark.parametrize("value", ["{", "", "nope", None, 3, True, "[" * 100_000])
def test_what_does_not_parse_is_nothing(value: Any) -> None:
    assert values.loads(value) is None
    assert values.quick_loads(value) is None


def test_structures_pass_as_they_are() -> None:
    assert values.loads({"a": 1}) == {"a": 1}
    assert values.loads(b"[1]") == [1]
    assert values.text("x") == "x"
    assert values.text(" \t") is None


@pytest.mark.parametrize("text", ["__import__('os').getpid()", "{'a': f()}", "{", "x", "{" * 5_000, "(" * 50_000])
def test_only_literals_are_read_as_python(text: str) -> None:
    assert values.literal(text) is None


def test_a_python_rendering_is_read() -> None:
    assert values.literal("{'a': None, 'b': (1, 2)}") == {"a": None, "b": (1, 2)}


@pytest.mark.parametrize("text", ["[" + "0," * 40_000 + "]", "[" * 300 + "]" * 300, "(" * 30_000, "-" * 30_000])
def test_a_literal_costs_little_whatever_the_text(text: str) -> None:
    begin = time.thread_time()  # of this thread, whatever else the machine does
    values.literal(text)
    assert time.thread_time() - begin < 5
    assert len(text) <= 65_536 or values.literal(text) is None


@pytest.mark.parametrize(
    "call_id",
    [
        *("call_0", "call_12", "0", "7", "tool-call-3", "c1", "call_1_2", "functions_1", "functions.refund:0", "toolu_9"),
        *("idx7", "refund_2", "call_refund_0", "Call 3", "functions.another-tool:12"),
    ],
)
def test_an_id_that_counts_calls(call_id: str) -> None:
    assert values.index_like(call_id, "refund")
    assert is_index_like(call_id, "refund"), "a ledger asks the same"


@pytest.mark.parametrize(
    "call_id",
    ["call_Xk29LmQ8vTz4", "toolu_01AbCdEfGh", "12345", "call_", "abc", "c1" * 20, "é1", "٣", "", "call_AbCdEf7"],
)
def test_an_id_that_names_one_call(call_id: str) -> None:
    assert not values.index_like(call_id, "refund")
    assert not values.index_like(call_id)


@given(
    st.lists(st.sampled_from(["call", "tool", "Functions", "idx", "_", "-", ".", ":", "1", "12", "refund"]), max_size=6),
    st.integers(0, 9999),
)
def test_counting_words_before_a_number_count(parts: list[str], number: int) -> None:
    call_id = "".join(part for part in parts if part != "refund") + "_" + str(number)
    within = len(call_id) <= 32 and all(len(digits) <= 4 for digits in re.findall("[0-9]+", call_id))
    words = {word.lower() for word in re.findall("[A-Za-z]+", call_id)}
    if words <= {"call", "tool", "functions", "idx"}:
        assert values.index_like(call_id) == within
    assert values.index_like(call_id + "x9y8") is False


@given(st.text("calfuntiosx_.:#- 0123456789٣²é", max_size=60), st.sampled_from([None, "", "call", "refund", "1", "x3"]))
def test_whatever_ends_in_no_digit_or_is_long_counts_nothing(call_id: str, tool: str | None) -> None:
    if values.index_like(call_id, tool):
        assert call_id[-1] in "0123456789"
        assert len(call_id) <= 80 + len(tool or "")


def test_no_pattern_of_ids_repeats_what_repeats() -> None:
    for pattern in (values._KIMI, values._COUNTING_PART):
        assert not re.search(r"[+*}]\)?[+*{]", pattern.pattern)


@pytest.mark.parametrize("text", ["a" * 23 + "!", "call" * 5_000 + "!", "functions." + "a-" * 50_000, "1_" * 50_000])
def test_how_long_it_takes_to_tell_does_not_explode(text: str) -> None:
    begin = time.thread_time()
    for _ in range(100):
        values.index_like(text, "refund")
    assert time.thread_time() - begin < 5
