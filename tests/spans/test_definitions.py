# SPDX-License-Identifier: Apache-2.0
"""Which tools a model was given, with which schemas, and whether the list is whole: else it proves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from genai_processor.spans.definitions import ToolList, tool_list

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}


def read(value: Any, key: str = "tools", **more: Any) -> ToolList | None:
    cut: Callable[[str], bool] = lambda text: False  # noqa: E731
    return tool_list({key: value}, [key], **{"dropped": False, "is_cut": cut, **more})


SHAPES: dict[str, Any] = {
    "OpenAI Chat Completions": [{"type": "function", "function": {"name": "refund", "parameters": SCHEMA}}],
    "OpenAI Responses": [{"type": "function", "name": "refund", "parameters": SCHEMA}],
    "Anthropic": [{"name": "refund", "input_schema": SCHEMA}],
    "MCP": {"tools": [{"name": "refund", "inputSchema": SCHEMA}]},
    "pydantic-ai": {"function_tools": [{"name": "refund", "parameters_json_schema": SCHEMA}], "output_tools": []},
    "schema as text": [{"name": "refund", "parameters": json.dumps(SCHEMA)}],
}


@pytest.mark.parametrize("tools", SHAPES.values(), ids=list(SHAPES))
def test_names_and_schemas_are_found_in_every_shape(tools: Any) -> None:
    for value in (tools, json.dumps(tools), [json.dumps(tool) for tool in tools] if isinstance(tools, list) else tools):
        assert read(value) == ToolList({"refund": SCHEMA}, True)


@pytest.mark.parametrize("leaf", ["name", "json_schema"])
def test_openinference_flattens_them(leaf: str) -> None:
    whole = {"type": "function", "function": {"name": "refund", "parameters": SCHEMA}}
    attributes = {"llm.tools.0.tool.json_schema": json.dumps(whole if leaf == "json_schema" else SCHEMA)}
    if leaf == "name":
        attributes["llm.tools.0.tool.name"] = "refund"
    found = tool_list(attributes, ["llm.tools."], dropped=False, is_cut=lambda text: False)
    assert found == ToolList({"refund": SCHEMA}, True)


def test_bare_names_have_no_schema() -> None:
    assert read(["refund", "mail"]) == ToolList({"refund": None, "mail": None}, True)
    assert read("refund") == ToolList({"refund": None}, True)


@pytest.mark.parametrize(
    "value",
    [
        "refund, mail",  # where a comma-separated list was cut cannot be seen
        '[{"name": "refund", "parameters": {"ty',
        json.dumps({"tools": [{"name": "refund"}], "nextCursor": "2"}),
        [json.dumps({"name": "refund"}), '{"name": "ma'],
        [{"name": "refund"}, 7],
        [{"name": "refund"}, {"description": "nameless"}],
        [{"name": "refund"}, {"type": "function"}],
        [],
        "[]",
    ],
)
def test_a_list_with_anything_odd_in_it_is_not_whole(value: Any) -> None:
    found = read(value)
    assert found is not None
    assert not found.whole


def test_a_list_of_a_span_that_lost_attributes_is_not_whole() -> None:
    found = read([{"name": "refund"}], dropped=True)
    assert found is not None
    assert not found.whole


def test_a_name_that_is_as_long_as_the_limit_is_not_whole() -> None:
    found = read(["refund", "ma"], is_cut=lambda text: len(text) >= 6)
    assert found is not None
    assert not found.whole
    flat = tool_list({"t.0.tool.name": "refund"}, ["t."], dropped=False, is_cut=lambda text: len(text) >= 6)
    assert flat is not None
    assert not flat.whole


def test_json_that_parses_is_whole_at_any_length() -> None:
    found = read(json.dumps([{"name": "refund"}]), is_cut=lambda text: True)
    assert found is not None
    assert found.whole


def test_a_providers_own_tool_needs_no_name() -> None:
    assert read([{"type": "web_search"}, {"name": "refund"}]) == ToolList({"refund": None}, True)


def test_no_list_is_not_an_empty_one() -> None:
    assert tool_list({}, ["tools"], dropped=False, is_cut=lambda text: False) is None


def test_the_first_schema_of_a_name_counts_and_a_later_one_fills_a_gap() -> None:
    other = {"type": "object"}
    assert read([{"name": "t", "parameters": SCHEMA}, {"name": "t", "parameters": other}]) == ToolList({"t": SCHEMA}, True)
    assert read(["t", {"name": "t", "parameters": other}]) == ToolList({"t": other}, True)
