# SPDX-License-Identifier: Apache-2.0
"""The guard in front of clients of FastMCP, 2 and 4: it stands in the MCP SDK below."""

from __future__ import annotations

import asyncio

from fastmcp.exceptions import ToolError
from support.incidents import Install, incident_tests, refusal

from benchmarks.incidents import mcp as told
from benchmarks.incidents.fastmcp import FASTMCP, INCIDENTS
from benchmarks.incidents.kit import World
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)


def test_the_application_hears_of_a_refusal_as_of_any_error(guarded: Install) -> None:
    guard, world = guarded(), World()
    _, refused = asyncio.run(told.attempts(world, FASTMCP, told.failing(world, FASTMCP), 2))
    [entry] = guard.ledger.pending().entries
    assert isinstance(refused, ToolError)
    assert str(refused) == refusal(entry)


def test_or_as_an_exception_of_ours(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    _, refused = asyncio.run(told.attempts(world, FASTMCP, told.failing(world, FASTMCP), 2))
    assert isinstance(refused, ToolSpanCommitmentError)


def test_what_was_never_sent_never_began(guarded: Install) -> None:
    guard = guarded()
    asyncio.run(told.bad_arguments(World(), FASTMCP))
    assert guard.ledger.counts()[State.QUARANTINED] == 0
