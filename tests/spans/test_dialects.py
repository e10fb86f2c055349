# SPDX-License-Identifier: Apache-2.0
"""What is read from the tool spans of each dialect, on spans that real frameworks wrote (`data/tool_spans.md`)."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from support.spans import ARGS, chat, read, span, tool

from genai_processor.spans.arguments import ArgumentsState, read_arguments
from genai_processor.spans.dialects import DIALECTS, dialect_of
from genai_processor.spans.dialects.base import looks_failed, may_look_failed
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.read import MARKER_KEYS, operation_of
from genai_processor.spans.records import Inference, Operation, Span, SpanKind, ToolCall, View

DATA = Path(__file__).parents[1] / "data"
TABLE = (DATA / "tool_spans.md").read_text(encoding="utf-8").splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TABLE if line.startswith("| ")][2:]

NOT_RECORDED = {
    "openai-agents (logfire)": "not recorded here: built below from what it was seen to write",
    "CrewAI (OpenLLMetry)": "writes no tool spans, only agents and tasks",
    "smolagents (official)": "writes no tool spans",
    "smolagents (OpenInference)": "not recorded here: built below from its source",
    "GenAI conventions (official instrumentation)": "what official instrumentations without a row of their own get",
    "OpenInference": "what its instrumentations without a row of their own get",
    "OpenLLMetry": "what its instrumentations without a row of their own get",
    "GenAI conventions": "what everybody else gets",
}


@functools.cache
def spans_of(trace: str) -> Mapping[str, Span]:
    return {one.span_id: one for one in read_spans(DATA / f"{trace}.jsonl", on_error=pytest.fail)}


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{row[1].rpartition('/')[2]}-{row[2][:4]}" for row in ROWS])
def test_a_recorded_span_says_what_its_row_says(row: list[str]) -> None:
    dialect, trace, span_id, name, call_id, state, end_mark, failure, view, not_started = row
    call = read(spans_of(trace)[span_id])
    assert isinstance(call, ToolCall)
    assert call.dialect.name == dialect
    assert (call.tool or "-", call.call_id or "-") == (name, call_id)
    assert read_arguments(call.arguments, rendered=call.arguments_rendered).state == state
    assert {True: "there", False: "missing", None: "-"}[call.ended] == end_mark
    assert (", ".join(dict.fromkeys(call.failure)) or "-") == failure
    assert call.view.value == view
    assert (call.not_started[0] if call.not_started else "-") == not_started
    assert call.paused is None


def test_every_dialect_has_a_recorded_span_or_a_reason_for_none() -> None:
    with_rows = {row[0] for row in ROWS}
    assert len(with_rows) > 20
    assert {dialect.name for dialect in DIALECTS} == with_rows | NOT_RECORDED.keys()
    assert not with_rows & NOT_RECORDED.keys()


GOOD = sorted(
    path
    for path in DATA.glob("*/*/s01_ok.jsonl")
    if "nocontent" not in path.parent.name and not path.parent.name.startswith(("crewai__traceloop", "smolagents__genai"))
)
NEVER_ARGUMENTS = ("mcp2__native", "fastmcp4__native", "autogen__native")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.parent.name)
def test_the_arguments_that_are_read_are_those_that_the_tool_got(path: Path) -> None:
    text = (path.parent / "truth.json").read_text(encoding="utf-8")
    (entry,) = [entry for entry in json.loads(text) if entry["file"] == path.name]
    wanted = entry["tool_calls"][0]["args"]
    calls = [call for one in read_spans(path, on_error=pytest.fail) if isinstance(call := read(one), ToolCall)]
    assert calls
    found = [read_arguments(call.arguments, rendered=call.arguments_rendered) for call in calls]
    whole = [arguments.value for arguments in found if arguments.state is ArgumentsState.COMPLETE]
    assert whole == [wanted] * len(whole)
    assert bool(whole) is not path.parent.name.startswith(NEVER_ARGUMENTS)


@pytest.mark.parametrize(
    "folder", ["crewai__traceloop", "smolagents__genai"], ids=["CrewAI (OpenLLMetry)", "smolagents (official)"]
)
def test_a_dialect_without_tool_spans_really_has_none(folder: str) -> None:
    paths = sorted((DATA / "corpus" / folder).glob("*.jsonl"))
    assert paths
    for path in paths:
        assert not [one for one in read_spans(path, on_error=pytest.fail) if isinstance(read(one), ToolCall)]


def test_every_recorded_span_of_ours_has_a_marker_key() -> None:
    """A span without one is passed over at the cost of a look-up."""
    for path in sorted(DATA.glob("*/*/*.jsonl")):
        for one in read_spans(path, on_error=pytest.fail):
            if operation_of(one)[0] in (Operation.TOOL, Operation.INFERENCE):
                assert not MARKER_KEYS.isdisjoint(one.attributes), (path, one.name)


# -- dialects that are not recorded here: spans built from what is known of them -------------------------------------


def logfire_agents(**attributes: Any) -> ToolCall:
    found = read(
        span(
            "Function: create_refund",
            scope="logfire.openai_agents",
            attributes={"logfire.msg_template": "Function: {name}", "name": "create_refund", **attributes},
        )
    )
    assert isinstance(found, ToolCall)
    return found


def test_logfires_openai_agents_spans() -> None:
    call = logfire_agents(input=ARGS, output="done")
    assert (call.dialect.name, call.tool, call.call_id) == ("openai-agents (logfire)", "create_refund", None)
    assert (call.arguments, call.failure) == (ARGS, ())
    assert logfire_agents(input=ARGS, error='{"message": "x"}').failure == ("error recorded",)
    assert logfire_agents(input=ARGS, error="null").failure == ()
    timed_out = logfire_agents(output="Tool 'create_refund' timed out after 0.2 seconds.")
    assert timed_out.failure == ("result is the SDK's time-out text",)


def smolagents(value: Any) -> ToolCall:
    found = read(
        span(
            "create_refund",
            scope="openinference.instrumentation.smolagents",
            attributes={
                "openinference.span.kind": "TOOL",
                "tool.name": "create_refund",
                "tool.parameters": '{"order_id": {"type": "string"}, "amount_cents": {"type": "integer"}}',
                "input.value": json.dumps(value),
                "input.mime_type": "application/json",
            },
        )
    )
    assert isinstance(found, ToolCall)
    return found


def test_smolagents_positional_arguments_follow_the_schema() -> None:
    wanted = {"order_id": "o1", "amount_cents": 500}
    flag = {"sanitize_inputs_outputs": True}
    assert smolagents({"args": [], "kwargs": {**wanted, **flag}}).arguments == wanted
    assert smolagents({"args": ["o1"], "kwargs": {"amount_cents": 500, **flag}}).arguments == wanted
    too_many = smolagents({"args": ["o1", 500, "?"], "kwargs": {}})
    assert read_arguments(too_many.arguments, rendered=too_many.arguments_rendered).state is ArgumentsState.WITHHELD


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ("opentelemetry.instrumentation.genai.somebody", "GenAI conventions (official instrumentation)"),
        ("openinference.instrumentation.somebody", "OpenInference"),
        ("opentelemetry.instrumentation.somebody", "OpenLLMetry"),
        ("my.own.tracer", "GenAI conventions"),
        ("", "GenAI conventions"),
        ("semantic_kernel.functions", "Semantic Kernel"),
        ("autogen-core", "AutoGen"),
        ("pydantic-ai", "pydantic-ai"),
    ],
)
def test_the_scope_tells_the_dialect(scope: str, name: str) -> None:
    assert dialect_of(scope, {}).name == name


@pytest.mark.parametrize(
    ("mark", "name"),
    [
        ("openinference.span.kind", "OpenInference"),
        ("traceloop.span.kind", "OpenLLMetry"),
        ("langsmith.span.kind", "LangSmith"),
        ("ai.operationId", "Vercel AI SDK 6"),
    ],
)
def test_an_attribute_tells_it_where_the_scope_does_not(mark: str, name: str) -> None:
    assert dialect_of("my.own.tracer", {mark: "x"}).name == name


def test_everybody_else_is_read_by_the_conventions() -> None:
    call = read(tool(id="call_7Gh2", args=ARGS, result="done"))
    assert isinstance(call, ToolCall)
    assert (call.tool, call.call_id, call.arguments) == ("create_refund", "call_7Gh2", ARGS)
    assert (call.failure, call.ended, call.view) == ((), None, View.FRAMEWORK)
    assert isinstance(read(chat()), Inference)
    assert read(span()) is Operation.OTHER


def test_the_conventions_name_a_tool_in_the_spans_name_too() -> None:
    call = read(tool("create_refund")._replace(attributes={"gen_ai.operation.name": "execute_tool"}))
    assert isinstance(call, ToolCall)
    assert call.tool == "create_refund"


@pytest.mark.parametrize(("kind", "view"), [(SpanKind.SERVER, View.MCP_SERVER), (SpanKind.CLIENT, View.MCP_CLIENT)])
def test_mcp_by_the_conventions(kind: SpanKind, view: View) -> None:
    one = span("tools/call create_refund", kind=kind, attributes={"mcp.method.name": "tools/call"})
    call = read(one)
    assert isinstance(call, ToolCall)
    assert (call.tool, call.view) == ("create_refund", view)
    assert read(one._replace(attributes={"mcp.method.name": "tools/list"})) is Operation.MCP


def test_odd_attribute_types_count_as_missing() -> None:
    odd: list[Any] = [7, True, None, [], {}, 1.5, b"x", ["a", 1]]
    for value in odd:
        for dialect in DIALECTS:
            keys = (*dialect.tool_names, *dialect.call_ids, *dialect.arguments, *dialect.results, "metadata", "error")
            one = span(
                "execute_tool t",
                scope=(dialect.scopes or ("",))[0].rstrip("*"),
                attributes={"gen_ai.operation.name": "execute_tool", **dict.fromkeys(keys, value)},
            )
            call = read(one)
            if isinstance(call, ToolCall):
                assert call.tool is None or isinstance(call.tool, str)
                assert call.call_id is None


def test_a_span_that_lost_attributes_is_still_a_tool_call_by_its_name() -> None:
    assert read(span("execute_tool refund")) is Operation.OTHER
    assert isinstance(read(span("execute_tool refund", dropped=1)), ToolCall)
    assert isinstance(read(span("refund.tool", dropped=1)), ToolCall)


def test_phantoms_are_no_calls() -> None:
    merged = tool("(merged tools)", scope="gcp.vertex.agent")._replace(name="execute_tool (merged)")
    assert read(merged) is Operation.OTHER
    pending = tool(attributes={"logfire.span_type": "pending_span"})
    assert read(pending) is Operation.OTHER


RESULTS: list[Any] = [
    *[{"isError": True}, [{"isError": True}], {"result": {"is_error": True}}, {"status": "error", "tool_call_id": "c"}],
    *[{}, [], None, 7, "", "error", {"isError": False}, {"error": "no flag"}],
]


@pytest.mark.parametrize(
    "result", [*RESULTS, *map(json.dumps, RESULTS), MappingProxyType({"isError": True}), '{"isError": true']
)
def test_a_call_fails_by_its_result_wherever_that_looks_failed(result: Any) -> None:
    failed = looks_failed(result)
    assert may_look_failed(result) or failed is None
    call = read(tool(result=result))
    assert isinstance(call, ToolCall)
    assert call.failure == ((failed,) if failed is not None else ())
