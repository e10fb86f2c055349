# SPDX-License-Identifier: Apache-2.0
"""Which proposal an execution without a call id shows: what is lost excludes nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.runs import ask, calls, decided, edges, result, says, user
from support.spans import WITHOUT_IDS, span, tool

from genai_processor.replay import Declared, plan

C1 = ("c1x", "search", {"q": 1})
C2 = ("c2x", "search", {"q": 2})
BOTH = Declared(deterministic=("*",), recompute=("*",))


def test_what_a_name_alone_joins_is_not_recomputed() -> None:
    """Neither id nor arguments are on the span: that there is one of each is no proof, since spans may be missing."""
    first, bare = ask([user("hi")], calls(C1)), tool("search", result="r1", scope=WITHOUT_IDS)
    assert decided(plan([first, bare], declared=BOTH), bare) == ("inject", ["source_ambiguous"])
    known = tool("search", args={"q": 1}, result="r1", scope=WITHOUT_IDS)
    assert decided(plan([first, known], declared=BOTH), known) == ("recompute", ["single_chain"])


def test_what_may_have_lost_its_id_may_be_another_call_so_it_has_to_stand_by_itself() -> None:
    """The id might have been that of a call whose proposal is lost: then there would be nothing to join it with."""
    first, last = ask([user("hi")], calls(C1)), ask([user("hi"), calls(C1), result("c1x", "r1")], says("done"))
    for made, expected in (
        ({"args": {"q": 1}, "result": "r1"}, ("inject", ["source_ambiguous"])),
        ({"args": {"q": 2}, "result": "r1"}, ("inject", ["source_unobserved"])),
        ({"args": {"q": 1}}, ("inject", ["source_unobserved", "output_not_recorded"])),
        ({"result": "r1"}, ("refuse", ["arguments_withheld"])),
        ({}, ("refuse", ["arguments_withheld"])),
    ):
        ran = tool("search", **made)
        assert decided(plan([first, ran, last], declared=BOTH), ran) == expected


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        (("c2x", "search", {"q": 1}), ("refuse", ["call_ambiguous"])),
        (("c2x", "search", None), ("inject", ["source_ambiguous"])),
        (("c2x", "search", {"q": 2}), ("recompute", ["single_chain"])),
        (("c2x", "refund", None), ("recompute", ["single_chain"])),
    ],
)
def test_a_call_whose_proposal_is_lost_may_be_what_ran(lost: tuple[str, str, Any], expected: tuple[str, list[str]]) -> None:
    """It was only read, perhaps without its arguments."""
    first, ran = ask([user("hi")], calls(C1)), tool("search", args={"q": 1}, result="r1", scope=WITHOUT_IDS)
    read = ask([user("ho"), calls(lost), user("well?")], says("done"))
    assert decided(plan([first, ran, read], declared=BOTH), ran) == expected


def test_a_name_joins_with_none_of_several_calls_unless_only_one_was_read_to_come_to_the_same() -> None:
    first = ask([user("hi")], calls(C1, C2))
    known = tool("search", args={"q": 2}, result="r2", scope=WITHOUT_IDS)
    bare = tool("search", result="r1", scope=WITHOUT_IDS)
    refused = ("refuse", ["arguments_withheld"])
    assert decided(plan([first, known, bare], declared=BOTH), bare) == refused  # that one is left over proves nothing
    read = [user("hi"), calls(C1, C2), result("c1x", "r1")]
    assert decided(plan([first, known, bare, ask(read, says("done"))], declared=BOTH), bare) == refused
    whole = ask([*read, result("c2x", "r2")], says("done"))
    assert decided(plan([first, known, bare, whole], declared=BOTH), bare) == ("inject", ["source_ambiguous"])


def test_what_lost_its_tools_name_cannot_be_told_from_any_call() -> None:
    first, bare = ask([user("hi")], calls(C1)), tool(None, args={"q": 1}, result="r1", scope=WITHOUT_IDS)
    assert decided(plan([first, bare], declared=BOTH), bare) == ("refuse", ["call_ambiguous"])


def test_several_executions_without_ids_of_what_was_proposed_once_are_not_recomputed() -> None:
    first = ask([user("hi")], calls(C1))
    ran = [tool("search", args={"q": 1}, **made) for made in ({"error": "TimeoutError"}, {"result": "r1"})]
    last = ask([user("hi"), calls(C1), result("c1x", "r1")], says("done"))
    found = plan([first, *ran, last], declared=BOTH)
    assert [decided(found, one) for one in ran] == [("inject", ["source_ambiguous"])] * 2
    assert ("result", ran[1].span_id, 2) in edges(found, last)


def test_where_an_answer_is_not_recorded_no_execution_without_an_id_is_anybodys() -> None:
    first, lost = ask([user("hi")], calls(C1)), ask([user("ho")], None)
    ran = tool("search", args={"q": 1}, result="r1", scope=WITHOUT_IDS)
    assert decided(plan([first, ran], declared=BOTH), ran)[0] == "recompute"
    assert decided(plan([first, lost, ran], declared=BOTH), ran) == ("inject", ["source_unobserved"])


def test_a_call_that_was_said_again_was_proposed_by_who_said_it_first() -> None:
    first = ask([user("hi")], calls(C1))
    again = ask([user("hi"), calls(C1), result("c1x", "r1")], calls(C1))
    for named in ({"id": "c1x"}, {}):
        ran = tool("search", args={"q": 1}, result="r1", **named)
        assert edges(plan([first, again, ran]), ran) == {("proposal", first.span_id, 0)}
        assert decided(plan([again, ran], declared=BOTH), ran) == ("inject", ["source_unobserved"])


def test_of_two_lists_on_a_span_the_one_counts_that_says_which_calls_its_results_answer() -> None:
    """So that no decision rises when the other one is lost."""
    first, ran = ask([user("hi")], calls(C1)), tool("search", id="c1x", args={"q": 1}, result="r1")
    flat = {
        "0.message.role": "user",
        "0.message.content": "hi",
        "1.message.role": "assistant",
        "1.message.tool_calls.0.tool_call.id": "c1x",
        "1.message.tool_calls.0.tool_call.function.name": "search",
        "1.message.tool_calls.0.tool_call.function.arguments": '{"q": 1}',
        "2.message.role": "tool",
        "2.message.content": "r1",
    }
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "c1x", "function": {"name": "search", "arguments": '{"q": 1}'}}]},
        {"role": "tool", "tool_call_id": "c1x", "content": "r1"},
    ]
    attributes = {"openinference.span.kind": "LLM", "input.value": json.dumps({"messages": messages})}
    lacking = {**attributes, **{f"llm.input_messages.{key}": value for key, value in flat.items()}}
    for found in (attributes, lacking):
        last = span(attributes={**found, "llm.output_messages.0.message.content": "done"})
        assert ("result", ran.span_id, 2) in edges(plan([first, ran, last], declared=BOTH), last)
