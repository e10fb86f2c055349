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


UNSPECIFIC = frozenset({UNTYPED, "_OTHER", "tool_error"})
"""Error types by which a runtime shows any failure."""


class Runtime(NamedTuple):
    """What one runtime rejects, and how its spans show that it did.

    Attributes:
        rejects: For each kind of violation, the error types by which a rejected call shows it, as spans record them: bare,
            or in full. `requests.exceptions.JSONDecodeError` is no `JSONDecodeError` of the runtime's own.
        unknown_tool: The error types by which it shows that there is no such tool. Empty: it writes no span for such a call,
            so a span shows a tool that exists, whatever the model was offered.
        schema_title: How the titles of the schemas end that it makes of functions, whose calls it validates. One with
            another title was written by hand, and nobody need heed it; so where the error type is one that any failure has
            (`UNSPECIFIC`), it proves nothing. Empty: the runtime validates whatever has a schema.
    """

    rejects: Mapping[Violation, frozenset[str]]
    unknown_tool: frozenset[str] = frozenset()
    schema_title: str = ""


_IN_FULL: Mapping[str, tuple[str, ...]] = {
    "ValidationError": ("pydantic_core._pydantic_core.ValidationError",),
    "ModelBehaviorError": ("agents.exceptions.ModelBehaviorError",),
    "FunctionExecutionException": ("semantic_kernel.exceptions.function_exceptions.FunctionExecutionException",),
}
"""The full names of types that are no builtins, as recorded; the conventions' `error.type` leaves the module out."""


def _runtime(unknown_tool: str | None = None, schema_title: str = "", **rejects: str) -> Runtime:
    return Runtime(
        {Violation(kind): _names(shows.split("|")) for kind, shows in rejects.items()},
        _names(unknown_tool.split("|")) if unknown_tool is not None else frozenset(),
        schema_title,
    )


def _names(shows: list[str]) -> frozenset[str]:
    return frozenset(name for bare in shows for name in (bare, *_IN_FULL.get(bare, ())))


NO_ROW = _runtime()
"""A runtime nobody recorded proves nothing: even a JSON parser's failure may be about the provider's answer."""

AGENT_FRAMEWORK = _runtime()
AGNO = _runtime(types="_OTHER|")
AUTOGEN = _runtime(types="ValidationError")
CREWAI = _runtime(types="ValueError")
GOOGLE_ADK = _runtime(required="TOOL_ERROR", unknown_tool="ValueError")
LANGCHAIN = _runtime(required="ValidationError", types="ValidationError")
LLAMA_INDEX = _runtime(required="TypeError|", unknown_tool="RuntimeError")
MCP_SERVER = _runtime(required="tool_error|", types="tool_error|", unknown_tool="tool_error|", schema_title="Arguments")
"""The python-sdk's high-level server. A low-level one, whose author writes the schemas, need not heed them."""

MCP_SERVER_OPENLLMETRY = _runtime(
    required="tool_error|ValidationError",
    types="tool_error|ValidationError",
    unknown_tool="tool_error|NotFoundError",
    schema_title="Arguments",
)
"""OpenLLMetry writes the python-sdk's answer (`tool_error`) or, on fastmcp 2's server, the exception's type."""

FASTMCP_SERVER = _runtime(types="ValidationError|fastmcp.exceptions.ValidationError", unknown_tool="NotFoundError")
OPENAI_AGENTS = _runtime(
    json="|_OTHER|ModelBehaviorError",
    required="ModelBehaviorError",
    types="|_OTHER|ModelBehaviorError",
    schema_title="_args",
)
"""In strict mode a parameter with the default `None` stands among the required ones, and may be left out all the same."""

PYDANTIC_AI = _runtime()  # says so itself: `pydantic_ai.tool.failure_stage`
SEMANTIC_KERNEL = _runtime(types="FunctionExecutionException")
SMOLAGENTS = _runtime(required="TypeError")
STRANDS = _runtime(required="ValueError", types="ValueError", unknown_tool="Exception")
VERCEL_AI = _runtime()
