# SPDX-License-Identifier: Apache-2.0
"""Every test begins and ends without hooks. Where a framework is not installed, there is nothing to collect of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.traps import trap

from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard

pytest.register_assert_rewrite("support.hooked", "support.incidents", "support.telling")
__all__ = ["trap"]

NEEDS = {
    "agent_framework": "agent_framework",
    "agno": "agno",
    "autogen": "autogen_agentchat",
    "crewai": "crewai",
    "fastmcp": "fastmcp",
    "google_adk": "google.adk",
    "langgraph": "langgraph",
    "llama_index": "llama_index",
    "mcp": "mcp",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "semantic_kernel": "semantic_kernel",
    "smolagents": "smolagents",
    "span_binding": "opentelemetry.instrumentation.genai.langchain",
    "strands": "strands",
}
"""Test file -> the package without which there is nothing to test."""


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


collect_ignore_glob = [f"test_{name}*.py" for name, package in NEEDS.items() if not is_installed(package)]


@pytest.fixture
def untraced() -> Iterator[None]:
    """Without the OpenAI Agents SDK's own tracing, which would go to the network."""
    from agents import set_tracing_disabled

    set_tracing_disabled(True)
    yield
    set_tracing_disabled(False)


@pytest.fixture
def guarded() -> Iterator[Callable[..., Guard]]:
    """Install a guard, whose arguments are those of `Guard`; the hooks are taken away after the test."""

    def install(*args: Any, **kwargs: Any) -> Guard:
        guard = Guard(*args, **kwargs)
        hooks.install(guard)
        return guard

    yield install
    hooks.uninstall()
