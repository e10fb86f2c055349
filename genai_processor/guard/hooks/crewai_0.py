# SPDX-License-Identifier: Apache-2.0
"""CrewAI from 0.203 to 1.12, whose agents have another executor.

Calls of functions, which came with 1.9, are claimed without their ids and turns there, and whether a `BaseTool` has begun
cannot be seen: arguments that do not fit are an attempt. Its `arun` is left alone.
"""

from __future__ import annotations

from typing import Final

from genai_processor.guard.hooks import crewai
from genai_processor.guard.hooks.base import Hook, Target

_TOOLS: Final = "crewai.tools.base_tool"
_STRUCTURED: Final = "crewai.tools.structured_tool"

HOOK = Hook(
    "CrewAI (before 1.13)",
    (
        Target(_TOOLS, "BaseTool.run", ("args", "kwargs"), crewai.run_unmarked),
        Target(_TOOLS, "Tool.run", ("args", "kwargs"), crewai.run_unmarked),
        Target(_STRUCTURED, "CrewStructuredTool.invoke", ("input",), crewai.invoke),
        Target(_STRUCTURED, "CrewStructuredTool.ainvoke", ("input",), crewai.ainvoke),
        Target(_STRUCTURED, "CrewStructuredTool._increment_usage_count", (), crewai.begun),
        Target("crewai.agents.crew_agent_executor", "CrewAgentExecutor.invoke", ("inputs",), crewai.executed),
        Target("crewai.agents.cache.cache_handler", "CacheHandler.add", ("output",), crewai.cached),
        Target("crewai.utilities.tool_utils", "execute_tool_and_check_finality", ("agent_action",), crewai.written),
    ),
)
