# SPDX-License-Identifier: Apache-2.0
"""The rules by which values are followed, each by itself: what is a producer, a constant, an order, a fan-in, an injection.

The numbers are those of the rules: 3 equal values, 4 constants, 5 recorded orders, 6 fan-ins and ancestors, 7 what an
injection means for those that read of it.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from support.random_runs import runs
from support.runs import Message, ask, calls, decided, edges, of, result, says, user
from support.spans import TRACE, agent, span, tool

from genai_processor.replay import Choice, Declared, EdgeKind, Operation, OrderEvidence, Plan, State, plan
from genai_processor.spans.records import Event, Link, Span

ALL = Declared(deterministic=("*",), recompute=("*",))
MODELS = Declared(recompute=("*",))
C1 = ("c1xq", "search", {"q": 1})
C2 = ("c2xq", "search", {"q": 2})
C3 = ("c3xq", "search", {"q": 3})


def ran(call: tuple[str, str, Any], value: str, **more: Any) -> Span:
    return tool(call[1], id=call[0], args=call[2], result=value, **more)


def system(text: str) -> Message:
    return {"role": "system", "parts": [{"type": "text", "content": text}]}


# -- rule 3: equal values ------------------------------------------------------------------------------------------------


def test_rule_3_an_answer_that_reappears_whole_comes_from_who_gave_it() -> None:
    first = ask([user("a")], says('{"b": 1, "a": [2]}'))
    last = ask([user("c"), says(' {"a":[2],"b":1} '), user("d")], says("x"))
    assert edges(plan([first, last]), last) == {("echo", first.span_id, 1)}


@pytest.mark.parametrize("text", ["the answer is 42, I said", "the answer", "The answer is 42"])
def test_rule_3_never_by_a_part_of_it(text: str) -> None:
    first = ask([user("a")], says("the answer is 42"))
    last = ask([user("c"), says(text), user("d")], says("x"))
    found = plan([first, last], declared=ALL)
    assert edges(found, last) == set()
    assert decided(found, last) == ("inject", ["source_unobserved"])


def test_rule_3_never_if_several_gave_it() -> None:
    first = [ask([user(text)], says("ok")) for text in "ab"]
    last = ask([user("c"), says("ok"), user("d")], says("x"))
    assert decided(plan([*first, last], declared=ALL), last) == ("inject", ["source_ambiguous"])


def test_rule_3_never_across_conversations() -> None:
    named = [{"gen_ai.conversation.id": f"conv-{at}"} for at in range(2)]
    first = ask([user("a")], says("the answer is 42"), attributes=named[0], trace=f"{2:032x}")
    last = ask([user("c"), says("the answer is 42"), user("d")], says("x"), attributes=named[1], trace=f"{3:032x}")
    assert edges(plan([first, last]), last) == set()
    same = last._replace(attributes={**last.attributes, **named[0]})
    assert edges(plan([first, same]), same) == {("echo", first.span_id, 1)}


def test_rule_3_only_where_a_model_or_a_tool_may_have_said_it() -> None:
    """What a user says, or what another tool returns, may read like an answer: that makes it no echo of one."""
    first = ask([user("a")], says("the answer is 42"))
    other = ask([user("b")], calls(C1))
    last = ask([user("the answer is 42"), calls(C1), result("c1xq", "the answer is 42")], says("x"))
    found = plan([first, other, last], declared=ALL)
    assert edges(found, last) == {("echo", other.span_id, 1)}


def test_rule_3_documents_are_followed_into_the_prompt_and_arguments_into_a_sub_agent() -> None:
    documents = json.dumps([{"content": "the fee is 3 %"}])
    attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": documents}
    found_by = span("retrieval", attributes=attributes)
    asked = ask([user("the fee is 3 %"), user("what is the fee?")], says("3 %"))
    assert edges(plan([found_by, asked]), asked) == {("document", found_by.span_id, 0)}
    hand = tool("delegate", id="c9xq", args='{"task": "refund o1"}', result="it is done")
    inside = agent(parent=hand)
    inner = ask([user("refund o1")], says("it is done"), parent=inside)
    other = ask([user("refund o1, please")], says("it is done, too"), parent=inside)
    found = plan([hand, inside, inner, other])
    assert edges(found, inner) == {("delegate", hand.span_id, 0)}
    assert edges(found, hand) == {("return", inner.span_id, -1)}
    assert edges(found, other) == set()


# -- rule 4: constants ---------------------------------------------------------------------------------------------------


def test_rule_4_what_the_system_and_the_user_say_is_constant() -> None:
    one = ask([system("help"), user("a"), user("b")], says("x"))
    found = plan([one], declared=ALL)
    assert decided(found, one) == ("recompute", ["constant_inputs"])
    assert of(found, one)[0].structure.unobserved == 0


@pytest.mark.parametrize("missing", ["a tool", "an inference"])
def test_rule_4_what_nobody_in_the_record_said_counts_as_a_producer(missing: str) -> None:
    first = ask([user("a")], calls(C1, C2))
    last = ask([user("a"), calls(C1, C2), result("c1xq", "r1"), result("c2xq", "r2")], says("x"))
    tools = [ran(C1, "r1"), ran(C2, "r2")]
    assert decided(plan([first, *tools, last], declared=ALL), last) == ("inject", ["fan_in"])
    spans = [first, tools[0], last] if missing == "a tool" else [*tools, last]
    assert decided(plan(spans, declared=ALL), last) == ("inject", ["fan_in", "source_unobserved"])
    lone = ask([user("a"), calls(C1), result("c1xq", "r1")], says("x"))
    assert decided(plan([ask([user("a")], calls(C1)), lone], declared=ALL), lone) == ("inject", ["source_unobserved"])


# -- rule 5: recorded orders ---------------------------------------------------------------------------------------------

CHAT = {"gen_ai.operation.name": "chat"}
OPENINFERENCE = {"openinference.span.kind": "LLM"}
HI = json.dumps([{"text": "hi"}])


def _indexed(*places: int) -> dict[str, Any]:
    found: dict[str, Any] = dict(OPENINFERENCE)
    for at in places:
        found |= {f"llm.input_messages.{at}.message.role": "user", f"llm.input_messages.{at}.message.content": f"m{at}"}
    return found


ORDERS: dict[str, tuple[Span, str, OrderEvidence | None]] = {
    "a JSON array": (ask([user("a"), user("b")], None), "inject", OrderEvidence.ARRAY),
    "indexed attributes": (span(attributes=_indexed(0, 1, 2)), "inject", OrderEvidence.INDEXED),
    "indexed attributes with a gap": (span(attributes=_indexed(0, 2)), "refuse", None),
    "indexed attributes without the first": (span(attributes=_indexed(1, 2)), "refuse", None),
    "events": (
        span(attributes=CHAT, events=[Event("gen_ai.user.message", {"content": HI})] * 2),
        "inject",
        OrderEvidence.EVENTS,
    ),
    "events, one of them dropped": (
        span(attributes=CHAT, events=[Event("gen_ai.user.message", {"content": HI})], dropped_events=1),
        "refuse",
        None,
    ),
    "nothing": (ask(None, None), "refuse", OrderEvidence.NOT_RECORDED),
}


@pytest.mark.parametrize(("one", "choice", "order"), ORDERS.values(), ids=list(ORDERS))
def test_rule_5_an_order_counts_if_one_writer_wrote_it_on_the_span_itself(
    one: Span, choice: str, order: OrderEvidence | None
) -> None:
    found = plan([one])
    assert decided(found, one)[0] == choice
    assert order in (None, of(found, one)[1].order)


@pytest.mark.parametrize("skew", [1, -1])
def test_rule_5_neither_times_nor_links_nor_the_span_around_are_an_order(skew: int) -> None:
    history = [user("a"), calls(C1, C2), result("c1xq", "r1"), result("c2xq", "r2")]
    around = agent(attributes={"gen_ai.input.messages": json.dumps(history)})
    tools = [ran(C1, "r1", parent=around, at=(skew, 9)), ran(C2, "r2", parent=around, at=(2 * skew, 9))]
    last = ask(None, says("x"), parent=around, at=(90, 99), links=[Link(TRACE, one.span_id, {}) for one in tools])
    assert decided(plan([around, *tools, last]), last) == ("refuse", ["order_not_recorded"])


def test_rule_5_an_inner_span_of_the_same_inference_is_a_writer() -> None:
    outer = ask(None, says("x"))
    inner = ask([user("a")], says("x"), parent=outer)
    assert decided(plan([outer, inner], declared=ALL), outer) == ("recompute", ["constant_inputs"])


def test_rule_5_rerankers_have_a_list_and_tools_have_none() -> None:
    kind = {"openinference.span.kind": "RERANKER", "reranker.query": "q"}
    given = {f"reranker.{side}_documents.{at}.document.content": f"d{at}" for side in ("input", "output") for at in (0, 1)}
    whole = span(attributes={**kind, **given})
    bare = span(attributes={**kind, "reranker.output_documents.0.document.content": "d1"})
    found = plan([whole, bare])
    assert decided(found, whole)[0] == "inject"
    assert decided(found, bare) == ("refuse", ["input_not_recorded"])
    one = ran(C1, "r1")
    assert of(plan([one]), one)[1].order is OrderEvidence.NO_LIST


# -- rule 6: fan-ins and ancestors ---------------------------------------------------------------------------------------


def _two_turns() -> tuple[list[Message], list[Span]]:
    history = [user("a"), calls(C1, C2), result("c1xq", "r1"), result("c2xq", "r2"), calls(C3), result("c3xq", "r3")]
    spans = [ask(history[:1], calls(C1, C2)), ran(C1, "r1"), ran(C2, "r2"), ask(history[:4], calls(C3)), ran(C3, "r3")]
    return history, [*spans, ask(history, says("x"))]


def test_rule_6_only_new_slots_make_a_fan_in() -> None:
    _, spans = _two_turns()
    found = plan(spans, declared=ALL)
    assert [decided(found, one)[1] for one in spans if "chat" in one.name] == [
        ["constant_inputs"],
        ["fan_in"],
        ["single_chain"],
    ]


def test_rule_6_producers_that_are_each_others_ancestors_are_no_fan_in() -> None:
    """The list extends nothing here (its instructions differ), so that all of its slots are new."""
    history = [user("a"), calls(C1), result("c1xq", "r1"), calls(C3), result("c3xq", "r3")]
    spans = [ask(history[:1], calls(C1)), ran(C1, "r1"), ask(history[:3], calls(C3)), ran(C3, "r3")]
    last = ask([system("now"), *history], says("x"))
    found = plan([*spans, last], declared=ALL)
    assert len(of(found, last)[0].structure.producers) == 4
    assert decided(found, last) == ("recompute", ["single_chain"])


def test_rule_6_ancestors_are_those_that_values_came_from_whatever_the_tree_of_spans() -> None:
    other = ("c2xq", "refund", {"q": 2})
    first = ask([user("a")], calls(C1, other))
    one = ran(C1, "r1", parent=first)
    two = ran(other, "r2", parent=one)  # inside of the other one, and yet not fed by it
    last = ask([user("a"), calls(C1, other), result("c1xq", "r1"), result("c2xq", "r2")], says("x"))
    assert decided(plan([first, one, two, last], declared=ALL), last) == ("inject", ["fan_in"])


def test_rule_6_links_count() -> None:
    one, two = ran(C1, "r1"), ran(C2, "r2")
    linked = ask([user("sum up")], says("x"), links=[Link(TRACE, one.span_id, {}), Link(TRACE, two.span_id, {})])
    assert decided(plan([one, two, linked], declared=ALL), linked) == ("inject", ["fan_in"])
    chained = linked._replace(links=linked.links[:1])
    assert decided(plan([one, two, chained], declared=ALL), chained) == ("recompute", ["single_chain"])


# -- rule 7: what an injection means for others --------------------------------------------------------------------------


def test_rule_7_what_depends_on_the_outside_is_injected_and_its_readers_keep_their_decision() -> None:
    first, one = ask([user("a")], calls(C1)), ran(C1, "r1")
    last = ask([user("a"), calls(C1), result("c1xq", "r1")], says("x"))
    found = plan([first, one, last], declared=MODELS)
    assert decided(found, one) == ("inject", ["effect_not_declared"])
    assert decided(found, last) == ("recompute", ["single_chain"])
    attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": '[{"content": "3 %"}]'}
    index = span("retrieval", attributes=attributes)
    reader = ask([user("3 %"), user("fee?")], says("x"))
    found = plan([index, reader], declared=MODELS)
    assert decided(found, index) == ("inject", ["external", "input_not_recorded"])
    assert decided(found, reader) == ("recompute", ["single_chain"])


def test_rule_7_a_sampler_is_injected_and_the_tool_that_it_called_keeps_its_decision() -> None:
    first, one = ask([user("a")], calls(C1)), ran(C1, "r1")
    found = plan([first, one], declared=Declared(deterministic=("search",)))
    assert decided(found, first) == ("inject", ["sampled"])
    assert decided(found, one) == ("recompute", ["single_chain"])


# -- the conditions of validity, at every node ---------------------------------------------------------------------------


def _ancestors(found: Plan) -> dict[str, set[str]]:
    """Who is behind whom, the slow way."""
    behind: dict[str, set[str]] = {}
    for node in found.nodes:
        mine = behind.setdefault(node.key, set())
        for edge in found.edges_into(node.key):
            if edge.kind is not EdgeKind.RETURN:
                mine |= {edge.producer, *behind.get(edge.producer, set())}
        if node.structure.extends is not None:
            mine |= {node.structure.extends, *behind.get(node.structure.extends, set())}  # on a circle it may come later
    return behind


@settings(max_examples=150, deadline=None)
@given(runs())
def test_whatever_is_recomputed_has_one_way_in_recorded_or_recomputed_inputs_and_a_recorded_order(spans: list[Span]) -> None:
    found = plan(spans, declared=ALL)
    behind = _ancestors(found)
    for node in found.nodes:
        decision = found.decisions[node.key]
        if decision.choice is not Choice.RECOMPUTE:
            continue
        assert node.inputs.state is State.WHOLE
        if node.operation is Operation.INFERENCE:
            assert decision.order in (OrderEvidence.ARRAY, OrderEvidence.INDEXED, OrderEvidence.EVENTS)
        assert not node.structure.cycle
        assert node.structure.unobserved == node.structure.ambiguous == 0
        new = {edge.producer for edge in decision.edges if edge.kind is not EdgeKind.RETURN}
        new = {key for key in new if key != node.structure.extends} or new
        ordered = sorted(new, key=lambda key: len(behind[key]))
        assert all(one in behind[other] for one, other in itertools.pairwise(ordered))
        filled = {edge.slot for edge in decision.edges}
        if node.operation is Operation.INFERENCE:
            for slot, part in enumerate(node.inputs.parts):
                if slot >= node.structure.begins and part.role in ("assistant", "tool"):
                    assert slot in filled
