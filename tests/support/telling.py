# SPDX-License-Identifier: Apache-2.0
"""What stories about the order `o1`, in a scope of that name, leave behind with a guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import FIRST, ORDER, SECOND
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.context import idempotency_key
from support.hooked import entries, hooked, states
from support.incidents import release


def turns_of(story: Callable[[World], None]) -> list[str | None]:
    """Tell a story of calls about `o1`; return of which turn each call was."""
    with hooked() as guard, guard.run("o1"):
        story(World())
    return [entry.turn for entry in entries(guard, "o1", "refund", **ORDER)]


def effects_when_stopped(story: Callable[[World], None]) -> list[str]:
    """Tell a story of a call that may have committed, with a guard that stops the run."""
    world = World()
    with hooked(on_refusal="raise"), pytest.raises(ToolSpanCommitmentError, match="may have committed"):
        story(world)
    return world.effects


def released_intent(pay: Callable[[str], object]) -> str:
    """Pay under one call id, of which nobody hears what it did, and under another one when a person has looked."""
    with hooked() as guard, guard.run("o1"):
        pay(FIRST)
        entry = release(guard)
        pay(SECOND)
    assert idempotency_key() is None
    return entry.intent


def telling_tests(stories: Any) -> tuple[Callable[..., None], ...]:
    """Return the tests of what stories of a framework leave in a ledger: of `o1`, in a scope of that name.

    Args:
        stories: The module, which has `twins` and `new_id`.
    """

    def test_a_success_is_completed_and_the_turn_is_noted() -> None:
        with hooked() as guard, guard.run("o1"):
            stories.twins(World())
        first, second = entries(guard, "o1", "refund", **ORDER)
        assert first.state.value == second.state.value == "completed"
        assert first.turn is not None
        assert first.turn == second.turn
        assert {first.call_id, second.call_id} == {FIRST, SECOND}

    def test_the_latest_guard_is_asked_and_only_it() -> None:
        with hooked() as first, hooked() as second, second.run("o1"):
            stories.new_id(World())
            assert states(second, "o1", "refund", **ORDER) == ["quarantined"]
            assert states(first, "o1", "refund", **ORDER) == []

    return test_a_success_is_completed_and_the_turn_is_noted, test_the_latest_guard_is_asked_and_only_it
