# SPDX-License-Identifier: Apache-2.0
"""A scan of recorded spans sees more than the processor saw as they ended: it may be stricter, never laxer.

The one thing that makes it know better is a list of tools on a span that had not ended, or stood elsewhere, live: with it a
call can be proven never to have started. Without such lists there is no exception.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from support.agent_run import AgentRun
from support.spans import ARGS, LANGCHAIN, SCHEMA

from genai_processor import Policy
from genai_processor.retry.assessed import AssessedCall
from genai_processor.retry.policy import same_tool

POLICY = Policy(read_only=("look",), idempotent=("put",))
PYDANTIC = "pydantic_core._pydantic_core.ValidationError"
VALUE = json.loads(ARGS)
IDS = ["call_A7x9QqLm", "call_B7x9QqLm", "call_0", None]
ARGUMENTS = [ARGS, ARGS, '{"order_id": "o1"}', '{"order_id": "o1", "amo', "{}", "[REDACTED]", None]
SCOPES = [
    "app",
    LANGCHAIN,
    "opentelemetry.instrumentation.genai.openai_agents",
    "pydantic-ai",
    "strands.telemetry.tracer",
    "gcp.vertex.agent",
]
ERRORS = ["RuntimeError", PYDANTIC, "ValueError", "_OTHER", "json.decoder.JSONDecodeError", "TOOL_ERROR"]
MARKS: list[dict[str, Any]] = [
    {},
    {"gen_ai.tool.call.result": "done", "gen_ai.tool.status": "success"},
    {"gen_ai.tool.call.result": '{"isError": true}'},
    {"pydantic_ai.tool.failure_stage": "validation"},
    {"error.type": "langgraph.errors.GraphInterrupt"},
    {"mcp.method.name": "tools/call"},
    *({"error.type": name} for name in ERRORS),
]


class Step(NamedTuple):
    """One span of a program: what it is, and what happens while it is open."""

    kind: str
    options: dict[str, Any]
    below: tuple[Any, ...]


tools = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["pay", "pay", "look", "put", "shop-pay"]),
        "id": st.sampled_from(IDS),
        "args": st.sampled_from(ARGUMENTS),
        "scope": st.sampled_from(SCOPES),
        "marks": st.sampled_from(MARKS),
        "failed": st.booleans(),
    }
)
OFFERS = [None, {"pay": SCHEMA}, {"other": None}]


def chats(offers: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    calls = st.tuples(st.sampled_from(IDS), st.sampled_from(["pay", "put", "gone"]), st.sampled_from([VALUE, {}]))
    return st.fixed_dictionaries(
        {"calls": st.lists(calls, max_size=2), "offers": st.sampled_from(offers), "failed": st.just(False)}
    )


others = st.fixed_dictionaries({"failed": st.just(False)})


leaves = st.builds(Step, st.just("tool"), tools, st.just(()))


def programs(offers: list[Any]) -> st.SearchStrategy[list[Step]]:
    """Some runs, one after the other."""

    def steps(below: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
        inner = st.lists(below, max_size=3).map(tuple)
        return (
            st.builds(Step, st.just("tool"), tools, inner)
            | st.builds(Step, st.just("tool"), tools, inner)
            | st.builds(Step, st.just("chat"), chats(offers), st.just(()))
            | st.builds(Step, st.sampled_from(["agent", "span", "client"]), others, inner)
            | st.builds(Step, st.sampled_from(["late span", "late client"]), others, st.just(()))
        )

    return st.lists(st.recursive(leaves, steps, max_leaves=6), min_size=1, max_size=4)


def own(tool: str) -> str:
    """What makes an id one of this tool's: whose else it is depends on views, which only a scan sees whole."""
    return "_" + tool.removeprefix("shop-")


def play(run: AgentRun, step: Step, outer: dict[str, Any] | None = None) -> Span | None:
    """Run one step; a span that is to end after the one that it stands in is handed up.

    A tool span in one of the same tool shows the same call, so it has the same id and arguments.
    """
    options = dict(step.options)
    if options.get("id") is not None:
        options["id"] += own(options["name"])
    if outer is not None and same_tool(options.get("name"), outer["name"]):
        options |= {"id": outer["id"], "args": outer["args"]}
    failed = options.pop("failed")
    kind = SpanKind.CLIENT if "client" in step.kind else SpanKind.INTERNAL
    if step.kind == "chat":
        calls = [(call_id and call_id + own(name), name, args) for call_id, name, args in options["calls"]]
        run.chat(*calls, offers=options["offers"])
        return None
    if step.kind.startswith("late"):
        return run.begin(kind=kind)
    if step.kind == "tool":
        marks = options.pop("marks")
        kind = SpanKind.CLIENT if "mcp.method.name" in marks else SpanKind.INTERNAL
        opened = run.tool(attributes=marks, kind=kind, **options)
    else:
        opened = run.agent() if step.kind == "agent" else run.span(kind=kind)
    with opened as span:
        late = [play(run, inner, options if step.kind == "tool" else outer) for inner in step.below]
        if failed:
            span.set_status(Status(StatusCode.ERROR))
    for one in late:
        if one is not None:
            one.end()
    return None


def played(program: list[Step]) -> Iterator[tuple[dict[str, Any], AssessedCall, list[AssessedCall]]]:
    """Each call of a program: what was stamped on its outermost span, what a scan says, and of its whole trace."""
    run = AgentRun(POLICY)
    for step in program:
        late = play(run, step)
        if late is not None:
            late.end()
    stamped = {f"{s.context.span_id:016x}": dict(s.attributes or {}) for s in run.exported if s.context is not None}
    rows = [row.call for row in run.scanned().rows]
    for call in rows:
        same_trace = [other for other in rows if other.node.span.trace_id == call.node.span.trace_id]
        event(f"{stamped[call.node.span.span_id]['genai.retry.verdict']} -> {call.verdict.verdict}")
        yield stamped[call.node.span.span_id], call, same_trace


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs([None]))
def test_what_was_quarantined_live_is_never_let_go_by_a_scan(program: list[Step]) -> None:
    for stamp, call, _ in played(program):
        live, scanned = stamp["genai.retry.verdict"], call.verdict
        if live.startswith("quarantined"):
            assert scanned.quarantined, (stamp, scanned)
        elif live == "retryable_same_call_id":
            assert scanned.quarantined or scanned.verdict == live, (stamp, scanned)
        if stamp.get("genai.retry.execution") == "started":
            assert scanned.execution == "started", (stamp, scanned)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(OFFERS))
def test_unless_a_list_of_tools_proves_that_a_call_never_started(program: list[Step]) -> None:
    for stamp, call, trace in played(program):
        if stamp["genai.retry.verdict"].startswith("quarantined") and not call.verdict.quarantined:
            assert any(other.facts.rejection in ("unknown_tool", "malformed_arguments") for other in trace), stamp
            assert call.facts.execution == "not_started" or call.facts.ended == "paused", (stamp, call.verdict)
