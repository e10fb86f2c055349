# SPDX-License-Identifier: Apache-2.0
"""Recorded runs for replay, built by hand: messages, inferences with what they read and said, and plans of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from genai_processor.replay import Decision, Node, Plan
from genai_processor.spans.records import Span
from support.spans import span

Message = dict[str, Any]


def user(text: str) -> Message:
    """What a user said."""
    return {"role": "user", "parts": [{"type": "text", "content": text}]}


def says(text: str) -> Message:
    """What a model answered."""
    return {"role": "assistant", "parts": [{"type": "text", "content": text}]}


def calls(*wanted: tuple[str, str, Any]) -> Message:
    """The calls `(id, tool, arguments)` of one turn."""
    parts = [{"type": "tool_call", "id": i, "name": name, "arguments": args} for i, name, args in wanted]
    return {"role": "assistant", "parts": parts}


def result(call_id: str, value: Any) -> Message:
    """A tool's result as a model reads it."""
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": value}]}


def ask(
    read: list[Message] | None, said: Message | None, *, attributes: Mapping[str, Any] | None = None, **more: Any
) -> Span:
    """An inference that read a list and said a message; None is not recorded."""
    found: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "demo-model"}
    if read is not None:
        found["gen_ai.input.messages"] = json.dumps(read)
    if said is not None:
        found["gen_ai.output.messages"] = json.dumps([said])
    return span("chat demo-model", attributes={**found, **(attributes or {})}, **more)


def of(plan: Plan, shown: Span) -> tuple[Node, Decision]:
    """The node that a span shows, and what is done with it."""
    node = plan.node_of(shown.span_id, shown.trace_id)
    assert node is not None
    return node, plan.decisions[node.key]


def decided(plan: Plan, shown: Span) -> tuple[str, list[str]]:
    """Choice and reasons."""
    _, decision = of(plan, shown)
    return str(decision.choice), list(map(str, decision.reasons))


def edges(plan: Plan, shown: Span) -> set[tuple[str, str, int]]:
    """The edges into a node: kind, the producer's span, slot."""
    node, _ = of(plan, shown)
    return {(str(edge.kind), edge.producer.partition(":")[2], edge.slot) for edge in plan.edges_into(node.key)}


def told(plan: Plan) -> dict[str, Any]:
    """All that a plan says, comparable with another plan of the same spans."""
    return {
        "nodes": [node._replace(inputs=node.inputs._replace(parts=None)) for node in plan.nodes],  # type: ignore[arg-type]
        "parts": [(list(node.inputs.parts), list(node.outcome.parts)) for node in plan.nodes],
        "decisions": plan.decisions,
        "containers": plan.containers,
        "boundaries": plan.boundaries,
        "problems": sorted(plan.problems),
    }
