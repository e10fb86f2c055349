# SPDX-License-Identifier: Apache-2.0
"""Who consumed whose output: ids from the inside outward, whole parts, never times and never across conversations."""

from __future__ import annotations

import json
from typing import Any

from support.runs import ask, calls, decided, edges, of, result, says, user
from support.spans import agent, span, tool

from genai_processor.replay import Choice, Declared, plan
from genai_processor.spans.records import Span

ALL = Declared(deterministic=("*",), recompute=("*",))
CALL = ("call_1", "search", {"q": 1})


def _agent(trace: str, value: str, parent: Span | None = None, **more: Any) -> list[Span]:
    """A whole run of an agent, whose ids every other run has, too."""
    around = agent(trace=trace, parent=parent)
    first = ask([user("hi")], calls(CALL), parent=around, trace=trace, **more)
    ran = tool("search", id="call_1", args='{"q": 1}', result=value, parent=around, trace=trace)
    last = ask([user("hi"), calls(CALL), result("call_1", value)], says(f"done {value}"), parent=around, trace=trace, **more)
    return [around, first, ran, last]


def test_ids_are_looked_up_in_the_innermost_agent_first() -> None:
    trace = f"{1:032x}"
    one, two = _agent(trace, "r1"), _agent(trace, "r2")
    found = plan([*one, *two])
    for _, first, ran, last in (one, two):
        assert edges(found, ran) == {("proposal", first.span_id, 0)}
        assert ("result", ran.span_id, 2) in edges(found, last)


def test_no_join_goes_across_traces_by_call_id_alone() -> None:
    _, first, ran, _ = _agent(f"{1:032x}", "r1")
    _, _, _, other = _agent(f"{2:032x}", "r1")
    found = plan([first, ran, other])
    assert edges(found, other) == set()


def test_traces_of_one_conversation_are_one_world() -> None:
    named = {"attributes": {"gen_ai.conversation.id": "conv-7"}}
    _, first, ran, _ = _agent(f"{1:032x}", "r1", **named)
    _, _, _, other = _agent(f"{2:032x}", "r1", **named)
    found = plan([first, ran, other])
    assert edges(found, other) == {("echo", first.span_id, 1), ("result", ran.span_id, 2)}


def test_an_echo_of_an_id_that_only_one_run_has_joins_traces() -> None:
    call = ("toolu_01xQ9vRk", "search", {"q": 1})
    first = ask([user("hi")], calls(call), trace=f"{1:032x}")
    ran = tool("search", id="toolu_01xQ9vRk", args='{"q": 1}', result="r1", trace=f"{1:032x}")
    resumed = ask([user("hi"), calls(call), result("toolu_01xQ9vRk", "r1")], says("done"), trace=f"{2:032x}")
    found = plan([first, ran, resumed])
    assert edges(found, resumed) == {("echo", first.span_id, 1), ("result", ran.span_id, 2)}


def test_short_outputs_that_are_equal_name_no_producer() -> None:
    one, two = ask([user("a")], says("ok")), ask([user("b")], says("ok"))
    last = ask([user("c"), says("ok"), user("go on")], says("done"))
    found = plan([one, two, last], declared=ALL)
    assert decided(found, last) == ("inject", ["source_ambiguous"])


def test_a_part_of_a_text_names_no_producer() -> None:
    one = ask([user("a")], says("the answer is 42"))
    last = ask([user("c"), says("I said: the answer is 42")], says("done"))
    assert edges(plan([one, last]), last) == set()


def test_a_retry_under_one_id_is_one_call_and_what_was_read_was_delivered() -> None:
    first = ask([user("hi")], calls(CALL))
    bad = tool("search", id="call_1", args='{"q": 1}', error="TimeoutError")
    good = tool("search", id="call_1", args='{"q": 1}', result="r1")
    last = ask([user("hi"), calls(CALL), result("call_1", "r1")], says("done"))
    found = plan([first, bad, good, last])
    assert edges(found, last) == {("echo", first.span_id, 1), ("result", good.span_id, 2)}
    assert of(found, bad)[0].attempts == (of(found, good)[0].key,)


def test_a_sub_agent_is_fed_by_its_tool_and_feeds_it() -> None:
    task = ("call_1", "delegate", {"task": "refund o1"})
    boss = ask([user("hi")], calls(task))
    hand = tool("delegate", id="call_1", args='{"task": "refund o1"}', result="inner done")
    inner = ask([user("refund o1")], says("inner done"), parent=agent(parent=hand))
    around = agent(parent=hand)
    inner = inner._replace(parent_span_id=around.span_id)
    last = ask([user("hi"), calls(task), result("call_1", "inner done")], says("done"))
    found = plan([boss, hand, around, inner, last])
    assert of(found, hand)[0].composite
    assert edges(found, inner) == {("delegate", hand.span_id, 0)}
    assert edges(found, hand) == {("proposal", boss.span_id, 0), ("return", inner.span_id, -1)}
    assert of(found, inner)[1].covered_by == of(found, hand)[0].key


def test_a_refused_node_moves_the_boundary_to_the_agent_around_it() -> None:
    said = {
        "gen_ai.input.messages": json.dumps([user("hi")]),
        "gen_ai.output.messages": json.dumps([says("done")]),
    }
    around = agent(attributes=said)
    bad, good = ask(None, says("x"), parent=around), ask([user("b")], says("y"), parent=around)
    found = plan([around, bad, good])
    (boundary,) = found.boundaries
    assert boundary.moved_to == f"{around.trace_id}:{around.span_id}"
    assert [of(found, one)[1].covered_by for one in (bad, good)] == [boundary.moved_to] * 2
    assert not of(found, good)[1].unverified_upstream


def test_a_refused_node_with_nothing_around_stands_alone_and_marks_what_depends_on_it() -> None:
    first = ask(None, calls(CALL))
    ran = tool("search", id="call_1", args='{"q": 1}', result="r1")
    last = ask([user("hi"), calls(CALL), result("call_1", "r1")], says("done"))
    found = plan([first, ran, last])
    assert found.boundaries[0].moved_to is None
    assert [of(found, one)[1].unverified_upstream for one in (first, ran, last)] == [False, True, True]
    assert decided(found, last)[0] == "inject"


def test_documents_go_from_the_retrieval_to_the_prompt_that_holds_them_whole() -> None:
    documents = json.dumps([{"id": "d1", "content": "the fee is 3 %", "score": 0.9}, {"id": "d2", "content": "no fee"}])
    attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "fee?"}
    found_by = span("retrieval", attributes={**attributes, "gen_ai.retrieval.documents": documents})
    last = ask([user("the fee is 3 %"), user("what is the fee?")], says("3 %"))
    found = plan([found_by, last], declared=ALL)
    assert edges(found, last) == {("document", found_by.span_id, 0)}
    assert decided(found, last) == ("recompute", ["single_chain"])
    assert decided(plan([found_by, last]), found_by) == ("inject", ["external"])


def test_a_reranking_needs_its_documents_in_order() -> None:
    attributes = {"openinference.span.kind": "RERANKER", "reranker.query": "fee?"}
    given = {f"reranker.{side}_documents.{at}.document.content": f"d{at}" for side in ("input", "output") for at in range(2)}
    good = span("rerank", attributes={**attributes, **given})
    bad = span("rerank", attributes={**attributes, "reranker.output_documents.0.document.content": "d1"})
    found = plan([good, bad])
    assert decided(found, good) == ("inject", ["external"])
    assert decided(found, bad) == ("refuse", ["input_not_recorded"])


def test_embeddings_are_injected_if_their_vectors_are_recorded() -> None:
    attributes = {"gen_ai.operation.name": "embeddings", "embedding.embeddings.0.embedding.text": "x"}
    bare = span("embeddings", attributes=attributes)
    whole = span("embeddings", attributes={**attributes, "embedding.embeddings.0.embedding.vector": [0.1, 0.2]})
    found = plan([bare, whole])
    assert decided(found, bare) == ("refuse", ["outcome_not_recorded"])
    assert decided(found, whole) == ("inject", ["external"])


def test_one_operation_is_one_node_however_many_spans_show_it() -> None:
    outer = tool("search", id="call_1", args="{}", result="r1")
    inner = tool("search", parent=outer, attributes={"mcp.method.name": "tools/call"})
    first = ask([user("a")], says("x"))
    nested = ask([user("a")], says("x"), parent=first)
    found = plan([outer, inner, first, nested])
    assert len(found.nodes) == 2
    assert of(found, inner)[0].key == of(found, outer)[0].key
    assert of(found, nested)[0].key == of(found, first)[0].key


def test_ids_that_disagree_inside_one_list_are_joined_by_the_call() -> None:
    first = ask([user("hi")], calls(("call_1", "search", {"q": 1})))
    ran = tool("search", args='{"q": 1}', result="r1")
    last = ask([user("hi"), calls(("fc_11_0", "search", {"q": 1})), result("call_1", "r1")], says("done"))
    found = plan([first, ran, last])
    assert edges(found, last) == {("echo", first.span_id, 1), ("result", ran.span_id, 2)}
    straight = ask([user("hi"), calls(("call_1", "search", {"q": 1})), result("call_1", "r1")], says("done"))
    again = plan([first, ran, straight])
    assert of(found, last)[0].inputs.digest == of(again, straight)[0].inputs.digest


def _chain(length: int) -> list[Span]:
    spans: list[Span] = []
    for at in range(length):
        parent = spans[-1] if spans else None
        around = tool(f"t{at}", id="call_1", args='{"task": "x"}', result="y", parent=parent)
        spans.append(around)
    return spans


def test_a_long_chain_and_a_wide_turn_are_planned() -> None:
    deep = plan(_chain(100_000), keep_values=False)
    assert len(deep.nodes) == 100_000
    ids = [f"xk{at:06d}x" for at in range(20_000)]
    wanted = [(one, "search", {"q": one}) for one in ids]
    first = ask([user("hi")], calls(*wanted))
    ran = [tool("search", id=one, args=json.dumps({"q": one}), result=one) for one in ids]
    last = ask([user("hi"), calls(*wanted), *[result(one, one) for one in ids]], says("done"))
    found = plan([*ran, last, first], keep_values=False, declared=ALL)
    assert decided(found, last) == ("inject", ["fan_in"])
    assert sum(decision.choice is Choice.RECOMPUTE for decision in found.decisions.values()) == 20_001


def test_an_id_that_an_agent_gives_again_does_not_tell_alone_which_call_it_is() -> None:
    """Without its arguments it was taken for the later call, by the id, and with them for neither."""
    history = [user("u"), calls(CALL), result("call_1", "r1")]
    around = agent()
    again = ask(history, calls(CALL), parent=around)
    later = ask(None, calls(("call_1", "search", {"q": 2})), parent=around)
    whole = tool("search", id="call_1", args='{"q": 1}', result="r1", parent=around)
    bare = tool("search", id="call_1", result="r1", parent=around)
    assert decided(plan([around, again, whole, later], declared=ALL), whole) == ("inject", ["source_unobserved"])
    assert decided(plan([around, again, bare, later], declared=ALL), bare)[0] == "refuse"
