# SPDX-License-Identifier: Apache-2.0
"""Scans as a user makes them, and recorded traces with what really happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent.parent / "data"
READ_ONLY = ("search_docs", "get_rate")  # what the recorded tools of these names are
REFUND_TWICE = DATA / "recorded/agno__genai/s06_retry_new_id.jsonl"
REJECTED = DATA / "recorded/agno__genai/s04b_wrong_type.jsonl"


class Done(NamedTuple):
    """How a run ended."""

    code: int
    out: bytes
    err: str

    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def kind(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.lines() if row["kind"] == kind]


def environment(**variables: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "GENAI_"))}
    return clean | {"PYTHONDONTWRITEBYTECODE": "1"} | variables


COMMAND = (sys.executable, "-m", "genai_processor")


def run(*arguments: str | Path, stdin: bytes = b"", **variables: str) -> Done:
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        env=environment(**variables),
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


class Recorded(NamedTuple):
    """One recorded trace file with what its tools did."""

    path: Path
    calls: list[dict[str, Any]]


def recorded() -> Iterator[Recorded]:
    for truth in sorted(DATA.glob("*/*/truth.json")):
        for entry in json.loads(truth.read_text(encoding="utf-8")):
            yield Recorded(truth.parent / entry["file"], entry["tool_calls"])


def spans_of(path: Path) -> list[dict[str, Any]]:
    """The spans of a recorded file, each as its own OTLP document."""
    documents = []
    for line in path.read_text(encoding="utf-8").splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    alone = {**scope, "spans": [span]}
                    documents.append({"resourceSpans": [{**resource, "scopeSpans": [alone]}]})
    return documents


def span_in(document: dict[str, Any]) -> dict[str, Any]:
    span: dict[str, Any] = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    return span


def written(path: Path, documents: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def tool_span(
    trace: str, span: str, *, parent: str = "", status: int = 0, name: str = "refund", call_id: str = "call_q7Xk2m"
) -> dict[str, Any]:
    """A tool span as the conventions have it, as an OTLP document."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": '{"order": "o1"}',
    }
    row = {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "name": f"execute_tool {name}",
        "kind": 1,
        "startTimeUnixNano": "1796037274360357605",
        "endTimeUnixNano": "1796037274360367600",
        "status": {"code": status},
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
    }
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "test"}, "spans": [row]}]}]}
