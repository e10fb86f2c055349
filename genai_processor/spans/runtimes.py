# SPDX-License-Identifier: Apache-2.0
"""What each agent runtime is known to reject before it calls a tool's body.

Every entry is backed by a recorded trace (docs/verdict.md). What a runtime was seen to run all the same (Google ADK
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
        rejects: For each kind of violation, the error types by which a rejected call shows it, as spans record them: bare,
            or in full. `requests.exceptions.JSONDecodeError` is no `JSONDecodeError` of the runtime's own.
    """

    rejects: Mapping[Violation, frozenset[str]]


_IN_FULL: Mapping[str, tuple[str, ...]] = {
    "ValidationError": ("pydantic_core._pydantic_core.ValidationError",),
    "ModelBehaviorError": ("agents.exceptions.ModelBehaviorError",),
    "FunctionExecutionException": ("semantic_kernel.exceptions.function_exceptions.FunctionExecutionException",),
}
"""The full names of types that are no builtins, as recorded; the conventions' `error.type` leaves the module out."""


def _runtime(**rejects: str) -> Runtime:
    return Runtime({Violation(kind): _names(shows.split("|")) for kind, shows in rejects.items()})


def _names(shows: list[str]) -> frozenset[str]:
    return frozenset(name for bare in shows for name in (bare, *_IN_FULL.get(bare, ())))


NO_ROW = _runtime()
"""A runtime nobody recorded proves nothing: even a JSON parser's failure may be about the provider's answer."""

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

FASTMCP_SERVER = _runtime(types="ValidationError|fastmcp.exceptions.ValidationError")
OPENAI_AGENTS = _runtime(
    json="|_OTHER|ModelBehaviorError", required="|_OTHER|ModelBehaviorError", types="|_OTHER|ModelBehaviorError"
)
PYDANTIC_AI = _runtime()  # says so itself: `pydantic_ai.tool.failure_stage`
SEMANTIC_KERNEL = _runtime(types="FunctionExecutionException")
SMOLAGENTS = _runtime(required="TypeError")
STRANDS = _runtime(required="ValueError", types="ValueError")
VERCEL_AI = _runtime()
