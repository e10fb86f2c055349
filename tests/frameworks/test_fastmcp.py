# SPDX-License-Identifier: Apache-2.0
"""The guard in front of clients of FastMCP, 2 and 4: it stands in the MCP SDK below."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("fastmcp")

from fastmcp.exceptions import ToolError

from benchmarks.incidents import mcp as told
from benchmarks.incidents.fastmcp import FASTMCP, INCIDENTS
from benchmarks.incidents.kit import Incident, World, count
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.guard import Guard
from genai_processor.ledger import State

Install = Callable[..., Guard]
each_incident = pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)


@each_incident
def test_bare(incident: Incident) -> None:
    assert count(incident) == incident.bare


@each_incident
def test_observed(incident: Incident, guarded: Install, caplog: pytest.LogCaptureFixture) -> None:
    guarded(mode="observe")
    with caplog.at_level(logging.WARNING, "genai_processor"):
        assert count(incident) == incident.bare
    assert ("The guard only observes" in caplog.text) is (incident.bare != incident.enforced)


@each_incident
def test_enforced(incident: Incident, guarded: Install) -> None:
    guarded()
    assert count(incident) == incident.enforced


@each_incident
def test_enforced_on_a_ledger_in_a_file(incident: Incident, guarded: Install, tmp_path: Path) -> None:
    guarded(f"sqlite:///{tmp_path}/ledger.db")
    assert count(incident) == incident.enforced


def test_the_application_hears_of_a_refusal_as_of_any_error(guarded: Install) -> None:
    guard, world = guarded(), World()
    _, refused = asyncio.run(told.attempts(world, FASTMCP, told.failing(world, FASTMCP), 2))
    [entry] = guard.ledger.pending().entries
    assert isinstance(refused, ToolError)
    assert str(refused) == (
        "refund was not run: an earlier attempt at the same action may have committed. Do not call it again with these "
        f"arguments; report this instead. A person has to settle entry {entry.entry_id} first."
    )


def test_or_as_an_exception_of_ours(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    _, refused = asyncio.run(told.attempts(world, FASTMCP, told.failing(world, FASTMCP), 2))
    assert isinstance(refused, ToolSpanCommitmentError)


def test_what_was_never_sent_never_began(guarded: Install) -> None:
    guard = guarded()
    asyncio.run(told.bad_arguments(World(), FASTMCP))
    assert guard.ledger.counts()[State.QUARANTINED] == 0
