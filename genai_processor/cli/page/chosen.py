# SPDX-License-Identifier: Apache-2.0
"""What of a plan is on its page, and as which rows of the tree: everything, unless that is too much for a browser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from genai_processor.replay import Choice, Node, Plan

MOST_NODES = 2_500
"""How many nodes a page draws."""

_ROWS_A_NODE = 2


class Row(NamedTuple):
    """One row of the tree.

    Attributes:
        key: Of a container, or of a node.
        depth: In how many others it is.
        position: Its place among those that are directly in the same one, from 1 on.
        siblings: How many those are.
        holds: Others are in it.
        cover: The depth of the outermost injected row that it is inside of, or None.
    """

    key: str
    depth: int
    position: int
    siblings: int
    holds: bool
    cover: int | None


class Chosen(NamedTuple):
    """What is on the page.

    Attributes:
        nodes: The nodes, in the order of the plan.
        rows: The rows of the tree, in the order in which they are read.
        left_nodes: How many nodes are not on the page.
        left_traces: How many traces have no node on it.
        parted: Of a trace only some of its nodes are on it.
        left_containers: How many containers are not on it.
    """

    nodes: tuple[Node, ...]
    rows: tuple[Row, ...]
    left_nodes: int
    left_traces: int
    parted: bool
    left_containers: int


def choose(plan: Plan, most: int = MOST_NODES) -> Chosen:
    """Choose what is shown: traces as they are, those first in which something is refused.

    Args:
        plan: The plan.
        most: How many nodes, and half of how many rows, there may be.
    """
    nodes = plan.nodes if len(plan.nodes) <= most else tuple(_some(plan, most))
    every = len(nodes) == len(plan.nodes)
    holders = _holders(plan, nodes, _ROWS_A_NODE * most - len(nodes), every=every)
    drawn = {node.trace_id for node in nodes}
    apart = {node.trace_id for node in plan.nodes} - drawn if not every else set()
    parted = not every and sum(node.trace_id in drawn for node in plan.nodes) > len(nodes)
    rows = tuple(_rows(plan, nodes, holders))
    left = len(plan.nodes) - len(nodes)
    return Chosen(nodes, rows, left, len(apart), parted, len(plan.containers) - len(holders))


def _some(plan: Plan, most: int) -> Iterable[Node]:
    sizes: dict[str, int] = {}
    refused: dict[str, None] = {}
    for node in plan.nodes:
        sizes[node.trace_id] = sizes.get(node.trace_id, 0) + 1
        if plan.decisions[node.key].choice is Choice.REFUSE:
            refused[node.trace_id] = None
    left = most
    kept: set[str] = set()
    whole: set[str] = set()
    order = list(dict.fromkeys([*refused, *sizes]))
    for trace_id in order:
        if sizes[trace_id] <= left:
            whole.add(trace_id)
            left -= sizes[trace_id]
        elif trace_id in refused and not kept:
            kept = _part(plan, trace_id, left if not whole else left // 2)
            left -= len(kept)
    if not whole and not kept:
        kept = _part(plan, order[0], most)
    return [node for node in plan.nodes if node.trace_id in whole or node.key in kept]


def _part(plan: Plan, trace_id: str, most: int) -> set[str]:
    """Of a trace that is too large: refused nodes with what they read, up to half of the room, then its first nodes."""
    mine = [node for node in plan.nodes if node.trace_id == trace_id]
    kept: set[str] = set()
    for node in mine:
        decision = plan.decisions[node.key]
        if decision.choice is Choice.REFUSE:
            wanted = [node.key, *[edge.producer for edge in decision.edges[:20]]]
            if len(kept) + len(wanted) > most // 2:
                break
            kept.update(wanted)
    for node in mine:
        if len(kept) >= most:
            break
        kept.add(node.key)
    return kept


def _holders(plan: Plan, nodes: Iterable[Node], room: int, *, every: bool) -> set[str]:
    """The containers around nodes, innermost first; where every node is shown, also those in which there is none."""
    found: set[str] = set()
    passed: set[str] = set()
    agents = {node.key: node.agent for node in plan.nodes}
    for node in nodes:
        key = node.agent
        while key is not None and key not in passed and len(found) < room:
            passed.add(key)
            container = plan.containers.get(key)
            if container is not None:
                found.add(key)
                key = container.parent
            else:
                key = agents.get(key)
    if every:
        for key in sorted(plan.containers):
            if len(found) >= room:
                break
            found.add(key)
    return found


def _rows(plan: Plan, nodes: Iterable[Node], holders: set[str]) -> Iterable[Row]:
    """The tree, flat. Nothing recurses: it may be as deep as it likes."""
    above: dict[str, str | None] = {key: container.parent for key, container in plan.containers.items()}
    above.update({node.key: node.agent for node in plan.nodes})
    shown = {node.key: at for at, node in enumerate(nodes)}
    nearest: dict[str, str | None] = {}

    def parent_of(key: str) -> str | None:
        path = []
        at = above[key]
        while at is not None and at not in shown and at not in holders:
            if at in nearest:
                at = nearest[at]
                break
            path.append(at)
            at = above.get(at)
        nearest.update(dict.fromkeys(path, at))
        return at

    parents = {key: parent_of(key) for key in [*shown, *sorted(holders)]}
    first: dict[str, int] = dict(shown)
    for key, place in shown.items():
        above_it = parents[key]
        while above_it is not None and above_it not in first:
            first[above_it] = place
            above_it = parents[above_it]
    below: dict[str | None, list[str]] = {}
    for key in sorted(parents, key=lambda key: (first.get(key, len(shown)), key not in holders, key)):
        below.setdefault(parents[key], []).append(key)
    injected = {decision.covered_by for decision in plan.decisions.values()}
    stack: list[tuple[str, int, int, int, int | None]] = []

    def push(inner: list[str], depth: int, cover: int | None) -> None:
        stack.extend([(key, depth, at + 1, len(inner), cover) for at, key in reversed(list(enumerate(inner)))])

    push(below.get(None, []), 0, None)
    while stack:
        key, depth, position, siblings, cover = stack.pop()
        inner = below.get(key, [])
        yield Row(key, depth, position, siblings, bool(inner), cover)
        push(inner, depth + 1, depth if cover is None and key in injected else cover)
