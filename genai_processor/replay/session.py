# SPDX-License-Identifier: Apache-2.0
"""Answers a running agent from the record: each model call by what it is asked, each tool call by where it was proposed.

Never by order of arrival. What fits nothing stops the run for good: the stop is kept here, raised by whatever is asked next,
and raised once more when the `with` block ends, so that no framework can swallow it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, NoReturn

from genai_processor.errors import ReplayDivergence, ReplayError, ReplayRefusedError
from genai_processor.replay.digests import output_digest, part_digest, part_list
from genai_processor.replay.live import Keys, Prompt, key_of_prompt, same_system
from genai_processor.replay.records import (
    Choice,
    EdgeKind,
    Ending,
    Node,
    Operation,
    Outcome,
    Part,
    PartKind,
    PartList,
    Plan,
    Role,
    State,
)
from genai_processor.replay.results import ReplayBoundary
from genai_processor.replay.values import difference


class Stop(BaseException):
    """Ends a run past every `except Exception`. Nobody outside sees it: the `with` block raises what it stands for."""


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


class Session:
    """One `with replaying(...)` block.

    Args:
        plan: The recorded run.
        run_id: The replay's id.
        models: Model calls are answered, too.
        enter: Globs over tools that are agents: their bodies run, and what they call is answered.
        whole: The run must ask for every recorded response of the traces that it replays.
        allow_unverified: Start though some nodes cannot be replayed; whatever asks for one of these stops.
    """

    def __init__(
        self, plan: Plan, run_id: str, *, models: bool, enter: tuple[str, ...], whole: bool, allow_unverified: bool
    ) -> None:
        self.plan = plan
        self.run_id = run_id
        self.models = models
        self._enter = enter
        self._whole = whole
        self._lock = threading.RLock()
        self._root = Frame()
        self._wake: list[Callable[[], object]] = []
        self.stopped: ReplayError | None = None
        self.answered: dict[str, int] = {}
        self._by_prompt: defaultdict[bytes, list[Node]] = defaultdict(list)
        self._inferences: list[Node] = []
        self._prepare(allow_unverified)

    def _prepare(self, allow_unverified: bool) -> None:
        keys, refused = Keys(), []
        for node in self.plan.nodes:
            decision = self.plan.decisions[node.key]
            if decision.covered_by is not None and not self._is_entered(decision.covered_by):
                continue
            wanted = node.operation is Operation.TOOL or (self.models and node.operation is Operation.INFERENCE)
            if wanted and not self._answerable(node):
                refused.append(node)
            if node.operation is Operation.INFERENCE and node.inputs.state is State.WHOLE:
                self._inferences.append(node)
                self._by_prompt[keys.of(node.inputs.parts)].append(node)
        if refused and not allow_unverified:
            raise ReplayRefusedError(
                "Not replayed, and nothing has run: the record does not hold what it takes to answer "
                + "; ".join(f"{_named(node)} ({', '.join(self.plan.decisions[node.key].reasons)})" for node in refused[:5])
                + (f"; and {len(refused) - 5} more" if len(refused) > 5 else ""),
                nodes=tuple(node.key for node in refused),
            )

    def _answerable(self, node: Node) -> bool:
        if node.outcome.ending is Ending.WAITS or self._is_entered(node.key):
            return True
        if self.plan.decisions[node.key].choice is Choice.REFUSE:
            return False
        return node.outcome.ending is not Ending.UNKNOWN and node.outcome.state is State.WHOLE

    def _is_entered(self, key: str) -> bool:
        try:
            node = self.plan.node(key)
        except KeyError:
            return False
        return node.composite and any(fnmatchcase(node.tool or "", glob) for glob in self._enter)

    # -- stopping ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the stop again if there has been one."""
        if self.stopped is not None:
            raise Stop(str(self.stopped))

    def stop(self, error: ReplayError) -> NoReturn:
        """Stop the run for good."""
        with self._lock:
            if self.stopped is None:
                if isinstance(error, ReplayDivergence):
                    error.last_valid_boundary = self.boundary()
                self.stopped = error
            wake, self._wake = self._wake, []
        for one in wake:
            one()
        raise Stop(str(error))

    def on_stop(self, wake: Callable[[], object]) -> None:
        """Call back when the run is stopped; at once if it is already."""
        with self._lock:
            if self.stopped is None:
                self._wake.append(wake)
                return
        wake()

    def boundary(self) -> ReplayBoundary:
        """What has been answered, as far as all that it depends on has been, too."""
        outcomes: dict[str, Outcome] = {}
        for node in self.plan.nodes:
            if node.key in self.answered and all(
                edge.producer in outcomes
                for edge in self.plan.decisions[node.key].edges
                if edge.kind not in (EdgeKind.RETURN, EdgeKind.DELEGATE)
            ):
                outcomes[node.key] = node.outcome
        return ReplayBoundary(self.plan, outcomes)

    def _diverged(
        self, what: str, *, node: Node | None, where: str, expected: bytes = b"", got: bytes = b"", different: str = ""
    ) -> NoReturn:
        self.stop(
            ReplayDivergence(
                f"{what}\n{different}".rstrip(),
                node=None if node is None else node.key,
                where=where,
                expected=expected.hex(),
                got=got.hex(),
                difference=different,
            )
        )

    def at_end(self) -> None:
        """Find what the run has not asked for.

        Raises:
            Stop: It ended before the record did.
        """
        if not (self.models and self._whole):
            return
        traces = {self.plan.node(key).trace_id for key in self.answered}
        left = [node for node in self._inferences if node.trace_id in traces and node.key not in self.answered]
        if left:
            self._diverged(
                f"The run has ended, but in the record {_named(left[0])} was asked once more", node=left[0], where="end"
            )

    # -- frames ------------------------------------------------------------------------------------------------------

    @contextmanager
    def frame(self, agent: str | None = None) -> Iterator[None]:
        """One run of an agent."""
        outer = self._here()
        token = _frame.set(Frame(outer.agent if agent is None else agent))
        try:
            yield
        finally:
            _frame.reset(token)

    def _here(self) -> Frame:
        return _frame.get() or self._root

    # -- models ------------------------------------------------------------------------------------------------------

    def asked(self, prompt: Prompt) -> Node:
        """Find the recorded node that was asked the same.

        Args:
            prompt: What the model is asked now.

        Returns:
            The node. Its calls are known from now on by the ids of `call_id`.

        Raises:
            Stop: None was, or not as often.
        """
        self.check()
        frame = self._here()
        with self._lock:
            found = self._by_prompt.get(key_of_prompt(prompt.parts), [])
            free = [node for node in found if node.key not in self.answered]
            free.sort(
                key=lambda node: (not same_system(node, prompt), self._tool_around(node) != frame.agent, _is_value(node))
            )
            node = free[0] if free and same_system(free[0], prompt) else None
            if node is not None:
                self.answered[node.key] = 1
        if node is None:
            self._nobody_was_asked(prompt, found, free, frame)
        return node

    def _nobody_was_asked(self, prompt: Prompt, found: list[Node], free: list[Node], frame: Frame) -> NoReturn:
        got = key_of_prompt(prompt.parts)
        if free:
            what = f"The system instructions of {_named(free[0])} are not what was recorded"
            self._diverged(what, node=free[0], where="input", expected=free[0].inputs.digest, got=got)
        if found:
            what = f"{_named(found[0])} is asked the same once more than in the record"
            self._diverged(what, node=found[0], where="call", expected=found[0].inputs.digest, got=got)
        node = self._next(frame)
        if node is None:
            self._diverged("A model is asked once more than in the record", node=None, where="call", got=got)
        self._diverged(
            f"The input of {_named(node)} is not what was recorded",
            node=node,
            where="input",
            expected=key_of_prompt(node.inputs.parts),
            got=got,
            different=difference(_said(node.inputs.parts), _said(prompt.parts)),
        )

    def _next(self, frame: Frame) -> Node | None:
        """The node that comes next in the record: of this agent, if it can be told, all of whose producers are done."""
        left = [node for node in self._inferences if node.key not in self.answered]
        ready = [
            node for node in left if all(edge.producer in self.answered for edge in self.plan.decisions[node.key].edges)
        ]
        own = [node for node in ready if self._tool_around(node) == frame.agent]
        return next(iter(own or ready or left), None)

    def _tool_around(self, node: Node) -> str | None:
        """The composite tool that a node is inside of, if it is."""
        key = node.agent
        while key is not None and (container := self.plan.containers.get(key)) is not None:
            key = container.parent
        return key

    def call_id(self, node: Node, slot: int) -> str:
        """The id under which a proposed call is handed out: the recorded one, or one made of its place."""
        return node.outcome.parts[slot].call_id or f"call_{node.span_ids[0]}_{slot}"

    def answers(self, node: Node) -> Outcome:
        """The recorded response, to be handed to the framework; its calls are expected from now on.

        Raises:
            Stop: It is not recorded whole.
        """
        outcome = node.outcome
        if outcome.ending is not Ending.VALUE:
            return outcome
        if outcome.state is not State.WHOLE or any(part.missing or part.kind is PartKind.OTHER for part in outcome.parts):
            self.stop(ReplayRefusedError(f"What {_named(node)} answered is not recorded whole", nodes=(node.key,)))
        self._expect(node, outcome.parts, [self.call_id(node, slot) for slot in range(len(outcome.parts))])
        return outcome

    def answered_live(self, node: Node, parts: PartList) -> None:
        """Take what a live model answered, and expect its calls.

        Raises:
            Stop: It is not what was recorded.
        """
        recorded = node.outcome.parts
        if node.outcome.ending is Ending.VALUE and node.outcome.state is State.WHOLE and parts.chain != recorded.chain:
            self._diverged(
                f"The output of {_named(node)} is not what was recorded",
                node=node,
                where="output",
                expected=recorded.chain,
                got=parts.chain,
                different=difference(recorded, parts),
            )
        self._expect(node, parts, [part.call_id or "" for part in parts])

    def _expect(self, node: Node, parts: PartList, ids: list[str]) -> None:
        proposals = self._here().proposals
        with self._lock:
            for slot, (part, call_id) in enumerate(zip(parts, ids, strict=True)):
                if part.kind is PartKind.CALL:
                    proposals[call_id].append(_Proposal(node, slot, part))

    # -- tools -------------------------------------------------------------------------------------------------------

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
        self.check()
        digest = part_digest(Role.ASSISTANT, PartKind.CALL, tool, arguments)
        with self._lock:
            known = self._here().proposals.get(call_id or "", ()) if call_id else self._of_action(digest)
            proposal = next((one for one in reversed(known) if one.part.digest == digest and not self._spent(one)), None)
            if proposal is not None:
                return self._outcome(proposal)
            spent = next((one for one in reversed(known) if one.part.digest == digest), None)
            if spent is not None:
                again = f"{tool} ({call_id}) is called once more than in the record"
                self._diverged(again, node=spent.node, where="call", got=digest)
        last = known[-1] if known else None
        called = Part(Role.ASSISTANT, PartKind.CALL, tool, digest, None, call_id, arguments)
        self._diverged(
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
            for proposals in self._here().proposals.values()
            for one in proposals
            if one.part.digest == digest and not self._spent(one)
        ]
        ends = {tuple(node.outcome.digest for node in self._executions(one)) for one in found}
        return found if len(ends) == 1 else []

    def _executions(self, proposal: _Proposal) -> list[Node]:
        """The nodes that ran a proposal: attempts that came to nothing first, what was delivered last."""
        keys = [
            edge.consumer
            for edge in self.plan.edges_from(proposal.node.key)
            if edge.kind is EdgeKind.PROPOSAL and edge.producer_slot == proposal.slot
        ]
        keys += [key for one in keys for key in self.plan.node(one).attempts if key not in keys]
        nodes = [self.plan.node(key) for key in dict.fromkeys(keys)]
        delivered = {
            node.key for node in nodes if any(edge.kind is EdgeKind.RESULT for edge in self.plan.edges_from(node.key))
        }
        return sorted(nodes, key=lambda node: (node.key in delivered, _is_value(node), node.key))

    def _spent(self, proposal: _Proposal) -> bool:
        nodes = self._executions(proposal)
        if not nodes:
            return f"{proposal.node.key}#{proposal.slot}" in self.answered
        return all(node.key in self.answered for node in nodes)

    def _outcome(self, proposal: _Proposal) -> tuple[Node | None, Outcome]:
        nodes = self._executions(proposal)
        node = next((one for one in nodes if one.key not in self.answered), None)
        if node is None:
            outcome = self._from_a_later_prompt(proposal)
            self.answered[f"{proposal.node.key}#{proposal.slot}"] = 1
            return None, outcome
        self.answered[node.key] = 1
        if self._is_entered(node.key):
            return node, node.outcome
        if not self._answerable(node):
            reasons = ", ".join(self.plan.decisions[node.key].reasons)
            self.stop(
                ReplayRefusedError(f"{_named(node)} cannot be answered from the record ({reasons})", nodes=(node.key,))
            )
        return node, node.outcome

    def _from_a_later_prompt(self, proposal: _Proposal) -> Outcome:
        """What a call came to whose execution nobody recorded, as the next prompt of that run says it."""
        recorded = proposal.node.outcome.parts[proposal.slot]
        for edge in self.plan.edges_from(proposal.node.key):
            if edge.kind is not EdgeKind.ECHO or edge.producer_slot != proposal.slot:
                continue
            parts = self.plan.node(edge.consumer).inputs.parts
            position = parts[edge.slot].position
            for part in parts:
                if part.kind is PartKind.RESULT and part.position == position and not part.missing:
                    made = part_list([part])
                    return Outcome(Ending.VALUE, State.WHOLE, made, digest=output_digest(made))
        self.stop(
            ReplayRefusedError(
                f"What {recorded.tool} ({recorded.call_id}) came to is recorded nowhere", nodes=(proposal.node.key,)
            )
        )

    def enters(self, node: Node | None) -> bool:
        """Whether the body of a tool runs, because it only calls agents that are answered themselves."""
        return node is not None and self._is_entered(node.key)


def _is_value(node: Node) -> bool:
    return node.outcome.ending is Ending.VALUE


def _said(parts: PartList) -> list[Part]:
    return [part for part in parts if part.role is not Role.SYSTEM and part.kind is not PartKind.REASONING]


def _named(node: Node) -> str:
    return " ".join(filter(None, (node.name, node.tool or node.model, f"({node.key})")))
