# SPDX-License-Identifier: Apache-2.0
"""Where two recorded runs of the same agent part: node by node along the content graph, never by time or span id."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from genai_processor.replay.decisions import Plan
from genai_processor.replay.records import Edge, EdgeKind, Node
from genai_processor.replay.values import difference, outcome_difference


class Parting(enum.StrEnum):
    """How two runs part at a node."""

    INPUT = "input"
    """It was given something else."""
    OUTPUT = "output"
    """It was given the same, and made something else."""
    ONLY_IN_FIRST = "only_in_first"
    ONLY_IN_SECOND = "only_in_second"


class Difference(NamedTuple):
    """One place where two runs part, with nothing before it that differs.

    Attributes:
        parting: How.
        first: The node of the first run, or None.
        second: The node of the second run, or None.
        difference: What differs, in a few lines.
    """

    parting: Parting
    first: Node | None
    second: Node | None
    difference: str = ""


def differences(first: Plan, second: Plan) -> tuple[Difference, ...]:
    """Find where two recorded runs part.

    Nodes are the same if they got the same from nodes that are the same: a tool call by where it was proposed, all others by
    what they were given. Of what depends on a difference nothing is said.

    Args:
        first: One run.
        second: The other.

    Returns:
        The first differences of each branch, in the order of the first plan; then what only the second has. Empty: the runs
        are the same.
    """
    return _Comparison(first, second).run()


class _Comparison:
    def __init__(self, first: Plan, second: Plan) -> None:
        self._first = first
        self._second = second
        self._pairs: dict[str, Node] = {}
        self._taken: set[str] = set()
        self._touched: set[str] = set()  # of both: whatever differs, and what depends on it
        self._by_input: defaultdict[tuple[str, str | None, bytes], list[Node]] = defaultdict(list)
        for node in second.nodes:
            self._by_input[_what(node)].append(node)

    def run(self) -> tuple[Difference, ...]:
        found: list[Difference] = []
        alone: list[Node] = []
        for node in self._first.nodes:
            if self._depends(node, self._first):
                self._touched.add(node.key)
                continue
            other = self._same(node)
            if other is None:
                alone.append(node)
                self._touched.add(node.key)
                continue
            self._pair(node, other)
            if node.outcome.digest != other.outcome.digest:
                self._touched |= {node.key, other.key}
                text = outcome_difference(node.outcome, other.outcome)
                found.append(Difference(Parting.OUTPUT, node, other, text))
        left = [node for node in self._second.nodes if node.key not in self._taken]
        for node in alone:
            other = self._counterpart(node, left)
            if other is None:
                found.append(Difference(Parting.ONLY_IN_FIRST, node, None))
            else:
                left.remove(other)
                self._touched.add(other.key)
                text = difference(node.inputs.parts, other.inputs.parts)
                found.append(
                    Difference(Parting.INPUT, node, other, text or "system instructions or tool definitions differ")
                )
        order = {node.key: at for at, node in enumerate(self._first.nodes)}
        found.sort(key=lambda one: order[one.first.key] if one.first is not None else len(order))
        for node in left:
            if not self._depends(node, self._second):
                found.append(Difference(Parting.ONLY_IN_SECOND, None, node))
            self._touched.add(node.key)
        return tuple(found)

    def _depends(self, node: Node, plan: Plan) -> bool:
        return any(edge.producer in self._touched for edge in _producing(plan.decisions[node.key].edges))

    def _pair(self, node: Node, other: Node) -> None:
        self._pairs[node.key] = other
        self._taken.add(other.key)

    def _same(self, node: Node) -> Node | None:
        """The node of the second run that got the same from the same."""
        proposals = [edge for edge in self._first.decisions[node.key].edges if edge.kind is EdgeKind.PROPOSAL]
        for edge in proposals:
            proposer = self._pairs.get(edge.producer)
            for theirs in self._second.edges_from(proposer.key) if proposer is not None else ():
                if theirs.kind is EdgeKind.PROPOSAL and theirs.producer_slot == edge.producer_slot:
                    other = self._second.node(theirs.consumer)
                    if other.key not in self._taken and _what(other) == _what(node):
                        return other
        if proposals:
            return None
        free = [one for one in self._by_input.get(_what(node), ()) if one.key not in self._taken]
        free.sort(key=lambda one: one.outcome.digest != node.outcome.digest)
        return free[0] if free else None

    def _counterpart(self, node: Node, left: list[Node]) -> Node | None:
        """Of the nodes without a pair, the one that hangs where this one does, though it got something else."""
        producers = {self._pairs[edge.producer].key for edge in _producing(self._first.decisions[node.key].edges)}
        for other in left:
            if (other.operation, other.tool) != (node.operation, node.tool) or self._depends(other, self._second):
                continue
            theirs = {edge.producer for edge in _producing(self._second.decisions[other.key].edges)}
            if theirs == producers:
                return other
        return None


def _producing(edges: Iterable[Edge]) -> list[Edge]:
    return [edge for edge in edges if edge.kind is not EdgeKind.RETURN]


def _what(node: Node) -> tuple[str, str | None, bytes]:
    return node.operation.value, node.tool, node.inputs.digest
