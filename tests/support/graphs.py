# SPDX-License-Identifier: Apache-2.0
"""What the tests of LangGraph's hooks share."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage

from benchmarks.incidents.langgraph_agents import GO, THREAD, run_async

sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


def told(state: Any) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def run(made: Any, *, sync: bool) -> Any:
    return made.invoke(GO, THREAD) if sync else run_async(made)
