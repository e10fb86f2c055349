# SPDX-License-Identifier: Apache-2.0
"""Answers a running agent from the record: each model call by what it is asked, each tool call by where it was proposed.

Never by order of arrival. What fits nothing stops the run for good: `stopping` has how.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.boundary import is_verifiable
from genai_processor.replay.decisions import Choice, Plan
from genai_processor.replay.digests import content_digest
from genai_processor.replay.executions import Answer
from genai_processor.replay.live import (
    Keys,
    Prompt,
    instructions_of,
    key_of_prompt,
    leaves_instructions_out,
    same_places,
    same_system,
    without_places,
)
from genai_processor.replay.live_answers import LiveAnswers
from genai_processor.replay.parts import Part, PartKind, PartList, Role
from genai_processor.replay.proposals import Frame, Proposals
from genai_processor.replay.records import Ending, Node, Operation, Outcome, State
from genai_processor.replay.retrievals import Retrievals
from genai_processor.replay.same_prompts import SamePrompts, is_of, tools_around
from genai_processor.replay.stopping import Latch, named
from genai_processor.replay.values import difference


class Session(Latch):
    """One `with replaying(...)` block.

    Args:
        plan: The recorded run.
        run_id: The replay's id.
        models: Model calls are answered, too.
        enter: Globs over tools that are agents: their bodies run, and what they call is answered.
        whole: The run must ask for every recorded response of the traces that it replays, and for what these call.
        allow_unverified: Start though some nodes cannot be replayed; whatever asks for one of these stops.
        patience: For how many seconds a call that never returned waits to be cancelled; None for as long as it takes.
    """

    def __init__(
        self,
        plan: Plan,
        run_id: str,
        *,
        models: bool,
        enter: tuple[str, ...] = (),
        whole: bool = True,
        allow_unverified: bool = False,
        patience: float | None = None,
    ) -> None:
        super().__init__(plan)
        self.run_id = run_id
        self.models = models
        self.patience = patience
        self.live = LiveAnswers(self)
        self._enter = enter
        self._whole = whole
        self.uninstructed: set[str] = set()  # answered, though the record lacks instructions that there are now
        self._lenient = allow_unverified
        self._same = SamePrompts(plan)
        self._proposals = Proposals(self, self._answerable, lenient=allow_unverified)
        self._retrievals = Retrievals(self)
        self._by_prompt: defaultdict[bytes, list[Node]] = defaultdict(list)
        self._unplaced: defaultdict[bytes, list[Node]] = defaultdict(list)  # of results whose calls are unknown
        self._inferences: list[Node] = []
        self._prepare(allow_unverified)

    def _prepare(self, allow_unverified: bool) -> None:
        if not self.plan.nodes:
            problems = "; ".join(problem.problem for problem in self.plan.problems)
            raise ReplayRefusedError(f"Not replayed: nothing is recorded ({problems or 'the plan is empty'})")
        said = [
            part for node in self.plan.nodes for part in (*node.inputs.parts.tail, *node.outcome.parts) if not part.missing
        ]
        if said and all(part.value is None for part in said):
            raise ReplayRefusedError("Not replayed: the plan holds no values; make it with keep_values=True")
        keys, refused = Keys(), []
        for node in self.plan.nodes:
            if not all(map(self._is_entered, tools_around(self.plan, node))):
                continue  # it is answered whole, with what is around it
            wanted = node.operation is Operation.TOOL or (self.models and node.operation is Operation.INFERENCE)
            if wanted and not self._answerable(node):
                refused.append(node)
            if node.operation is Operation.INFERENCE and (node.inputs.state is State.WHOLE or is_verifiable(node)):
                self._inferences.append(node)
                self._by_prompt[keys.of(node.inputs.parts)].append(node)
                if any(part.position == -1 for part in node.inputs.parts):
                    self._unplaced[key_of_prompt(without_places(node.inputs.parts))].append(node)
        if refused and not allow_unverified:
            raise ReplayRefusedError(
                "Not replayed, and nothing has run: the record does not hold what it takes to answer "
                + "; ".join(f"{named(node)} ({', '.join(self.plan.decisions[node.key].reasons)})" for node in refused[:5])
                + (f"; and {len(refused) - 5} more" if len(refused) > 5 else ""),
                nodes=tuple(node.key for node in refused),
            )

    def _answerable(self, node: Node) -> bool:
        if node.outcome.ending is Ending.WAITS or self._is_entered(node.key) or self._proposals.never_returned(node):
            return True
        if self.plan.decisions[node.key].choice is Choice.REFUSE:
            return False
        return node.outcome.ending is not Ending.UNKNOWN and node.outcome.state is State.WHOLE

    def _is_entered(self, key: str) -> bool:
        try:
            node = self.plan.node(key)
        except KeyError:
            return False
        if node.operation is not Operation.TOOL:
            return False
        # Where spans do not show the agent inside, its own name has to be given, and no pattern that it happens to fit.
        return node.tool in self._enter or (
            node.composite and any(fnmatchcase(node.tool or "", glob) for glob in self._enter)
        )

    def at_end(self) -> None:
        """Find what the run has not asked for.

        Raises:
            Stop: It ended before the record did.
        """
        if self._whole and not self.answered:
            self.diverged(
                "Nothing in the block has asked for anything that is recorded: what ran there, if anything did, ran as ever",
                node=None,
                where="end",
            )
        if self._whole and self.unheard:
            self.live.at_end()
        if not (self.models and self._whole):
            return
        traces = {self.plan.node(key).trace_id for key in self.answered}
        left = [node for node in self._inferences if node.trace_id in traces and node.key not in self.answered]
        if left:
            self.diverged(
                f"The run has ended, but in the record {named(left[0])} was asked once more. (If a tool that was answered "
                "runs an agent, or hands over to one, name it in `enter`.)",
                node=left[0],
                where="end",
            )
        if (node := self._proposals.not_called(traces)) is not None:
            self.diverged(f"The run has ended, but in the record {named(node)} was called", node=node, where="end")

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
        frame = self._proposals.here()
        with self.lock:
            found = self._by_prompt.get(key_of_prompt(prompt.parts), [])
            if not found and self._unplaced:
                found = self._unplaced.get(key_of_prompt(without_places(prompt.parts)), [])
                found = [node for node in found if same_places(prompt.parts, node.inputs.parts)]
            free = [node for node in found if node.key not in self.answered]
            fit = [node for node in free if same_system(node, prompt)]
            node = self._first(fit, prompt, frame) if fit else None
            if node is not None:
                self.answered[node.key] = 1
                if not self.models:
                    self.unheard.add(node.key)
                if leaves_instructions_out(node, prompt):
                    self.uninstructed.add(node.key)
        if node is None:
            self._nobody_was_asked(prompt, found, free, frame)
        return node

    def _first(self, free: list[Node], prompt: Prompt, frame: Frame) -> Node:
        """The one that is meant of nodes that were asked the same."""
        firsts = self._same.firsts(free, prompt, frame)
        if not self._lenient and not self._same.are_alike(firsts):
            self.stop(
                ReplayRefusedError(
                    f"In the record {len(firsts)} model calls were asked the same and went on differently, and nothing "
                    f"tells which of them is meant here: {', '.join(map(named, firsts[:5]))}",
                    nodes=tuple(node.key for node in firsts),
                )
            )
        return firsts[0]

    def _nobody_was_asked(self, prompt: Prompt, found: list[Node], free: list[Node], frame: Frame) -> NoReturn:
        got = key_of_prompt(prompt.parts)
        if free:
            self._other_instructions(free[0], prompt)
        if found:
            what = f"{named(found[0])} is asked the same once more than in the record"
            self.diverged(what, node=found[0], where="call", expected=found[0].inputs.digest, got=got)
        node = self._next(frame)
        if node is None:
            self.diverged("A model is asked once more than in the record", node=None, where="call", got=got)
        self.diverged(
            f"The input of {named(node)} is not what was recorded",
            node=node,
            where="input",
            expected=key_of_prompt(node.inputs.parts),
            got=got,
            different=difference(_said(node.inputs.parts), _said(prompt.parts)),
        )

    def _other_instructions(self, node: Node, prompt: Prompt) -> NoReturn:
        now = instructions_of(prompt)
        recorded = [part.value for part in node.inputs.parts if part.role is Role.SYSTEM]
        self.diverged(
            f"The system instructions of {named(node)} are not what was recorded",
            node=node,
            where="input",
            expected=content_digest(recorded) if recorded else node.inputs.system,
            got=content_digest(now),
            different=f"recorded {recorded if recorded else '(as a digest only)'}, now {now}",
        )

    def _next(self, frame: Frame) -> Node | None:
        """The node that comes next in the record: of this agent, if it can be told, all of whose producers are done."""
        left = [node for node in self._inferences if node.key not in self.answered]
        ready = [
            node for node in left if all(edge.producer in self.answered for edge in self.plan.decisions[node.key].edges)
        ]
        own = [node for node in ready if is_of(self.plan, node, frame)]
        return next(iter(own or ready or left), None)

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
            self.stop(ReplayRefusedError(f"What {named(node)} answered is not recorded whole", nodes=(node.key,)))
        self._proposals.expect(node, outcome.parts, [self.call_id(node, slot) for slot in range(len(outcome.parts))])
        return outcome

    def answered_live(self, node: Node, parts: PartList) -> None:
        """Take what a live model answered, and expect its calls.

        Raises:
            Stop: It is not what was recorded.
        """
        self.live.said(node, parts)
        self._proposals.expect(node, parts, [part.call_id or "" for part in parts])

    # -- tools -------------------------------------------------------------------------------------------------------

    def called(self, tool: str, call_id: str | None, arguments: Any, *, again: bool = False) -> Answer:
        """Find what a tool call came to: see `Proposals.called`."""
        return self._proposals.called(tool, call_id, arguments, again=again)

    def retrieved(self, query: str) -> Answer:
        """Find what a retrieval outside of a tool came to: see `Retrievals.retrieved`."""
        frame = self._proposals.here()
        return self._retrievals.retrieved(query, lambda node: is_of(self.plan, node, frame))

    def enters(self, node: Node | None) -> bool:
        """Whether the body of a tool runs, because it only calls agents that are answered themselves."""
        return node is not None and self._is_entered(node.key)

    @contextmanager
    def frame(self, agent: str | None = None) -> Iterator[None]:
        """One run of an agent."""
        with self.running(), self._proposals.framed(agent):
            yield

    def is_left(self) -> bool:
        """Whether something goes on, or may, that holds what it was answered: for after the block."""
        return self._runs > 0 or self._proposals.are_left()


def _said(parts: PartList) -> list[Part]:
    return [part for part in parts if part.role is not Role.SYSTEM and part.kind is not PartKind.REASONING]
