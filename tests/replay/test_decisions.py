# SPDX-License-Identifier: Apache-2.0
"""Each row of the decision table, by the smallest run that shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.runs import ask, calls, decided, edges, of, result, says, user
from support.spans import TRACE, WITHOUT_IDS, agent, span, tool

from genai_processor.replay import Declared, Mode, plan
from genai_processor.spans.records import Event, Link, Span

C1 = ("c1x", "search", {"q": 1})
C2 = ("c2x", "search", {"q": 2})
BOTH = Declared(deterministic=("*",), recompute=("*",))


def _turn(*, answer: str = "done") -> tuple[Span, Span, Span]:
    first = ask([user("hi")], calls(C1))
    ran = tool("search", id="c1x", args={"q": 1}, result='"r1"')
    last = ask([user("hi"), calls(C1), result("c1x", "r1")], says(answer))
    return first, ran, last


def test_nothing_is_recomputed_unless_it_is_declared() -> None:
    first, ran, last = _turn()
    found = plan([first, ran, last])
    assert decided(found, first) == ("inject", ["sampled"])
    assert decided(found, ran) == ("inject", ["effect_not_declared"])
    assert decided(found, last) == ("inject", ["sampled"])
    assert [of(found, one)[1].structure_allows_recompute for one in (first, ran, last)] == [True, True, True]
    assert of(found, ran)[1].modes == (Mode.OUTPUT,)
    assert of(found, last)[1].modes == (Mode.OUTPUT, Mode.INPUTS)


def test_constants_and_chains_of_what_is_declared_are_recomputed() -> None:
    first, ran, last = _turn()
    found = plan([first, ran, last], declared=BOTH)
    assert decided(found, first) == ("recompute", ["constant_inputs"])
    assert decided(found, ran) == ("recompute", ["single_chain"])
    assert decided(found, last) == ("recompute", ["single_chain"])
    assert edges(found, last) == {("echo", first.span_id, 1), ("result", ran.span_id, 2)}


def test_a_function_for_the_operation_will_do_for_a_model() -> None:
    first, _, _ = _turn()
    assert decided(plan([first], recompute={"chat": print}), first)[0] == "recompute"
    assert decided(plan([first], recompute=["embeddings"]), first)[0] == "inject"
    assert decided(plan([first], declared=Declared(models=("demo-*",))), first)[0] == "recompute"


def test_a_fan_in_is_injected_in_its_recorded_order() -> None:
    first = ask([user("hi")], calls(C1, C2))
    one, two = tool("search", id="c1x", args={"q": 1}, result='"r1"'), tool("search", id="c2x", args={"q": 2}, result='"r2"')
    last = ask([user("hi"), calls(C1, C2), result("c2x", "r2"), result("c1x", "r1")], says("done"))
    found = plan([first, one, two, last], declared=BOTH)
    assert decided(found, last) == ("inject", ["fan_in"])
    node, _ = of(found, last)
    assert [part.position for part in node.inputs.parts if part.kind == "result"] == [1, 0]


def test_a_result_that_no_span_made_is_injected() -> None:
    first = ask([user("hi")], calls(("h1x", "transfer_to_refunds", {})))
    last = ask([user("hi"), calls(("h1x", "transfer_to_refunds", {})), result("h1x", "ok")], says("done"))
    assert decided(plan([first, last], declared=BOTH), last) == ("inject", ["source_unobserved"])


def test_deleting_a_span_never_turns_an_injection_into_a_recomputation() -> None:
    first = ask([user("hi")], calls(C1, C2))
    one = tool("search", id="c1x", args={"q": 1}, result='"r1"')
    last = ask([user("hi"), calls(C1, C2), result("c1x", "r1"), result("c2x", "r2")], says("done"))
    assert decided(plan([first, one, last], declared=BOTH), last) == ("inject", ["fan_in", "source_unobserved"])


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "not recorded": ({}, {"gen_ai.input.messages": None}, "input_not_recorded"),
    "no JSON": ({}, {"gen_ai.input.messages": "[{]"}, "unreadable"),
    "cut JSON": ({}, {"gen_ai.input.messages": '[{"role": "user", "par'}, "input_cut"),
    "lost attributes": ({"dropped": 1}, {}, "input_cut"),
    "redacted": ({}, {"gen_ai.input.messages": "__REDACTED__"}, "input_redacted"),
    "redacted inside": ({}, {"gen_ai.input.messages": json.dumps([user("pw: <REDACTED:secret>")])}, "input_redacted"),
    "no content": ({}, {"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text"}]}]'}, "input_withheld"),
    "held by the provider": ({}, {"gen_ai.request.previous_response.id": "resp_1"}, "input_held_by_provider"),
    "compacted": ({}, {"gen_ai.conversation.compacted": True}, "input_compacted"),
    "a delta": ({}, {"gen_ai.input.messages": json.dumps([result("c1x", "r1")])}, "input_delta"),
    "two results of one call": (
        {},
        {"gen_ai.input.messages": json.dumps([user("hi"), calls(C1), result("c1x", "r1"), result("c1x", "r2")])},
        "input_delta",
    ),
    "a result before its call": (
        {},
        {"gen_ai.input.messages": json.dumps([user("hi"), calls(C1), result("c2x", "r2"), calls(C2), result("c1x", "r1")])},
        "input_delta",
    ),
    "a message without a role": ({}, {"gen_ai.input.messages": '[{"content": "hi"}]'}, "unreadable"),
}


@pytest.mark.parametrize(("more", "attributes", "reason"), REFUSED.values(), ids=list(REFUSED))
def test_an_input_that_is_not_whole_is_refused(more: dict[str, Any], attributes: dict[str, Any], reason: str) -> None:
    bad = ask([user("hi")], says("done"), attributes=attributes, **more)
    found = plan([bad], declared=BOTH)
    assert decided(found, bad) == ("refuse", [reason])
    assert of(found, bad)[1].remedy


def test_at_the_length_limit_a_text_counts_as_cut() -> None:
    indexed = {"openinference.span.kind": "LLM", "llm.input_messages.0.message.role": "user"}
    bad = span(
        attributes={**indexed, "llm.input_messages.0.message.content": "x" * 64}, scope="openinference.instrumentation.x"
    )
    assert decided(plan([bad], length_limit=64), bad) == ("refuse", ["input_cut"])
    assert decided(plan([bad], length_limit=65), bad)[0] == "inject"


def test_a_gap_in_indexed_messages_is_a_cut() -> None:
    attributes = {"openinference.span.kind": "LLM"}
    for at in (0, 2):
        attributes[f"llm.input_messages.{at}.message.role"] = "user"
        attributes[f"llm.input_messages.{at}.message.content"] = "x"
    bad = span(attributes=attributes, scope="openinference.instrumentation.x")
    assert decided(plan([bad]), bad) == ("refuse", ["input_cut"])


def test_links_say_what_went_in_but_not_in_which_order() -> None:
    one, two = tool("search", id="c1x", args={}, result="r1"), tool("search", id="c2x", args={}, result="r2")
    last = ask(None, says("done"), links=[Link(TRACE, one.span_id, {}), Link(TRACE, two.span_id, {})])
    assert decided(plan([one, two, last]), last) == ("refuse", ["order_not_recorded"])


def test_links_make_a_fan_in() -> None:
    one, two = tool("search", id="c1x", args={}, result="r1"), tool("search", id="c2x", args={}, result="r2")
    last = ask([user("sum up: r1, r2")], says("done"), links=[Link(TRACE, one.span_id, {}), Link(TRACE, two.span_id, {})])
    assert decided(plan([one, two, last], declared=BOTH), last) == ("inject", ["fan_in"])


def test_span_events_are_an_order_unless_some_were_dropped() -> None:
    events = [
        Event("gen_ai.user.message", {"content": '[{"text": "hi"}]'}),
        Event("gen_ai.choice", {"message": '[{"text": "done"}]'}),
    ]
    attributes = {"gen_ai.operation.name": "chat"}
    whole = span(attributes=attributes, events=events)
    lossy = span(attributes=attributes, events=events, dropped_events=1)
    found = plan([whole, lossy])
    assert decided(found, whole) == ("inject", ["sampled"])
    assert of(found, whole)[1].order == "events"
    assert decided(found, lossy) == ("refuse", ["input_cut"])


TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "no arguments": ({"result": "r"}, "arguments_withheld"),
    "marked arguments": (
        {"args": '{"path": "c.env", "content": "pw: <REDACTED:secret>"}', "result": "r"},
        "arguments_redacted",
    ),
    "cut arguments": ({"args": '{"content": "[TRUNCATED]"}', "result": "r"}, "arguments_redacted"),
    "no outcome": ({"args": "{}"}, "outcome_not_recorded"),
    "a marked outcome": ({"args": "{}", "result": "[REDACTED]"}, "outcome_redacted"),
    "a cut outcome": ({"args": "{}", "result": '{"rows": [1, 2'}, "outcome_cut"),
}


@pytest.mark.parametrize(("made", "reason"), TOOLS.values(), ids=list(TOOLS))
def test_a_tool_is_refused_without_its_arguments_or_its_outcome(made: dict[str, Any], reason: str) -> None:
    bad = tool("write_file", id="k1x", **made)
    choice, reasons = decided(plan([bad]), bad)
    assert (choice, reasons) == (
        ("refuse", [reason]) if reason else ("inject", ["effect_not_declared", "source_unobserved"])
    )


def test_the_next_prompt_tells_what_a_tool_returned() -> None:
    first = ask([user("hi")], calls(C1))
    ran = tool("search", id="c1x", args={"q": 1})
    last = ask([user("hi"), calls(C1), result("c1x", "r1")], says("done"))
    found = plan([first, ran, last])
    assert decided(found, ran) == ("inject", ["effect_not_declared"])
    assert [part.value for part in of(found, ran)[0].outcome.parts] == ["r1"]


def test_the_proposal_tells_what_a_tool_was_asked() -> None:
    first = ask([user("hi")], calls(C1))
    ran = tool("search", id="c1x", result="r1")
    found = plan([first, ran])
    assert decided(found, ran) == ("inject", ["effect_not_declared"])
    assert [part.value for part in of(found, ran)[0].inputs.parts] == [{"q": 1}]


@pytest.mark.parametrize(
    ("made", "ending"),
    [
        ({"error": "ValueError"}, "failure"),
        ({"raised": "langgraph.errors.GraphInterrupt"}, "paused"),
        ({"raised": "asyncio.exceptions.CancelledError"}, "waits"),
    ],
)
def test_a_failure_a_pause_and_a_cancellation_are_outcomes(made: dict[str, Any], ending: str) -> None:
    ran = tool("search", id="c1x", args={}, **made)
    found = plan([ran])
    assert decided(found, ran)[0] == "inject"
    assert of(found, ran)[0].outcome.ending == ending


def test_calls_that_cannot_be_told_apart_are_refused_unless_their_outcomes_are_one() -> None:
    same = [("c1x", "search", {"q": 1}), ("c2x", "search", {"q": 1})]
    first = ask([user("hi")], calls(*same))
    for values, expected in (
        (("r1", "r2"), ("refuse", ["call_ambiguous"])),
        (("r1", "r1"), ("inject", ["effect_not_declared"])),
    ):
        ran = [tool("search", args={"q": 1}, result=value, scope=WITHOUT_IDS) for value in values]
        assert decided(plan([first, *ran]), ran[0]) == expected


def test_the_result_that_was_read_tells_calls_without_ids_apart() -> None:
    same = [("c1x", "search", {"q": 1}), ("c2x", "search", {"q": 1})]
    first = ask([user("hi")], calls(*same))
    one, two = tool("search", args={"q": 1}, result="r1"), tool("search", args={"q": 1}, result="r2")
    last = ask([user("hi"), calls(*same), result("c2x", "r1"), result("c1x", "r2")], says("done"))
    found = plan([first, one, two, last])
    assert [of(found, one)[0].call_id, of(found, two)[0].call_id] == ["c2x", "c1x"]
    assert edges(found, last) >= {("result", one.span_id, 3), ("result", two.span_id, 4)}


def test_copies_of_a_span_that_differ_are_refused_whichever_came_first() -> None:
    one = tool("search", id="c1x", args={}, result="r1")
    other = one._replace(attributes={**one.attributes, "gen_ai.tool.call.result": "r2"})
    for spans in ([one, other], [other, one]):
        assert decided(plan(spans), one) == ("refuse", ["conflicting_copies"])


def test_a_circle_of_links_is_refused_and_the_rest_planned() -> None:
    one = ask([user("a")], says("x"))
    two = ask([user("b")], says("y"), links=[Link(TRACE, one.span_id, {})])
    one = one._replace(links=(Link(TRACE, two.span_id, {}),))
    three = ask([user("c")], says("z"), links=[Link(TRACE, two.span_id, {})])
    found = plan([one, two, three])
    assert decided(found, one) == decided(found, two) == ("refuse", ["cycle"])
    assert decided(found, three) == ("inject", ["sampled"])
    assert of(found, three)[1].unverified_upstream


def test_a_link_to_a_span_that_is_not_there_is_an_unobserved_source_and_a_problem() -> None:
    one = ask([user("a")], says("x"), links=[Link(TRACE, "f" * 16, {})])
    found = plan([one], declared=BOTH)
    assert decided(found, one) == ("inject", ["source_unobserved"])
    assert "f" * 16 in found.problems[0].problem


def test_a_trace_without_anything_to_replay_says_so() -> None:
    found = plan([span("GET /")])
    assert found.nodes == ()
    assert "nothing is to be replayed" in found.problems[0].problem


def test_a_handoff_is_injected() -> None:
    found = plan([one := span("handoff", attributes={"gen_ai.operation.name": "handoff"})])
    assert decided(found, one)[0] == "refuse"  # nothing of it is recorded
    said = span("handoff", attributes={"gen_ai.operation.name": "handoff", "output.value": "refunds"})
    assert decided(plan([said], declared=BOTH), said) == ("inject", ["external", "source_unobserved", "input_not_recorded"])


def test_containers_have_no_decision_and_tell_the_worst_inside() -> None:
    around = agent()
    good = ask([user("a")], says("x"), parent=around)
    bad = ask(None, says("x"), parent=around)
    found = plan([around, good, bad])
    assert found.node_of(around.span_id) is None
    (container,) = found.containers.values()
    assert container.worst == "refuse"
    assert len(container.inside) == 2


@pytest.mark.parametrize(
    "ask_for",
    [lambda found, one: list(found.edges_from(f"{TRACE}:{one.span_id}")), lambda found, one: found.node_of(one.span_id)],
)
def test_who_asks_a_plan_while_another_thread_does_is_told_the_same(ask_for: Any) -> None:
    first, ran, last = _turn()
    found, asked, meanwhile = plan([first, ran, last]), [first, ran, last], list[Any]()

    class Interrupted(tuple[Any, ...]):
        """Nodes in the middle of which somebody else asks, once."""

        def __iter__(self) -> Any:
            for node in tuple.__iter__(self):
                yield node
                if not meanwhile:
                    meanwhile.append("asking")
                    meanwhile.extend([ask_for(found, one) for one in asked])

    found.nodes = Interrupted(found.nodes)
    told = [ask_for(found, one) for one in asked]
    assert meanwhile == ["asking", *told]
