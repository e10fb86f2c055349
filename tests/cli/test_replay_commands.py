# SPDX-License-Identifier: Apache-2.0
"""`replay plan`, `replay audit`, and what a scan's JSON says of replay."""

from __future__ import annotations

import json
from pathlib import Path

from cli_helpers import run

CORPUS = Path(__file__).parent.parent / "data" / "corpus"
WITH = str(CORPUS / "langchain__genai" / "s01_ok.jsonl")
WITHOUT = str(sorted((CORPUS / "pydantic-ai__native-v5__nocontent").glob("*.jsonl"))[0])


def test_a_plan_is_a_tree_for_people() -> None:
    done = run("replay", "plan", WITH)
    assert done.code == 0
    lines = done.out.decode().splitlines()
    assert lines[0].startswith("invoke_agent")
    assert any("inject" in line and "effect_not_declared" in line for line in lines)
    assert lines[-1].strip() == "0 recompute  3 inject  0 refuse"


def test_what_is_declared_is_recomputed() -> None:
    done = run("replay", "plan", "--recompute", "chat", "--deterministic", "create_*", WITH)
    assert done.out.decode().splitlines()[-1].strip() == "3 recompute  0 inject  0 refuse"


def test_a_plan_as_json_has_nodes_in_order_with_edges_and_digests() -> None:
    done = run("replay", "plan", "--format", "json", WITH)
    plan = done.json()
    assert [node["operation"] for node in plan["nodes"]] == ["inference", "tool", "inference"]
    assert [edge["kind"] for edge in plan["nodes"][2]["edges"]] == ["echo", "result"]
    assert all(len(node["input_digest"]) == 32 for node in plan["nodes"])
    assert plan["problems"] == []


def test_a_plan_as_mermaid_draws_every_node_and_edge() -> None:
    lines = run("replay", "plan", "--format", "mermaid", WITH).out.decode().splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("]:::inject" in line for line in lines) == 3
    assert sum("-->" in line for line in lines) == 3


def test_an_audit_says_what_to_record() -> None:
    done = run("replay", "audit", WITH, WITHOUT)
    assert done.code == 0
    assert "1 of 2 files could be replayed" in done.out.decode()
    assert "input_withheld: switch content capture on" in done.out.decode()
    audit = run("replay", "audit", "--format", "json", WITH, WITHOUT).json()
    assert audit["files"] == 2
    (langchain,) = [row for row in audit["instrumentations"] if row["instrumentation"] == "LangChain (official)"]
    assert (langchain["nodes"], langchain["inject"], langchain["refuse"]) == (3, 3, 0)


def test_an_audit_has_a_row_for_each_instrumentation_with_content_and_one_without() -> None:
    folders = ("pydantic-ai__native-v5", "pydantic-ai__native-v5__nocontent", "crewai__openinference")
    files = [path for folder in folders for path in sorted((CORPUS / folder).glob("*.jsonl"))]
    rows = run("replay", "audit", "--format", "json", "--recompute", "chat", *files).json()["instrumentations"]
    told = [(row["instrumentation"], row["content"]) for row in rows]
    assert told == [("CrewAI (OpenInference)", True), ("pydantic-ai", True), ("pydantic-ai", False)]
    crew, whole, bare = rows
    assert crew["models"] == 0
    assert whole["recompute"] > 0
    assert whole["recompute"] + whole["inject"] == whole["nodes"]
    assert (whole["files"], whole["replayable"]) == (5, 5)
    assert bare["refuse"] == bare["nodes"] > 0
    assert (bare["files"], bare["replayable"]) == (3, 0)
    assert {reason["reason"] for reason in bare["reasons"]} == {"input_withheld", "arguments_withheld"}
    lines = run("replay", "audit", "--recompute", "chat", *files).out.decode().splitlines()
    assert [line.split()[1:3] for line in lines if line.startswith("pydantic-ai ")] == [["recorded", "5"], ["none", "3"]]


def test_a_file_that_is_not_there_is_said_and_the_rest_planned() -> None:
    done = run("replay", "plan", "--format", "json", "/nowhere.jsonl", WITH)
    assert done.code == 1
    assert len(done.json()["nodes"]) == 3
    assert done.json()["problems"][0]["place"] == "/nowhere.jsonl"


def test_a_scans_json_says_for_every_span_what_a_replay_would_do() -> None:
    report = run("scan", "--format", "json", WITH).json()
    rows = report["replay"][WITH]
    assert {row.get("decision", "container") for row in rows.values()} == {"inject", "container"}
    orders = [row["input_order"] for row in rows.values() if "input_order" in row]
    assert orders == [["call_lab_c1"]]


def test_a_scan_says_nothing_of_replay_where_nobody_asks() -> None:
    assert "replay" not in run("scan", "--format", "json", "--no-replay", WITH).json()
    kinds = [json.loads(line)["kind"] for line in run("scan", "--format", "jsonl", WITH).out.splitlines()]
    assert "replay" not in kinds
    asked = [json.loads(line)["kind"] for line in run("scan", "--format", "jsonl", "--replay", WITH).out.splitlines()]
    assert "replay" in asked


def test_a_plan_as_html_is_one_page(tmp_path: Path) -> None:
    done = run("replay", "plan", "--format", "html", WITH)
    assert done.code == 0
    assert done.out.startswith(b"<!doctype html>")
    assert b"<title>Replay plan: s01_ok.jsonl</title>" in done.out
    written = run("replay", "plan", "--format", "html", "-o", tmp_path / "plan.html", WITH)
    assert (written.code, written.out) == (0, b"")
    assert (tmp_path / "plan.html").read_bytes() == done.out
    several = run("replay", "plan", "--format", "html", WITH, WITHOUT).out
    assert b"<title>Replay plan: s01_ok.jsonl and 1 more</title>" in several


def test_every_format_can_go_to_a_file(tmp_path: Path) -> None:
    for format in ("tree", "json", "mermaid"):
        shown = run("replay", "plan", "--format", format, WITH)
        assert run("replay", "plan", "--format", format, "--output", tmp_path / format, WITH).code == 0
        assert (tmp_path / format).read_bytes() == shown.out


def test_an_answer_never_takes_the_place_of_what_is_read(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    traces.write_bytes(Path(WITH).read_bytes())
    (tmp_path / "other").symlink_to(traces)
    done = run("replay", "plan", "--format", "html", "-o", tmp_path / "other", traces)
    assert done.code == 2
    assert "is read, too; name another file" in done.err
    assert traces.read_bytes() == Path(WITH).read_bytes()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    done = run("replay", "plan", "--format", "html", "-o", tmp_path / "none" / "plan.html", WITH)
    assert done.code == 3
    assert "plan.html: cannot be written: No such file or directory" in done.err
    assert "Traceback" not in done.err


def test_values_are_for_the_page_only_and_only_if_they_are_asked_for() -> None:
    assert b"order_id" not in run("replay", "plan", "--format", "html", WITH).out
    assert b"order_id" in run("replay", "plan", "--format", "html", "--values", WITH).out
    done = run("replay", "plan", "--format", "json", "--values", WITH)
    assert done.code == 2
    assert "--values: only the html page can have values; add --format html" in done.err


def test_a_damaged_file_makes_a_page_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_bytes(Path(WITH).read_bytes() + b'{"resourceSpans": [')
    done = run("replay", "plan", "--format", "html", tmp_path / "cut.jsonl")
    assert done.code == 1
    assert b"Problems of the record" in done.out
    assert b"is the line cut short?" in done.out


def test_a_trace_with_nothing_to_replay_says_so(tmp_path: Path) -> None:
    document = {
        "resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": f"{1:032x}", "spanId": f"{1:016x}", "name": "GET"}]}]}]
    }
    path = tmp_path / "http.jsonl"
    path.write_text(json.dumps(document) + "\n", encoding="utf-8")
    done = run("replay", "plan", path)
    assert done.code == 0
    assert done.out.decode().splitlines()[-1].startswith("no span shows a model, a tool or a retrieval")
    audit = run("replay", "audit", path, WITH)
    assert "1 of 2 files could be replayed" in audit.out.decode()


def test_damaged_lines_are_said_and_the_rest_planned(tmp_path: Path) -> None:
    lines = Path(WITH).read_bytes().splitlines()
    deep = b'{"resourceSpans":' + b"[" * 100_000
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"\n".join([b"{no json", *lines, b"\xff\xfe\x00", deep, lines[0][:50]]))
    done = run("replay", "plan", "--format", "json", path)
    assert done.code == 1
    assert len(done.json()["nodes"]) == 3
    places = [problem["place"].rpartition(":")[2] for problem in done.json()["problems"]]
    assert places == ["1", *[str(len(lines) + at) for at in (2, 3, 4)]]


def test_a_line_that_is_too_long_is_said_and_read_if_one_asks_for_it(tmp_path: Path) -> None:
    longest = max(map(len, Path(WITH).read_bytes().splitlines()))
    short = run("replay", "plan", "--format", "json", "--max-line-bytes", str(longest - 1), WITH)
    assert short.code == 1
    assert len(short.json()["nodes"]) < 3
    assert "longer than" in short.json()["problems"][0]["problem"]
    assert run("replay", "audit", "--max-line-bytes", str(longest + 1), WITH).code == 0


def test_plans_nested_as_deep_as_one_likes_print(tmp_path: Path) -> None:
    spans = []
    for at in range(3_000):
        attributes = [{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}}]
        spans.append({"traceId": f"{1:032x}", "spanId": f"{at + 1:016x}", "name": f"a{at}", "attributes": attributes})
        if at:
            spans[-1]["parentSpanId"] = f"{at:016x}"
    path = tmp_path / "deep.jsonl"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}), encoding="utf-8")
    for arguments in (["plan"], ["plan", "--format", "json"], ["plan", "--format", "mermaid"], ["audit"], ["diff", path]):
        done = run("replay", *arguments, path)
        assert (done.code, done.err) == (0, "")
