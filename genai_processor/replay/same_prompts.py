# SPDX-License-Identifier: Apache-2.0
"""Which of several recorded model calls that were asked the same comes first, and whether the record tells it at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from genai_processor.replay.decisions import Plan
from genai_processor.replay.parts import Part, PartKind
from genai_processor.replay.records import EdgeKind, Node


class Descent:
    """What came of a node in the record.

    Args:
        plan: The recorded run.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def firsts(self, nodes: Sequence[Node]) -> list[Node]:
        """Those that come of none of the others. Any of them may have been the first: the record has no other order."""
        later = {key for node in nodes for key in self._after(node) if key != node.key}
        return [node for node in nodes if node.key not in later] or list(nodes)

    def are_alike(self, nodes: Sequence[Node]) -> bool:
        """Whether it makes no difference which of them is meant: they said the same, and so did all that came of them."""
        came_to = [Counter(self._plan.node(key).outcome.digest for key in self._after(node)) for node in nodes]
        return all(one == came_to[0] for one in came_to)

    @cached_property
    def _consumers(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for decision in self._plan.decisions.values():
            for edge in decision.edges:
                if edge.kind is not EdgeKind.RETURN:
                    found[edge.producer].append(edge.consumer)
        return found

    def _after(self, node: Node) -> set[str]:
        """The keys of a node and of all that came of it."""
        found, todo = {node.key}, [node.key]
        while todo:
            for key in self._consumers.get(todo.pop(), ()):
                if key not in found:
                    found.add(key)
                    todo.append(key)
        return found


def has_other_ids(node: Node, parts: Iterable[Part]) -> bool:
    """Whether a node read calls under other ids than these, which are the recorded ones where models are answered."""
    mine = (part for part in node.inputs.parts if part.kind is PartKind.CALL)
    now = (part for part in parts if part.kind is PartKind.CALL)
    return any(None not in (a.call_id, b.call_id) and a.call_id != b.call_id for a, b in zip(mine, now, strict=False))
