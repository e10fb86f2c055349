# SPDX-License-Identifier: Apache-2.0
"""`genai-processor replay diff A B`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from genai_processor.cli.app import app


def message(role: str, **part: Any) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def span(span_id: str, attributes: dict[str, str]) -> dict[str, Any]:
    values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    return {"traceId": "ab" * 16, "spanId": span_id * 8, "name": "chat m", "attributes": values, "startTimeUnixNano": "1"}


def write(path: Path, question: str, answer: str) -> str:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([message("user", type="text", content=question)]),
        "gen_ai.output.messages": json.dumps([message("assistant", type="text", content=answer)]),
    }
    content = span("01", attributes)
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [content]}]}]}), encoding="utf-8")
    return str(path)


def diff(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["replay", "diff", *arguments])


def test_the_same_run_twice_is_the_same(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.json", "u", "a"), write(tmp_path / "b.json", "u", "a")
    done = diff(one, two)
    assert (done.exit_code, done.output) == (0, "The runs are the same, node by node (1).\n")


def test_another_answer_to_the_same_is_said_at_its_node(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.json", "u", "a"), write(tmp_path / "b.json", "u", "b")
    done = diff(one, two)
    assert done.exit_code == 4
    assert "was given the same, and made something else" in done.output
    found = json.loads(diff(one, two, "--format", "json").output)["differences"]
    assert [one["parting"] for one in found] == ["output"]
    assert found[0]["first"]["node"] == f"{'ab' * 16}:{'01' * 8}"


def test_another_question_is_another_input(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.json", "u", "a"), write(tmp_path / "b.json", "v", "a")
    assert "was given something else" in diff(one, two).output


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = diff(write(tmp_path / "a.json", "u", "a"), str(tmp_path / "none.json"))
    assert done.exit_code == 1
    assert "none.json: cannot be opened" in done.stderr
    assert "is only in" not in done.output


def test_a_file_without_a_trace_is_compared_with_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\nnothing recorded\n", encoding="utf-8")
    done = diff(str(tmp_path / "notes.md"), write(tmp_path / "b.json", "u", "a"))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "there is nothing to compare" in done.stderr
