# SPDX-License-Identifier: Apache-2.0
"""The guard comes before LangChain and LangGraph, after them, and goes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from langchain_core.tools import BaseTool
from langchain_core.tools import base as tools_base
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from support.incidents import Install

from benchmarks.incidents.kit import World
from benchmarks.incidents.langgraph_agents import GO, THREAD, agent, paying
from benchmarks.incidents.scripts import AGAIN
from genai_processor.guard import hooks

_TARGETS = (
    (BaseTool, "run"),
    (BaseTool, "arun"),
    (tools_base, "set_config_context"),
    (tools_base, "coro_with_context"),
    (Pregel, "stream"),
    (Pregel, "astream"),
    (ToolNode, "_run_one"),
    (ToolNode, "_arun_one"),
)


def _now() -> list[Any]:
    return [inspect.getattr_static(owner, name) for owner, name in _TARGETS]


def test_uninstalling_restores_the_framework(guarded: Install) -> None:
    before = _now()
    guarded()
    assert [name for (_, name), now, then in zip(_TARGETS, _now(), before, strict=True) if now is then] == []
    hooks.uninstall()
    assert all(now is then for now, then in zip(_now(), before, strict=True))


def test_nothing_else_of_the_framework_is_replaced(guarded: Install) -> None:
    from langchain_core.runnables import base, config, utils

    before = base.set_config_context, config.set_config_context, base.coro_with_context, utils.coro_with_context
    guarded()
    now = base.set_config_context, config.set_config_context, base.coro_with_context, utils.coro_with_context
    assert list(map(id, now)) == list(map(id, before))  # a wrapper would be equal to what it wraps


def test_installing_twice_guards_once(guarded: Install) -> None:
    guarded()
    guard, world = guarded(), World()
    agent(AGAIN[:1], paying(world)).invoke(GO, THREAD)
    assert guard.ledger.stats().entries == 1


def test_a_version_that_it_does_not_know_is_left_alone(
    guarded: Install, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def other(coro: Any, somewhere: Any) -> Any: ...

    monkeypatch.setattr(tools_base, "coro_with_context", other)
    guarded()
    kinds = [getattr(now, "_self_genai_processor_hook", None) for now in _now()]
    assert kinds == [
        "LangChain",
        "LangChain",
        None,
        None,
        "guard",
        "guard",
        "guard",
        "guard",
    ]  # errors are noted
    assert tools_base.coro_with_context is other
    assert caplog.text.count("is not laid out as the guard knows it") == 1


_LATE_IMPORT = """
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard
hooks.install(Guard())
import sys
assert not any(name.partition(".")[0] in ("langchain_core", "langgraph") for name in sys.modules)
import langchain_core.tools
assert "langgraph.pregel" not in sys.modules
from langchain_core.tools.base import BaseTool
assert type(BaseTool.__dict__["run"]).__name__ == "FunctionWrapper"
from langgraph.pregel import Pregel
assert type(Pregel.__dict__["stream"]).__name__ == "FunctionWrapper"
from langgraph.prebuilt import ToolNode
assert type(ToolNode.__dict__["_run_one"]).__name__ == "FunctionWrapper"
"""


_NO_GRAPH = """
import sys
from langchain_core.tools import StructuredTool
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard
hooks.install(Guard(on_refusal="raise"))

def pay(order: str) -> str:
    raise ConnectionError

one = StructuredTool.from_function(pay, description="Pay back.")
for call_id, expected in (("toolu_a1", ConnectionError), ("toolu_b2", ToolSpanCommitmentError)):
    try:
        one.invoke({"name": "pay", "args": {"order": "o1"}, "id": call_id, "type": "tool_call"})
    except expected as error:
        assert type(error) is expected, type(error)
    else:
        raise AssertionError(expected)
assert "langgraph" not in sys.modules
"""


def test_langchain_alone_is_guarded() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "ignore", "-c", _NO_GRAPH]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_is_imported_after_the_guard_is_guarded() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "ignore", "-c", _LATE_IMPORT]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
