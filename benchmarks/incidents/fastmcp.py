# SPDX-License-Identifier: Apache-2.0
"""Incidents of clients of FastMCP 2 and 4, with a server in the same process."""

from __future__ import annotations

from fastmcp import Client, FastMCP

from benchmarks.incidents.kit import Incident
from benchmarks.incidents.mcp import Wiring, incidents

FASTMCP = Wiring(FastMCP, Client, lambda number: {"timeout": number})

INCIDENTS: tuple[Incident, ...] = incidents(FASTMCP)
