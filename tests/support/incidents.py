# SPDX-License-Identifier: Apache-2.0
"""What the tests of every framework do with its incidents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.incidents.kit import Incident, count
from genai_processor.guard.guard import Guard
from genai_processor.ledger import State

Install = Callable[..., Guard]
"""The fixture `guarded`: installs a guard, whose arguments these are."""


def states(guard: Guard) -> dict[State, int]:
    """How many calls stand where, without those where none does."""
    return {state: number for state, number in guard.ledger.counts().items() if number}


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
