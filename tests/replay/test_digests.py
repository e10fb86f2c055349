# SPDX-License-Identifier: Apache-2.0
"""One digest for what two runs say alike, whatever each of them mints anew; another for everything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_processor.replay.digests import content_digest, failure_digest, finish_class, output_digest, part_digest
from genai_processor.replay.forms import canonical_value, unwrapped
from genai_processor.replay.parts import Part, PartKind, Role, part_list

ALIKE: dict[str, tuple[Any, Any]] = {
    "quoted text": ('"r1"', "r1"),
    "spaces around": ("  r1\n", "r1"),
    "key order": ('{"a": 1, "b": 2}', {"b": 2, "a": 1}),
    "encoded twice": ('"{\\"a\\": 1}"', {"a": 1}),
    "a number as text": ("5", 5),
    "1.0 in an object": ({"a": 1.0}, {"a": 1}),
    "NaN": ('{"a": NaN}', {"a": float("nan")}),
}
APART: dict[str, tuple[Any, Any]] = {
    "long integers": ("[12345678901234567890123]", "[12345678901234567890124]"),
    "texts of numbers": ("1.0", "1"),
    "list order": ([1, 2], [2, 1]),
    "an id in arguments": ({"id": "o1"}, {"id": "o2"}),
    "a time in a text": ("at 12:00", "at 12:01"),
    "case": ("Yes", "yes"),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=list(ALIKE))
def test_the_same_value_has_one_form(one: Any, other: Any) -> None:
    assert canonical_value(one) == canonical_value(other)


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=list(APART))
def test_other_values_have_other_forms(one: Any, other: Any) -> None:
    assert canonical_value(one) != canonical_value(other)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=4)))
def test_any_value_has_a_form(value: Any) -> None:
    assert isinstance(canonical_value(value), bytes)


@pytest.mark.parametrize("key", ["id", "run_id", "created_at", "usage", "tool_call_id"])
def test_what_a_framework_mints_anew_is_left_out_of_what_it_wraps_around(key: str) -> None:
    assert content_digest([{"text": "x", key: "one"}]) == content_digest([{"text": "x", key: "two"}])


@pytest.mark.parametrize(
    "wrapped",
    [
        {"result": "7 left"},
        '{"result": "7 left"}',
        [{"type": "text", "text": "7 left"}],
        {"type": "text", "text": "7 left"},
        {"content": [{"type": "text", "text": "7 left"}], "isError": False},
        {"output": {"kwargs": {"content": "7 left", "tool_call_id": "c1"}}},
        {"blocks": [], "tool_name": "stock", "raw_output": "7 left"},
    ],
)
def test_a_results_wrapper_does_not_count(wrapped: Any) -> None:
    plain = part_digest(Role.TOOL, PartKind.RESULT, None, "7 left")
    assert part_digest(Role.TOOL, PartKind.RESULT, "stock", wrapped) == plain
    assert unwrapped(wrapped) == "7 left"


def test_a_calls_tool_counts() -> None:
    arguments = {"q": 1}
    assert part_digest(Role.ASSISTANT, PartKind.CALL, "a", arguments) != part_digest(
        Role.ASSISTANT, PartKind.CALL, "b", arguments
    )


def _result(position: int, value: str) -> Part:
    return Part(
        Role.TOOL, PartKind.RESULT, None, part_digest(Role.TOOL, PartKind.RESULT, None, value), position, f"id{value}"
    )


def test_a_list_is_its_order_and_positions_not_its_call_ids() -> None:
    one, two = _result(0, "x"), _result(1, "y")
    assert part_list((one, two)) == part_list((one._replace(call_id="other"), two))
    assert part_list((one, two)) != part_list((two, one))
    assert part_list((one, two)) != part_list((one._replace(position=1), two._replace(position=0)))


def test_a_list_that_extends_another_is_the_list_of_all_parts() -> None:
    parts = tuple(_result(at, str(at)) for at in range(5))
    grown = part_list(parts[4:], part_list(parts[2:4], part_list(parts[:2])))
    assert grown == part_list(parts)
    assert list(grown) == list(parts)
    assert list(reversed(grown)) == list(reversed(parts))
    assert [grown[at] for at in range(-5, 5)] == [*parts, *parts]
    assert all(grown.since(at) == parts[at:] for at in range(6))
    with pytest.raises(IndexError):
        grown[5]


@given(st.lists(st.integers(0, 3), max_size=6), st.randoms())
def test_lists_that_share_beginnings_have_the_digest_of_all_parts_whichever_is_asked_first(
    sizes: list[int], random: Any
) -> None:
    parts = tuple(_result(at, str(at)) for at in range(sum(sizes)))
    grown = [part_list(())]
    for size in sizes:
        begin = len(grown[-1])
        grown.append(part_list(parts[begin : begin + size], grown[-1]))
    asked = [*grown, *grown]
    random.shuffle(asked)
    for one in asked:
        flat = part_list(parts[: len(one)])
        assert (one.digest, one.mark) == (flat.digest, flat.mark)


def test_an_output_is_its_parts_and_how_the_model_finished() -> None:
    parts = part_list((_result(0, "x"),))
    assert output_digest(parts, finish_class("stop")) == output_digest(parts, finish_class("end_turn"))
    assert output_digest(parts, finish_class("stop")) != output_digest(parts, finish_class("length"))


def test_a_failure_is_its_type_without_the_module_and_its_message() -> None:
    assert failure_digest("app.errors.Gone", "x") == failure_digest("Gone", "x")
    assert failure_digest("Gone", "x") != failure_digest("Gone", "y") != failure_digest("Lost", "y")
