# SPDX-License-Identifier: Apache-2.0
"""Identical calls of one turn: a hook counts what was proposed as the ledger compares it."""

from __future__ import annotations

from typing import Any

import pytest

from genai_processor import Guard
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks.base import same_calls


class Formless:
    """No digest can be made of it."""

    def __repr__(self) -> str:
        return "Formless()"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"order": 1, "cents": 5}', '{"cents":5.0,"order":1}'),
        ({"cents": 5}, '{"cents": 5}'),
        ("", "{}"),
        ("{not JSON", "{not JSON"),
        ({"text": "\ud800"}, {"text": "\ud800"}),
    ],
)
def test_two_that_are_spelled_differently_are_twins_and_both_run_but_no_third(one: Any, other: Any) -> None:
    guard, proposed = Guard("memory:"), [("pay", one), ("pay", other), ("pay", {"order": 2}), ("ask", one)]
    for call_id, arguments in (("toolu_a1", one), ("toolu_b2", other)):
        number = same_calls(("pay", arguments), proposed)
        assert number == 2
        with guard.call("pay", call_id, arguments, scope="s", turn="t", proposed=number):
            pass
    with pytest.raises(ToolSpanCommitmentError), guard.call("pay", "toolu_c3", one, scope="s", turn="t", proposed=2):
        raise AssertionError("it ran")


def test_arguments_without_a_digest_are_told_apart_by_what_they_look_like() -> None:
    proposed = [("pay", {"file": Formless()}), ("pay", {"file": Formless()}), ("pay", {"file": object()})]
    assert same_calls(("pay", {"file": Formless()}), proposed) == 2


def test_a_call_that_its_turn_does_not_show_is_one() -> None:
    assert same_calls(("pay", {}), []) == 1
