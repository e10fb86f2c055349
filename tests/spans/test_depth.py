# SPDX-License-Identifier: Apache-2.0
"""What is nested too deep to be compared costs no verdict: neither live, nor in a scan, nor of any other call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.agent_run import AgentRun
from support.spans import ARGS, ID, SCHEMA, Read, chat, definitions, failed_tool, span, tool

from genai_processor.retry.history import History
from genai_processor.spans.arguments import Arguments, ArgumentsState, fingerprint, read_arguments, violations
from genai_processor.spans.canonical import canonical, canonical_text
from genai_processor.spans.definitions import tool_list
from genai_processor.spans.dialects.base import looks_failed
from genai_processor.spans.messages import walk
from genai_processor.spans.values import literal, nested_beyond, quick_loads, same

DEPTHS = (300, 600, 1_000, 1_500, 3_000)
SHAPES = {"arrays": ("[", "]"), "objects": ('{"a":', "}"), "beyond ASCII": ('{"é":', "}"), "mixed": ('{"a":[', "]}")}


def text(depth: int, shape: str = "arrays") -> str:
    """Arguments nested so deep: a mapping around it."""
    begin, end = SHAPES[shape]
    return '{"x":' + begin * depth + "1.0" + end * depth + "}"


def value(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index in range(depth):
        found = {"x": [found]} if index % 2 else {"x": found}
    return found


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_has_no_fingerprint(depth: int, shape: str) -> None:
    read = read_arguments(text(depth, shape))
    assert read.state in (ArgumentsState.COMPLETE, ArgumentsState.CUT)
    assert fingerprint(read) is None


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_structure_has_none_either(depth: int) -> None:
    read = read_arguments(value(depth))
    assert fingerprint(read) is None
    assert fingerprint(Arguments(ArgumentsState.COMPLETE, value(depth))) is None
    assert not violations(value(depth), SCHEMA) - {"required"}
    assert same(value(depth), value(depth)) in (True, False)
    assert nested_beyond(value(depth), 100)


def test_what_is_nested_as_deep_as_people_do_has_one() -> None:
    assert fingerprint(read_arguments(value(50))) == fingerprint(read_arguments(json.dumps(value(50)))) is not None
    assert not nested_beyond(value(50), 100)
    with pytest.raises(ValueError, match="deep"):
        canonical(value(500))
    with pytest.raises((ValueError, RecursionError)):
        canonical_text(text(5_000))


@pytest.mark.parametrize("number", ["1" * 5_000, "-" + "9" * 5_000])
def test_a_number_that_the_parser_refuses_is_no_fault_of_the_model(number: str) -> None:
    read = read_arguments('{"x":' + number + "}")
    assert read.state is not ArgumentsState.MALFORMED
    fingerprint(read)


@pytest.mark.parametrize("depth", DEPTHS)
def test_schemas_and_tool_lists_nested_deep_are_not_used(depth: int) -> None:
    any_of: Any = {"type": "integer"}
    for _ in range(depth):
        any_of = {"anyOf": [any_of]}
    schema = {"properties": {"x": any_of, "y": {"type": [value(depth)]}}, "required": ["x"]}
    assert not violations({"x": "lots", "y": "z"}, schema)
    lists: Any = {"name": "refund"}
    for _ in range(depth):
        lists = [lists]
    found = tool_list({"t": lists}, ("t",), dropped=False, is_cut=lambda text: False)
    assert found is not None
    assert not found.whole
    declared = {"name": "refund", "parameters": value(depth)}
    offered = tool_list({"t": [declared]}, ("t",), dropped=False, is_cut=lambda text: False)
    assert offered is not None
    history = History()
    for _ in range(3):
        history.offer(offered.schemas)
    assert history.schemas("refund") == []


@pytest.mark.parametrize("depth", DEPTHS)
def test_messages_and_results_nested_deep_are_read_as_far_as_they_parse(depth: int) -> None:
    list(walk(quick_loads(text(depth))))
    list(walk(value(depth)))
    assert literal(text(depth)) is None or depth < 1_000
    failed = '{"isError": true, "content": ' + text(depth) + "}"
    assert looks_failed(failed) == "result says is_error", "what does not parse is no success"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_live_its_call_is_quarantined_and_others_are_judged(depth: int, shape: str) -> None:
    run = AgentRun()
    for _ in range(2):
        assert run.verdict(run.fail(args=text(depth, shape)))[0].startswith("quarantined")
        assert run.verdict(run.succeed(args=text(depth, shape)))[0] == "no_retry_needed"
    assert run.verdict(run.succeed(id=ID, args=ARGS)) == ("no_retry_needed", "succeeded")


@pytest.mark.parametrize("depth", DEPTHS)
def test_read_together_with_its_proposal_its_call_is_quarantined(depth: int) -> None:
    schema = {"properties": {"x": value(min(depth, 400))}}
    turn = chat((ID, "create_refund", value(min(depth, 400))), (None, "create_refund", text(depth)))
    agent = span(
        attributes={
            "gen_ai.operation.name": "create_agent",
            "gen_ai.tool.definitions": definitions({"create_refund": schema}) if depth < 400 else "[]",
        }
    )
    calls = [failed_tool(id=ID), failed_tool(args=text(depth)), failed_tool(args=value(depth)), tool(args=value(depth))]
    found = Read([turn, agent, *calls], [agent, turn, *calls])
    assert [row.call.verdict.quarantined for row in found.rows] == [True, True, True, False] * 2


@pytest.mark.parametrize("depth", [300, 1_000, 3_000])
def test_calls_nested_deep_are_judged(depth: int) -> None:
    spans = [failed_tool("t0", id=ID, args=ARGS, at=(0, 9_000))]
    for number in range(1, depth):
        spans.append(failed_tool(f"t{number}", parent=spans[-1], at=(number, 9_000 - number)))
    assert len(Read(spans).rows) == depth


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_command_scans_it(tmp_path: Path, depth: int) -> None:
    def one(number: int, arguments: Any) -> dict[str, Any]:
        pairs = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "create_refund", "error.type": "E"}
        attributes = [{"key": key, "value": {"stringValue": text}} for key, text in pairs.items()]
        return {
            "traceId": f"{1:032x}",
            "spanId": f"{number:016x}",
            "name": "execute_tool create_refund",
            "kind": 1,
            "startTimeUnixNano": str(number),
            "endTimeUnixNano": str(number + 1),
            "status": {"code": 2},
            "attributes": [*attributes, {"key": "gen_ai.tool.call.arguments", "value": arguments}],
        }

    array: dict[str, Any] = {"intValue": "1"}
    for _ in range(min(depth // 3, 300)):
        array = {"arrayValue": {"values": [array]}}
    spans = [one(number, {"stringValue": text(depth, shape)}) for number, shape in enumerate(SHAPES, 1)]
    spans += [one(8, array), one(9, array), one(10, {"stringValue": ARGS})]
    file = tmp_path / "deep.jsonl"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"scope": {"name": "app"}, "spans": spans}]}]}))
    command = [sys.executable, "-m", "genai_processor", "scan", "--format", "jsonl", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(row["kind"] == "call" and row["verdict"].startswith("quarantined") for row in rows) == len(spans)
