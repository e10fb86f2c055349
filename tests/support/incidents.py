# SPDX-License-Identifier: Apache-2.0
"""What the tests of every framework do with its incidents, and say of a guard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.incidents.bodies import Body, pays, pays_in_thread
from benchmarks.incidents.kit import Incident, World, count
from benchmarks.incidents.scripts import AGAIN, FIRST, SECOND, Turn, once, refund
from genai_processor.guard.context import idempotency_key, not_executed
from genai_processor.guard.guard import Guard
from genai_processor.ledger import Entry, Resolution, State

Install = Callable[..., Guard]
"""The fixture `guarded`: installs a guard, whose arguments these are."""


def states(guard: Guard) -> dict[State, int]:
    """How many calls stand where, without those where none does."""
    return {state: number for state, number in guard.ledger.counts().items() if number}


EARLIER = "an earlier attempt at the same action may have committed"


def refusal(entry: Entry, tool: str = "refund", why: str = EARLIER) -> str:
    """The guard's words, when a person has to settle an entry first."""
    return (
        f"{tool} was not run: {why}. Do not call it again with these arguments; report this instead. "
        f"A person has to settle entry {entry.entry_id} first."
    )


def release(guard: Guard) -> Entry:
    """Settle the one entry that waits for a person: it was not committed, so that the call may be tried again."""
    [entry] = guard.ledger.pending().entries
    guard.ledger.settle(entry.entry_id, Resolution.NOT_COMMITTED, who="ann", note="no such key there", version=entry.version)
    return entry


def did_nothing_first(world: World, error: type[Exception] = ConnectionError) -> Body:
    """The body of a tool that says, the first time, that it has not begun, and pays the second time."""

    def refund(order: str) -> str:
        """Refund an order."""
        if not world.keys:
            world.keys.append(None)
            not_executed()
            raise error("no route")
        return world.commit(order)

    return refund


def keeps_keys(keys: list[str | None]) -> Body:
    """The body of a tool that notes its idempotency key, and of which nobody hears what it did."""

    def refund(order: str) -> str:
        """Refund an order."""
        keys.append(idempotency_key())
        raise ConnectionError("no answer")

    return refund


def paying_tests(stories: Any) -> tuple[Callable[..., None], ...]:
    """Return tests of an agent whose tool pays, or tries to.

    Args:
        stories: The module, which has a model `Scripted`, `agent`, and `run`, which runs it in one conversation.
    """

    def heard(world: World, tool: Any, *script: Turn) -> list[str]:
        model = stories.Scripted(*script)
        stories.run(world, stories.agent(model, tool))
        return list(model.heard)

    @pytest.mark.parametrize("tool", [pays, pays_in_thread])
    def test_the_body_has_the_key_of_its_intent_which_a_released_attempt_keeps(tool: Any, guarded: Install) -> None:
        guard, world = guarded(), World()
        heard(world, tool(world, once=True), *once(FIRST))
        entry = release(guard)
        heard(world, tool(world), *once(SECOND))
        assert world.keys == [entry.intent] * 2

    def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
        guard, world = guarded(), World()
        heard(world, did_nothing_first(world), *AGAIN)
        assert world.effects == ["o1"]
        assert states(guard) == {State.NOT_STARTED: 1, State.COMPLETED: 1}

    def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
        guard, world = guarded(), World()
        heard(world, pays(world), [refund(FIRST)], ConnectionError("the model is down"))
        assert states(guard) == {State.UNDELIVERED: 1}
        assert heard(world, pays(world), *once(SECOND)) == ["done: o1"]
        assert world.effects == ["o1"]
        assert states(guard) == {State.COMPLETED: 1}

    return (
        test_the_body_has_the_key_of_its_intent_which_a_released_attempt_keeps,
        test_a_tool_that_did_nothing_may_be_called_again,
        test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered,
    )


def each(incidents: Sequence[Incident]) -> Any:
    """Parametrise a test with incidents."""
    names = [incident.name for incident in incidents]
    assert len(set(names)) == len(names), "two incidents have one name"
    return pytest.mark.parametrize("incident", incidents, ids=names)


def incident_tests(incidents: Sequence[Incident]) -> tuple[Callable[..., None], ...]:
    """Return the tests that all incidents pass: bare, with a guard that observes, that enforces, that does so on a file."""

    @each(incidents)
    def test_bare(incident: Incident) -> None:
        assert count(incident) == incident.bare

    @each(incidents)
    def test_observed(incident: Incident, guarded: Install, caplog: pytest.LogCaptureFixture) -> None:
        guarded(mode="observe")
        with caplog.at_level(logging.WARNING, "genai_processor"):
            assert count(incident) == incident.bare
        if incident.foretold and not incident.elsewhere:
            assert ("The guard only observes" in caplog.text) is (incident.bare != incident.enforced)

    @each(incidents)
    def test_enforced(incident: Incident, guarded: Install) -> None:
        guarded()
        assert count(incident) == incident.enforced

    @each([incident for incident in incidents if not incident.elsewhere])
    def test_enforced_on_a_ledger_in_a_file(incident: Incident, guarded: Install, tmp_path: Path) -> None:
        guarded(f"sqlite:///{tmp_path}/ledger.db")
        assert count(incident) == incident.enforced

    return test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file
