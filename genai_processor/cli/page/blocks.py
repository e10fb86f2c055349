# SPDX-License-Identifier: Apache-2.0
"""What of a content graph is drawn together: edges between the same two nodes, runs, and what is inside of a boundary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from genai_processor.cli.page.chosen import Chosen
from genai_processor.cli.page.facts import EdgeFacts
from genai_processor.cli.page.text import shown
from genai_processor.replay import Node, Plan


class Drawn(NamedTuple):
    """An edge as it is drawn: all values of a kind that went from one node to another.

    Attributes:
        kind: Its kind.
        producer: Number of the node that made them.
        consumer: Number of the node that read them.
        slots: The consumer's slots.
        source: The first of the producer's slots.
        equal: All values are equal to what was made.
    """

    kind: str
    producer: int
    consumer: int
    slots: tuple[int, ...]
    source: int
    equal: bool


def merged(edges: Iterable[EdgeFacts]) -> list[Drawn]:
    """One for all edges of a kind between two nodes that are on the page, by consumer and slot."""
    held: dict[tuple[str, int, int], list[EdgeFacts]] = {}
    for edge in edges:
        kind, producer, consumer = edge[:3]
        if isinstance(producer, int) and isinstance(consumer, int):
            held.setdefault((kind, producer, consumer), []).append(edge)
    found = [
        Drawn(*key, tuple(sorted(edge[3] for edge in same)), min(edge[4] for edge in same), all(edge[5] for edge in same))
        for key, same in held.items()
    ]
    return sorted(found, key=lambda edge: (edge.consumer, edge.slots, edge.kind, edge.producer))


class Block(NamedTuple):
    """Nodes that are drawn together: those of traces between which values went.

    Attributes:
        nodes: Their numbers.
        edges: Their edges.
        name: What is written above.
    """

    nodes: list[int]
    edges: list[Drawn]
    name: str


def blocks(chosen: Chosen, drawn: Sequence[Drawn]) -> list[Block]:
    """What is drawn together, in the order of the plan."""
    head: dict[str, str] = {node.trace_id: node.trace_id for node in chosen.nodes}

    def first(trace_id: str) -> str:
        while head[trace_id] != trace_id:
            head[trace_id] = head[head[trace_id]]
            trace_id = head[trace_id]
        return trace_id

    for edge in drawn:
        one, other = (first(chosen.nodes[end].trace_id) for end in (edge.producer, edge.consumer))
        head[max(one, other)] = min(one, other)
    members: dict[str, list[int]] = {}
    for number, node in enumerate(chosen.nodes):
        members.setdefault(first(node.trace_id), []).append(number)
    inner: dict[str, list[Drawn]] = {}
    for edge in drawn:
        inner.setdefault(first(chosen.nodes[edge.consumer].trace_id), []).append(edge)
    return [Block(held, inner.get(key, []), _name([chosen.nodes[at] for at in held])) for key, held in members.items()]


def _name(nodes: Sequence[Node]) -> str:
    traces = sorted({node.trace_id for node in nodes})
    name = f"trace {traces[0][:8]}…{traces[0][-4:]}" if len(traces) == 1 else f"{len(traces)} traces"
    talks = sorted({node.conversation for node in nodes if node.conversation})
    return f"{name} · conversation {shown(talks[0], 40)}" if len(talks) == 1 else name


def groups(plan: Plan) -> dict[str, str]:
    """For nodes that are inside of something which is injected, or of a composite tool, the key of that: the outermost."""
    agents = {node.key: node.agent for node in plan.nodes}
    composite = {node.key for node in plan.nodes if node.composite}
    outermost: dict[str, str | None] = {}
    found: dict[str, str] = {}
    for node in plan.nodes:
        cover = plan.decisions[node.key].covered_by
        if cover is None and node.agent is not None:
            path = []
            key: str | None = node.agent
            while key is not None and key not in outermost:
                path.append(key)
                container = plan.containers.get(key)
                key = container.parent if container is not None else agents.get(key)
            last = outermost.get(key) if key is not None else None
            for key in reversed(path):
                last = outermost[key] = last or (key if key in composite else None)
            cover = outermost[node.agent]
        if cover is not None:
            found[node.key] = cover
    return found
