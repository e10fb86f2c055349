# SPDX-License-Identifier: Apache-2.0
"""A plan is made piece by piece: that changes nothing of it, and leaves nothing behind."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import pytest
from support.runs import ask, calls, edges, result, says, told, user
from support.spans import agent, span, tool

from genai_processor.replay import Planner, plan
from genai_processor.replay.lookup import Op
from genai_processor.replay.reading import SpanReader
from genai_processor.replay.tree import Draft
from genai_processor.spans.records import Link, Span

CALL = ("toolu_01xQ9vRk", "search", {"q": 1})


def _proposed(trace: int) -> tuple[Span, Span]:
    first = ask([user("hi")], calls(CALL), trace=f"{trace:032x}")
    return first, tool("search", id=CALL[0], args='{"q": 1}', result="r1", trace=f"{trace:032x}")


def _resumed(trace: int) -> Span:
    return ask([user("hi"), calls(CALL), result(CALL[0], "r1")], says("done"), trace=f"{trace:032x}")


def _unrelated(trace: int) -> list[Span]:
    open_call = ("toolu_07bT2mNp", "refund", {"n": 2})
    alone = ask([user("hi"), calls(open_call), result(open_call[0], "r2")], says("done"), trace=f"{trace:032x}")
    return [agent(trace=f"{trace:032x}"), alone, *_proposed_with_counting_ids(trace + 1)]


def _proposed_with_counting_ids(trace: int) -> Iterable[Span]:
    call = ("call_1", "search", {"q": 1})
    yield ask([user("hi")], calls(call), trace=f"{trace:032x}")
    yield tool("search", id="call_1", args='{"q": 1}', result="r1", trace=f"{trace:032x}")


@pytest.mark.parametrize(("proposed", "resumed"), [(1, 9), (9, 1), (3, 4)])
def test_a_run_that_goes_on_in_another_trace_is_found_whichever_comes_first(proposed: int, resumed: int) -> None:
    (first, ran), last = _proposed(proposed), _resumed(resumed)
    others = [*_unrelated(5), *_unrelated(7)]
    found = plan([*others, last, first, ran])
    assert edges(found, last) == {("echo", first.span_id, 1), ("result", ran.span_id, 2)}
    joined = {first.trace_id, last.trace_id}
    order = [min(joined) if node.trace_id in joined else node.trace_id for node in found.nodes]
    assert order == sorted(order)
    apart = plan(others)
    kept = [node for node in found.nodes if node.trace_id in {other.trace_id for other in others}]
    assert kept == list(apart.nodes)


def test_two_runs_that_proposed_the_same_call_prove_nothing() -> None:
    last = _resumed(5)
    assert edges(plan([*_proposed(1), *_proposed(2), last]), last) == set()


@pytest.mark.parametrize("traces", [(1, 2), (2, 1)])
def test_a_link_leads_into_a_trace_that_is_planned_before_or_after(traces: tuple[int, int]) -> None:
    one, other = (f"{trace:032x}" for trace in traces)
    target = tool("search", id="call_a1", args="{}", result="r1", trace=one)
    linked = tool("report", id="call_b1", args="{}", result="r2", trace=other)._replace(
        links=(Link(one, target.span_id, {}),)
    )
    found = plan([linked, target, span("chat", trace=f"{3:032x}")])
    assert ("link", target.span_id, -1) in edges(found, linked)
    assert not found.problems


def test_a_planner_can_be_asked_again() -> None:
    planner = Planner()
    first, ran = _proposed(1)
    planner.add_all([first, ran])
    once = told(planner.plan())
    assert told(planner.plan()) == once
    last = _resumed(2)
    planner.add(last)
    assert told(planner.plan()) == told(plan([last, ran, first]))


def test_planning_leaves_nothing_to_the_garbage_collector() -> None:
    spans = [*_proposed(1), _resumed(2), *_unrelated(4)]
    gc.collect()
    gc.disable()
    try:
        found = plan(spans)
        left = [one for one in gc.get_objects() if isinstance(one, (Op, Draft))]
    finally:
        gc.enable()
    assert found.nodes
    assert not left


def test_every_record_has_all_of_its_fields() -> None:
    spans = [*_proposed(1), _resumed(2), *_unrelated(4)]
    reader = SpanReader()
    found = plan(spans)
    records: list[object] = [reader.read(one) for one in spans]
    for node in found.nodes:
        decision = found.decisions[node.key]
        records += [node, node.inputs, node.outcome, node.structure, decision, *decision.edges]
        records += [*node.inputs.parts, *node.outcome.parts]
    for shown in records[: len(spans)]:
        records += [shown.inputs, shown.output]  # type: ignore[attr-defined]
    for record in records:
        if record is not None:
            assert len(record) == len(type(record)._fields), type(record).__name__  # type: ignore[arg-type,attr-defined]
