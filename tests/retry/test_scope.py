# SPDX-License-Identifier: Apache-2.0
"""Where ids and actions are unique: conversation, else session, else trace, or the run that a run resumes."""

from __future__ import annotations

import json

import pytest
from support.spans import ARGS, ID, Read, agent, chat, span, tool

from genai_processor.spans.records import Span

VALUE = json.loads(ARGS)
TALK = {"gen_ai.conversation.id": "talk"}


def scope(call: Span, *others: Span) -> str:
    return Read([call, *others]).of(call).call.scope


def test_the_calls_own_conversation() -> None:
    assert scope(tool(attributes=TALK), agent(attributes={"gen_ai.conversation.id": "other"})) == "talk"


def test_the_nearest_ancestors() -> None:
    far = agent(attributes={"gen_ai.conversation.id": "far"})
    near = agent(attributes=TALK, parent=far)
    step = span(parent=near)
    assert scope(tool(parent=step), step, near, far) == "talk"


def test_the_roots_else_an_inferences() -> None:
    root = agent(attributes=TALK)
    assert scope(tool(parent="f" * 16), root) == "talk"
    assert scope(tool(), chat(attributes={"gen_ai.conversation.id": "aside"})) == "aside"
    top = agent()
    assert scope(tool(parent=top), top, chat(attributes=TALK, parent=top)) == "talk"


def test_an_inner_views() -> None:
    call = tool()
    assert scope(call, tool(parent=call, attributes=TALK)) == "talk"


@pytest.mark.parametrize("placeholder", ["", " ", "None", "null", "undefined", "[REDACTED]", "***"])
def test_a_placeholder_names_no_conversation(placeholder: str) -> None:
    call = tool(attributes={"gen_ai.conversation.id": placeholder})
    assert scope(call) == call.trace_id
    assert scope(tool(attributes={"gen_ai.conversation.id": placeholder, "session.id": "talk"})) == "talk"


def test_else_the_trace() -> None:
    call = tool(trace="7" * 32)
    assert scope(call) == "7" * 32


@pytest.mark.parametrize(
    ("instrumentation", "attributes", "found"),
    [
        ("openinference.instrumentation.x", {"openinference.span.kind": "TOOL", "session.id": "s"}, "s"),
        ("gcp.vertex.agent", {"gcp.vertex.agent.session_id": "s"}, "s"),
        ("opentelemetry.instrumentation.langchain", {"traceloop.association.properties.thread_id": "s"}, "s"),
        ("langsmith", {"langsmith.metadata.thread_id": "s"}, "s"),
        ("ai", {"ai.operationId": "ai.toolCall", "ai.telemetry.metadata.sessionId": "s"}, "s"),
        ("openinference.instrumentation.langchain", {"metadata": '{"thread_id": "s"}'}, "s"),
        ("mcp-python-sdk", {"mcp.session.id": "s"}, None),
        ("app", {"gen_ai.conversation.id": " "}, None),
        ("app", {"gen_ai.conversation.id": 7}, None),
    ],
)
def test_vendors_keys(instrumentation: str, attributes: dict[str, object], found: str | None) -> None:
    call = tool(scope=instrumentation, attributes=attributes)
    assert scope(call) == (found or call.trace_id)


def resumed(call_id: str = ID, args: object = VALUE) -> tuple[list[Span], list[Span]]:
    """A run that proposed a call, and a later one, in another trace, that reads the proposal again."""
    first = [chat((ID, "create_refund", VALUE), trace="1" * 32, attributes=TALK)]
    echo = {"type": "tool_call", "id": call_id, "name": "create_refund", "arguments": args}
    turn = chat(reads=[echo], trace="2" * 32)
    return first, [turn, tool(id=ID, args=ARGS, trace="2" * 32)]


def test_a_run_that_reads_a_proposal_of_another_run_belongs_to_its_scope() -> None:
    first, second = resumed()
    assert Read(first, second).of(second[1]).call.scope == "talk"
    assert Read(first, second).unobserved == [], "the call was proposed there and executed here"


def test_not_if_it_is_another_call() -> None:
    for second in (resumed(call_id="call_Other7Qw2zz")[1], resumed(args={"order_id": "o2"})[1]):
        assert Read(resumed()[0], second).of(second[1]).call.scope == "2" * 32


def test_nor_by_an_id_that_every_run_has() -> None:
    echo = {"type": "tool_call", "id": "call_0", "name": "create_refund", "arguments": VALUE}
    first = [chat(("call_0", "create_refund", VALUE), trace="1" * 32, attributes=TALK)]
    second = [chat(reads=[echo], trace="2" * 32), tool(args=ARGS, trace="2" * 32)]
    assert Read(first, second).of(second[1]).call.scope == "2" * 32


def test_a_cycle_of_parents_ends() -> None:
    one = span("a", parent="b" * 16)._replace(span_id="a" * 16)
    two = tool(parent=one)._replace(span_id="b" * 16)
    assert scope(two, one) == two.trace_id
