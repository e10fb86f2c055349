# SPDX-License-Identifier: Apache-2.0
"""Calls that came back are most calls: judged at a glance, and little is kept of them. No verdict may change by that."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags
from support.agent_run import AgentRun

from genai_processor import GenAISpanProcessor, MemoryLedger, Policy, Settings
from genai_processor.ledger import Bounds
from genai_processor.retry import glance as glances
from genai_processor.retry import witness as witnesses
from genai_processor.retry.open_traces import DEFAULT_LIMITS, OpenTraces

IDEMPOTENT = Policy(idempotent=("pay",))


def pay(run: AgentRun, amount: int, *, failed: bool = False, size: int = 0, **more: Any) -> Any:
    args = json.dumps({"amount": amount, "memo": "m" * size})
    tool = run.fail if failed else run.succeed
    return tool("pay", id="toolu_X1y2Z3a4", args=args, **more)


# -- at a glance -------------------------------------------------------------------------------------------------------

names = st.sampled_from(
    [
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.conversation.id",
        "gen_ai.tool.from_cache",
        "crewai.tool.from_cache",
        "session.id",
        "metadata",
        "error.type",
        "input.value",
        "output.value",
        "openinference.span.kind",
        "tool.parameters",
        "agent.cancellation.reason",
        "pydantic_ai.tool.failure_stage",
        "app.own",
    ]
)
values = st.sampled_from(
    [
        "refund",
        "",
        " ",
        "call_7",
        "toolu_1a2b3c",
        "null",
        '{"amount": 1}',
        '{"isError": true}',
        '[{"status": "error", "tool_call_id": "x1"}]',
        '{"thread_id": "t9"}',
        "Error: no",
        True,
        7,
        ("a", "b"),
    ]
)
calls = st.tuples(
    st.sampled_from(["app", "pydantic-ai", "opentelemetry.instrumentation.genai.openai_agents", "strands.telemetry.tracer"]),
    st.dictionaries(names, values, max_size=7),
    st.sampled_from([StatusCode.UNSET, StatusCode.UNSET, StatusCode.OK, StatusCode.ERROR]),
)


def shown(programme: list[Any], monkeypatch: pytest.MonkeyPatch, *, at_a_glance: bool) -> list[Any]:
    """The tags of each call, and what the ledger has, with glances and without."""
    with monkeypatch.context() as patch:
        patch.setattr(glances, "_MAX_LAYOUTS", 3)  # so that they are forgotten all the time
        if not at_a_glance:
            patch.setattr(witnesses, "glance", lambda *_: None)
        run = AgentRun(Policy(read_only=("get_*",), idempotent=("refund",)))
        spans = []
        root = run.begin("root", parent=NonRecordingSpan(SpanContext(7, 7, False, TraceFlags(1))))
        for scope, attributes, status in programme:
            attributes = {"gen_ai.operation.name": "execute_tool", **attributes}
            span = run.begin("execute_tool refund", scope=scope, parent=root, attributes=attributes)
            span.set_status(Status(status))
            span.end()
            spans.append(span)
        ids = {span.get_span_context().span_id: number for number, span in enumerate(spans)}
        found: list[Any] = []
        for span in spans:
            tags = run.tags(span)
            tags.pop("entry_id", None)
            if "duplicate_of" in tags:
                tags["duplicate_of"] = ids[int(tags["duplicate_of"], 16)]
            found.append(tags)
        entries = [run.ledger.get(entry_id) for entry_id in run.ledger._shelf._known] + [*run.ledger._shelf.open_entries()]
        found.append(
            sorted(
                (
                    entry.tool,
                    entry.state,
                    entry.call_id or "",
                    entry.digest or "",
                    entry.effect,
                    entry.reason,
                    entry.witnessed,
                )
                for entry in entries
            )
        )
        return found


@settings(max_examples=150, deadline=None)
@given(programme=st.lists(calls, min_size=1, max_size=5))
def test_a_glance_says_what_a_full_reading_says(programme: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert shown(programme, monkeypatch, at_a_glance=True) == shown(programme, monkeypatch, at_a_glance=False)


def test_one_set_of_names_may_carry_anything() -> None:
    run = AgentRun()
    before = run.succeed(id="call_a1b2", args="{}", result="done")
    assert run.tags(before)["verdict"] == "no_retry_needed"
    assert run.tags(run.succeed(id="call_c3d4", args="{}", result='{"isError": true}'))["verdict"] == "quarantined"


# -- what is kept of them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("conversation", [{}, {"gen_ai.conversation.id": "c1"}])
def test_a_call_that_was_forgotten_does_not_make_its_id_a_token(failed: bool, conversation: dict[str, str]) -> None:
    run = AgentRun(IDEMPOTENT)
    witness: Any = run.processor._stamper.judge
    witness._calls._history._max_scopes = 5
    with run.agent(attributes=conversation) as agent:
        pay(run, 1, failed=failed)
        for n in range(1, 11):
            run.succeed("note", parent=NonRecordingSpan(SpanContext(n, n, False, TraceFlags(1))))
        again = pay(run, 999, failed=True, parent=agent)
    assert run.verdict(again) == ("quarantined_unknown", "call_id_unstable")


def test_arguments_that_were_compared_push_no_others_out() -> None:
    run = AgentRun(IDEMPOTENT)
    witness: Any = run.processor._stamper.judge
    witness._calls._held._limit = 50_000
    with run.agent(attributes={"gen_ai.conversation.id": "c1"}):
        run.succeed("note", id="toolu_n", args='{"n": 0}')
        pay(run, 1, size=2_000)
        for n in range(20):
            run.succeed("note", id=f"toolu_n{n}a", args=json.dumps({"n": n, "text": "x" * 10_000}))
        again = pay(run, 999, size=2_000, failed=True)
    assert run.verdict(again) == ("quarantined_unknown", "call_id_unstable")


@pytest.mark.parametrize("arguments", [("x" * 5_000,) * 20, "y" * 1_000])
def test_a_ledger_keeps_no_arguments(arguments: Any) -> None:
    """Sequences are counted by no bound of the witness, nor are short texts."""
    ledger = MemoryLedger(Bounds(max_entries=2_000))
    provider = TracerProvider(shutdown_on_exit=False)
    options = Settings(max_calls=10, metrics=False, events=False)
    provider.add_span_processor(GenAISpanProcessor(SpanProcessor(), ledger=ledger, settings=options))
    tracer = provider.get_tracer("app")

    def call(n: int) -> None:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": f"id{n}x"}
        own = f"{n}{arguments}" if isinstance(arguments, str) else (str(n), *(f"{n}{part}" for part in arguments))
        tracer.start_span("execute_tool pay", attributes={**attributes, "gen_ai.tool.call.arguments": own}).end()

    for n in range(50):
        call(n)
    tracemalloc.start()
    for n in range(50, 1_050):
        call(n)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ledger.stats().entries == 1_050
    assert held < 1_000 * 1_000 + 10 * 110_000, held  # what a thousand entries take, and ten calls


# -- calls in calls ----------------------------------------------------------------------------------------------------


def test_a_failed_call_is_not_its_own_repetition_when_an_outer_span_shows_it() -> None:
    run = AgentRun()
    with run.agent(), run.tool("pay", id="toolu_1a2b", args="{}") as outer:
        with run.span(
            "tools/call pay", attributes={"mcp.method.name": "tools/call", "gen_ai.tool.name": "pay"}, scope="mcp-client"
        ) as inner:
            inner.set_status(Status(StatusCode.ERROR))
        outer.set_status(Status(StatusCode.ERROR))
    assert "duplicate_of" not in run.tags(outer)
    assert "attempt" not in run.tags(outer)


def test_what_nested_calls_hold_is_counted_out_again() -> None:
    run = AgentRun()
    evidence: Any = run.processor._stamper.judge._evidence  # type: ignore[attr-defined]
    with run.agent() as agent:
        for n in range(200):
            run.fail(id=f"toolu_{n}a", args="{}")
        own = agent.get_span_context().span_id
        assert 0 < evidence._sizes[own] == sum(nested.node.size for nested in evidence._tools[own])
        with run.span("step") as step:
            for n in range(100):
                run.fail(id=f"toolu_s{n}a", args="{}")
            del step
        assert evidence._sizes[own] == sum(nested.node.size for nested in evidence._tools[own])
    assert evidence._size == 0
    assert not evidence._sizes


def test_a_root_that_ends_while_a_part_that_came_in_is_running_closes_nothing() -> None:
    run = AgentRun()
    traces = OpenTraces(DEFAULT_LIMITS)
    traces.begin(1)
    traces.enter(1)
    traces.keep(run.begin("chat", parent=NonRecordingSpan(SpanContext(1, 1, True, TraceFlags(1)))), {})
    traces.end(1)
    assert traces.get(1) is not None
    traces.leave(1)
    assert traces.get(1) is None
