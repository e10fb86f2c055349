# SPDX-License-Identifier: Apache-2.0
"""The table of dialects. A new one is one file, and one line here."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from genai_processor.spans.dialects import (
    agent_framework,
    agno,
    autogen,
    crewai,
    google_adk,
    langchain,
    llama_index,
    mcp,
    openai_agents,
    pydantic_ai,
    semantic_kernel,
    smolagents,
    strands,
    vercel_ai,
)
from genai_processor.spans.dialects.base import Dialect, result_if_arguments
from genai_processor.spans.dialects.conventions import CONVENTIONS
from genai_processor.spans.dialects.openinference import OPENINFERENCE
from genai_processor.spans.dialects.openllmetry import OPENLLMETRY

__all__ = ["CONVENTIONS", "DIALECTS", "Dialect", "dialect_of"]

_OFFICIAL = dataclasses.replace(
    CONVENTIONS,
    name="GenAI conventions (official instrumentation)",
    scopes=("opentelemetry.instrumentation.genai.*", "opentelemetry.util.genai*"),
    has_end_mark=result_if_arguments,
)

_TABLE: tuple[Dialect, ...] = (
    *pydantic_ai.DIALECTS,
    *openai_agents.DIALECTS,
    *langchain.DIALECTS,
    *mcp.DIALECTS,
    *google_adk.DIALECTS,
    *strands.DIALECTS,
    *agent_framework.DIALECTS,
    *llama_index.DIALECTS,
    *crewai.DIALECTS,
    *smolagents.DIALECTS,
    *agno.DIALECTS,
    *autogen.DIALECTS,
    *semantic_kernel.DIALECTS,
    *vercel_ai.DIALECTS,
    _OFFICIAL,
    OPENINFERENCE,
    OPENLLMETRY,
    CONVENTIONS,
)

_KEY_FIELDS = (
    "tool_names",
    "call_ids",
    "arguments",
    "results",
    "outputs",
    "inputs",
    "steps",
    "definitions",
    "schemas",
    "conversations",
)


def _layered(dialect: Dialect) -> Dialect:
    """The dialect with the conventions' and OpenInference's keys behind its own."""
    keys: dict[str, Any] = {}
    for field in _KEY_FIELDS:
        stack = (*getattr(dialect, field), *getattr(CONVENTIONS, field), *getattr(OPENINFERENCE, field))
        keys[field] = tuple(dict.fromkeys(stack))
    return dataclasses.replace(
        dialect,
        view=dialect.view or CONVENTIONS.view,
        tool_name=dialect.tool_name or CONVENTIONS.tool_name,
        **keys,
    )


DIALECTS: tuple[Dialect, ...] = tuple(_layered(dialect) for dialect in _TABLE)
"""Every dialect, most specific first; the last is the conventions'."""

_DEFAULT = DIALECTS[-1]
_EXACT = {scope: dialect for dialect in DIALECTS for scope in dialect.scopes if not scope.endswith("*")}
_PREFIXES = sorted(
    ((scope[:-1], dialect) for dialect in DIALECTS for scope in dialect.scopes if scope.endswith("*")),
    key=lambda row: len(row[0]),
    reverse=True,
)
# The last dialect with a mark, which is the general one: a framework's own row inherits marks that prove nothing of it.
_MARKS = {mark: dialect for dialect in DIALECTS for mark in dialect.marks}


@functools.lru_cache(maxsize=4096)
def _by_scope(scope: str) -> Dialect | None:
    if scope in _EXACT:
        return _EXACT[scope]
    return next((dialect for prefix, dialect in _PREFIXES if scope.startswith(prefix)), None)


def dialect_of(scope: str, attributes: Mapping[str, Any]) -> Dialect:
    """The dialect of a span: by its instrumentation scope, else by an attribute that betrays it, else the conventions."""
    found = _by_scope(scope)
    if found is not None:
        return found
    if _MARKS.keys().isdisjoint(attributes):
        return _DEFAULT
    return next(dialect for mark, dialect in _MARKS.items() if mark in attributes)
