# SPDX-License-Identifier: Apache-2.0
"""What a page says of each node, container and edge, as plain data. No recorded value is in it unless it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genai_processor.cli.page.chosen import Chosen
from genai_processor.cli.page.text import shown, shown_value
from genai_processor.replay import Container, Decision, Edge, Node, Part, Plan, Problem

MOST_EDGES = 20_000
"""How many content edges a page has."""

EdgeFacts = tuple[str, int | str, int | str, int, int, int]
"""Kind, producer, consumer, the consumer's slot, the producer's, and 1 if the values are equal. An end is a node's number,
or its key if it is not on the page."""

_DIGITS = 12
_SLOTS, _SPANS, _PROBLEMS, _FIRST, _AWAY = 40, 8, 200, 8, 20
_VALUE = 4_000


def subject(node: Node) -> str:
    """What an operation is done with: a tool, a source of data, a model."""
    return node.tool or node.model or ""


def node_facts(node: Node, plan: Plan, *, values: bool) -> dict[str, Any]:
    """What there is to say of a node.

    Args:
        node: The node.
        plan: Its plan.
        values: Also what was said: messages, arguments, results.
    """
    decision = plan.decisions[node.key]
    inputs, outcome, structure = node.inputs, node.outcome, node.structure
    fresh = inputs.parts.since(structure.begins)
    facts: dict[str, Any] = {
        "operation": str(node.operation),
        "name": shown(node.name),
        "subject": shown(subject(node)),
        "key": node.key,
        "spans": list(node.span_ids[:_SPANS]),
        "more_spans": max(0, len(node.span_ids) - _SPANS),
        "agent": node.agent,
        "agent_name": shown(node.agent_name or ""),
        "conversation": shown(node.conversation or ""),
        "dialect": shown(node.dialect),
        "call_id": shown(node.call_id or ""),
        **_decision_facts(decision),
        "input": [str(state) for state in (inputs.states or (inputs.state,))],
        "input_digest": inputs.digest.hex(),
        "length": len(inputs.parts),
        "begins": structure.begins,
        "extends": structure.extends,
        "slots": [_part(slot, part, values=values) for slot, part in enumerate(fresh[:_SLOTS], structure.begins)],
        "ending": str(outcome.ending),
        "output": str(outcome.state),
        "output_digest": outcome.digest.hex(),
        "error_type": shown(outcome.error_type or ""),
        "outputs": [_part(slot, part, values=values) for slot, part in enumerate(outcome.parts.since(0)[:_SLOTS])],
        "output_length": len(outcome.parts),
        "attempts": list(node.attempts[:_SPANS]),
        "composite": node.composite,
    }
    if values and outcome.error_message is not None:
        facts["error_message"] = shown_value(outcome.error_message, _VALUE)
    return {name: value for name, value in facts.items() if value not in ("", None, [], False, 0)}


def _decision_facts(decision: Decision) -> dict[str, Any]:
    return {
        "choice": str(decision.choice),
        "reasons": list(map(str, decision.reasons)),
        "modes": list(map(str, decision.modes)),
        "remedy": decision.remedy,
        "order": str(decision.order),
        "allows": decision.structure_allows_recompute,
        "covered_by": decision.covered_by,
        "unverified": decision.unverified_upstream,
    }


def _part(slot: int, part: Part, *, values: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"slot": slot, "role": str(part.role), "kind": str(part.kind), "digest": part.digest.hex()[:12]}
    if part.tool:
        facts["tool"] = shown(part.tool, 60)
    if part.call_id:
        facts["call_id"] = shown(part.call_id, 60)
    if part.missing:
        facts["missing"] = True
    elif values and part.value is not None:
        facts["value"] = shown_value(part.value, _VALUE)
    return facts


def edge_facts(plan: Plan, numbers: Mapping[str, int], most: int = MOST_EDGES) -> tuple[list[EdgeFacts], dict[int, int]]:
    """The content edges of the nodes on the page.

    Args:
        plan: The plan.
        numbers: The number of each node that is on the page, by key.
        most: How many there may be. Each consumer has its first few before any has more.

    Returns:
        The edges by consumer and slot, and for each node how many of its edges are left out.
    """
    first: list[EdgeFacts] = []
    rest: list[EdgeFacts] = []
    away: dict[int, int] = {}
    left: dict[int, int] = {}
    for node in plan.nodes:
        edges = plan.decisions[node.key].edges
        if node.key not in numbers:
            edges = tuple([edge for edge in edges if edge.producer in numbers])
        for at, edge in enumerate(sorted(edges, key=_by_slot)):
            one, other = numbers.get(edge.producer), numbers.get(edge.consumer)
            inner = one if one is not None else other
            assert inner is not None
            if one is None or other is None:
                away[inner] = away.get(inner, 0) + 1
                if away[inner] > _AWAY:
                    left[inner] = left.get(inner, 0) + 1
                    continue
            ends = (one if one is not None else edge.producer, other if other is not None else edge.consumer)
            facts = (str(edge.kind), *ends, edge.slot, edge.producer_slot, int(edge.equal))
            (first if at < _FIRST else rest).append(facts)
    room = max(0, most - len(first))
    for facts in [*first[most:], *rest[room:]]:
        for end in facts[1:3]:
            if isinstance(end, int):
                left[end] = left.get(end, 0) + 1
    return [*first[:most], *rest[:room]], left


def _by_slot(edge: Edge) -> tuple[int, str, str, int]:
    return edge.slot, edge.kind, edge.producer, edge.producer_slot


def container_facts(container: Container, plan: Plan, counts: Mapping[str, int]) -> dict[str, Any]:
    """What there is to say of a container.

    Args:
        container: The container.
        plan: Its plan.
        counts: How many nodes are in it by decision, however deep.
    """
    facts = {
        "key": container.key,
        "name": shown(container.name),
        "agent_name": shown(container.agent_name or ""),
        "worst": str(container.worst) if container.worst is not None else "",
        "parent": container.parent,
        "injected": container.injected,
        "inside": dict(counts),
        "input_digest": container.inputs.digest.hex(),
        "output_digest": container.outcome.digest.hex(),
    }
    return {name: value for name, value in facts.items() if value not in ("", None, {}, False)}


def problem_facts(problems: Sequence[Problem]) -> list[list[str]]:
    """The problems of the plan, place first; by place, and lines by their number."""
    found = sorted(problems, key=lambda one: (_natural(one.place), one.problem))
    return [[shown(one.place), shown(one.problem, 400)] for one in found[:_PROBLEMS]]


def _natural(place: str) -> tuple[str, int]:
    before, _, line = place.rpartition(":")
    return (before, int(line)) if line.isdecimal() and len(line) < _DIGITS else (place, 0)


def inside_counts(plan: Plan, chosen: Chosen) -> dict[str, dict[str, int]]:
    """For each row that holds others, how many nodes of the whole plan are in it by decision, however deep."""
    above: dict[str, str | None] = {key: container.parent for key, container in plan.containers.items()}
    above.update({node.key: node.agent for node in plan.nodes})
    counts: dict[str, dict[str, int]] = {}
    for node in plan.nodes:
        if node.agent is not None:
            mine = counts.setdefault(node.agent, {})
            choice = str(plan.decisions[node.key].choice)
            mine[choice] = mine.get(choice, 0) + 1
    below = dict.fromkeys(above, 0)
    for parent in above.values():
        if parent in below:
            below[parent] += 1
    ready = [key for key, left in below.items() if not left]
    while ready:  # inner ones first
        key = ready.pop()
        parent = above[key]
        if parent is None or parent not in below:
            continue
        if key in counts:
            mine = counts.setdefault(parent, {})
            for choice, count in counts[key].items():
                mine[choice] = mine.get(choice, 0) + count
        below[parent] -= 1
        if not below[parent]:
            ready.append(parent)
    held = {row.key for row in chosen.rows}
    return {key: found for key, found in counts.items() if key in held}
