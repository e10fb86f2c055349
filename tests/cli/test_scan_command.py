# SPDX-License-Identifier: Apache-2.0
"""`genai-processor scan` as a program: formats, exit statuses, damaged and compressed input, pipes."""

from __future__ import annotations

import gzip
import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from cli_helpers import COMMAND, DATA, REFUND_TWICE, REJECTED, environment, run, span_in, spans_of, tool_span, written

CALL_FIELDS = [
    "file",
    "trace_id",
    "span_id",
    "span_ids",
    "start_unix_nano",
    "end_unix_nano",
    "tool",
    "call_id",
    "call_id_source",
    "arguments_state",
    "arguments_source",
    "execution",
    "effect",
    "ended",
    "failed",
    "verdict",
    "reason",
    "evidence",
    "duplicate_of",
    "dialect",
    "scope",
]


def test_json_is_one_object_with_every_section() -> None:
    done = run("scan", "--format", "json", REFUND_TWICE)
    report = done.json()
    assert done.code == 0
    assert list(report) == ["calls", "duplicates", "unobserved_calls", "rebilled_tokens", "usage", "errors", "replay"]
    first, second = report["calls"]
    assert list(first) == CALL_FIELDS
    assert first["verdict"] == "quarantined"
    assert second["duplicate_of"] == first["span_id"]
    (duplicate,) = report["duplicates"]
    assert duplicate == {
        "file": str(REFUND_TWICE),
        "span_ids": [first["span_id"], second["span_id"]],
        "key": "action",
        "value": "create_refund",
        "suspected": False,
    }


def test_json_lines_say_what_they_are_and_end_with_the_total() -> None:
    rows = run("scan", "--format", "jsonl", REFUND_TWICE, REJECTED).lines()
    assert {row["kind"] for row in rows} <= {
        "call",
        "duplicate",
        "unobserved_call",
        "rebilled",
        "usage",
        "error",
        "total",
    }
    assert list(rows[0]) == ["kind", *CALL_FIELDS]
    total = rows[-1]
    assert total["kind"] == "total"
    assert total["calls"] == 3
    assert total["duplicates"] == 1
    assert total["rebilled_tokens"] == sum(row["input_tokens"] for row in rows if row["kind"] == "rebilled")


def test_both_formats_have_the_same_rows() -> None:
    report = run("scan", "--format", "json", REFUND_TWICE, REJECTED).json()
    lines = run("scan", "--format", "jsonl", REFUND_TWICE, REJECTED).lines()
    for kind, section in (("call", "calls"), ("duplicate", "duplicates"), ("usage", "usage")):
        assert [{"kind": kind, **row} for row in report[section]] == [row for row in lines if row["kind"] == kind]


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_compressed_input(tmp_path: Path, compress) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "traces"
    path.write_bytes(compress(REFUND_TWICE.read_bytes()))
    done = run("scan", "--format", "json", path)
    assert done.code == 0
    assert [call["verdict"] for call in done.json()["calls"]] == ["quarantined", "no_retry_needed"]


def test_standard_input() -> None:
    done = run("scan", "--format", "json", "-", stdin=REFUND_TWICE.read_bytes())
    assert done.code == 0
    assert {call["file"] for call in done.json()["calls"]} == {"-"}


def test_damaged_lines_are_errors_with_their_place_and_the_rest_is_read(tmp_path: Path) -> None:
    good = REFUND_TWICE.read_text(encoding="utf-8").splitlines()
    path = tmp_path / "damaged.jsonl"
    path.write_text("\n".join([good[0], good[0][:50], *good[1:], '{"resourceSpans": 7}']) + "\n", encoding="utf-8")
    done = run("scan", "--format", "json", path)
    assert done.code == 1
    assert [(error["file"], error["line"]) for error in done.json()["errors"]] == [
        (str(path), 2),
        (str(path), len(good) + 2),
    ]
    assert len(done.json()["calls"]) == 2


def test_errors_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "noise.jsonl"
    path.write_text(REFUND_TWICE.read_text(encoding="utf-8").rstrip() + "\n" + "{broken\n" * 1000, encoding="utf-8")
    errors = run("scan", "--format", "json", path).json()["errors"]
    assert len(errors) == 101
    assert errors[-1] == {"file": str(path), "line": None, "error": "900 more errors in this file are not listed"}


def test_file_that_cannot_be_opened_is_an_error_and_the_others_are_read(tmp_path: Path) -> None:
    done = run("scan", "--format", "json", tmp_path / "none.jsonl", tmp_path, REFUND_TWICE)
    assert done.code == 1
    assert [(error["file"], error["line"]) for error in done.json()["errors"]] == [
        (str(tmp_path / "none.jsonl"), None),
        (str(tmp_path), None),
    ]
    assert len(done.json()["calls"]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan"],
        ["scan", "--nope", "x"],
        ["scan", "--format", "xml", "x"],
        ["nope"],
        ["scan", "--length-limit", "-1", "x"],
    ],
)
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.out == b""
    assert done.err


def test_long_lines_are_left_out(tmp_path: Path) -> None:
    done = run("scan", "--format", "json", "--max-line-bytes", "100", REFUND_TWICE)
    assert done.code == 1
    assert done.json()["calls"] == []
    assert "longer than 100 bytes" in done.json()["errors"][0]["error"]


def test_option_beats_variable(tmp_path: Path) -> None:
    by_variable = run("scan", "--format", "json", REFUND_TWICE, GENAI_PROCESSOR_READ_ONLY_TOOLS="create_*")
    assert by_variable.json()["calls"][0]["verdict"] == "retryable_read_only"
    by_option = run(
        "scan", "--format", "json", "--read-only", "get_*", REFUND_TWICE, GENAI_PROCESSOR_READ_ONLY_TOOLS="create_*"
    )
    assert by_option.json()["calls"][0]["verdict"] == "quarantined"
    idempotent = run("scan", "--format", "json", "--idempotent", "x, create_refund", REFUND_TWICE)
    assert idempotent.json()["calls"][0]["effect"] == "idempotent"
    path = written(tmp_path / "one.jsonl", [tool_span("a" * 32, "b" * 16, status=2)])
    known = run("scan", "--format", "json", "--known", "get_rate", path, GENAI_PROCESSOR_KNOWN_TOOLS="refund")
    assert known.json()["calls"][0]["reason"] == "unknown_tool"


def test_length_limit_comes_from_the_option_or_the_environment(tmp_path: Path) -> None:
    documents = [tool_span("ab" * 16, "cd" * 8, status=2)]
    for attribute in span_in(documents[0])["attributes"]:
        if attribute["key"] == "gen_ai.tool.call.arguments":
            attribute["value"]["stringValue"] = '{"order": "o1", "am'
    path = written(tmp_path / "cut.jsonl", documents)
    limit = str(len('{"order": "o1", "am'))
    for done in (
        run("scan", "--format", "json", "--length-limit", limit, path),
        run("scan", "--format", "json", path, OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT=limit),
        run("scan", "--format", "json", path, OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT=limit),
    ):
        assert done.json()["calls"][0]["arguments_state"] == "cut"
    unlimited = run("scan", "--format", "json", "--length-limit", "0", path, OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT=limit)
    assert unlimited.json()["calls"][0]["arguments_state"] == "malformed"


def test_bad_setting_is_a_warning() -> None:
    done = run("scan", "--format", "json", REFUND_TWICE, OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT="many")
    assert done.code == 0
    assert "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT" in done.err


def test_rows_come_out_before_the_input_ends() -> None:
    process = subprocess.Popen(
        [*COMMAND, "scan", "--format", "jsonl", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    documents = (tool_span(f"{number:032x}", f"{number:016x}", status=2) for number in range(1, 1_101))
    try:
        for document in documents:  # more traces than are held open, and less than a pipe full of answers
            process.stdin.write(json.dumps(document).encode() + b"\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 60)[0], "nothing was written while the input was open"
        rest, _ = process.communicate(timeout=60)
        assert json.loads(rest.splitlines()[0])["kind"] == "call"
        assert json.loads(rest.splitlines()[-1])["calls"] == 1_100
    finally:
        process.kill()


def test_several_files_are_one_run_unless_separate(tmp_path: Path) -> None:
    first = written(tmp_path / "first.jsonl", [tool_span("01" * 16, "0a" * 8, status=2)])
    second = written(tmp_path / "second.jsonl", [tool_span("01" * 16, "0b" * 8)])
    together = run("scan", "--format", "json", second, first).json()
    assert [(row["file"], row["key"], len(row["span_ids"])) for row in together["duplicates"]] == [
        (str(second), "call_id", 2)
    ]
    assert {(call["file"], call["span_id"]) for call in together["calls"]} == {
        (str(first), "0a" * 8),
        (str(second), "0b" * 8),
    }
    assert run("scan", "--format", "json", "--separate", first, second).json()["duplicates"] == []


def test_one_trace_over_several_files_is_joined(tmp_path: Path) -> None:
    """Each span in a file of its own gives the verdicts of the file as it was."""
    parts = [written(tmp_path / f"{at}.jsonl", [document]) for at, document in enumerate(spans_of(REFUND_TWICE))]
    whole = run("scan", "--format", "json", REFUND_TWICE).json()
    spread = run("scan", "--format", "json", *parts).json()
    by_span = {span_in(document)["spanId"]: str(part) for document, part in zip(spans_of(REFUND_TWICE), parts, strict=True)}
    assert [{**call, "file": by_span[call["span_id"]]} for call in whole["calls"]] == spread["calls"]
    assert [{**row, "file": by_span[row["span_ids"][0]]} for row in whole["duplicates"]] == spread["duplicates"]


def test_unobserved_call_has_the_file_of_its_trace(tmp_path: Path) -> None:
    traced = DATA / "corpus/pydantic-ai__native-v5/s02_commit_then_502.jsonl"
    proposals = [document for document in spans_of(traced) if span_in(document)["name"].startswith("chat ")]
    path = written(tmp_path / "proposals.jsonl", proposals)
    report = run("scan", "--format", "json", REJECTED, path).json()
    assert report["unobserved_calls"]
    assert {row["file"] for row in report["unobserved_calls"]} == {str(path)}


def test_same_file_twice_is_no_duplicate() -> None:
    assert run("scan", "--format", "json", REJECTED, REJECTED).json()["duplicates"] == []
    assert len(run("scan", "--format", "json", REFUND_TWICE, REFUND_TWICE).json()["calls"]) == 2


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['genai-processor', 'scan']\n"
        "from genai_processor.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 2
    assert "pip install 'otel-genai-processor[cli]'" in done.stderr
    assert "pip install '.[cli]'" in done.stderr


def test_settings_are_listed() -> None:
    assert b"GENAI_PROCESSOR_READ_ONLY_TOOLS" in run("settings").out
    assert run("settings", "--markdown").out.startswith(b"| Variable |")
