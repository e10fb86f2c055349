# SPDX-License-Identifier: Apache-2.0
"""What messages say of calls, in every shape that providers and frameworks write them.

A message list is walked once, whatever surrounds it. Each shape is one line of `_SHAPES`: a model's proposal, or a tool's
result. Nothing recurses, so nesting costs nothing but time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from genai_processor.spans.message_glance import Glance, glance_at
from genai_processor.spans.records import Event, Proposal, Result
from genai_processor.spans.values import SCALARS, is_mapping, quick_loads, says_failed, text

__all__ = ["Glance", "from_attributes", "from_events", "glance_at", "item_of", "nested", "walk"]

_Node = Mapping[str, Any]
_MAX_NODES = 200_000


def _failed(*values: Any) -> bool:
    """Whether a result says of itself that the call failed."""
    for value in values:
        if isinstance(value, str) and ("rror" in value) and value[:1] in "{[":
            parsed = quick_loads(value)
            if parsed is None and says_failed(value):
                return True
            value = parsed
        if isinstance(value, Mapping) and (
            value.get("isError") is True or value.get("is_error") is True or value.get("status") == "error"
        ):
            return True
    return False


def _arguments(node: _Node, *names: str) -> Any:
    return next((node[name] for name in names if name in node), None)


def _typed_call(node: _Node) -> Proposal | None:
    if node.get("type") in ("tool_call", "invalid_tool_call", "tool_use", "function_call", "tool-call"):
        name = node.get("name") or node.get("toolName")
        if isinstance(name, str):
            call_id = node.get("call_id") or node.get("id") or node.get("toolCallId")
            return Proposal(text(call_id), name, _arguments(node, "arguments", "args", "input"))
    return None


def _function(node: _Node) -> Proposal | None:
    function = node.get("function")
    if isinstance(function, Mapping) and isinstance(function.get("name"), str) and "arguments" in function:
        return Proposal(text(node.get("id")), function["name"], function["arguments"])
    return None


def _plain_call(node: _Node) -> Proposal | None:
    if isinstance(node.get("name"), str) and "arguments" in node and "id" in node:
        return Proposal(text(node["id"]), node["name"], node["arguments"])
    return None


def _bedrock_call(node: _Node) -> Proposal | None:
    use = node.get("toolUse")
    if isinstance(use, Mapping) and isinstance(use.get("name"), str):
        return Proposal(text(use.get("toolUseId")), use["name"], use.get("input"))
    return None


def _gemini_call(node: _Node) -> Proposal | None:
    call = node.get("function_call") or node.get("functionCall")
    if isinstance(call, Mapping) and isinstance(call.get("name"), str):
        return Proposal(text(call.get("id")), call["name"], _arguments(call, "args", "arguments"))
    return None


def _llama_index_call(node: _Node) -> Proposal | None:
    if isinstance(node.get("tool_name"), str) and "tool_kwargs" in node and "tool_output" not in node:
        return Proposal(text(node.get("tool_call_id") or node.get("tool_id")), node["tool_name"], node["tool_kwargs"])
    return None


def _vercel_call(node: _Node) -> Proposal | None:
    if isinstance(node.get("toolName"), str) and "toolCallId" in node and not ("result" in node or "output" in node):
        return Proposal(text(node["toolCallId"]), node["toolName"], _arguments(node, "args", "input"))
    return None


def _vercel_result(node: _Node) -> Result | None:
    if "toolCallId" in node and ("result" in node or "output" in node):
        output = node.get("output")
        failed = node.get("isError") is True or (
            isinstance(output, Mapping) and str(output.get("type", "")).startswith("error")
        )
        failed = failed or node.get("type") == "tool-error"
        return Result(text(node["toolCallId"]), failed, node.get("result", output), text(node.get("toolName")))
    return None


def _bedrock_result(node: _Node) -> Result | None:
    result = node.get("toolResult")
    if isinstance(result, Mapping):
        return Result(text(result.get("toolUseId")), result.get("status") == "error", result.get("content"))
    return None


def _gemini_result(node: _Node) -> Result | None:
    response = node.get("function_response") or node.get("functionResponse")
    if isinstance(response, Mapping):
        body = response.get("response")
        return Result(text(response.get("id")), _failed(body), body, text(response.get("name")))
    return None


def _typed_result(node: _Node) -> Result | None:
    if node.get("type") in ("tool_call_response", "tool_result", "function_call_output"):
        call_id = node.get("tool_use_id") or node.get("call_id") or node.get("id")
        body = _arguments(node, "response", "result", "output", "content")
        return Result(text(call_id), _failed(node, body), body, text(node.get("name")))
    return None


def _tool_message(node: _Node) -> Result | None:
    call_id = node.get("tool_call_id")
    if isinstance(call_id, str) and (node.get("role") == "tool" or node.get("type") == "tool" or "status" in node):
        body = node.get("content")
        return Result(text(call_id), _failed(node, body), body, text(node.get("name")))
    return None


def _called_back(node: _Node) -> Result | None:
    if isinstance(node.get("call_id"), str) and "is_error" in node:
        return Result(text(node["call_id"]), _failed(node), node.get("content"), text(node.get("name")))
    return None


def _tool_event(node: _Node) -> Result | None:
    if node.get("event.name") == "gen_ai.tool.message" and isinstance(node.get("id"), str):
        return Result(node["id"], _failed(node, node.get("content")), node.get("content"), text(node.get("name")))
    return None


_SHAPES: tuple[tuple[str, Callable[[_Node], Proposal | Result | None]], ...] = (
    ("type", _typed_call),  # GenAI parts, LangChain, Anthropic, OpenAI Responses
    ("type", _typed_result),
    ("function", _function),  # OpenAI Chat Completions, OpenInference
    ("tool_call_id", _tool_message),  # OpenAI, LangChain
    ("toolUse", _bedrock_call),
    ("toolResult", _bedrock_result),
    ("function_call", _gemini_call),
    ("functionCall", _gemini_call),
    ("function_response", _gemini_result),
    ("functionResponse", _gemini_result),
    ("tool_name", _llama_index_call),
    ("toolName", _vercel_call),
    ("toolCallId", _vercel_result),
    ("arguments", _plain_call),  # OpenLLMetry's flattened attributes
    ("is_error", _called_back),  # AutoGen
    ("event.name", _tool_event),
)
"""Each shape with a key that it cannot be without."""


def walk(node: Any) -> list[Proposal | Result]:
    """Every proposal and result in a parsed message structure, in document order."""
    found: list[Proposal | Result] = []
    stack = [node]
    for _ in range(_MAX_NODES):
        if not stack:
            break
        node = stack.pop()
        if is_mapping(node):
            item = item_of(node)
            if item is not None:
                found.append(item)
            else:
                stack.extend([item for item in reversed(node.values()) if type(item) not in SCALARS])  # type: ignore[call-overload]
        elif isinstance(node, (list, tuple)):
            stack.extend(reversed(node))
    return found


def item_of(node: _Node) -> Proposal | Result | None:
    """The proposal or the result that one mapping is by itself, or None."""
    if _SHAPE_KEYS.isdisjoint(node):
        return None
    for key, shape in _SHAPES:
        if key in node and (found := shape(node)) is not None:
            return found
    return None


_SHAPE_KEYS = frozenset(key for key, _ in _SHAPES)


def nested(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any] | None:
    """Fold flattened attributes (`prefix.0.message.role`) back into one structure; None if there are none."""
    root: dict[str, Any] = {}
    dotted = prefix + "."
    begin = len(dotted)
    for key, value in attributes.items():
        if key[:begin] == dotted:
            *path, leaf = key[begin:].split(".")
            level = root
            for part in path:
                deeper = level.get(part)
                if deeper.__class__ is not dict:
                    deeper = level[part] = {}
                level = deeper
            level[leaf] = value
    return root or None


_OUTPUT_EVENTS = frozenset({"gen_ai.choice", "gen_ai.content.completion"})
_DETAILS = "gen_ai.client.inference.operation.details"


def from_attributes(attributes: Mapping[str, Any], keys: Iterable[str]) -> list[Any]:
    """The parsed message structures under the given attribute keys; a trailing "." asks for flattened ones.

    A text in which no call can be is passed over: most of what models say and read is such.
    """
    found: list[Any] = []
    names = "\n".join(attributes)  # one search in it instead of one for each attribute
    for key in keys:
        if key[-1] == ".":
            folded = nested(attributes, key[:-1]) if key in names else None
            if folded is not None:
                found.append(folded)
        elif (value := attributes.get(key)) is not None:
            parsed: Any
            if isinstance(value, (list, tuple)):
                parsed = [quick_loads(item) for item in value]
            else:
                parsed = quick_loads(value) if _may_tell_of_calls(value) else None
            if parsed is not None:
                found.append(parsed)
    return found


def _may_tell_of_calls(value: Any) -> bool:
    """Whether a text has a word without which no shape is one."""
    return not isinstance(value, str) or "tool" in value or "unction" in value or "arguments" in value or "call_id" in value


def from_events(events: Iterable[Event], *, outputs: bool) -> Iterator[Any]:
    """The parsed message structures in span events: what the model said, or what it read."""
    for event in events:
        if event.name == _DETAILS:
            key = "gen_ai.output.messages" if outputs else "gen_ai.input.messages"
            parsed = quick_loads(event.attributes.get(key))
            if parsed is not None:
                yield parsed
        elif event.name.startswith("gen_ai.") and (event.name in _OUTPUT_EVENTS) is outputs:
            yield {"event.name": event.name, **{key: _loaded(value) for key, value in event.attributes.items()}}


def _loaded(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        parsed = quick_loads(value)
        return value if parsed is None else parsed
    return value
