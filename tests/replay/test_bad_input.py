# SPDX-License-Identifier: Apache-2.0
"""What is broken is refused where it stands, the rest is planned, nothing is guessed, and nothing recurses."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from support.runs import Message, ask, calls, decided, edges, of, result, says, told, user
from support.spans import TRACE, agent, span, tool

from genai_processor.replay import Choice, Declared, Done, Plan, plan, replay
from genai_processor.spans.records import Link, Span

ALL = Declared(deterministic=("*",), recompute=("*",))
C1 = ("c1xq", "search", {"q": 1})
DEEP = 5_000
"""Far beyond every recursion limit."""


def choices(found: Plan) -> set[str]:
    return {str(decision.choice) for decision in found.decisions.values()}


def linked(spans: list[Span], *pairs: tuple[int, int]) -> list[Span]:
    """The spans, each with links to others by their places."""
    return [
        one._replace(links=tuple([Link(TRACE, spans[to].span_id, {}) for at, to in pairs if at == place]))
        for place, one in enumerate(spans)
    ]


# -- circles -------------------------------------------------------------------------------------------------------------


def test_of_a_circle_through_a_link_and_a_call_every_node_is_refused_and_no_other() -> None:
    first = ask([user("hi")], calls(C1))
    ran = tool("search", id="c1xq", args={"q": 1}, result="r1")
    last = ask([user("hi"), calls(C1), result("c1xq", "r1")], says("done"))
    apart = ask([user("b")], says("y"))
    spans = linked([first, ran, last, apart], (0, 1))
    found = plan(spans, declared=ALL)
    assert [decided(found, one)[1] for one in spans[:2]] == [["cycle"]] * 2
    assert decided(found, last)[0] == "recompute"
    assert of(found, last)[1].unverified_upstream
    assert decided(found, apart) == ("recompute", ["constant_inputs"])
    assert not of(found, apart)[1].unverified_upstream


def test_a_circle_is_no_reason_not_to_replay_the_rest() -> None:
    spans = [ask([user(str(at))], says(f"x{at}")) for at in range(4)]
    found = plan(linked(spans, (0, 1), (1, 0), (2, 1)), declared=ALL)
    keys = [f"{TRACE}:{one.span_id}" for one in spans]
    done = replay(found).nodes
    assert [done[key] for key in keys] == [Done.REFUSED, Done.REFUSED, Done.INJECTED, Done.INJECTED]
    done = replay(found, lambda run: run.node.outcome, allow_unverified=True).nodes
    expected = [Done.INJECTED_UNVERIFIED, Done.INJECTED_UNVERIFIED, Done.RECOMPUTED, Done.RECOMPUTED]
    assert [done[key] for key in keys] == expected


def test_two_circles_that_touch_are_told_from_what_only_hangs_on_them() -> None:
    spans = linked(
        [ask([user(str(at))], says("x")) for at in range(6)], (0, 1), (1, 2), (2, 0), (2, 3), (3, 2), (4, 3), (0, 5)
    )
    found = plan(spans, declared=ALL)
    assert [decided(found, one)[1][0] for one in spans] == ["cycle"] * 4 + ["single_chain", "constant_inputs"]


def test_a_link_to_the_span_itself_says_nothing() -> None:
    (one,) = linked([ask([user("a")], says("x"))], (0, 0))
    assert decided(plan([one], declared=ALL), one) == ("recompute", ["constant_inputs"])


def test_spans_that_are_each_others_parents_are_planned() -> None:
    one, two = agent(), agent()
    inside = ask([user("a")], says("x"), parent=one)
    found = plan([one._replace(parent_span_id=two.span_id), two._replace(parent_span_id=one.span_id), inside], declared=ALL)
    assert decided(found, inside) == ("recompute", ["constant_inputs"])
    assert len(found.containers) == 2


@pytest.mark.parametrize("ring", [True, False], ids=["ring", "chain"])
def test_links_as_long_as_one_likes_are_followed(ring: bool) -> None:
    pairs = [(at, at - 1) for at in range(1, DEEP)] + ([(0, DEEP - 1)] if ring else [])
    spans = [ask([user("a")], says("x")) for _ in range(DEEP)]
    links = {at: Link(TRACE, spans[to].span_id, {}) for at, to in pairs}
    spans = [one._replace(links=(links[at],) if at in links else ()) for at, one in enumerate(spans)]
    found = plan(reversed(spans), declared=ALL, keep_values=False)
    assert choices(found) == ({"refuse"} if ring else {"recompute"})
    assert len(found.nodes) == DEEP
    if not ring:
        assert [node.key for node in found.nodes[:2]] == [f"{TRACE}:{one.span_id}" for one in spans[:2]]
        result = replay(found, lambda run: run.node.outcome)
        assert result.count(Done.RECOMPUTED) == DEEP


def test_agents_nested_as_deep_as_one_likes_are_planned() -> None:
    spans: list[Span] = []
    for at in range(DEEP):
        around = agent(parent=spans[-2] if spans else None)
        spans += [around, ask([user(f"{at}")] if at % 2 else None, says("x"), parent=around)]
    for at in range(3):  # a trace that names several conversations
        spans[2 * at] = spans[2 * at]._replace(attributes={**spans[2 * at].attributes, "gen_ai.conversation.id": f"c{at}"})
    found = plan(spans, declared=ALL, keep_values=False)
    assert len(found.nodes) == len(found.containers) == DEEP
    assert {node.conversation for node in found.nodes} == {"c0", "c1", "c2"}
    assert choices(found) == {"recompute", "refuse"}


# -- links to nowhere ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trace", [TRACE, f"{9:032x}"], ids=["this trace", "another trace"])
def test_a_link_to_nowhere_names_the_span_that_has_it(trace: str) -> None:
    bad = ask([user("a")], says("x"), links=[Link(trace, "f" * 16, {})])
    good = ask([user("b")], says("y"))
    found = plan([bad, good], declared=ALL)
    assert decided(found, bad) == ("inject", ["source_unobserved"])
    assert decided(found, good) == ("recompute", ["constant_inputs"])
    (problem,) = found.problems
    assert problem.place == f"{bad.trace_id}:{bad.span_id}"
    assert f"{trace}:{'f' * 16}" in problem.problem


# -- two results of one call ---------------------------------------------------------------------------------------------


def _read(*values: str, **more: Any) -> tuple[Span, Span, list[Span]]:
    """A call, its tool, and inferences that each read another result of it."""
    first = ask([user("hi")], calls(C1))
    ran = tool("search", id="c1xq", args={"q": 1}, **more)
    return first, ran, [ask([user("hi"), calls(C1), result("c1xq", value)], says("done")) for value in values]


def test_two_readers_of_different_results_of_one_call_leave_it_unknown() -> None:
    first, ran, readers = _read("r1", "r2")
    for order in (readers, readers[::-1]):
        found = plan([first, ran, *order], declared=Declared())
        assert decided(found, ran) == ("refuse", ["outcome_not_recorded"])
        assert "gen_ai.tool.call.result" in of(found, ran)[1].remedy
        assert [decided(found, one)[0] for one in readers] == ["inject"] * 2


def test_where_readers_disagree_the_span_is_right() -> None:
    first, ran, readers = _read("r1", "r2", result="r2")
    found = plan([first, ran, *readers])
    assert [part.value for part in of(found, ran)[0].outcome.parts] == ["r2"]
    first, ran, readers = _read("r1", "r2", result="r3")
    found = plan([first, ran, *readers])
    assert [part.value for part in of(found, ran)[0].outcome.parts] == ["r3"]
    assert decided(found, ran) == ("inject", ["effect_not_declared"])


def test_a_result_that_was_edited_later_is_what_was_read_first() -> None:
    first, ran, (reader,) = _read("r1")
    reader = ask([user("hi"), calls(C1), result("c1xq", "r1")], calls(("c2xq", "search", {"q": 2})))
    more = [calls(("c2xq", "search", {"q": 2})), result("c2xq", "r2")]
    later = ask([user("hi"), calls(C1), result("c1xq", "[cleared]"), *more], says("done"))
    again = tool("search", id="c2xq", args={"q": 2}, result="r2")
    for spans in ([first, ran, reader, again, later], [later, again, reader, ran, first]):
        found = plan(spans, declared=ALL)
        assert [part.value for part in of(found, ran)[0].outcome.parts] == ["r1"]
        assert {edge.equal for edge in found.edges_into(of(found, later)[0].key) if edge.slot == 2} == {False}
        assert not replay(found, lambda run: run.node.outcome).diverged


def test_a_result_that_neither_of_two_executions_made_is_nobodys() -> None:
    first = ask([user("hi")], calls(C1))
    ran = [tool("search", id="c1xq", args={"q": 1}, result=value) for value in ("r1", "r2")]
    last = ask([user("hi"), calls(C1), result("c1xq", "r3")], says("done"))
    found = plan([first, *ran, last], declared=ALL)
    assert decided(found, last) == ("inject", ["source_ambiguous"])
    assert not [edge for edge in edges(found, last) if edge[0] == "result"]


# -- what does not parse -------------------------------------------------------------------------------------------------

BROKEN = {
    "no JSON": "{no json}",
    "JSON of no messages": '{"a": 1}',
    "a number": "7",
    "text around JSON": 'messages: [{"role": "user", "parts": []}]',
    "two documents": '[{"role": "user", "parts": [{"type": "text", "content": "a"}]}][]',
    "no role": '[{"parts": [{"type": "text", "content": "a"}]}]',
    "a role of nobody": '[{"role": "oracle", "parts": [{"type": "text", "content": "a"}]}]',
    "half a list": '[{"role": "user", "parts": [{"type": "text", "content": "a"}]}',
    "a lone surrogate cut": '[{"role": "user", "content": "\\ud83d"}',
    "deep brackets": "[" * 100_000,
    "deep lists": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "a deep message": '[{"role":"user","content":' + "[" * 100_000 + "]" * 100_000 + "}]",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=list(BROKEN))
def test_messages_that_do_not_parse_are_refused_and_the_rest_is_planned(text: str) -> None:
    bad = ask(None, says("x"), attributes={"gen_ai.input.messages": text})
    first, ran, (last,) = _read("r1", result="r1")
    found = plan([bad, first, ran, last], declared=ALL)
    choice, reasons = decided(found, bad)
    assert choice == "refuse"
    assert reasons[0] in ("unreadable", "input_cut")
    assert [decided(found, one)[0] for one in (first, ran, last)] == ["recompute"] * 3


@pytest.mark.parametrize("text", BROKEN.values(), ids=list(BROKEN))
def test_an_answer_that_does_not_parse_is_not_taken_for_one(text: str) -> None:
    bad = ask([user("a")], None, attributes={"gen_ai.output.messages": text})
    found = plan([bad], declared=ALL)
    if decided(found, bad)[1] != ["constant_inputs"]:
        assert decided(found, bad) == ("inject", ["output_not_recorded"])
        assert "output" not in of(found, bad)[1].modes


DEEP_KEYS = (
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.documents",
    "input.value",
    "output.value",
    "events",
    "metadata",
    "llm.invocation_parameters",
    "traceloop.entity.input",
)


@pytest.mark.parametrize("key", DEEP_KEYS)
def test_values_nested_as_deep_as_one_likes_are_read_without_recursion(key: str) -> None:
    native: Any = "x"
    for at in range(100_000):
        native = [native] if at % 2 else {"messages": native}
    texts = ["[" * 100_000 + "]" * 100_000, '{"result":' * 100_000 + "1" + "}" * 100_000, "[" * 990 + "]" * 990]
    for value in (native, *texts):
        attributes = {key: value}
        spans = [
            ask([user("a")], says("x"), attributes=attributes),
            tool("t", id="t1xq", args="{}", result="r", attributes=attributes),
            span("retrieval", attributes={"gen_ai.operation.name": "retrieval", **attributes}),
            agent(attributes=attributes),
        ]
        assert len(plan(spans, declared=ALL).nodes) == 3


# -- much of it ----------------------------------------------------------------------------------------------------------


def _history(count: int) -> list[Message]:
    return [says(f"{at} " + "word " * 300) if at % 2 else user(f"{at} " + "word " * 300) for at in range(count)]


def test_much_to_read_is_read_and_not_kept() -> None:
    text = json.dumps(_history(7_000))
    assert len(text) > 10_000_000
    one = ask(None, says("x"), attributes={"gen_ai.input.messages": text})
    tracemalloc.start()
    try:
        found = plan([one], declared=ALL, keep_values=False)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.nodes[0].inputs.parts) == 7_000
    assert kept < len(text) / 2


def test_histories_that_grow_are_the_same_as_if_each_were_read_alone() -> None:
    history = _history(61)
    spans = [ask(history[: at + 1], history[at + 1]) for at in range(0, 60, 2)]
    together = plan(spans, declared=ALL)
    for one in spans:
        alone, _ = of(plan([one], declared=ALL), one)
        assert of(together, one)[0].inputs == alone.inputs
    assert told(plan(reversed(spans), declared=ALL)) == told(together)
    assert {decision.choice for decision in together.decisions.values()} == {Choice.RECOMPUTE}


# -- nothing there -------------------------------------------------------------------------------------------------------


def test_spans_of_others_are_no_nodes_and_that_is_said_once() -> None:
    found = plan([span("GET /"), span("SELECT", trace=f"{2:032x}")])
    assert (found.nodes, len(found.problems)) == ((), 1)
    assert plan([]).problems == found.problems
    assert plan([span("GET /"), ask([user("a")], says("x"))]).problems == ()
    nothing = replay(found)
    assert (nothing.outcomes, nothing.diverged) == ({}, False)
