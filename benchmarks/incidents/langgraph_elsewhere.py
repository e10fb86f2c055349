# SPDX-License-Identifier: Apache-2.0
"""Incidents on LangGraph that go on in another process, for the same thread, of which no checkpoint was kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.incidents.bodies import on_the_loop
from benchmarks.incidents.kit import Incident, Story
from benchmarks.incidents.langgraph_agents import GO, THREAD, agent, graph, run_async, tool
from benchmarks.incidents.other_process import all_is_told, dies_unseen, in_two_processes, main, pays_there
from benchmarks.incidents.scripts import once


def _killed_later(step: str, folder: Path, make: Callable[..., Any]) -> None:
    make(dies_unseen(step), tool(pays_there(folder))).invoke(GO, THREAD)


def _later_run(step: str, folder: Path) -> None:
    """Each process ends right after its run."""
    all_is_told(step)
    run_async(agent(once(f"toolu_{step}"), tool(on_the_loop(pays_there(folder)))))


elsewhere = partial(in_two_processes, "langgraph_elsewhere")

INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.KILLED_LATER, "graph", elsewhere("killed_later"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "agent", elsewhere("agent_killed_later"), 2, 1, elsewhere=True),
    Incident(Story.LATER_RUN, "", elsewhere("later_run", ends_well=True), 2, 2, elsewhere=True),
)

if __name__ == "__main__":
    main(
        {
            "killed_later": partial(_killed_later, make=graph),
            "agent_killed_later": partial(_killed_later, make=agent),
            "later_run": _later_run,
        }
    )
