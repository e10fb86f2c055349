# SPDX-License-Identifier: Apache-2.0
"""A proposal and a result, in every shape that providers and frameworks write them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_processor.spans.messages import _SHAPES, from_attributes, from_events, glance_at, nested, walk
from genai_processor.spans.records import Event, Proposal, Result

ARGS = {"order_id": "o1"}
TEXT = json.dumps(ARGS)

PROPOSALS: dict[str, tuple[Any, Proposal]] = {
    "GenAI conventions": (
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "refund", "arguments": ARGS}]}],
        Proposal("c1", "refund", ARGS),
    ),
    "OpenAI Chat Completions": (
        {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": TEXT}}]},
        Proposal("c1", "refund", TEXT),
    ),
    "OpenAI Responses": (
        [{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "refund", "arguments": TEXT}],
        Proposal("c1", "refund", TEXT),
    ),
    "Anthropic": (
        {"content": [{"type": "tool_use", "id": "c1", "name": "refund", "input": ARGS}]},
        Proposal("c1", "refund", ARGS),
    ),
    "Bedrock": (
        {"message": {"content": [{"toolUse": {"toolUseId": "c1", "name": "refund", "input": ARGS}}]}},
        Proposal("c1", "refund", ARGS),
    ),
    "Gemini, Python": (
        {"parts": [{"function_call": {"name": "refund", "args": ARGS}}]},
        Proposal(None, "refund", ARGS),
    ),
    "Gemini, REST": (
        {"parts": [{"functionCall": {"id": "c1", "name": "refund", "args": ARGS}}]},
        Proposal("c1", "refund", ARGS),
    ),
    "LangChain": (
        {"kwargs": {"tool_calls": [{"name": "refund", "args": ARGS, "id": "c1", "type": "tool_call"}]}},
        Proposal("c1", "refund", ARGS),
    ),
    "LangChain, broken": (
        {"invalid_tool_calls": [{"type": "invalid_tool_call", "id": "c1", "name": "refund", "args": '{"o'}]},
        Proposal("c1", "refund", '{"o'),
    ),
    "LlamaIndex": (
        {"tool_calls": [{"tool_id": "c1", "tool_name": "refund", "tool_kwargs": ARGS}]},
        Proposal("c1", "refund", ARGS),
    ),
    "Vercel": ([{"toolCallId": "c1", "toolName": "refund", "input": TEXT}], Proposal("c1", "refund", TEXT)),
    "Vercel, older": (
        [{"type": "tool-call", "toolCallId": "c1", "toolName": "refund", "args": ARGS}],
        Proposal("c1", "refund", ARGS),
    ),
    "AutoGen": ([{"id": "c1", "arguments": TEXT, "name": "refund"}], Proposal("c1", "refund", TEXT)),
    "without arguments": ([{"type": "tool_call", "id": "c1", "name": "refund"}], Proposal("c1", "refund", None)),
    "with a blank id": ([{"type": "tool_call", "id": " ", "name": "refund"}], Proposal(None, "refund", None)),
}

RESULTS: dict[str, tuple[Any, Any, str | None]] = {
    "GenAI conventions": (
        {"type": "tool_call_response", "id": "c1", "response": {"isError": False}},
        {"type": "tool_call_response", "id": "c1", "response": {"isError": True}},
        "c1",
    ),
    "OpenAI Chat Completions": (
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c1", "content": '{"status": "error"}'},
        "c1",
    ),
    "OpenAI Responses": (
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "function_call_output", "call_id": "c1", "output": {"is_error": True}},
        "c1",
    ),
    "Anthropic": (
        {"type": "tool_result", "tool_use_id": "c1", "content": "error: none"},
        {"type": "tool_result", "tool_use_id": "c1", "content": "x", "is_error": True},
        "c1",
    ),
    "Bedrock": (
        {"toolResult": {"toolUseId": "c1", "status": "success"}},
        {"toolResult": {"toolUseId": "c1", "status": "error"}},
        "c1",
    ),
    "Gemini": (
        {"function_response": {"name": "refund", "response": {"result": 1}}},
        {"function_response": {"name": "refund", "response": {"isError": True}}},
        None,
    ),
    "Gemini, REST": (
        {"functionResponse": {"id": "c1", "response": {}}},
        {"functionResponse": {"id": "c1", "response": {"status": "error"}}},
        "c1",
    ),
    "LangChain": (
        {"type": "tool", "tool_call_id": "c1", "status": "success", "content": "x"},
        {"type": "tool", "tool_call_id": "c1", "status": "error", "content": "x"},
        "c1",
    ),
    "Vercel": (
        {"type": "tool-result", "toolCallId": "c1", "toolName": "refund", "output": {"type": "text", "value": "x"}},
        {"type": "tool-result", "toolCallId": "c1", "toolName": "refund", "output": {"type": "error-text"}},
        "c1",
    ),
    "AutoGen": ({"call_id": "c1", "is_error": False}, {"call_id": "c1", "is_error": True}, "c1"),
}


@pytest.mark.parametrize(("message", "proposal"), PROPOSALS.values(), ids=list(PROPOSALS))
def test_a_proposal_is_found_in_its_shape_however_it_is_wrapped(message: Any, proposal: Proposal) -> None:
    assert list(walk(message)) == [proposal]
    assert list(walk({"choices": [{"index": 0, "message": message}]})) == [proposal]


@pytest.mark.parametrize(("fine", "bad", "call_id"), RESULTS.values(), ids=list(RESULTS))
def test_a_result_says_whose_it_is_and_whether_it_failed(fine: Any, bad: Any, call_id: str | None) -> None:
    assert [(found.call_id, found.failed) for found in walk([fine, bad])] == [(call_id, False), (call_id, True)]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "text", "name": "refund", "text": "arguments"},
        {"type": "tool_call", "name": 7},
        {"function": {"name": "refund", "description": "a definition", "parameters": {}}},
        {"name": "refund", "arguments": TEXT},
        {"toolName": "refund"},
        {"toolUse": "x", "toolResult": 7, "function_call": None},
        {"tool_call_id": 7, "role": "tool"},
        ["tool_call", None, 3.5, True],
    ],
)
def test_what_only_looks_like_one_is_none(message: Any) -> None:
    assert list(walk(message)) == []


def test_order_is_the_documents() -> None:
    calls = [{"type": "tool_call", "id": f"c{n}", "name": "t"} for n in range(5)]
    message = [{"parts": [calls[0], {"x": [calls[1]]}, calls[2]]}, {"a": calls[3], "b": {"c": calls[4]}}]
    assert [found.call_id for found in walk(message)] == ["c0", "c1", "c2", "c3", "c4"]


def test_depth_and_size_cost_time_alone() -> None:
    deep: Any = {"type": "tool_call", "id": "c1", "name": "t"}
    for _ in range(50_000):
        deep = [deep]
    assert [found.call_id for found in walk(deep)] == ["c1"]
    assert list(walk([["x"]] * 500_000)) == []


KEYS = ["name", "id", "role", *(key for key, _ in _SHAPES)]


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS),
                inner | st.sampled_from(["tool_call", "tool_result", "tool"]),
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_message_is_too_odd(message: Any) -> None:
    for found in walk(message):
        assert found.call_id is None or isinstance(found.call_id, str)


# -- where messages stand --------------------------------------------------------------------------------------------


def test_flattened_attributes_are_folded_back() -> None:
    attributes = {
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "refund",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": TEXT,
        "llm.output_messages_of_others": "x",
    }
    (structure,) = from_attributes(attributes, ["llm.output_messages."])
    assert list(walk(structure)) == [Proposal("c1", "refund", TEXT)]
    assert nested(attributes, "llm.input_messages") is None


def test_json_attributes_and_lists_of_json_are_parsed() -> None:
    text = json.dumps(PROPOSALS["OpenAI Responses"][0])
    found = list(from_attributes({"a": text, "b": [text, "no json: arguments"], "c": "no tool here {"}, "abc"))
    assert [list(walk(structure)) for structure in found] == [[Proposal("c1", "refund", TEXT)]] * 2


def test_events_tell_apart_what_was_said_and_what_was_read() -> None:
    call = json.dumps([{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": TEXT}}])
    events = [
        Event("gen_ai.choice", {"tool_calls": call}),
        Event("gen_ai.tool.message", {"id": "c1", "content": '{"isError": true}'}),
        Event("exception", {"exception.type": "tool_calls"}),
    ]
    assert [f for s in from_events(events, outputs=True) for f in walk(s)] == [Proposal("c1", "refund", TEXT)]
    found = [f for s in from_events(events, outputs=False) for f in walk(s)]
    assert [(type(item), item.call_id, item.failed) for item in found] == [(Result, "c1", True)]


@pytest.mark.parametrize("outputs", [True, False])
def test_the_details_event_holds_both(outputs: bool) -> None:
    text = json.dumps(PROPOSALS["GenAI conventions"][0])
    key = "gen_ai.output.messages" if outputs else "gen_ai.input.messages"
    events = [Event("gen_ai.client.inference.operation.details", {key: text})]
    assert [f for s in from_events(events, outputs=outputs) for f in walk(s)] == [Proposal("c1", "refund", ARGS)]
    assert [f for s in from_events(events, outputs=not outputs) for f in walk(s)] == []


SHAPES = [
    *(m for m, _ in PROPOSALS.values()),
    *(b for _, b, _ in RESULTS.values()),
    *(f for f, _, _ in RESULTS.values()),
]


@pytest.mark.parametrize("message", SHAPES)
@pytest.mark.parametrize("encoded", [1, 2])
def test_a_glance_misses_neither_an_id_nor_a_failure(message: Any, encoded: int) -> None:
    """What it passes over is never parsed, so it must see whatever parsing would find."""
    text = json.dumps(message)
    glance = glance_at({"m": text if encoded == 1 else json.dumps(text)}, ["m"], [])
    assert glance is not None
    for found in walk(message):
        assert found.call_id is None or found.call_id in glance.ids
        assert not (isinstance(found, Result) and found.failed) or glance.failure


def test_a_glance_at_what_is_no_text_gives_up() -> None:
    assert glance_at({"m": {"id": "c1"}}, ["m"], []) is None
    assert glance_at({"m.0.id": "c1"}, ["m."], []) is not None
    assert "c1" in glance_at({"m.0.id": "c1"}, ["m."], []).ids  # type: ignore[union-attr]


@pytest.mark.parametrize("keys", [["tool_call_id"], ["tool."], ["tool.call_id"]])
def test_an_attribute_of_its_own_that_names_an_id_is_seen_at_a_glance(keys: list[str]) -> None:
    attributes = {"tool_call_id": "c1", "tool.call_id": "c1", "tool.text": "no id", "tool_call_text": "no id"}
    assert glance_at(attributes, keys, ()) == ({"c1"}, False)
    assert glance_at(attributes, ["tool_call_text"], ()) == (set(), False)
