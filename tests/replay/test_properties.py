# SPDX-License-Identifier: Apache-2.0
"""What must hold of every plan: order, copies and clocks change nothing, and less recorded never allows more."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs import Message, ask, calls, result, says, told, user
from support.spans import agent, span, tool

from genai_processor.replay import Choice, Declared, Plan, plan
from genai_processor.spans.records import Event, Link, Span

RANK = {Choice.REFUSE: 0, Choice.INJECT: 1, Choice.RECOMPUTE: 2}
ALL = Declared(deterministic=("*",), recompute=("*",))
IDS = ["call_1", "call_2", "xk29lmq8", "xk29lmq9"]
MARKS = ("gen_ai.request.previous_response.id", "gen_ai.conversation.compacted")
"""They say that something is missing. Without them nobody can know, so these are not values that a recording could lose."""


@st.composite
def runs(draw: st.DrawFn) -> list[Span]:
    """The spans of a run: turns of one to three calls, sub-agents, failures, lost and doubled attributes, in any shape."""
    trace = f"{draw(st.integers(1, 3)):032x}"
    spans: list[Span] = []
    _grow(draw, trace, None, spans, 0)
    if draw(st.booleans()):
        spans[draw(st.integers(0, len(spans) - 1))] = _without(draw, spans[draw(st.integers(0, len(spans) - 1))])
    return [one for at, one in enumerate(spans) if one.span_id not in {other.span_id for other in spans[:at]}]


def _without(draw: st.DrawFn, one: Span) -> Span:
    key = draw(st.sampled_from(sorted(one.attributes)))
    return one._replace(attributes={name: value for name, value in one.attributes.items() if name != key})


def _grow(draw: st.DrawFn, trace: str, parent: Span | None, spans: list[Span], depth: int) -> str:
    around = agent(parent=parent, trace=trace, attributes={"gen_ai.agent.name": draw(st.sampled_from(["a", "b"]))})
    spans.append(around)
    history: list[Message] = [user(draw(st.sampled_from(["hi", "ok", "search"])))]
    for _ in range(draw(st.integers(0, 2))):
        ids = draw(
            st.lists(st.sampled_from(["call_1", "call_2", "xk29lmq8", "xk29lmq9"]), min_size=1, max_size=3, unique=True)
        )
        wanted = [(one, draw(st.sampled_from(["search", "refund"])), {"q": draw(st.integers(1, 2))}) for one in ids]
        spans.append(ask(history, calls(*wanted), parent=around, trace=trace))
        answers: list[Message] = []
        for call_id, name, arguments in wanted:
            named = call_id if draw(st.booleans()) else None
            value = draw(st.sampled_from(["ok", "true", "r1"]))
            options: dict[str, Any] = {"parent": around, "trace": trace, "id": named, "args": json.dumps(arguments)}
            fails = draw(st.integers(0, 4)) == 0
            ran = tool(name, **options, **({"error": "ValueError"} if fails else {"result": value}))
            spans.append(ran)
            if depth < 1 and draw(st.integers(0, 3)) == 0:
                value = _grow(draw, trace, ran, spans, depth + 1)
            answers.append(result(call_id, value))
        history = [*history, calls(*wanted), *draw(st.permutations(answers))]
    answer = draw(st.sampled_from(["ok", "true", "done"]))
    more: dict[str, Any] = {}
    if draw(st.integers(0, 5)) == 0:
        more["links"] = [Link(trace, draw(st.sampled_from(spans)).span_id, {})]
    spans.append(ask(history, says(answer), parent=around, trace=trace, **more))
    return answer


def _planned(spans: list[Span]) -> dict[str, Any]:
    return told(plan(spans, declared=ALL))


@settings(max_examples=150, deadline=None)
@given(runs(), st.randoms(use_true_random=False), st.integers(-(10**6), 10**6))
def test_order_copies_and_clocks_change_no_plan(spans: list[Span], random: Any, skew: int) -> None:
    first = _planned(spans)
    again = [*spans, *random.sample(spans, len(spans) // 2)]
    random.shuffle(again)
    again = [one._replace(start_ns=(one.start_ns or 0) + skew * at, end_ns=None) for at, one in enumerate(again)]
    assert _planned(again) == first


def _choices(found: Plan) -> dict[str, Choice]:
    return {key: decision.choice for key, decision in found.decisions.items()}


@settings(max_examples=150, deadline=None)
@given(runs(), st.data())
def test_removing_a_value_never_raises_that_nodes_own_decision(spans: list[Span], data: st.DataObject) -> None:
    before = _choices(plan(spans, declared=ALL))
    at = data.draw(st.integers(0, len(spans) - 1))
    one = spans[at]
    key = data.draw(st.sampled_from(sorted(set(one.attributes) - set(MARKS))))
    poorer = one._replace(attributes={name: value for name, value in one.attributes.items() if name != key})
    after = _choices(plan([*spans[:at], poorer, *spans[at + 1 :]], declared=ALL))
    own = f"{one.trace_id}:{one.span_id}"
    if own in before and own in after:
        assert RANK[after[own]] <= RANK[before[own]]


@settings(max_examples=100, deadline=None)
@given(runs())
def test_adding_a_recorded_order_never_lowers_a_decision(spans: list[Span]) -> None:
    for at, one in enumerate(spans):
        if "gen_ai.input.messages" in one.attributes:
            bare = {name: value for name, value in one.attributes.items() if name != "gen_ai.input.messages"}
            without = _choices(plan([*spans[:at], one._replace(attributes=bare), *spans[at + 1 :]], declared=ALL))
            having = _choices(plan(spans, declared=ALL))
            own = f"{one.trace_id}:{one.span_id}"
            if own in having:
                assert RANK[having[own]] >= RANK[without[own]]


@settings(max_examples=100, deadline=None)
@given(runs())
def test_digests_alone_make_the_same_plan(spans: list[Span]) -> None:
    kept, bare = plan(spans, declared=ALL), plan(spans, declared=ALL, keep_values=False)
    assert bare.decisions == kept.decisions
    assert [node.inputs.digest for node in bare.nodes] == [node.inputs.digest for node in kept.nodes]
    assert all(part.value is None for node in bare.nodes for part in (*node.inputs.parts, *node.outcome.parts))


@settings(max_examples=100, deadline=None)
@given(runs())
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
