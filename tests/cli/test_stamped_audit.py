# SPDX-License-Identifier: Apache-2.0
"""What `replay audit` says of recordings that were stamped for replay, and of those that were not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli_helpers import run
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer
from support.stamps import as_json_line

from genai_processor import GenAISpanProcessor, Settings


def recorded(tmp_path: Path, collector: Callable[[dict[str, Any]], None], **settings: Any) -> Path:
    """A run recorded by the real SDK with the processor, written as OTLP/JSON, changed as a collector on the way would."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(GenAISpanProcessor(SimpleSpanProcessor(exporter), settings=Settings(**settings)))
    _run(provider.get_tracer("app"))
    data = json.loads(as_json_line(exporter.get_finished_spans()))
    for resource in data["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                collector(span)
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(data) + "\n")
    return path


def _run(tracer: Tracer) -> None:
    read: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": "pay it back"}]}]
    with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for turn in range(3):
            call = {"type": "tool_call", "id": f"call_Xk29LmQ8vT{turn}", "name": "look_up", "arguments": {"turn": turn}}
            said: list[Any] = [{"role": "assistant", "parts": [call]}]
            _chat(tracer, read, said)
            with tracer.start_as_current_span("execute_tool look_up") as span:
                span.set_attribute("gen_ai.operation.name", "execute_tool")
                span.set_attribute("gen_ai.tool.name", "look_up")
                span.set_attribute("gen_ai.tool.call.id", call["id"])
                span.set_attribute("gen_ai.tool.call.arguments", json.dumps(call["arguments"]))
                span.set_attribute("gen_ai.tool.call.result", f"found {turn}")
            answer = {"type": "tool_call_response", "id": call["id"], "response": f"found {turn}"}
            read = [*read, *said, {"role": "tool", "parts": [answer]}]
        _chat(tracer, read, [{"role": "assistant", "parts": [{"type": "text", "content": "done"}]}])


def _chat(tracer: Tracer, read: list[Any], said: list[Any]) -> None:
    with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}) as span:
        span.set_attribute("gen_ai.input.messages", json.dumps(read))
        span.set_attribute("gen_ai.output.messages", json.dumps(said))


def cut(span: dict[str, Any]) -> None:
    """As the Collector's `truncate_all` does, with room for a first question."""
    for attribute in span["attributes"]:
        value = attribute["value"]
        if len(value.get("stringValue", "")) > 120:
            value["stringValue"] = value["stringValue"][:120]


def replaced(span: dict[str, Any]) -> None:
    """As a redaction that leaves no marker does."""
    for attribute in span["attributes"]:
        value = attribute["value"]
        if attribute["key"] == "gen_ai.input.messages":
            value["stringValue"] = value["stringValue"].replace("pay it back", "x")


def row(path: Path, *options: str, **variables: str) -> tuple[dict[str, Any], dict[str, Any]]:
    audit = run("replay", "audit", "--format", "json", *options, path, **variables).json()
    (found,) = audit["instrumentations"]
    return audit, found


def test_a_recording_that_was_cut_on_its_way_is_refused_and_the_remedy_names_the_setting(tmp_path: Path) -> None:
    path = recorded(tmp_path, cut)
    audit, found = row(path)
    assert (audit["replayable"], found["refuse"], found["stamped"], found["models"]) == (0, 3, 0, 4)
    assert audit["remedies"]["input_cut"].endswith("or record with GENAI_PROCESSOR_RECORD_FOR_REPLAY=true")
    out = run("replay", "audit", path).out.decode()
    assert "GENAI_PROCESSOR_RECORD_FOR_REPLAY" in out
    assert "stamped" not in out


def test_the_same_recording_with_stamps_is_replayable_and_the_audit_says_what_they_change(tmp_path: Path) -> None:
    path = recorded(tmp_path, cut, record_for_replay=True)
    audit, found = row(path)
    assert (audit["replayable"], audit["replayable_without_stamps"]) == (1, 0)
    assert (found["refuse"], found["stamped"], found["models"]) == (0, 4, 4)
    assert found["without_stamps"] == {"recompute": 0, "inject": 4, "refuse": 3}
    out = run("replay", "audit", path).out.decode()
    assert "4 of 4 models are stamped for replay; 0 of 7 nodes are refused, without the stamps 3" in out
    assert "without the stamps 0 files could be replayed" in out
    plan = run("replay", "plan", "--format", "json", "--recompute", "chat", "--deterministic", "*", path).json()
    assert [node["decision"] for node in plan["nodes"]] == ["recompute"] * 7
    assert [node["order"] for node in plan["nodes"] if node["operation"] == "inference"][1:] == ["stamp"] * 3


def test_a_text_that_was_replaced_without_a_marker_is_found_out_only_by_the_stamps(tmp_path: Path) -> None:
    _, found = row(recorded(tmp_path, replaced), "--recompute", "chat")
    assert found["refuse"] == 0
    assert not any(reason["reason"] == "input_changed" for reason in found["reasons"])
    _, found = row(recorded(tmp_path, replaced, record_for_replay=True), "--recompute", "chat")
    assert {"decision": "inject", "reason": "input_changed", "nodes": 4} in found["reasons"]
    assert found["recompute"] == 0


def test_keyed_stamps_need_the_key(tmp_path: Path) -> None:
    path = recorded(tmp_path, cut, record_for_replay=True, digest_key="k3y")
    assert row(path)[0]["replayable"] == 0
    assert row(path, GENAI_PROCESSOR_DIGEST_KEY="k3y")[0]["replayable"] == 1
    for key, refused in (("other", 3), ("k3y", 0)):
        rows = run("scan", "--format", "json", path, GENAI_PROCESSOR_DIGEST_KEY=key).json()["replay"][str(path)].values()
        assert [row.get("decision") for row in rows].count("refuse") == refused
    plan = run("replay", "plan", "--format", "json", path, GENAI_PROCESSOR_DIGEST_KEY="other").json()
    assert {problem["problem"].partition(":")[0] for problem in plan["problems"]} == {"its stamp for replay is keyed"}
