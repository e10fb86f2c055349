# SPDX-License-Identifier: Apache-2.0
"""What came of a proposed call, as the record has it: one execution, or several attempts under one id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from genai_processor.replay.decisions import Plan
from genai_processor.replay.parts import Part, PartKind, part_list
from genai_processor.replay.records import EdgeKind, Ending, Node, Operation, Outcome, State


class Proposal(NamedTuple):
    """A call in a recorded response.

    Attributes:
        node: The inference.
        slot: Where in its output.
        part: The call; of a live model, as that made it.
    """

    node: Node
    slot: int
    part: Part


class Answer(NamedTuple):
    """What a call came to.

    Attributes:
        node: The recorded execution; None where only the answer in a later prompt is recorded.
        outcome: What came of it. `waits` also where nothing came of it before its run was over.
    """

    node: Node | None
    outcome: Outcome


class Executions:
    """The executions of each proposal.

    Args:
        plan: The recorded run.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[str, dict[int, list[Node]]] = {}
        self._unproposed: defaultdict[tuple[str | None, bytes], list[Node]] = defaultdict(list)
        for node in plan.nodes:
            if node.operation is Operation.TOOL and len(node.inputs.parts) and not self._is_proposed(node):
                self._unproposed[node.call_id, node.inputs.parts[0].digest].append(node)

    def _is_proposed(self, node: Node) -> bool:
        return any(edge.kind is EdgeKind.PROPOSAL for edge in self._plan.decisions[node.key].edges)

    def of(self, proposal: Proposal) -> list[Node]:
        """The nodes that ran a proposal, in the order in which they are handed out: what was delivered comes last.

        Args:
            proposal: The proposal. What ran it in another trace than it was made in, because it had waited for somebody's
                approval, may have lost its id on the way; it is known by its tool and arguments then.
        """
        known = self._known.get(proposal.node.key)
        if known is None:
            known = self._known[proposal.node.key] = {}
            for edge in self._plan.edges_from(proposal.node.key):
                if edge.kind is EdgeKind.PROPOSAL:
                    known.setdefault(edge.producer_slot, []).append(self._plan.node(edge.consumer))
        nodes = {node.key: node for node in known.get(proposal.slot, ())}
        for node in list(nodes.values()):
            for key in node.attempts:
                nodes.setdefault(key, self._plan.node(key))
        if nodes and all(map(self.never_returned, nodes.values())):
            nodes |= {node.key: node for node in self.unproposed(proposal.part)}
        return sorted(nodes.values(), key=lambda node: (*self._rank(node, proposal), node.key))

    def _rank(self, node: Node, proposal: Proposal) -> tuple[bool, bool, bool]:
        delivered = any(edge.kind is EdgeKind.RESULT for edge in self._plan.edges_from(node.key))
        return node.trace_id != proposal.node.trace_id, delivered, is_value(node)

    def in_doubt(self, node: Node, left: Iterable[Node], proposal: Proposal) -> bool:
        """Whether another attempt that is left may have come before one, and came to something else."""
        rank, outcome = self._rank(node, proposal), node.outcome
        return any(
            self._rank(one, proposal) == rank
            and (one.outcome.ending, one.outcome.digest) != (outcome.ending, outcome.digest)
            for one in left
        )

    def unproposed(self, call: Part) -> list[Node]:
        """The nodes that ran a call which no recorded response that is known of proposed, by its id or without one."""
        ids = dict.fromkeys((call.call_id, None))
        return [node for call_id in ids for node in self._unproposed.get((call_id, call.digest), ())]

    def never_returned(self, node: Node) -> bool:
        """Whether a call was begun and, as far as the record shows, did not come back before its run was over.

        Nothing is recorded of how it ended, though what was said around it is, and the run was never continued from there:
        it was cancelled with its siblings, ran into a deadline, waited for an approval, or its process died.
        """
        if node.operation is not Operation.TOOL or node.outcome.ending is not Ending.UNKNOWN:
            return False
        proposers = [edge.producer for edge in self._plan.decisions[node.key].edges if edge.kind is EdgeKind.PROPOSAL]
        return bool(proposers) and all(self._is_last(self._plan.node(key)) for key in proposers)

    def _is_last(self, proposer: Node) -> bool:
        whole = proposer.inputs.state is State.WHOLE and proposer.outcome.state is State.WHOLE
        return whole and not any(edge.kind is EdgeKind.ECHO for edge in self._plan.edges_from(proposer.key))

    def from_a_later_prompt(self, proposal: Proposal) -> Outcome | None:
        """What a call came to whose execution nobody recorded, as the next prompt of that run says it."""
        plan = self._plan
        for edge in plan.edges_from(proposal.node.key):
            if edge.kind is not EdgeKind.ECHO or edge.producer_slot != proposal.slot:
                continue
            parts = plan.node(edge.consumer).inputs.parts
            position = parts[edge.slot].position
            for part in parts:
                if part.kind is PartKind.RESULT and part.position == position and not part.missing:
                    made = part_list([part])
                    return Outcome(Ending.VALUE, State.WHOLE, made)
        return None

    def latest(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Proposals without those whose run has gone on to another one: an id that is used again means the newest."""
        if len(proposals) < 2:
            return list(proposals)
        keys = {one.node.key for one in proposals}
        passed: set[str] = set()
        for key in keys:
            at = self._plan.node(key).structure.extends
            while at is not None and at not in passed:
                if at in keys:
                    passed.add(at)
                at = self._plan.node(at).structure.extends
        return [one for one in proposals if one.node.key not in passed]


def is_value(node: Node) -> bool:
    """Whether a node came to a value."""
    return node.outcome.ending is Ending.VALUE
