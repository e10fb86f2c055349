# SPDX-License-Identifier: Apache-2.0
"""Deltas and compacted histories of which no attribute speaks, and the lists that rightly begin anew."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.runs import Message, ask, calls, decided, of, result, says, told, user
from support.spans import agent, span, tool

from genai_processor.replay import Choice, Declared, Operation, plan
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.records import Span

HISTORIES = Path(__file__).parent.parent / "data" / "histories"
ALL = Declared(deterministic=("*",), recompute=("*",))
CONVERSATION = {"gen_ai.conversation.id": "conv-7"}
C1 = ("c1xq", "search", {"q": 1})
C2 = ("c2xq", "search", {"q": 2})
DELTA = ("refuse", ["input_delta"])
COMPACTED = ("refuse", ["input_compacted"])


def system(text: str) -> Message:
    return {"role": "system", "parts": [{"type": "text", "content": text}]}


def thinks(text: str, *, then: Message) -> Message:
    return {**then, "parts": [{"type": "reasoning", "content": text}, *then["parts"]]}


def trace(number: int) -> str:
    return f"{number:032x}"


def reasons(*spans: Span) -> list[list[str]]:
    found = plan(spans, declared=ALL)
    return [decided(found, one)[1] for one in spans if one.attributes["gen_ai.operation.name"] == "chat"]


# -- what recorded agents did ------------------------------------------------------------------------------------------

RIGHT = {
    "openai-agents__genai/previous_response": {"input_delta": 5},
    "openai-agents__genai/previous_response_text_only": {"input_delta": 2},
    "openai-agents__genai/server_conversation": {"input_delta": 3},
    "openai-agents__genai/whole_history": {},
    "openai-agents__genai/handoff": {},
    "openai-agents__genai/handoff_filtered": {},
    "openai-agents__genai/handoff_nested": {},
    "openai-agents__genai/parallel_runs": {},
    "openai-agents__genai/agents_as_tools": {},
    "openai-agents__openinference/previous_response": {"input_held_by_provider": 4},
    "openai-agents__openinference/previous_response_text_only": {"input_held_by_provider": 1},
    "openai-agents__openinference/server_conversation": {"input_delta": 3},
    "openai-agents__openinference/whole_history": {},
    "openai-agents__openinference/handoff": {},
    "openai-agents__openinference/handoff_filtered": {},
    "openai-agents__openinference/handoff_nested": {},
    "openai-agents__openinference/parallel_runs": {},
    "openai-agents__openinference/agents_as_tools": {},
    "langchain__genai/summarised": {"input_compacted": 1},
    "langchain__genai/trimmed": {"input_delta": 3},
    "langchain__genai/results_cleared": {},
    "langchain__genai/supervisor": {},
    "langchain__genai/graders": {},
}
"""How many inferences of each recorded story are refused, and why; of the first, none but those are whole."""


@pytest.mark.parametrize(("story", "refused"), RIGHT.items(), ids=list(RIGHT))
def test_of_recorded_agents_those_lists_are_refused_that_are_not_whole(story: str, refused: dict[str, int]) -> None:
    def fail(error: object) -> None:
        pytest.fail(str(error))

    found = plan(read_spans(HISTORIES / f"{story}.jsonl", on_error=fail))
    counted: dict[str, int] = {}
    for node in found.nodes:
        decision = found.decisions[node.key]
        if decision.choice is Choice.REFUSE:
            assert node.operation is Operation.INFERENCE
            counted[str(decision.reasons[0])] = counted.get(str(decision.reasons[0]), 0) + 1
    assert counted == refused


def test_every_recorded_story_is_looked_at() -> None:
    assert {f"{path.parent.name}/{path.stem}" for path in HISTORIES.glob("*/*.jsonl")} == set(RIGHT)


# -- rule 1: an answer without what was read for it --------------------------------------------------------------------


def test_a_list_that_begins_with_the_agents_own_answer_is_a_delta() -> None:
    first = ask([user("hi")], calls(C1))
    ran = tool("search", id="c1xq", args={"q": 1}, result="r1")
    last = ask([calls(C1), result("c1xq", "r1")], says("done"))
    found = plan([first, ran, last], declared=ALL)
    assert decided(found, last) == DELTA
    assert of(found, last)[1].remedy.startswith("send the whole history with each request, or record it on the span")
    assert decided(found, ran)[0] == "recompute"


def test_a_window_over_a_history_is_a_delta() -> None:
    first = ask([user("a")], says("x"))
    second = ask([user("a"), says("x"), user("b")], says("y"))
    third = ask([user("b"), says("y"), user("c")], says("z"))
    assert reasons(first, second, third) == [["constant_inputs"], ["single_chain"], ["input_delta"]]


def test_a_beginning_that_something_else_took_the_place_of_is_a_compaction() -> None:
    first = ask([user("a")], says("x"))
    second = ask([user("a"), says("x"), user("b")], says("y"))
    third = ask([user("we spoke of a"), user("b"), says("y"), user("c")], says("z"))
    found = plan([first, second, third], declared=ALL)
    assert decided(found, third) == COMPACTED
    assert of(found, third)[1].remedy == "record the messages as they were sent, after the compaction"


def test_a_middle_that_is_left_out_is_not_whole_either() -> None:
    first = ask([user("a")], calls(C1))
    second = ask([user("a"), calls(C1), result("c1xq", "r1")], calls(C2))
    third = ask([user("a"), calls(C2), result("c2xq", "r2")], says("z"))
    assert reasons(first, second, third)[2] == ["input_delta"]


def test_what_goes_on_from_such_a_list_lacks_the_same() -> None:
    first = ask([user("a")], says("x"))
    second = ask([user("a"), says("x"), user("b")], says("y"))
    third = ask([user("in short: a"), user("b"), says("y"), user("c")], says("z"))
    fourth = ask([user("in short: a"), user("b"), says("y"), user("c"), says("z"), user("d")], says("w"))
    moved = ask([system("noon"), user("in short: a"), user("b"), says("y"), user("c"), says("z"), user("e")], says("v"))
    again = ask([system("hi"), user("a"), says("x"), user("b"), says("y"), user("c"), says("z"), user("f")], says("u"))
    found = reasons(first, second, third, fourth, moved, again)
    assert found[2:5] == [["input_compacted"]] * 3
    assert found[5] != ["input_compacted"]  # it has again what the third one lacks


def test_in_two_runs_of_one_agent_and_in_two_traces_of_one_conversation_lists_are_one_agents() -> None:
    for more in ({}, {"trace": trace(2)}):
        one, two = agent(attributes=CONVERSATION), agent(attributes=CONVERSATION, **more)
        first = ask([user("a")], says("x"), parent=one)
        second = ask([user("a"), says("x"), user("b")], says("y"), parent=one)
        third = ask([user("b"), says("y"), user("c")], says("z"), parent=two)
        assert reasons(first, second, third, one, two)[2] == ["input_delta"]


# -- what is no loss -----------------------------------------------------------------------------------------------------


def test_other_instructions_are_no_loss() -> None:
    first = ask([system("it is nine"), user("a")], calls(C1))
    second = ask([system("it is ten"), user("a"), calls(C1), result("c1xq", "r1")], says("done"))
    assert reasons(first, second)[1][0] != "input_compacted"


def test_reasoning_that_is_not_sent_again_is_no_loss() -> None:
    first = ask([user("a")], thinks("hm", then=calls(C1)))
    second = ask([user("a"), thinks("hm", then=calls(C1)), result("c1xq", "r1")], thinks("so", then=calls(C2)))
    third = ask([user("a"), calls(C1), result("c1xq", "r1"), calls(C2), result("c2xq", "r2")], says("done"))
    assert "refuse" not in [decided(plan([first, second, third], declared=ALL), one)[0] for one in (first, second, third)]


def test_values_that_were_edited_in_place_are_no_loss_and_words_of_the_model_are() -> None:
    history = [user("a"), calls(C1), result("c1xq", "a long result")]
    first, second = ask(history[:1], calls(C1)), ask(history, says("x"))
    edited = ask([user("a"), calls(C1), result("c1xq", "[cleared]"), says("x"), user("b")], says("y"))
    assert reasons(first, second, edited)[2][0] not in ("input_delta", "input_compacted")
    spoken = ask([user("a"), says("hm"), user("c")], says("z"))
    lost = ask([user("a"), says("we spoke of a"), user("c"), says("z"), user("d")], says("w"))
    assert reasons(spoken, lost)[1] == ["input_compacted"]


def test_parts_that_were_added_are_no_loss() -> None:
    first = ask([user("a")], says("x"))
    second = ask([user("what I remember: m"), user("a"), says("x"), user("b")], says("y"))
    assert reasons(first, second)[1] == ["single_chain"]


# -- lists that rightly begin anew ---------------------------------------------------------------------------------------


def test_a_sub_agent_starts_a_list_of_its_own() -> None:
    task = ("c9xq", "delegate", {"task": "refund o1"})
    boss = ask([user("hi"), says("hello"), user("refund o1")], calls(task))
    hand = tool("delegate", id="c9xq", args='{"task": "refund o1"}', result="done")
    inside = agent(parent=hand)
    told_all = ask([calls(task), user("do it")], says("done"), parent=inside)
    own = ask([user("refund o1")], says("done"), parent=inside)
    found = plan([boss, hand, inside, told_all, own], declared=ALL)
    assert decided(found, told_all)[0] != "refuse"
    assert decided(found, own)[0] != "refuse"


def test_a_handoff_may_filter_the_history() -> None:
    one, two = [agent(attributes={"gen_ai.agent.name": name}) for name in ("triage", "refunds")]
    first = ask([user("a")], calls(C1), parent=one)
    second = ask([user("a"), calls(C1), result("c1xq", "r1")], calls(("h1xq", "transfer", {})), parent=one)
    filtered = ask([calls(("h1xq", "transfer", {})), result("h1xq", "ok")], says("done"), parent=two)
    found = plan([one, two, first, second, filtered], declared=ALL)
    assert decided(found, filtered)[0] != "refuse"
    same = filtered._replace(parent_span_id=one.span_id)
    assert decided(plan([one, two, first, second, same], declared=ALL), same) == DELTA


def test_an_agent_inside_of_another_one_has_lists_of_its_own() -> None:
    outer, named = agent(), {"gen_ai.agent.name": "a"}
    inner = agent(parent=outer, attributes=named)
    first = ask([user("a")], calls(C1), parent=inner)
    second = ask([user("a"), calls(C1), result("c1xq", "r1")], says("x"), parent=inner)
    lead = ask([user("a"), says("x"), user("go on")], says("y"), parent=outer)
    assert decided(plan([outer, inner, first, second, lead], declared=ALL), lead)[0] != "refuse"


def test_another_step_of_a_workflow_has_lists_of_its_own() -> None:
    around = agent()
    chain = {"openinference.span.kind": "CHAIN"}
    steps = [span(name, parent=around, attributes=chain) for name in ("model", "model", "judge")]
    first = ask([user("a")], calls(C1), parent=steps[0])
    second = ask([user("a"), calls(C1), result("c1xq", "r1")], says("x"), parent=steps[1])
    judge = ask([says("x"), user("is that so?")], says("yes"), parent=steps[2])
    found = plan([around, *steps, first, second, judge], declared=ALL)
    assert decided(found, judge)[0] != "refuse"
    again = judge._replace(parent_span_id=steps[1].span_id)
    assert decided(plan([around, *steps, first, second, again], declared=ALL), again) == DELTA


def test_retries_of_one_list_are_whole() -> None:
    named = {"attributes": CONVERSATION}
    spans = [ask([user("a")], says(text), **named) for text in ("x", "y")]
    spans += [ask([user("a")], says("z"), trace=trace(2), **named)]
    assert reasons(*spans) == [["constant_inputs"]] * 3


def test_agents_side_by_side_and_summarisers_start_anew() -> None:
    around = [agent(attributes=CONVERSATION) for _ in range(3)]
    spans = [ask([user(f"task {at}")], says(f"done {at}"), parent=one) for at, one in enumerate(around)]
    assert reasons(*spans, *around) == [["constant_inputs"]] * 3
    chat = [ask([user("a")], says("x"), attributes=CONVERSATION)]
    chat.append(ask([user("a"), says("x"), user("b")], says("y"), attributes=CONVERSATION, trace=trace(2)))
    summary = ask([user("sum up: a, x")], says("a then x"), attributes=CONVERSATION, trace=trace(3))
    assert reasons(*chat, summary)[2] == ["constant_inputs"]


# -- rule 2: a call that nobody said -------------------------------------------------------------------------------------


def test_a_list_that_begins_with_a_call_of_nobody_is_a_delta() -> None:
    assert reasons(ask([system("help"), calls(C1), result("c1xq", "r1")], says("done"))) == [["input_delta"]]
    assert reasons(ask([says("Hello! How may I help?"), user("a")], says("x"))) == [["source_unobserved"]]


# -- rules 3 and 4: lists without any history ----------------------------------------------------------------------------


def test_beside_deltas_no_list_is_known_to_be_the_first() -> None:
    root, delta = ask([user("refund it")], calls(C1)), ask([result("c1xq", "r1")], says("done"))
    assert reasons(root, delta) == [["input_delta"]] * 2
    named = [agent(attributes={"gen_ai.agent.name": name}) for name in "ab"]
    root, delta = [one._replace(parent_span_id=named[0].span_id) for one in (root, delta)]
    other = ask([user("hi")], says("x"), parent=named[1])
    assert reasons(root, delta, other, *named) == [["input_delta"], ["input_delta"], ["constant_inputs"]]
    unknown = agent()
    other = other._replace(parent_span_id=unknown.span_id)
    assert reasons(root, delta, other, *named, unknown)[2] == ["input_delta"]  # it may be the same agent


def test_an_agent_that_sends_histories_and_once_a_broken_one_is_not_taken_for_one_that_sends_deltas() -> None:
    first = ask([user("a")], calls(C1))
    second = ask([user("a"), calls(C1), result("c1xq", "r1")], says("x"))
    broken = ask([result("c1xq", "r1"), says("x"), user("b")], says("y"))
    assert reasons(first, second, broken) == [["constant_inputs"], ["source_unobserved"], ["input_delta"]]


def test_a_list_with_two_results_of_one_call_makes_no_other_list_doubtful() -> None:
    root = ask([user("a")], calls(C1))
    broken = ask([user("a"), calls(C1), result("c1xq", "r1"), result("c1xq", "r2")], says("x"))
    assert reasons(root, broken) == [["constant_inputs"], ["input_delta"]]
    alone = ask([user("b"), result("c9xq", "r1")], says("x"))
    assert reasons(root, alone) == [["constant_inputs"], ["input_delta"]]


def test_a_mark_tells_which_list_is_a_continuation() -> None:
    held = {**CONVERSATION, "gen_ai.request.previous_response.id": "resp_1"}
    root = ask([user("a")], says("x"), attributes=CONVERSATION)
    marked = ask([user("b")], says("y"), attributes=held, trace=trace(2))
    assert reasons(root, marked) == [["constant_inputs"], ["input_held_by_provider"]]


TURNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in one run": ({}, {}),
    "in two traces": ({}, {"trace": trace(2)}),
}


@pytest.mark.parametrize(("one", "two"), TURNS.values(), ids=list(TURNS))
def test_a_named_conversation_that_never_shows_a_history_is_not_known_to_be_whole(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    around = agent(**one)
    other = agent(**two) if two else around
    for attributes, expected in ((CONVERSATION, ["input_delta"]), ({}, ["constant_inputs"])):
        spans = [
            ask([user("a")], says("x"), parent=around, attributes=attributes),
            ask([user("b")], says("y"), parent=other, attributes=attributes),
        ]
        assert reasons(*spans, around, other) == [expected] * 2


def test_several_prompts_under_several_instructions_are_no_conversation() -> None:
    around = agent()
    for more in ([system("plan"), system("write")], None):
        spans = []
        for at in range(2):
            apart = {} if more else {"gen_ai.system_instructions": f'[{{"type": "text", "content": "as {at}"}}]'}
            read = [*([more[at]] if more else []), user(f"task {at}")]
            spans.append(ask(read, says("x"), parent=around, attributes={**CONVERSATION, **apart}))
        assert reasons(*spans, around) == [["constant_inputs"]] * 2


# -- all of them ---------------------------------------------------------------------------------------------------------


def test_no_clock_and_no_order_tells_which_list_is_earlier() -> None:
    first = ask([user("a")], says("x"))
    second = ask([user("a"), says("x"), user("b")], says("y"))
    third = ask([user("b"), says("y"), user("c")], says("z"))
    expected = told(plan([first, second, third], declared=ALL))
    for seed in range(6):
        rng = random.Random(seed)
        spans = [one._replace(start_ns=rng.randrange(99)) for one in (first, second, third)]
        rng.shuffle(spans)
        assert told(plan(spans, declared=ALL)) == expected
