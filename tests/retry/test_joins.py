# SPDX-License-Identifier: Apache-2.0
"""Which proposal a call executes, which spans show one call, and what that gives it: id, arguments, source."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.spans import ARGS, ID, Read, agent, chat, failed_tool, span, tool

from genai_processor.retry.policy import Policy
from genai_processor.spans.records import Span, SpanKind

OTHER = "call_Other7Qw2zz"
VALUE = json.loads(ARGS)
IDEMPOTENT = Policy(idempotent=("create_refund",))
MCP = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "create_refund"}


def row(call: Span, *others: Span, **options: Any) -> Any:
    return Read([call, *others], **options).of(call).call


def step(name: str, proposal: dict[str, Any], **more: Any) -> Span:
    attributes = {"openinference.span.kind": "CHAIN", "input.value": json.dumps({"messages": [proposal]})}
    return span(name, scope="openinference.instrumentation.langchain", attributes=attributes, **more)


def named(call_id: str, tool_name: str = "create_refund") -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": tool_name, "args": VALUE}


# -- the order of joins ----------------------------------------------------------------------------------------------


def test_by_id_a_call_gets_the_arguments_of_its_proposal() -> None:
    found = row(failed_tool(id=ID), chat((OTHER, "create_refund", {"x": 1}), (ID, "create_refund", VALUE)))
    assert found.arguments.value == VALUE
    assert found.arguments_source == "proposal"
    assert (found.facts.call_id, found.facts.call_id_source) == (ID, "span")
    assert (found.verdict.verdict, found.verdict.reason) == ("quarantined", "commitment_marker")


def test_an_id_joins_no_proposal_of_another_tool() -> None:
    assert row(failed_tool(id=ID), chat((ID, "send_mail", VALUE))).arguments_source == "none"


def test_of_two_proposals_with_one_id_the_latest_before_the_call_counts() -> None:
    turns = [
        chat((ID, "create_refund", {"turn": 1}), at=(1, 2)),
        chat((ID, "create_refund", {"turn": 2}), at=(3, 4)),
        chat((ID, "create_refund", {"turn": 3}), at=(30, 40)),
    ]
    assert row(failed_tool(id=ID), *turns).arguments.value == {"turn": 2}


def test_by_the_step_that_names_exactly_one_call() -> None:
    node = step("tools", named(ID))
    found = row(failed_tool(args=ARGS, parent=node), node, chat((ID, "create_refund", VALUE)))
    assert (found.facts.call_id, found.facts.call_id_source) == (ID, "proposal")
    two = step("tools", {"content": [named(ID), named(OTHER)]})
    assert row(failed_tool(parent=two), two).facts.call_id is None
    wrong = step("tools", named(ID, "send_mail"))
    assert row(failed_tool(parent=wrong), wrong).facts.call_id is None


def test_by_tool_and_equal_arguments_however_they_are_written() -> None:
    call = failed_tool(args='{"amount_cents": 5.0e2, "order_id": "o1"}')
    found = row(call, chat((OTHER, "create_refund", {**VALUE, "order_id": "o2"}), (ID, "create_refund", VALUE)))
    assert (found.facts.call_id, found.facts.call_id_source, found.facts.call_id_exact) == (ID, "proposal", True)


def test_by_broken_arguments_too_as_the_model_wrote_them() -> None:
    broken = '{"order_id": "o1", "amou'
    turn = chat((ID, "create_refund", broken), (OTHER, "create_refund", VALUE))
    read = Read([failed_tool(args=broken), turn])
    assert read.rows[0].call.facts.call_id == ID
    assert [call.call_id for call in read.unobserved] == [OTHER]
    assert row(failed_tool(args=broken), turn, length_limit=len(broken)).facts.call_id is None, "telemetry cut both"


def test_each_proposal_is_used_once_oldest_first() -> None:
    turn = chat((ID, "create_refund", VALUE), (OTHER, "create_refund", VALUE))
    first, second = failed_tool(args=ARGS, at=(10, 20)), failed_tool(args=ARGS, at=(11, 20))
    read = Read([first, second, turn])
    assert [read.of(call).call.facts.call_id for call in (first, second)] == [ID, OTHER]


def test_a_join_where_several_proposals_fit_is_no_token_for_an_idempotent_tool() -> None:
    turn = chat((ID, "create_refund", VALUE), (OTHER, "create_refund", VALUE))
    call = failed_tool(args=ARGS)
    assert not row(call, turn).facts.call_id_exact
    assert row(call, turn, policy=IDEMPOTENT).verdict.quarantined
    assert row(call, chat((ID, "create_refund", VALUE)), policy=IDEMPOTENT).verdict.retryable


def test_which_proposal_is_left_is_a_guess_where_the_first_was_one() -> None:
    turn = chat((ID, "create_refund", VALUE), (OTHER, "create_refund", VALUE))
    call = failed_tool(args=ARGS, at=(12, 20))
    nameless = row(call, turn, tool(args=ARGS, at=(11, 20)), policy=IDEMPOTENT)
    assert (nameless.facts.call_id, nameless.facts.call_id_exact) == (OTHER, False)
    assert nameless.verdict.quarantined
    named = row(call, turn, tool(id=ID, args=ARGS, at=(11, 20)), policy=IDEMPOTENT)
    assert (named.facts.call_id, named.facts.call_id_exact) == (OTHER, True)


def test_a_call_beyond_those_proposed_gets_no_id_from_them() -> None:
    calls = [tool(args=ARGS, at=(11, 20)), failed_tool(args=ARGS, at=(30, 40))]
    found = row(calls[1], calls[0], chat((ID, "create_refund", VALUE)), policy=IDEMPOTENT)
    assert found.facts.call_id is None
    assert found.verdict.quarantined


def test_the_latest_turn_that_fits_counts() -> None:
    turns = [chat((ID, "create_refund", VALUE), at=(1, 2)), chat((OTHER, "create_refund", VALUE), at=(3, 4))]
    assert row(failed_tool(args=ARGS), *turns).facts.call_id == OTHER
    later = chat(("call_Later1aB", "create_refund", VALUE), at=(30, 40))
    assert row(failed_tool(args=ARGS), *turns, later).facts.call_id == OTHER, "nobody executes what is proposed later"


def test_without_a_match_there_is_no_id() -> None:
    assert row(failed_tool(args=ARGS), chat((ID, "create_refund", {"other": 1}))).facts.call_id is None
    assert row(failed_tool(), chat((ID, "create_refund", VALUE))).facts.call_id is None, "nothing to compare"


def test_two_reports_of_one_inference_are_one_proposal() -> None:
    outer = chat((ID, "create_refund", VALUE), at=(1, 6))
    inner = chat((ID, "create_refund", VALUE), at=(1, 5), parent=outer)
    assert row(failed_tool(args=ARGS), outer, inner).facts.call_id_exact
    assert Read([outer, inner]).unobserved[0].proposed_by == outer.span_id
    assert len(Read([outer, inner]).unobserved) == 1


def test_proposals_that_no_span_executes_are_unobserved() -> None:
    turn = chat((ID, "create_refund", VALUE), (OTHER, "send_mail", {}))
    (found,) = Read([turn, tool(id=ID, args=ARGS)]).unobserved
    assert (found.tool, found.call_id, found.proposed_by) == ("send_mail", OTHER, turn.span_id)


# -- ids -------------------------------------------------------------------------------------------------------------


def test_a_placeholder_is_filled_in_from_the_proposal() -> None:
    for placeholder in ("", "null", "<not specified>", "create_refund"):
        found = row(failed_tool(id=placeholder, args=ARGS), chat((ID, "create_refund", VALUE)))
        assert (found.facts.call_id, found.facts.call_id_source) == (ID, "proposal")


@pytest.mark.parametrize("placeholder", ["", "null", "None", "undefined", "<not specified>", "[REDACTED]", "create_refund"])
def test_a_placeholder_in_a_proposal_is_no_id(placeholder: str) -> None:
    turn = chat((placeholder, "create_refund", VALUE), (placeholder, "create_refund", {"order_id": "o2"}))
    found = row(failed_tool(args=ARGS), turn, policy=IDEMPOTENT)
    assert found.joined is not None
    assert (found.facts.call_id, found.verdict.verdict) == (None, "quarantined_unknown")
    assert [call.call_id for call in Read([failed_tool(args=ARGS), turn]).unobserved] == [None], "two calls, one unseen"


def test_an_id_with_two_argument_sets_or_two_tools_is_no_token() -> None:
    for other in (tool(id="call_0", args='{"x": 1}', at=(1, 2)), tool("send_mail", id="call_0", args=ARGS, at=(1, 2))):
        found = row(failed_tool(id="call_0", args=ARGS), other, policy=IDEMPOTENT)
        assert found.facts.call_id_unstable
        assert found.verdict.quarantined
    again = tool(id="call_0", args=ARGS, at=(1, 2))
    assert not row(failed_tool(id="call_0", args=ARGS), again, policy=IDEMPOTENT).facts.call_id_unstable


@pytest.mark.parametrize("executed", [True, False])
def test_an_id_that_two_turns_gave_to_two_actions_is_no_token(executed: bool) -> None:
    turns = [chat(("call_0", "create_refund", {"x": 1}), at=(1, 2)), chat(("call_0", "create_refund", VALUE), at=(6, 8))]
    earlier = [tool(args='{"x": 1}', at=(3, 4))] if executed else []
    found = row(failed_tool(args=ARGS), *turns, *earlier, policy=IDEMPOTENT)
    assert (found.facts.call_id, found.facts.call_id_unstable) == ("call_0", True)
    assert found.verdict.quarantined
    assert row(failed_tool(args=ARGS), turns[1], policy=IDEMPOTENT).verdict.retryable
    twice = turns[0]._replace(attributes=turns[1].attributes)
    assert row(failed_tool(args=ARGS), turns[1], twice, policy=IDEMPOTENT).facts.call_id_unstable is False


def test_an_id_that_telemetry_cut_is_no_token() -> None:
    found = row(failed_tool(id=ID, args=ARGS), length_limit=len(ID), policy=IDEMPOTENT)
    assert found.facts.call_id_unstable
    assert found.verdict.quarantined
    prefix = "llm.output_messages.0.message.tool_calls.0.tool_call."
    flat = {f"{prefix}id": ID, f"{prefix}function.name": "f", f"{prefix}function.arguments": "5"}
    turn = span("LLM", at=(1, 2), attributes={"openinference.span.kind": "LLM", **flat})
    found = row(failed_tool("f", args="5"), turn, length_limit=len(ID), policy=Policy(idempotent=("f",)))
    assert (found.facts.call_id, found.facts.call_id_unstable) == (ID, True)


def test_ids_of_one_length_betray_no_limit() -> None:
    other = tool(id=ID[::-1], at=(1, 2))
    call = failed_tool(id=ID)
    assert row(call, other, policy=IDEMPOTENT, length_limit=None).verdict.retryable
    texts = [span("o", attributes={"text": "x" * len(ID)}), other]
    assert row(call, *texts, policy=IDEMPOTENT, length_limit=None).verdict.quarantined


def test_an_id_that_had_another_meaning_in_an_earlier_trace_is_no_token() -> None:
    talk = {"gen_ai.conversation.id": "c"}
    earlier = tool(id=ID, args='{"x": 1}', trace="a" * 32, attributes=talk)
    later = failed_tool(id=ID, args=ARGS, trace="b" * 32, attributes=talk)
    assert Read([earlier], [later], policy=IDEMPOTENT).of(later).call.verdict.quarantined
    assert Read([later], policy=IDEMPOTENT).of(later).call.verdict.retryable


# -- arguments -------------------------------------------------------------------------------------------------------


def test_absent_arguments_are_complete_where_the_schema_needs_none() -> None:
    top = agent()
    turn = chat(offers={"create_refund": {"type": "object", "properties": {}}}, parent=top)
    assert row(failed_tool(id=ID, parent=top), top, turn).facts.arguments_state == "complete"
    assert row(failed_tool(id=ID, parent=top, dropped=1), top, turn).facts.arguments_state == "cut"
    assert row(failed_tool(id=ID)).facts.arguments_state == "withheld"


def test_an_empty_object_of_adk_is_withheld_unless_the_proposal_says_so() -> None:
    call = failed_tool(scope="gcp.vertex.agent", id=ID, args="{}")
    assert row(call).facts.arguments_state == "withheld"
    assert row(call, chat((ID, "create_refund", {}))).facts.arguments_state == "complete"
    assert row(failed_tool(id=ID, args="{}")).facts.arguments_state == "complete"


# -- several spans, one call -----------------------------------------------------------------------------------------


def test_a_span_below_with_the_same_tool_shows_the_same_call() -> None:
    call = failed_tool("shop-create_refund", id=ID)
    between = span("between", parent=call)
    inner = tool(args=ARGS, parent=between)
    read = Read([call, between, inner])
    assert len(read.rows) == 1
    assert read.of(inner) is read.of(call)
    assert read.of(call).call.facts.arguments_state == "complete"


def test_not_across_an_agent_or_an_inference() -> None:
    for other in (agent, chat):
        call = failed_tool(id=ID, args=ARGS)
        between = other(parent=call, at=(11, 15))
        assert len(Read([call, between, tool(args=ARGS, parent=between, at=(12, 14))]).rows) == 2


def test_a_servers_span_beside_its_client_shows_the_same_call() -> None:
    client = tool(kind=SpanKind.CLIENT, attributes=MCP, at=(10, 20))
    server = failed_tool(kind=SpanKind.SERVER, attributes=MCP, at=(12, 18))
    read = Read([client, server])
    assert len(read.rows) == 1
    assert read.of(client).call.facts.ended == "failed"
    elsewhere = server._replace(start_ns=25, end_ns=30)
    assert len(Read([client, elsewhere]).rows) == 2, "it began after the client had its answer"
    other = server._replace(attributes={**server.attributes, "gen_ai.tool.name": "send_mail"})
    assert len(Read([client, other]).rows) == 2


def test_three_views_are_one_call() -> None:
    call = tool(id=ID, args=ARGS)
    sent = tool(kind=SpanKind.CLIENT, attributes=MCP, parent=call)
    served = tool(kind=SpanKind.SERVER, attributes=MCP, parent=sent)
    assert len(Read([call, sent, served]).rows) == 1
    assert Read([call, sent, served]).duplicates == []


def test_an_id_of_two_tools_is_no_token_though_the_arguments_of_one_are_not_whole() -> None:
    for args in (None, "[REDACTED]", '{"order_id": "o1", "amo'):
        other = tool("send_mail", id=ID, args=args, at=(1, 2))
        assert row(failed_tool(id=ID, args=ARGS), other, policy=IDEMPOTENT).verdict.quarantined


def test_a_step_names_a_call_that_says_nothing_of_itself() -> None:
    node = step("tools", named(ID))
    turn = chat((OTHER, "create_refund", {"x": 1}), (ID, "create_refund", VALUE))
    found = row(failed_tool(parent=node), node, turn)
    assert (found.facts.call_id, found.arguments.value) == (ID, VALUE)
    assert row(failed_tool(parent=node), node).facts.call_id == ID, "no turn is needed"
    for between in (agent(parent=node), tool("other", parent=node), chat(parent=node)):
        assert row(failed_tool(parent=between), between, node, turn).facts.call_id is None


def test_a_proposal_without_an_id_is_observed_once_it_is_executed() -> None:
    turn = chat((None, "create_refund", VALUE), (None, "create_refund", VALUE))
    assert len(Read([turn, tool(args=ARGS)]).unobserved) == 1
    assert Read([turn, tool(args=ARGS), tool(args=ARGS, at=(11, 20))]).unobserved == []
