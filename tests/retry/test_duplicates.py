# SPDX-License-Identifier: Apache-2.0
"""Which executions repeat an effect for certain, which perhaps, and which are meant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.spans import ARGS, ID, Read, agent, chat, failed_tool, span, tool

from genai_processor.retry.duplicates import retry_of
from genai_processor.retry.policy import Policy
from genai_processor.spans.read import from_cache
from genai_processor.spans.records import Link, Span, SpanKind

OTHER = "call_Other7Qw2zz"
VALUE = json.loads(ARGS)
TALK = {"gen_ai.conversation.id": "talk"}
PAUSE = "langgraph.errors.GraphInterrupt"


def groups(*spans: Span, **options: Any) -> list[tuple[str, bool, list[str]]]:
    return groups_of([list(spans)], **options)


def groups_of(traces: list[list[Span]], **options: Any) -> list[tuple[str, bool, list[str]]]:
    found = Read(*traces, **options).duplicates
    return [(group.key.value, group.suspected, group.span_ids) for group in found]


def ids(*spans: Span) -> list[str]:
    return [one.span_id for one in spans]


def first(**more: Any) -> Span:
    return tool(**{"id": ID, "args": ARGS, "at": (10, 20), **more})


def again(**more: Any) -> Span:
    return tool(**{"id": OTHER, "args": ARGS, "at": (30, 40), **more})


# -- certain ---------------------------------------------------------------------------------------------------------


def test_one_id_executed_twice_in_a_scope() -> None:
    one, two = first(), again(id=ID)
    assert groups(one, two) == [("call_id", False, ids(one, two))]
    other_trace = again(id=ID, trace="2" * 32, attributes=TALK)
    assert groups_of([[first(attributes=TALK)], [other_trace]])[0][:2] == ("call_id", False)


@pytest.mark.parametrize("attempt", ["failed", "unknown", "quarantined"])
def test_an_action_run_again_after_an_uncertain_attempt_whatever_the_ids(attempt: str) -> None:
    marks: dict[str, Any] = {
        "failed": {"error": "RuntimeError"},
        "unknown": {"scope": "strands.telemetry.tracer"},
        "quarantined": {"at": (10, None)},
    }[attempt]
    one, two, three = first(**marks), again(), again(id="call_Third9Kd1", at=(50, 60))
    assert groups(one, two, three) == [("action", False, ids(one, two, three))]


def test_more_executions_than_the_turn_proposed() -> None:
    """Which of them it proposed, the ids tell; the one too many has no proposal of its own."""
    turn = chat((ID, "create_refund", VALUE), (OTHER, "create_refund", VALUE))
    one, two, three = first(), again(), again(at=(50, 60))
    assert groups(turn, one, two) == []
    assert groups(turn, one, two, three) == [("call_id", False, ids(two, three))]
    nameless = [tool(args=ARGS, at=(n, n + 5)) for n in (10, 20)]
    assert groups(chat((None, "create_refund", VALUE)), *nameless) == [("action", False, ids(*nameless))]
    twins = chat((ID, "create_refund", VALUE), (OTHER, "create_refund", VALUE))
    assert groups(twins, *nameless) == []
    nameless.append(tool(args=ARGS, at=(30, 35)))
    assert groups(twins, *nameless) == [("action", False, ids(*nameless))]


@pytest.mark.parametrize("known", ["first", "second"])
def test_one_proposal_executed_under_two_ids(known: str) -> None:
    one, two = first(id=ID if known == "first" else "fc_Tmp1aZ"), again(id=ID if known == "second" else "fc_Tmp1aZ")
    turn = chat((ID, "create_refund", VALUE))
    assert groups(turn, one, two) == [("action", False, ids(one, two))]
    silent = chat(at=(26, 28))
    expected = known == "first"  # a later turn, whose proposals may not be recorded, may have proposed the second
    assert groups(turn, silent, one, two) == [("action", expected, ids(one, two))]


@pytest.mark.parametrize("kind", ["inference", "enclosing"])
def test_a_failure_of_the_scope_between_two_runs_of_an_action(kind: str) -> None:
    one, two = first(), again()
    turns = [chat((ID, "create_refund", VALUE)), chat((OTHER, "create_refund", VALUE), at=(26, 28))]
    bad = chat(at=(22, 25), error="APIError") if kind == "inference" else agent(at=(8, 25), error="RuntimeError")
    assert groups(one, two, *turns, bad) == [("action", False, ids(one, two))]
    assert [found[1] for found in groups(one, two, *turns)] == [True]


def test_two_traces_of_one_scope_that_run_it_at_overlapping_times() -> None:
    one = first(trace="1" * 32, attributes=TALK)
    two = again(trace="2" * 32, attributes=TALK, at=(15, 25))
    assert groups_of([[one], [two]]) == [("action", False, ids(one, two))]
    later = again(trace="2" * 32, attributes=TALK)
    assert groups_of([[one], [later]]) == [("action", True, ids(one, later))]


def test_an_earlier_trace_with_a_failed_call_of_another_tool() -> None:
    trace = [first(trace="1" * 32, attributes=TALK), failed_tool("mail", trace="1" * 32, attributes=TALK, at=(22, 24))]
    two = again(trace="2" * 32, attributes=TALK)
    assert groups_of([trace, [two]]) == [("action", False, ids(trace[0], two))]


def test_a_link_that_says_so() -> None:
    link = Link("1" * 32, "a" * 16, {"type": "RETRY_OF"})
    two = again(links=[link])
    assert groups(two) == [("link", False, ["a" * 16, two.span_id])]
    assert groups(again(links=[link._replace(attributes={"type": "related"})])) == []


# -- suspected -------------------------------------------------------------------------------------------------------


def test_the_same_action_in_a_later_turn_after_a_plain_success() -> None:
    turns = [chat((ID, "create_refund", VALUE)), chat((OTHER, "create_refund", VALUE), at=(26, 28))]
    one, two = first(), again()
    assert groups(one, two, *turns) == [("action", True, ids(one, two))]


def test_the_same_tool_again_after_a_failed_call_whose_arguments_are_withheld() -> None:
    one, two = failed_tool(at=(10, 20)), tool(at=(30, 40))
    assert groups(one, two) == [("tool", True, ids(one, two))]
    assert groups(tool(at=(10, 20)), two) == []
    assert groups(failed_tool("mail", at=(10, 20)), two) == []


def test_paused_and_then_run_again() -> None:
    one = first(raised=PAUSE)
    assert groups(one, again(id=ID))[0][:2] == ("call_id", True)
    assert groups(one, again())[0][:2] == ("action", True)


def test_several_client_requests_under_one_call() -> None:
    call = first()
    mcp = {"mcp.method.name": "tools/call"}
    sent = [tool(kind=SpanKind.CLIENT, attributes=mcp, parent=call, at=at) for at in ((11, 13), (14, 16))]
    assert groups(call, *sent) == [("sends", True, ids(*sent))]
    assert groups(call, sent[0]) == []


# -- meant -----------------------------------------------------------------------------------------------------------


def test_identical_proposals_of_one_turn_are_meant() -> None:
    turn = chat((ID, "create_refund", VALUE), (OTHER, "create_refund", VALUE))
    one, two = first(), again()
    assert groups(turn, one, two) == []
    three = again(id=OTHER, at=(50, 60))
    assert groups(turn, one, two, three) == [("call_id", False, ids(two, three))]


def test_nested_spans_and_a_servers_view_are_one_execution() -> None:
    call = first()
    mcp = {"mcp.method.name": "tools/call"}
    assert groups(call, first(parent=call), tool(kind=SpanKind.SERVER, attributes=mcp, at=(12, 18))) == []


@pytest.mark.parametrize(
    "second",
    [
        {"id": ID, "args": '{"order_id":"o2","amount_cents":500}'},
        {"id": ID, "name": "send_mail"},
        {"attributes": {"crewai.tool.from_cache": True}},
        {"args": '{"order_id":"o1","amount_cents":501}'},
    ],
    ids=["one id for two actions", "one id for two tools", "a cache hit", "other arguments"],
)
def test_no_repetition(second: dict[str, Any]) -> None:
    assert groups(first(), again(**second)) == []


def test_other_scopes_are_other_worlds() -> None:
    assert groups_of([[first(trace="1" * 32)], [again(trace="2" * 32)]]) == []


def test_an_id_that_counts_the_calls_of_a_run_says_nothing_across_traces() -> None:
    one = first(id="call_0", trace="1" * 32, attributes=TALK)
    two = again(id="call_0", args='{"order_id":"o2"}', trace="2" * 32, attributes=TALK)
    assert groups_of([[one], [two]]) == []


def test_what_never_started_is_no_execution() -> None:
    stage = {"pydantic_ai.tool.failure_stage": "validation"}
    one = first(scope="pydantic-ai", error="x.ValidationError", attributes=stage)
    assert groups(one, again(scope="pydantic-ai", result="done")) == []


def test_read_only_and_framework_tools_have_nothing_to_repeat() -> None:
    assert groups(first(error="E"), again(), policy=Policy(read_only=("create_*",))) == []
    final = [
        tool("final_answer", args=ARGS, scope="opentelemetry.instrumentation.genai.smolagents", at=(n, n + 1))
        for n in (1, 5)
    ]
    assert groups(*final) == []


def test_an_idempotent_tools_retry_under_its_own_id_is_what_the_id_is_for() -> None:
    policy = Policy(idempotent=("create_*",))
    one, two = first(error="E"), again(id=ID)
    assert groups(one, two, policy=policy) == []
    other = again()
    assert groups(one, other, policy=policy) == [("action", False, ids(one, other))]


def test_reading_a_span_twice_is_no_repetition() -> None:
    one = first()
    assert groups(one, one) == []
    assert groups_of([[one], [one]]) == []


def test_the_rebilled_turn_is_counted_once() -> None:
    from genai_processor.retry.survey import Survey
    from genai_processor.retry.trace import Trace

    usage = {"gen_ai.usage.input_tokens": 700, "gen_ai.usage.output_tokens": 9}
    wrapper = span("chat model", attributes={"gen_ai.operation.name": "chat", **usage}, at=(25, 29))
    turns = [
        chat((ID, "create_refund", VALUE), attributes={"gen_ai.usage.input_tokens": 300}),
        wrapper,
        chat((OTHER, "create_refund", VALUE), attributes=usage, at=(26, 28), parent=wrapper),
    ]
    used = Survey(Policy()).judge(Trace([*turns, first(error="E"), again()], length_limit=0))[1]
    assert (used.input_tokens, used.output_tokens, used.rebilled_tokens) == (1_000, 9, 700)


@pytest.mark.parametrize(
    ("given", "produced"),
    [
        ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"),
        ("llm.token_count.prompt", "llm.token_count.completion"),
        ("ai.usage.promptTokens", "ai.usage.completionTokens"),
        ("ai.usage.inputTokens", "ai.usage.outputTokens"),
    ],
)
def test_tokens_are_those_of_the_innermost_inferences(given: str, produced: str) -> None:
    from genai_processor.retry.survey import Survey
    from genai_processor.retry.trace import Trace

    whole = agent(attributes={given: 25, produced: 4}, at=(1, 40))
    turn = chat(attributes={given: 25, produced: 4}, at=(2, 9), parent=whole)
    used = Survey(Policy()).judge(Trace([turn, whole], length_limit=0))[1]
    assert (used.input_tokens, used.output_tokens) == (25, 4)


def test_an_id_that_counts_calls_is_one_within_its_run() -> None:
    one, two = first(id="call_0"), again(id="call_0")
    assert groups(one, two) == [("call_id", False, ids(one, two))]
    withheld = first(id="call_0", args=None), again(id="call_0", args=None)
    assert groups(*withheld) == [("call_id", True, ids(*withheld))], "the next turn may have such an id, too"
    named = first(args=None), again(id=ID, args=None)
    assert groups(*named) == [("call_id", False, ids(*named))]


def test_an_id_that_counts_calls_is_another_in_another_turn() -> None:
    turns = [chat(("call_0", "create_refund", VALUE)), chat(("call_0", "create_refund", VALUE), at=(26, 28))]
    one, two = first(id="call_0"), again(id="call_0")
    assert groups(one, two, *turns) == [("action", True, ids(one, two))]
    three = again(id="call_0", at=(50, 60))
    assert groups(one, two, three, *turns)[-1] == ("action", False, ids(one, two, three))


def test_an_idempotent_tool_without_ids_has_no_retry_of_its_own() -> None:
    one, two = first(id=None, error="E"), again(id=None)
    assert groups(one, two, policy=Policy(idempotent=("create_*",))) == [("action", False, ids(one, two))]


def test_calls_at_the_same_time_that_nobody_is_seen_to_propose_are_meant() -> None:
    assert groups(first(), again(at=(15, 25))) == []
    assert groups(first(), again(at=(21, 25)))[0][:2] == ("action", True)
    turn = chat((ID, "create_refund", VALUE))
    assert groups(turn, first(), again(at=(15, 25)))[0][:2] == ("action", False), "that turn proposed one"


@pytest.mark.parametrize("key", ["crewai.tool.from_cache", "gen_ai.tool.from_cache"])
def test_what_a_cache_answered_was_not_executed(key: str) -> None:
    assert from_cache({key: True})
    assert not from_cache({key: "True"})
    assert not from_cache({})


def test_a_link_says_so_by_its_attribute_or_its_name() -> None:
    assert retry_of({"kind": "retry_of"})
    assert retry_of({"RETRY_OF": True})
    assert not retry_of({"kind": "follows"})


# -- calls in front of which a guard stood -----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["refused", "handed_back"])
def test_what_a_guard_did_not_let_run_repeats_nothing(outcome: str) -> None:
    assert groups(failed_tool(id=ID, args=ARGS, at=(10, 20)), again(attributes={"genai.guard.outcome": outcome})) == []
    assert groups(failed_tool(id=ID, args=ARGS, at=(10, 20)), again(attributes={"genai.guard.outcome": "would_refuse"}))


def test_a_recorded_refusal_is_read_as_it_was_judged_live() -> None:
    refused = again(attributes={"genai.guard.outcome": "refused"})
    read = Read([refused])
    assert read.verdict(refused) == ("quarantined", "refused_by_guard")
    assert read.of(refused).call.verdict.execution.value == "not_started"
