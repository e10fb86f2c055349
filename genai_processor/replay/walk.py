# SPDX-License-Identifier: Apache-2.0
"""The walk over a content graph, without threads, clocks or I/O: whoever drives it runs what `ready` returns.

What comes out depends on the plan and on what functions return, never on the order in which they do: a node starts when all
that it depends on is done, and after a divergence only what stands before it in the plan's order counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay.asked import Arrange, Copies, NodeRun, Recompute, Way, by_name
from genai_processor.replay.decisions import Plan
from genai_processor.replay.digests import input_digest
from genai_processor.replay.parts import Part, PartList, part_list
from genai_processor.replay.records import Edge, EdgeKind, Ending, Node, Outcome
from genai_processor.replay.results import Done, ReplayBoundary, ReplayResult, boundary_around, divergence
from genai_processor.replay.values import difference, outcome_difference, outcome_of, own_parts, with_value

_ORDERLESS = frozenset({EdgeKind.RETURN})
_COMPARED = frozenset(Done) - {Done.REFUSED, Done.COVERED}


class Job(NamedTuple):
    """A function that may run now.

    Attributes:
        rank: Which step of the walk it is.
        function: The function.
        run: What it gets.
    """

    rank: int
    function: Recompute
    run: NodeRun


class _Step(NamedTuple):
    """A node's turn: to get its input and, unless what is inside makes its value, to have one; or to get that value."""

    node: Node
    leaves: bool


class Walk:
    """One replay of a plan.

    Args:
        plan: The plan.
        how: How each node is replayed (`asked.ways`).
        run_id: The replay's id.
        arrange: How the application puts in order what came from upstream, by the names of `asked.by_name`.
        boundary: Where to start, or None.
        collect: Go on beside a divergence.
    """

    def __init__(
        self,
        plan: Plan,
        how: Mapping[str, Way],
        run_id: str,
        *,
        arrange: Mapping[str, Arrange] | None = None,
        boundary: ReplayBoundary | None = None,
        collect: bool = False,
    ) -> None:
        self._plan = plan
        self._how = how
        self._run_id = run_id
        self._arrange = arrange or {}
        self._collect = collect
        self._done: dict[str, Done] = {}
        self._outcomes: dict[str, Outcome] = dict(boundary.outcomes) if boundary is not None else {}
        self._divergences: dict[int, tuple[str, ReplayDivergence]] = {}
        self._first = len(plan.nodes) * 2 + 1
        self._steps: list[_Step] = []
        self._waiting: list[int] = []
        self._after: list[list[int]] = []
        self._ready: list[int] = []
        self._ranks: dict[str, int] = {}
        self._begin()

    # -- the order ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        steps: list[_Step] = []
        enters: dict[str, int] = {}
        values: dict[str, int] = {}
        for node in self._plan.nodes:
            way = self._how.get(node.key)
            if node.key in self._outcomes:
                self._done[node.key] = Done.RESUMED
            elif way is None:
                self._done[node.key] = Done.COVERED
            elif not (way.value or way.runs or way.inside):
                self._done[node.key] = Done.REFUSED
            else:
                self._done[node.key] = Done.NOT_REACHED
                enters[node.key] = values[node.key] = len(steps)
                steps.append(_Step(node, False))
                if way.inside:
                    values[node.key] = len(steps)
                    steps.append(_Step(node, True))
        before: list[set[int]] = [set() for _ in steps]
        for at, step in enumerate(steps):
            key = step.node.key
            if step.leaves:
                before[at].add(enters[key])
            for edge in self._edges(key) if not self._stands_alone(step.node) else ():
                if step.leaves is (edge.kind is EdgeKind.RETURN):
                    known = enters if edge.kind is EdgeKind.DELEGATE else values
                    if edge.producer in known:
                        before[at].add(known[edge.producer])
        self._rank(steps, before)

    def _rank(self, steps: list[_Step], before: list[set[int]]) -> None:
        """Number the steps: those before, before; where that leaves a choice, by the plan's order."""
        after: list[list[int]] = [[] for _ in steps]
        for at, needed in enumerate(before):
            for one in needed:
                after[one].append(at)
        left = [len(needed) for needed in before]
        heap = [at for at, count in enumerate(left) if not count]
        rank: dict[int, int] = {}
        while heap:
            at = heapq.heappop(heap)
            rank[at] = len(rank)
            for one in after[at]:
                left[one] -= 1
                if not left[one]:
                    heapq.heappush(heap, one)
        if len(rank) != len(steps):
            stuck = tuple(sorted({steps[at].node.key for at in range(len(steps)) if at not in rank}))
            raise ReplayRefusedError(
                f"Nothing has run: these nodes wait for each other: {', '.join(stuck[:5])}", nodes=stuck
            )
        order = sorted(rank, key=rank.__getitem__)
        self._steps = [steps[at] for at in order]
        self._waiting = [len(before[at]) for at in order]
        self._after = [[rank[one] for one in after[at]] for at in order]
        self._ready = [at for at, count in enumerate(self._waiting) if not count]
        for at, step in enumerate(self._steps):
            self._ranks[step.node.key] = at  # the step that gives the value stands last

    # -- driving -----------------------------------------------------------------------------------------------------

    def ready(self) -> list[Job]:
        """Do all that needs no function; return the functions that may run now, each once."""
        jobs: list[Job] = []
        while self._ready:
            at = heapq.heappop(self._ready)
            if at > self._first and not self._collect:
                continue
            if self._steps[at].leaves:
                self._leave(at)
            elif (job := self._enter(at)) is not None:
                jobs.append(job)
        return jobs

    def came_back(self, job: Job, outcome: Outcome) -> None:
        """Take what a function of `ready` made."""
        self._check(job.rank, outcome, Done.RAN_ON_RECORD if self._way(job.rank).on_record else Done.RECOMPUTED)

    def result(self) -> ReplayResult:
        """What has come of it, once nothing is left to run."""
        outcomes = {key: outcome for key, outcome in self._outcomes.items() if self._counts(key)}
        done = {node.key: self._done[node.key] for node in self._plan.nodes}
        for key, one in done.items():
            if key in self._ranks and not self._counts(key) and one is not Done.DIVERGED:
                done[key] = Done.NOT_REACHED
        kept = MappingProxyType(outcomes)
        boundary = boundary_around(self._plan, kept, self._uncompared())
        found: list[ReplayDivergence] = []
        for at, (key, error) in sorted(self._divergences.items()):
            if self._collect or at == self._first:
                found.append(error)
            else:
                done[key] = Done.NOT_REACHED
        for error in found:
            error.last_valid_boundary = boundary
        return ReplayResult(self._run_id, self._plan, MappingProxyType(done), kept, tuple(found), boundary)

    def _uncompared(self) -> set[str]:
        """The keys of nodes that ran, and whose outcome is recorded nowhere: it may be what made another one diverge."""
        ran = (Done.RECOMPUTED, Done.RAN_ON_RECORD)
        return {key for key, one in self._done.items() if one in ran and not self._plan.node(key).outcome.digest}

    def _counts(self, key: str) -> bool:
        """Whether a node's outcome is within the boundary: after a divergence, only what comes before it in order."""
        return self._collect or self._ranks.get(key, -1) < self._first

    def _stands_alone(self, node: Node) -> bool:
        """Whether a node is on a circle, so that it cannot wait for what it got: it is taken from the record."""
        return node.structure.cycle and self._how[node.key].unverified

    def _way(self, at: int) -> Way:
        return self._how[self._steps[at].node.key]

    # -- steps -------------------------------------------------------------------------------------------------------

    def _enter(self, at: int) -> Job | None:
        node, way = self._steps[at].node, self._way(at)
        parts = self._live(node) if not self._stands_alone(node) else node.inputs.parts
        if parts is not node.inputs.parts or not way.unverified:
            digest = input_digest(parts, system=node.inputs.system, tools=node.inputs.tools)
            if node.inputs.digest and digest != node.inputs.digest:
                self._diverged(at, "input", node.inputs.digest, digest, difference(node.inputs.parts, parts))
                return None
        if way.inside:
            self._passed(at)
        elif way.runs is not None:
            given = node.inputs.parts if way.on_record else parts
            return Job(at, way.runs, NodeRun(node, Copies(given), self._run_id))
        else:
            self._has(at, node.outcome, Done.INJECTED_UNVERIFIED if way.unverified else Done.INJECTED)
        return None

    def _leave(self, at: int) -> None:
        """A composite: what was returned inside is its value."""
        node = self._steps[at].node
        outcome = node.outcome
        for edge in self._plan.decisions[node.key].edges:
            if edge.kind is EdgeKind.RETURN and (changed := self._changed(edge)) is not None:
                first = outcome.parts[0] if len(outcome.parts) else None
                outcome = outcome_of(node, changed.value if first is None else with_value(first, changed.value))
        self._check(at, outcome, Done.RECOMPUTED)

    def _live(self, node: Node) -> PartList:
        """What comes from upstream: the recorded list itself if nothing there is other than recorded."""
        parts: list[Part] | None = None
        for edge in self._edges(node.key):
            if not 0 <= edge.slot < len(node.inputs.parts) or edge.kind in _ORDERLESS:
                continue  # arguments that are withheld have no slot
            changed = self._changed(edge, node.inputs.parts[edge.slot])
            if changed is not None:
                parts = list(node.inputs.parts) if parts is None else parts
                slot = parts[edge.slot]
                same_kind = (slot.role, slot.kind, slot.tool) == (changed.role, changed.kind, changed.tool)
                if same_kind and changed.digest != slot.digest:
                    parts[edge.slot] = slot._replace(digest=changed.digest, value=changed.value)
                else:
                    parts[edge.slot] = with_value(slot, changed.value)
        arrange = by_name(self._arrange, node)
        if arrange is not None:
            given = tuple(Copies(node.inputs.parts if parts is None else parts))
            return part_list(own_parts(arrange(node, given), given))
        return node.inputs.parts if parts is None else part_list(parts)

    def _edges(self, key: str) -> Sequence[Edge]:
        """The edges into a node; those into slots that it has from a node which was compared itself are that one's."""
        extends = self._plan.node(key).structure.extends
        if extends is None or self._done.get(extends) in _COMPARED:
            return self._plan.decisions[key].edges
        return self._plan.edges_into(key)

    def _changed(self, edge: Edge, slot: Part | None = None) -> Part | None:
        """What a producer made, if it is other than what was recorded of it, or than what the edge says of the slot."""
        outcome = self._outcomes.get(edge.producer)
        if outcome is None or outcome.ending is not Ending.VALUE or not 0 <= edge.producer_slot < len(outcome.parts):
            return None
        made = outcome.parts[edge.producer_slot]
        if slot is not None and edge.equal and (made.role, made.kind) == (slot.role, slot.kind):
            return made if made.digest != slot.digest else None
        recorded = self._plan.node(edge.producer).outcome.parts
        if edge.producer_slot < len(recorded) and recorded[edge.producer_slot].digest == made.digest:
            return None
        return made

    def _check(self, at: int, outcome: Outcome, done: Done) -> None:
        recorded = self._steps[at].node.outcome
        if recorded.digest and outcome.digest != recorded.digest:
            self._diverged(at, "output", recorded.digest, outcome.digest, outcome_difference(recorded, outcome))
        else:
            self._has(at, outcome, done)

    def _has(self, at: int, outcome: Outcome, done: Done) -> None:
        key = self._steps[at].node.key
        self._outcomes[key] = outcome
        self._done[key] = done
        self._passed(at)

    def _passed(self, at: int) -> None:
        for one in self._after[at]:
            self._waiting[one] -= 1
            if not self._waiting[one]:
                heapq.heappush(self._ready, one)

    def _diverged(self, at: int, where: str, expected: bytes, got: bytes, different: str) -> None:
        node = self._steps[at].node
        self._done[node.key] = Done.DIVERGED
        self._first = min(self._first, at)
        error = divergence(node, where, expected, got, different)
        self._divergences[at] = node.key, error
