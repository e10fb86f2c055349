# SPDX-License-Identifier: Apache-2.0
"""Which of several recorded model calls that were asked the same comes first, and whether the record tells it at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from genai_processor.replay.decisions import Plan
from genai_processor.replay.digests import content_digest
from genai_processor.replay.executions import is_value
from genai_processor.replay.live import Prompt
from genai_processor.replay.parts import Part, PartKind
from genai_processor.replay.proposals import Frame
from genai_processor.replay.records import EdgeKind, Node


class SamePrompts:
    """The order in which equal prompts are answered.

    Args:
        plan: The recorded run.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def firsts(self, nodes: Sequence[Node], prompt: Prompt, frame: Frame) -> list[Node]:
        """Those of nodes that were asked the same which may be meant now: the record has no order among them.

        Args:
            nodes: The nodes; their system instructions are those of the prompt.
            prompt: What is asked now.
            frame: The run of an agent that asks it.
        """
        ranks = {node.key: self._rank(node, prompt, frame) for node in nodes}
        least = min(ranks.values())
        best = [node for node in nodes if ranks[node.key] == least]
        later = {key for node in best for key in self._after(node) if key != node.key}
        later |= self._asked_later(best)
        return [node for node in best if node.key not in later] or best

    def are_alike(self, nodes: Sequence[Node]) -> bool:
        """Whether it makes no difference which is meant: each said the same, and so did what came of it, call by call."""
        return len(nodes) < 2 or len(set(map(self._shape, nodes))) == 1

    def _rank(self, node: Node, prompt: Prompt, frame: Frame) -> tuple[bool, ...]:
        """Of several that were asked the same, the least are meant."""
        return (
            _has_other_ids(node, prompt.parts),
            not is_of(self._plan, node, frame),
            None not in (prompt.agent, node.agent_name) and prompt.agent != node.agent_name,
            prompt.tools is not None and not _tools_called(node) <= prompt.tools,
        )

    def _asked_later(self, nodes: Sequence[Node]) -> set[str]:
        """The keys of those that a run asked after another: a failure is asked again, and what calls nothing ends a run.

        A run is one agent's, or is made of the attempts at one step, of which all but the last failed. Of branches that ran
        side by side none goes before another.
        """
        first: dict[object, tuple[bool, bool]] = {}
        for node in nodes:
            for run in (node.agent, self._step(node, failed=True)):
                first[run] = min(first.get(run, (True, True)), _stage(node))
        runs = ((node, run) for node in nodes for run in (node.agent, self._step(node)) if run is not None)
        return {node.key for node, run in runs if run in first and first[run] < _stage(node)}

    def _step(self, node: Node, *, failed: bool = False) -> tuple[str, str] | None:
        """The step around a node, which its other attempts share; None if there is none, or none that failed."""
        step = self._plan.containers.get(node.agent or "")
        if step is None or step.parent is None or (failed and not step.failed):
            return None
        return step.name, step.parent

    @cached_property
    def _consumers(self) -> dict[str, list[tuple[int, str]]]:
        """What came of each node directly, with the slot of its output that it came of."""
        found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for decision in self._plan.decisions.values():
            for edge in decision.edges:
                if edge.kind is not EdgeKind.RETURN:
                    found[edge.producer].append((edge.producer_slot, edge.consumer))
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return {node.key: at for at, node in enumerate(self._plan.nodes)}

    def _after(self, node: Node) -> set[str]:
        """The keys of a node and of all that came of it."""
        found, todo = {node.key}, [node.key]
        while todo:
            for _, key in self._consumers.get(todo.pop(), ()):
                if key not in found:
                    found.add(key)
                    todo.append(key)
        return found

    def _shape(self, node: Node) -> bytes:
        """A digest of what a node said and of the shapes of what came of each slot of it."""
        shapes: dict[str, str] = {}
        for key in sorted(self._after(node), key=self._places.__getitem__, reverse=True):  # consumers before producers
            # On a cycle a shape may not be known yet: then it is like no other's.
            after = sorted((slot, shapes.get(consumer, consumer)) for slot, consumer in self._consumers.get(key, ()))
            shapes[key] = content_digest([self._plan.node(key).outcome.digest.hex(), after]).hex()
        return bytes.fromhex(shapes[node.key])


def tools_around(plan: Plan, node: Node) -> list[str]:
    """The composite tools that a node is inside of, the innermost first."""
    found: list[str] = []
    key = node.agent
    while key is not None:
        if (container := plan.containers.get(key)) is not None:
            key = container.parent
        else:
            found.append(key)
            key = plan.node(key).agent
    return found


def is_of(plan: Plan, node: Node, frame: Frame) -> bool:
    """Whether a node is of the run of an agent that a frame stands for."""
    return next(iter(tools_around(plan, node)), None) == frame.agent


def _stage(node: Node) -> tuple[bool, bool]:
    """How far a run is that was answered so."""
    return is_value(node), not _tools_called(node)


def _tools_called(node: Node) -> set[str | None]:
    return {part.tool for part in node.outcome.parts if part.kind is PartKind.CALL}


def _has_other_ids(node: Node, parts: Iterable[Part]) -> bool:
    """Whether a node read calls under other ids than these, which are the recorded ones where models are answered."""
    mine = (part for part in node.inputs.parts if part.kind is PartKind.CALL)
    now = (part for part in parts if part.kind is PartKind.CALL)
    return any(None not in (a.call_id, b.call_id) and a.call_id != b.call_id for a, b in zip(mine, now, strict=False))
