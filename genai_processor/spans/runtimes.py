# SPDX-License-Identifier: Apache-2.0
"""What each agent runtime is known to reject before it calls a tool's body.

Every entry is backed by a recorded trace (VERDICT, section 6). What a runtime was seen to run all the same (Google ADK
with `amount_cents="lots"`, Strands with broken JSON turned into `{}`) has no entry, and neither has what nobody recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from genai_processor.spans.arguments import Violation

UNTYPED = ""
"""Stands in `shows` for a rejection that puts no error type on the span."""


class Runtime(NamedTuple):
    """What one runtime rejects, and how its spans show that it did.

    Attributes:
        rejects: For each kind of violation, the error types (last dotted segment) by which a rejected call shows it.
    """

    rejects: Mapping[Violation, frozenset[str]]


def _runtime(**rejects: str) -> Runtime:
    return Runtime({Violation(kind): frozenset(shows.split("|")) for kind, shows in rejects.items()})


NO_ROW = _runtime(json="JSONDecodeError")
"""A runtime nobody recorded: only its own JSON parser's failure counts."""

AGENT_FRAMEWORK = _runtime()
AGNO = _runtime(required="_OTHER|", types="_OTHER|")
AUTOGEN = _runtime(required="ValidationError", types="ValidationError")
CREWAI = _runtime(types="ValueError")
GOOGLE_ADK = _runtime(required="TOOL_ERROR")
LANGCHAIN = _runtime(required="ValidationError|Exception", types="ValidationError|Exception")
LLAMA_INDEX = _runtime(required="TypeError|")
MCP_SERVER = _runtime(required="tool_error|", types="tool_error|")
MCP_SERVER_OPENLLMETRY = _runtime(required="tool_error|ValidationError", types="tool_error|ValidationError")
"""OpenLLMetry writes the python-sdk's answer (`tool_error`) or, on fastmcp 2's server, the exception's type."""

FASTMCP_SERVER = _runtime(types="ValidationError")
OPENAI_AGENTS = _runtime(
    json="|_OTHER|ModelBehaviorError", required="|_OTHER|ModelBehaviorError", types="|_OTHER|ModelBehaviorError"
)
PYDANTIC_AI = _runtime()  # says so itself: `pydantic_ai.tool.failure_stage`
SEMANTIC_KERNEL = _runtime(types="FunctionExecutionException")
SMOLAGENTS = _runtime(required="TypeError")
STRANDS = _runtime(required="ValueError", types="ValueError")
VERCEL_AI = _runtime()
