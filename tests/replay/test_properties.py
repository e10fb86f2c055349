# SPDX-License-Identifier: Apache-2.0
"""What must hold of every plan: order, copies and clocks change nothing, and less recorded never allows more."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.files import otlp_line
from support.losses import lose, poorer
from support.random_runs import CONTRADICTIONS, SAYS_WHAT_IS_MISSING, runs
from support.runs import told
from support.spans import span, tool

from genai_processor.replay import Choice, Declared, NodeRun, Plan, Planner, areplay, plan, replay
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.records import Event, Span

RANK = {Choice.REFUSE: 0, Choice.INJECT: 1, Choice.RECOMPUTE: 2}
RUNS = runs() | runs(ids_again=True) | runs(without_ids=True)
ALL = Declared(deterministic=("*",), recompute=("*",))
TOOLS = Declared(deterministic=("*",))


def _planned(spans: list[Span]) -> dict[str, Any]:
    return told(plan(spans, declared=ALL))


@settings(max_examples=150, deadline=None)
@given(RUNS, st.randoms(use_true_random=False), st.integers(-(10**6), 10**6))
def test_order_copies_and_clocks_change_no_plan(spans: list[Span], random: Any, skew: int) -> None:
    first = _planned(spans)
    again = [*spans, *random.sample(spans, len(spans) // 2)]
    random.shuffle(again)
    again = [one._replace(start_ns=(one.start_ns or 0) + skew * at, end_ns=None) for at, one in enumerate(again)]
    assert _planned(again) == first


@settings(max_examples=60, deadline=None)
@given(RUNS, st.data())
def test_the_files_that_spans_are_in_change_no_plan(spans: list[Span], data: st.DataObject) -> None:
    """However they are spread over files, in whatever order these are read, and if one of them is read twice."""
    first = _planned(spans)
    lines: dict[int, list[bytes]] = {}
    for one in data.draw(st.permutations(spans)):
        for file in data.draw(st.sets(st.integers(0, 3), min_size=1, max_size=2)):
            lines.setdefault(file, []).append(otlp_line(one))
    order = data.draw(st.permutations(sorted(lines)))
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(ALL)
        for file in [*order, order[0]]:
            path = Path(folder) / f"{file}.jsonl"
            path.write_bytes(b"\n".join(lines[file]))
            planner.add_all(read_spans(path, on_error=lambda error: pytest.fail(str(error))))
        assert told(planner.plan()) == first


def _choices(found: Plan) -> dict[str, Choice]:
    return {key: decision.choice for key, decision in found.decisions.items()}


@settings(max_examples=150, deadline=None)
@given(RUNS, st.data())
def test_removing_a_value_never_raises_that_nodes_own_decision(spans: list[Span], data: st.DataObject) -> None:
    planned = plan(spans, declared=ALL)
    before = _choices(planned)
    lossy = [(at, sorted(set(one.attributes) - set(SAYS_WHAT_IS_MISSING))) for at, one in enumerate(spans)]
    at, keys = data.draw(st.sampled_from([(at, keys) for at, keys in lossy if keys]))
    one, key = spans[at], data.draw(st.sampled_from(keys))
    poorer = one._replace(attributes={name: value for name, value in one.attributes.items() if name != key})
    after = _choices(plan([*spans[:at], poorer, *spans[at + 1 :]], declared=ALL))
    own = f"{one.trace_id}:{one.span_id}"
    if own in before and own in after and CONTRADICTIONS.isdisjoint(planned.decisions[own].reasons):
        assert RANK[after[own]] <= RANK[before[own]]


@settings(max_examples=150, deadline=None)
@given(RUNS, st.sampled_from([ALL, Declared(), TOOLS]), st.randoms(use_true_random=False))
def test_nor_does_it_where_spans_and_other_values_are_lost_too(spans: list[Span], declared: Declared, random: Any) -> None:
    left = lose(spans, random)
    planned = plan(left, declared=declared)
    before = _choices(planned)
    for at, one in enumerate(left):
        own = f"{one.trace_id}:{one.span_id}"
        less = poorer(one, random) if own in before else None
        if less is not None and CONTRADICTIONS.isdisjoint(planned.decisions[own].reasons):
            after = _choices(plan([*left[:at], less, *left[at + 1 :]], declared=declared))
            assert RANK[after.get(own, Choice.REFUSE)] <= RANK[before[own]]


@settings(max_examples=100, deadline=None)
@given(RUNS)
def test_adding_a_recorded_order_never_lowers_a_decision(spans: list[Span]) -> None:
    for at, one in enumerate(spans):
        if "gen_ai.input.messages" in one.attributes:
            bare = {name: value for name, value in one.attributes.items() if name != "gen_ai.input.messages"}
            without = _choices(plan([*spans[:at], one._replace(attributes=bare), *spans[at + 1 :]], declared=ALL))
            having = _choices(plan(spans, declared=ALL))
            own = f"{one.trace_id}:{one.span_id}"
            if own in having:
                assert RANK[having[own]] >= RANK[without[own]]


def _as_recorded(run: NodeRun) -> Any:
    return run.node.outcome


async def _later_as_recorded(run: NodeRun) -> Any:
    await asyncio.sleep(0)
    return run.node.outcome


@settings(max_examples=100, deadline=None)
@given(RUNS, st.booleans(), st.booleans())
def test_a_recorded_run_against_itself_never_diverges(spans: list[Span], declared: bool, unverified: bool) -> None:
    found = plan(spans, declared=ALL if declared else Declared())
    results = [replay(found, function, allow_unverified=unverified) for function in (None, _as_recorded)]
    results.append(asyncio.run(areplay(found, _later_as_recorded, allow_unverified=unverified)))
    assert not any(result.diverged for result in results)
    assert results[2].nodes == results[1].nodes
    for result in results:
        for key, outcome in result.outcomes.items():
            assert outcome.digest == found.node(key).outcome.digest


@settings(max_examples=100, deadline=None)
@given(RUNS)
def test_digests_alone_make_the_same_plan(spans: list[Span]) -> None:
    kept, bare = plan(spans, declared=ALL), plan(spans, declared=ALL, keep_values=False)
    assert bare.decisions == kept.decisions
    assert [node.inputs.digest for node in bare.nodes] == [node.inputs.digest for node in kept.nodes]
    assert all(part.value is None for node in bare.nodes for part in (*node.inputs.parts, *node.outcome.parts))


@settings(max_examples=100, deadline=None)
@given(RUNS)
def test_producers_come_before_consumers(spans: list[Span]) -> None:
    found = plan(spans)
    place = {node.key: at for at, node in enumerate(found.nodes)}
    for node in found.nodes:
        if not node.structure.cycle:
            assert all(
                place[edge.producer] < place[node.key] for edge in found.edges_into(node.key) if edge.kind != "return"
            )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "parts", "type", "id", "x"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from(["gen_ai.input.messages", "events", "input.value", "gen_ai.prompt.0.content"]))
def test_whatever_a_span_holds_there_is_a_plan(value: Any, as_text: bool, key: str) -> None:
    recorded = json.dumps(value) if as_text else value
    attributes = {"gen_ai.operation.name": "chat", key: recorded, "gen_ai.output.messages": recorded}
    events = [Event("gen_ai.user.message", {"content": recorded}), Event("gen_ai.choice", {"message": recorded})]
    spans = [
        span(attributes=attributes),
        span(attributes=attributes, events=events),
        tool("x", args=recorded, result=recorded),
    ]
    assert len(plan(spans).nodes) == 3


def test_lists_nested_as_deep_as_a_parser_reads_are_refused() -> None:
    deep = "[" * 900 + '"x"' + "]" * 900
    attributes = {"gen_ai.operation.name": "chat"}
    message = json.dumps([{"role": "user", "content": "@"}]).replace('"@"', deep)
    spans = [span(attributes={**attributes, "gen_ai.input.messages": recorded}) for recorded in (deep, message)]
    assert {decision.choice for decision in plan(spans).decisions.values()} <= {Choice.REFUSE, Choice.INJECT}
