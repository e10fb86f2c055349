# SPDX-License-Identifier: Apache-2.0
"""Whatever the spans say: a scan never raises, loses no call, and allows no retry without a proof that it names."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import REFUND_TWICE, REJECTED, spans_of, written
from hypothesis import event, given, settings
from hypothesis import strategies as st

from genai_processor.cli.output import write_json_lines
from genai_processor.cli.scan import scan_rows
from genai_processor.cli.traces import BOUNDS, Bounds, whole_traces
from genai_processor.retry.policy import Policy
from genai_processor.retry.trace import Trace
from genai_processor.spans.read import MARKER_KEYS
from genai_processor.spans.records import Event, Link, Span

PROOFS = (  # docs/verdict.md, as evidence
    "rejects arguments with a",
    "not among the ",
    "pydantic_ai.tool.failure_stage=validation",
    "unknown tool",
    "NotFoundError",
    "ValidationError",
    "ModelBehaviorError",
    "approval",
    "deferral",
)
TEXTS = st.sampled_from(
    [
        "execute_tool",
        "chat",
        "invoke_agent",
        "TOOL",
        "LLM",
        "tools/call",
        "tools/list",
        "refund",
        "{}",
        '{"a": NaN}',
        '{"a": 1' + "0" * 400 + "}",
        "[" * 2_000,
        '[{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "refund", "arguments": {}}]}]',
        '[{"type": "tool_call_response", "id": "c1", "result": {"isError": true}}]',
        '[{"type": "function", "name": "pay", "parameters": {"required": ["x"], "properties": {"x": {"type": "integer"}}}}]',
        "c1",
        "\ud800",
        "",
        "__REDACTED__",
        "ValueError",
        "validation",
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        TEXTS,
        st.none(),
        st.booleans(),
        st.integers(),
        st.just(2**70),
        st.floats(),
        st.binary(max_size=4),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        *sorted(MARKER_KEYS),
        "gen_ai.tool.call.id",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
        "gen_ai.output.messages",
        "gen_ai.input.messages",
        "gen_ai.conversation.id",
        "gen_ai.usage.input_tokens",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name",
        "llm.tools.0.tool.name",
        "input.value",
        "output.value",
        "input.mime_type",
        "error.type",
        "exception.type",
        "metadata",
        "events",
        "pydantic_ai.tool.failure_stage",
        "mcp.session.id",
        "session.id",
    ]
)
ATTRIBUTES = st.dictionaries(KEYS, st.one_of(TEXTS, VALUES), max_size=7)
IDS = st.sampled_from([f"{number:016x}" for number in range(1, 7)])
TRACE_IDS = st.sampled_from(["ab" * 16, "cd" * 16])
SCOPES = st.sampled_from(
    [
        "",
        "pydantic-ai",
        "strands.telemetry.tracer",
        "openinference.instrumentation.langchain",
        "mcp-python-sdk",
        "logfire.mcp",
    ]
)
TIMES = st.one_of(st.none(), st.integers(0, 20), st.just(2**64 - 1))
SPANS = st.builds(
    Span,
    trace_id=TRACE_IDS,
    span_id=IDS,
    parent_span_id=st.one_of(st.none(), IDS, st.just("f" * 16)),
    name=st.one_of(TEXTS, st.just("execute_tool refund")),
    kind=st.integers(0, 5),
    scope=SCOPES,
    start_ns=TIMES,
    end_ns=TIMES,
    status=st.integers(0, 2),
    attributes=ATTRIBUTES,
    events=st.lists(
        st.builds(Event, st.sampled_from(["exception", "gen_ai.choice", "gen_ai.tool.message"]), ATTRIBUTES), max_size=2
    ).map(tuple),
    links=st.lists(st.builds(Link, TRACE_IDS, IDS, ATTRIBUTES), max_size=1).map(tuple),
    dropped_attributes=st.integers(0, 2),
)


REFUSED = Span(
    trace_id="ef" * 16,
    span_id="a" * 16,
    parent_span_id=None,
    name="running tool",
    kind=0,
    scope="pydantic-ai",
    start_ns=1,
    end_ns=2,
    status=2,
    attributes={"gen_ai.operation.name": "execute_tool", "pydantic_ai.tool.failure_stage": "validation"},
    events=(),
    links=(),
    dropped_attributes=0,
)
"""A call that its framework says it refused, so that each example reaches the proof."""


def scanned(spans: list[Span], bounds: Bounds = BOUNDS) -> list[tuple[str, dict[str, Any]]]:
    def read(file: str, **options: Any) -> Iterator[list[Span]]:
        yield from ([span] for span in spans)

    policy = Policy(idempotent=("p*",), known=())
    return list(scan_rows(["one", "two"][:1], policy, bounds=bounds, read=read))


@settings(max_examples=300, deadline=None)
@given(st.lists(SPANS, max_size=9))
def test_every_tool_span_is_in_exactly_one_row(spans: list[Span]) -> None:
    rows = scanned(spans)
    shown = Counter((row["trace_id"], span_id) for kind, row in rows if kind == "call" for span_id in row["span_ids"])
    expected: set[tuple[str, str]] = set()
    for held in whole_traces([("one", spans)]):
        trace = Trace(held.spans)
        expected |= {(node.span.trace_id, node.span.span_id) for node in trace.nodes if node.call is not None}
    assert shown == Counter(expected)


@settings(max_examples=300, deadline=None)
@given(st.lists(SPANS, max_size=9))
def test_pre_execution_needs_a_proof_and_no_trace_of_the_body(spans: list[Span]) -> None:
    proven: set[tuple[str, str]] = set()
    for kind, row in scanned([*spans, REFUSED]):
        if kind == "call" and row["verdict"] == "retryable_pre_execution":
            event("retryable_pre_execution")
            assert row["execution"] == "not_started"
            assert any(proof in evidence for evidence in row["evidence"] for proof in PROOFS), row
            proven.add((row["trace_id"], row["span_id"]))
    assert (REFUSED.trace_id, REFUSED.span_id) in proven


@settings(max_examples=200, deadline=None)
@given(st.lists(SPANS, max_size=9), st.integers(1, 3), st.integers(1, 3))
def test_parts_of_traces_lose_no_call(spans: list[Span], traces: int, trace_spans: int) -> None:
    """However little is held at once, each tool span has a row."""
    rows = scanned(spans, Bounds(traces=traces, spans=2, trace_spans=trace_spans))
    shown = {(row["trace_id"], span_id) for kind, row in rows if kind == "call" for span_id in row["span_ids"]}
    whole = {(row["trace_id"], span_id) for kind, row in scanned(spans) if kind == "call" for span_id in row["span_ids"]}
    assert shown >= whole


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where a parsed document has a text: the container and the key or index."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, str):
                yield value, key
            yield from places(item)


@pytest.mark.parametrize("path", [REFUND_TWICE, REJECTED], ids=lambda path: path.stem)
def test_half_a_surrogate_pair_anywhere_loses_no_other_span(tmp_path: Path, path: Path) -> None:
    documents = spans_of(path)
    for spans in documents:  # all in one line
        if spans is not documents[0]:
            documents[0]["resourceSpans"].extend(spans["resourceSpans"])
    whole = Counter(kind for kind, _ in scan_rows([str(path)], Policy()))
    for holder, key in places(documents[0]):
        text, holder[key] = holder[key], f"{holder[key]}\ud83d"
        changed = written(tmp_path / "changed.jsonl", documents[:1])
        holder[key] = text
        out = io.BytesIO()
        count = write_json_lines(scan_rows([str(changed)], Policy()), out)
        assert count["call"] >= whole["call"] - 1
        assert b"not JSON" not in out.getvalue()
