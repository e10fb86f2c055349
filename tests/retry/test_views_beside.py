# SPDX-License-Identifier: Apache-2.0
"""Two instrumentations that write one call, each a span of its own, beside each other."""

from __future__ import annotations

from typing import Any

import pytest
from support.spans import ARGS, ID, LANGCHAIN, SCHEMA, Read, agent, definitions, failed_tool, tool

from genai_processor.spans.records import Span

OTHER_SCOPE = "openinference.instrumentation.langchain"
RUN = agent(at=(1, 100))
KIND = {"openinference.span.kind": "TOOL", "output.value": "ok"}
PYDANTIC = "pydantic_core._pydantic_core.ValidationError"


def outer(**more: Any) -> Span:
    return tool(**{"id": ID, "args": ARGS, "result": "ok", "at": (10, 40), "scope": LANGCHAIN, "parent": RUN, **more})


def inner(**more: Any) -> Span:
    return tool(
        **{"id": None, "args": ARGS, "at": (11, 39), "scope": OTHER_SCOPE, "parent": RUN, "attributes": KIND, **more}
    )


def calls(*spans: Span) -> int:
    return len(Read([*spans, RUN]).rows)


@pytest.mark.parametrize("second", [{}, {"id": ID, "args": None}, {"id": ID, "args": '{"x": 1}'}])
def test_two_instrumentations_show_one_call(second: dict[str, Any]) -> None:
    read = Read([inner(**second), outer(), RUN])
    assert len(read.rows) == 1
    assert read.duplicates == []


@pytest.mark.parametrize(
    "second",
    [
        {"scope": LANGCHAIN, "id": ID},
        {"id": "call_Other7Qw2zz"},
        {"args": '{"x": 1}'},
        {"args": None},
        {"at": (11, 41)},
        {"at": (41, 45)},
        {"name": "send_mail"},
        {"parent": "f" * 16},
    ],
)
def test_what_one_instrumentation_writes_twice_or_another_of_something_else_is_not_one_call(second: dict[str, Any]) -> None:
    assert calls(inner(**second), outer()) == 2


def test_without_a_parent_only_an_id_tells() -> None:
    assert calls(inner(parent=None), outer(parent=None)) == 2
    assert calls(inner(parent=None, id=ID), outer(parent=None)) == 1


def test_twins_find_a_span_each() -> None:
    assert calls(inner(), inner(at=(12, 38)), outer(), outer(id="call_Other7Qw2zz", at=(10, 41))) == 2


def test_the_call_failed_if_one_of_them_says_so() -> None:
    read = Read([inner(failed=True), outer(), RUN])
    assert read.verdict(read.rows[0].call.node.span) == ("quarantined", "commitment_marker")


@pytest.mark.parametrize(
    ("error", "expected"), [(PYDANTIC, "retryable_pre_execution"), ("TimeoutError", "quarantined_unknown")]
)
def test_a_proof_that_it_never_began_must_be_on_both(error: str, expected: str) -> None:
    offer = {"gen_ai.tool.definitions": definitions({"create_refund": SCHEMA})}
    run = agent(at=(1, 100), attributes=offer)
    one = failed_tool(id=ID, args="{}", scope=LANGCHAIN, error=PYDANTIC, at=(10, 40), parent=run)
    two = failed_tool(id=ID, args="{}", scope=OTHER_SCOPE, error=error, at=(11, 39), parent=run, attributes=KIND)
    read = Read([two, one, run])
    assert len(read.rows) == 1
    assert read.verdict(one)[0] == expected
