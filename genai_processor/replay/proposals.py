# SPDX-License-Identifier: Apache-2.0
"""The calls that recorded responses proposed to a running agent, and what each came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.digests import part_digest
from genai_processor.replay.parts import Part, PartKind, PartList, Role, part_list
from genai_processor.replay.records import EdgeKind, Ending, Node, Outcome, State
from genai_processor.replay.stopping import Latch, named
from genai_processor.replay.values import difference


class _Proposal(NamedTuple):
    node: Node
    slot: int
    part: Part


class Frame:
    """The calls that one run of an agent has been proposed.

    Attributes:
        agent: Key of the composite tool that it runs inside of, or None.
    """

    def __init__(self, agent: str | None = None) -> None:
        self.agent = agent
        self.proposals: defaultdict[str, list[_Proposal]] = defaultdict(list)


_frame: Final[ContextVar[Frame | None]] = ContextVar("genai_processor_replay_frame", default=None)


@contextmanager
def framed(agent: str | None) -> Iterator[None]:
    """One run of an agent, inside of a composite tool or where the run around it is."""
    outer = _frame.get()
    token = _frame.set(Frame(outer.agent if agent is None and outer is not None else agent))
    try:
        yield
    finally:
        with suppress(ValueError):  # it ends in another task than it began in
            _frame.reset(token)


class Proposals:
    """Matches calls with proposals.

    Args:
        latch: Keeps what has been answered.
        answerable: Whether the record holds what a tool came to, or its body runs.
    """

    def __init__(self, latch: Latch, answerable: Callable[[Node], bool]) -> None:
        self._latch = latch
        self._plan = latch.plan
        self._answerable = answerable
        self._root = Frame()
        self._unseen: set[tuple[str, int]] = set()  # answered calls whose execution nobody recorded

    def here(self) -> Frame:
        """The run of an agent that this code belongs to."""
        return _frame.get() or self._root

    def expect(self, node: Node, parts: PartList, ids: Sequence[str]) -> None:
        """Expect the calls of a response under the ids that they were handed out with."""
        proposals = self.here().proposals
        with self._latch.lock:
            for slot, (part, call_id) in enumerate(zip(parts, ids, strict=True)):
                if part.kind is PartKind.CALL:
                    proposals[call_id].append(_Proposal(node, slot, part))

    def called(self, tool: str, call_id: str | None, arguments: Any) -> tuple[Node | None, Outcome]:
        """Find what a tool call came to.

        Args:
            tool: Its name.
            call_id: The id that the model's response gave it.
            arguments: Its arguments as the model gave them.

        Returns:
            The recorded node, None where only the answer in a later prompt is recorded, and the outcome.

        Raises:
            Stop: It is not in the record, or what it came to is not.
        """
        self._latch.check()
        digest = part_digest(Role.ASSISTANT, PartKind.CALL, tool, arguments)
        with self._latch.lock:
            known = self.here().proposals.get(call_id or "", ()) if call_id else self._of_action(digest)
            proposal = next((one for one in reversed(known) if one.part.digest == digest and not self._spent(one)), None)
            if proposal is not None:
                return self._outcome(proposal)
            spent = next((one for one in reversed(known) if one.part.digest == digest), None)
            if spent is not None:
                again = f"{tool} ({call_id}) is called once more than in the record"
                self._latch.diverged(again, node=spent.node, where="call", got=digest)
        last = known[-1] if known else None
        called = Part(Role.ASSISTANT, PartKind.CALL, tool, digest, None, call_id, arguments)
        self._latch.diverged(
            f"{tool} ({call_id}) is called with other arguments than in the record"
            if last is not None
            else f"{tool} ({call_id}) is called, and no recorded response proposed that",
            node=self._first_execution(last),
            where="call",
            expected=b"" if last is None else last.part.digest,
            got=digest,
            different="" if last is None else difference([last.part._replace(position=None)], [called]),
        )

    def _first_execution(self, proposal: _Proposal | None) -> Node | None:
        if proposal is None:
            return None
        return next(iter(self._executions(proposal)), proposal.node)

    def _of_action(self, digest: bytes) -> list[_Proposal]:
        """Proposals of a call that comes without an id: good if there is one, or if all came to the same."""
        found = [
            one
            for proposals in self.here().proposals.values()
            for one in proposals
            if one.part.digest == digest and not self._spent(one)
        ]
        ends = {tuple(node.outcome.digest for node in self._executions(one)) for one in found}
        return found if len(ends) == 1 else []

    def _executions(self, proposal: _Proposal) -> list[Node]:
        """The nodes that ran a proposal: attempts that came to nothing first, what was delivered last."""
        keys = [
            edge.consumer
            for edge in self._plan.edges_from(proposal.node.key)
            if edge.kind is EdgeKind.PROPOSAL and edge.producer_slot == proposal.slot
        ]
        keys += [key for one in keys for key in self._plan.node(one).attempts if key not in keys]
        nodes = [self._plan.node(key) for key in dict.fromkeys(keys)]
        delivered = {
            node.key for node in nodes if any(edge.kind is EdgeKind.RESULT for edge in self._plan.edges_from(node.key))
        }
        return sorted(nodes, key=lambda node: (node.key in delivered, is_value(node), node.key))

    def _spent(self, proposal: _Proposal) -> bool:
        nodes = self._executions(proposal)
        if not nodes:
            return (proposal.node.key, proposal.slot) in self._unseen
        return all(node.key in self._latch.answered for node in nodes)

    def _outcome(self, proposal: _Proposal) -> tuple[Node | None, Outcome]:
        nodes = self._executions(proposal)
        node = next((one for one in nodes if one.key not in self._latch.answered), None)
        if node is None:
            outcome = self._from_a_later_prompt(proposal)
            self._unseen.add((proposal.node.key, proposal.slot))
            return None, outcome
        self._latch.answered[node.key] = 1
        if not self._answerable(node):
            reasons = ", ".join(self._plan.decisions[node.key].reasons)
            self._latch.stop(
                ReplayRefusedError(f"{named(node)} cannot be answered from the record ({reasons})", nodes=(node.key,))
            )
        return node, node.outcome

    def _from_a_later_prompt(self, proposal: _Proposal) -> Outcome:
        """What a call came to whose execution nobody recorded, as the next prompt of that run says it."""
        recorded = proposal.node.outcome.parts[proposal.slot]
        for edge in self._plan.edges_from(proposal.node.key):
            if edge.kind is not EdgeKind.ECHO or edge.producer_slot != proposal.slot:
                continue
            parts = self._plan.node(edge.consumer).inputs.parts
            position = parts[edge.slot].position
            for part in parts:
                if part.kind is PartKind.RESULT and part.position == position and not part.missing:
                    made = part_list([part])
                    return Outcome(Ending.VALUE, State.WHOLE, made)
        self._latch.stop(
            ReplayRefusedError(
                f"What {recorded.tool} ({recorded.call_id}) came to is recorded nowhere", nodes=(proposal.node.key,)
            )
        )


def is_value(node: Node) -> bool:
    """Whether a node came to a value."""
    return node.outcome.ending is Ending.VALUE
