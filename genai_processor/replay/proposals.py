# SPDX-License-Identifier: Apache-2.0
"""The calls that recorded responses proposed to a running agent, and what each came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NoReturn

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.decisions import Plan
from genai_processor.replay.digests import part_digest
from genai_processor.replay.executions import Answer, Executions, Proposal
from genai_processor.replay.parts import Part, PartKind, PartList, Role
from genai_processor.replay.records import Ending, Node, Operation
from genai_processor.replay.stopping import Latch, named
from genai_processor.replay.values import difference


class Frame:
    """The calls that one run of an agent has been proposed.

    Attributes:
        owner: Whose it is: a block inside of another has frames of its own.
        agent: Key of the composite tool that it runs inside of, or None.
    """

    def __init__(self, owner: Proposals, agent: str | None = None) -> None:
        self.owner = owner
        self.agent = agent
        self.proposals: defaultdict[str, list[Proposal]] = defaultdict(list)


_frame: Final[ContextVar[Frame | None]] = ContextVar("genai_processor_replay_frame", default=None)


class Proposals:
    """Matches calls with proposals, and these with what the record says of them.

    Args:
        latch: Keeps what has been answered.
        answerable: Whether the record holds what a tool came to, or its body runs.
        lenient: Go on where it cannot be told which of several attempts came first.
    """

    def __init__(self, latch: Latch, answerable: Callable[[Node], bool], *, lenient: bool) -> None:
        self._latch = latch
        self._plan: Plan = latch.plan
        self._answerable = answerable
        self._lenient = lenient
        self._executions = Executions(latch.plan)
        self._root = Frame(self)
        self._frames: list[Frame] = [self._root]
        self._recorded: defaultdict[tuple[str, bytes], list[Proposal]] = defaultdict(list)
        self._unseen: set[tuple[str, int]] = set()  # answered calls whose execution nobody recorded
        for node in latch.plan.nodes:
            if node.operation is Operation.INFERENCE:
                for slot, part in enumerate(node.outcome.parts):
                    if part.kind is PartKind.CALL and part.call_id:
                        self._recorded[part.call_id, part.digest].append(Proposal(node, slot, part))

    def here(self) -> Frame:
        """The run of an agent that this code belongs to."""
        frame = _frame.get()
        return frame if frame is not None and frame.owner is self else self._root

    @contextmanager
    def framed(self, agent: str | None) -> Iterator[None]:
        """One run of an agent, inside of a composite tool (its key) or where the run around it is."""
        found = Frame(self, self.here().agent if agent is None else agent)
        self._frames.append(found)
        token = _frame.set(found)
        try:
            yield
        finally:
            with suppress(ValueError):  # it ends in another task than it began in
                _frame.reset(token)

    def are_left(self) -> bool:
        """Whether a call was handed out that was executed in the record, and not yet now."""
        return any(self._executions.of(one) and not self._spent(one) for one in self._handed_out())

    def not_called(self, traces: Collection[str]) -> Node | None:
        """What a call came to in one of these traces that was handed out, and that nobody has made.

        Where a call of the same turn did not end well, those beside it may have been cancelled before they began.
        """
        every = [(one, self._executions.of(one)) for one in self._handed_out()]
        cut = {one.node.key for one, nodes in every if any(node.outcome.ending is not Ending.VALUE for node in nodes)}
        left = [
            node
            for one, nodes in every
            for node in nodes
            if one.node.key not in cut and node.operation is Operation.TOOL and node.key not in self._latch.answered
        ]
        return next((node for node in left if node.trace_id in traces), None)

    def _handed_out(self) -> list[Proposal]:
        with self._latch.lock:
            return [one for frame in self._frames for known in frame.proposals.values() for one in known]

    def never_returned(self, node: Node) -> bool:
        """See `Executions.never_returned`."""
        return self._executions.never_returned(node)

    def expect(self, node: Node, parts: PartList, ids: Sequence[str]) -> None:
        """Expect the calls of a response under the ids that they were handed out with."""
        proposals = self.here().proposals
        with self._latch.lock:
            for slot, (part, call_id) in enumerate(zip(parts, ids, strict=True)):
                if part.kind is PartKind.CALL:
                    proposals[call_id].append(Proposal(node, slot, part._replace(call_id=call_id)))

    def called(self, tool: str, call_id: str | None, arguments: Any, *, again: bool = False) -> Answer:
        """Find what a tool call came to.

        Args:
            tool: Its name.
            call_id: The id that the model's response gave it.
            arguments: Its arguments as the model gave them.
            again: It had to be approved before: an attempt that never returned is the one that waited for that.

        Raises:
            Stop: It is not in the record, or what it came to is not.
        """
        self._latch.check()
        digest = part_digest(Role.ASSISTANT, PartKind.CALL, tool, arguments)
        called = Part(Role.ASSISTANT, PartKind.CALL, tool, digest, None, call_id, arguments)
        with self._latch.lock:
            last: Proposal | None = None
            for known in self._known(called):
                found = self._executions.latest([one for one in known if one.part.digest == digest and not self._spent(one)])
                if found:
                    return self._answer(self._only(found, called), again)
                last = known[-1] if known and (last is None or last.part.digest != digest) else last
                if known and known[-1].part.digest != digest:
                    break  # this id was proposed to this run, with other arguments
            if last is None and (node := self._by_itself(called)) is not None:
                return self._taken(node)
        self._not_recorded(called, last)

    def _known(self, called: Part) -> Iterator[list[Proposal]]:
        """The proposals with a call's id; for a call without one, those of its action.

        Of this run first; then of others in the same place, one of which may go on here after an approval; then what the
        record has, and nobody was handed out.
        """
        here = self.here()
        yield self._in([here], called)
        yield self._in([one for one in self._frames if one is not here and one.agent == here.agent], called)
        if called.call_id:
            recorded = self._recorded.get((called.call_id, called.digest), ())
            yield [one for one in recorded if one.node.key not in self._latch.answered]

    def _in(self, frames: Sequence[Frame], called: Part) -> list[Proposal]:
        if called.call_id:
            return [one for frame in frames for one in frame.proposals.get(called.call_id, ())]
        every = [one for frame in frames for known in frame.proposals.values() for one in known]
        return [one for one in every if one.part.digest == called.digest]

    def _only(self, found: Sequence[Proposal], called: Part) -> Proposal:
        """The proposal that is meant. If it might be several, all have to have come to the same."""
        came_to = {tuple(node.outcome.digest for node in self._executions.of(one)) for one in found}
        if len(came_to) == 1 or self._lenient:
            return min(found, key=lambda one: (one.node.key, one.slot))
        self._latch.stop(
            ReplayRefusedError(
                f"{called.tool} ({called.call_id or 'without an id'}) was proposed more than once with these arguments, and "
                "came to different results; nothing tells which of them is meant",
                nodes=tuple(one.node.key for one in found),
            )
        )

    def _spent(self, proposal: Proposal) -> bool:
        nodes = self._executions.of(proposal)
        if not nodes:
            return (proposal.node.key, proposal.slot) in self._unseen
        return all(node.key in self._latch.answered for node in nodes)

    def _answer(self, proposal: Proposal, again: bool) -> Answer:
        executions = self._executions.of(proposal)
        left = [one for one in executions if one.key not in self._latch.answered]
        if again:
            left = [one for one in left if not self.never_returned(one)] or left
        if not left:
            return self._from_a_later_prompt(proposal)
        node = left[0]
        if self._executions.in_doubt(node, left[1:], proposal) and not self._lenient:
            self._latch.stop(
                ReplayRefusedError(
                    f"{named(node)} was attempted more than once, and nothing recorded says which attempt came first: times "
                    "are no order",
                    nodes=tuple(one.key for one in left),
                )
            )
        return self._taken(node)

    def _taken(self, node: Node) -> Answer:
        self._latch.answered[node.key] = 1
        if self.never_returned(node):
            return Answer(node, node.outcome._replace(ending=Ending.WAITS))
        if not self._answerable(node):
            reasons = ", ".join(self._plan.decisions[node.key].reasons)
            self._latch.stop(
                ReplayRefusedError(f"{named(node)} cannot be answered from the record ({reasons})", nodes=(node.key,))
            )
        return Answer(node, node.outcome)

    def _from_a_later_prompt(self, proposal: Proposal) -> Answer:
        self._unseen.add((proposal.node.key, proposal.slot))
        outcome = self._executions.from_a_later_prompt(proposal)
        if outcome is None:
            call = proposal.part
            self._latch.stop(
                ReplayRefusedError(
                    f"What {call.tool} ({call.call_id}) came to is recorded nowhere", nodes=(proposal.node.key,)
                )
            )
        return Answer(None, outcome)

    def _by_itself(self, called: Part) -> Node | None:
        """A recorded execution that no recorded response proposed, if there is one of this action, or all ended alike."""
        left = [one for one in self._executions.unproposed(called) if one.key not in self._latch.answered]
        return left[0] if len({one.outcome.digest for one in left}) == 1 else None

    def _not_recorded(self, called: Part, last: Proposal | None) -> NoReturn:
        what = f"{called.tool} ({called.call_id})"
        if last is None:
            what += " is called, and no recorded response proposed that"
            self._latch.diverged(what, node=None, where="call", got=called.digest)
        nodes = self._executions.of(last)
        node = nodes[0] if nodes else last.node
        if last.part.digest == called.digest:
            what += " is called once more than in the record"
            self._latch.diverged(what, node=node, where="call", expected=called.digest, got=called.digest)
        different = difference([last.part._replace(position=None)], [called])
        what += " is called with other arguments than in the record"
        self._latch.diverged(
            what, node=node, where="call", expected=last.part.digest, got=called.digest, different=different
        )
