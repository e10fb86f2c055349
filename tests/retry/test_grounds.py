# SPDX-License-Identifier: Apache-2.0
"""The cheap test of whether a proof can apply spares work, and never an answer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.spans import ARGS, ID, chat, failed_tool

from genai_processor.retry.assess import Assessor
from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import Policy
from genai_processor.retry.proof_of_start import Proof
from genai_processor.retry.proofs import GROUNDS, Context, grounds_of, never_started
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import Ended
from genai_processor.spans.dialects import DIALECTS
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.records import Span

DATA = Path(__file__).parents[1] / "data"
POLICIES = (Policy(), Policy(known=("create_refund", "search_*")))


def calls_of(spans: Iterable[Span], policy: Policy) -> Iterator[tuple[Node, Context]]:
    """Every call of one trace, with what a proof may look at."""
    assessor = Assessor(Trace(spans), policy)
    for call in assessor.trace.calls():
        yield call, assessor._context(call, assessor.arguments_of(call)[0])


def proven(call: Node, context: Context) -> Proof | None:
    """What is proven of a call; that no gate stands before a proof is asserted on the way."""
    found = None
    for ended in Ended:
        proof = never_started(call, ended, context, grounds_of(call, context.policy))
        assert never_started(call, ended, context, GROUNDS) == proof
        found = proof or found
    return found


@pytest.mark.parametrize("policy", POLICIES, ids=["nothing declared", "tools declared"])
def test_no_gate_hides_a_proof_on_any_recording(policy: Policy) -> None:
    evidence = set()
    for path in sorted(DATA.glob("*/*/*.jsonl")):
        traces = defaultdict(list)
        for one in read_spans(path, on_error=pytest.fail):
            traces[one.trace_id].append(one)
        for spans in traces.values():
            for call, context in calls_of(spans, policy):
                proof = proven(call, context)
                if proof is not None:
                    evidence.add(proof.evidence)
    assert len(evidence) > 5


SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]}
SCOPES = sorted({scope.rstrip("*") for dialect in DIALECTS for scope in dialect.scopes})
TYPES = sorted({kind for row in DIALECTS for shows in row.runtime.rejects.values() for kind in shows} | {"RuntimeError"})
UNKNOWN = sorted({kind for row in DIALECTS for kind in row.runtime.unknown_tool})
MARKS: dict[str, Any] = {
    "pydantic_ai.tool.failure_stage": "validation",
    "traceloop.span.kind": "tool",
    "openinference.span.kind": "TOOL",
    "mcp.method.name": "tools/call",
}


@settings(max_examples=300, deadline=None)
@given(
    scope=st.sampled_from(SCOPES),
    error=st.sampled_from([*TYPES, *UNKNOWN]),
    raised=st.none() | st.sampled_from([*TYPES, *UNKNOWN, "agents.exceptions.ModelBehaviorError"]),
    args=st.sampled_from([ARGS, "{", "{}", json.dumps({"n": None}), json.dumps({"n": "lots"}), None]),
    attributes=st.lists(st.sampled_from(sorted(MARKS)), max_size=2, unique=True),
    offered=st.sampled_from(["create_refund", "another"]),
    policy=st.sampled_from([*POLICIES, Policy(known=("another",))]),
    inner=st.none() | st.sampled_from(SCOPES),
)
def test_nor_on_any_call(
    scope: str,
    error: str,
    raised: str | None,
    args: Any,
    attributes: list[str],
    offered: str,
    policy: Policy,
    inner: str | None,
) -> None:
    marks = {key: MARKS[key] for key in attributes}
    turn = chat((ID, "create_refund", args), offers={offered: SCHEMA}, scope=scope)
    call = failed_tool(id=ID, scope=scope, args=args, error=error, raised=raised, attributes=marks)
    below = [failed_tool(id=ID, scope=inner, args=args, error=error, parent=call)] if inner is not None else []
    for found, context in calls_of([turn, call, *below], policy):
        proof = proven(found, context)
        event(" ".join(proof.evidence) if proof is not None else "nothing proven")
