# SPDX-License-Identifier: Apache-2.0
"""Where boundaries move up to, what they cover, and what cannot be verified behind those that cannot move."""

from __future__ import annotations

from collections.abc import Iterable

from genai_processor.replay.containers import container_lists
from genai_processor.replay.decisions import Boundary, Choice, Container, Decision, Mode
from genai_processor.replay.lists import ReadList
from genai_processor.replay.parts import EMPTY
from genai_processor.replay.records import EdgeKind, Ending, Inputs, Node, OrderEvidence, Outcome, State
from genai_processor.replay.shown import Stands
from genai_processor.replay.tree import Draft, Tree

_WORSE = {Choice.RECOMPUTE: 0, Choice.INJECT: 1, Choice.REFUSE: 2}
_REFUSE = Choice.REFUSE
_NO_INPUTS = Inputs(State.NOT_RECORDED, EMPTY, OrderEvidence.NOT_RECORDED, states=(State.NOT_RECORDED,))
_NO_OUTCOME = Outcome(Ending.UNKNOWN, State.NOT_RECORDED, EMPTY)


def containers_of(trees: Iterable[Tree]) -> list[Draft]:
    """The containers and composite tools of every trace, outer ones before inner ones, by trace."""
    return [draft for tree in sorted(trees, key=lambda tree: tree.trace_id) for draft in tree.holders]


def draw(
    nodes: list[Node], decisions: dict[str, Decision], holders: list[Draft]
) -> tuple[dict[str, Container], tuple[Boundary, ...]]:
    """Draw the boundaries; the decisions are completed in place.

    Args:
        nodes: All nodes, producers first.
        decisions: The decision of each.
        holders: What may stand around them, outer ones before inner ones.

    Returns:
        The containers by key, and the boundaries.
    """
    map_ = _Map(holders, decisions)
    boundaries: list[Boundary] = []
    alone: set[str] = set()
    for node in nodes:
        if decisions[node.key].choice is _REFUSE:
            moved = map_.injectable(node.agent)
            boundaries.append(Boundary(node.key, moved))
            if moved is None:
                alone.add(node.key)
            else:
                map_.injected.add(moved)
    _mark_unverified(nodes, decisions, alone)
    _mark_covered(nodes, decisions, map_)
    boundaries.sort(key=lambda boundary: boundary.refused)
    return _containers(nodes, decisions, map_), tuple(boundaries)


class _Map:
    """What stands around what."""

    def __init__(self, holders: list[Draft], decisions: dict[str, Decision]) -> None:
        self.holders = holders
        self.parent: dict[str, str | None] = {}
        self.drafts: dict[str, Draft] = {}
        for draft in holders:
            self.drafts[draft.key] = draft
            self.parent[draft.key] = draft.above.key if draft.above is not None else None
        self.injected: set[str] = set()
        self._decisions = decisions
        self._lists: dict[str, tuple[Inputs, Outcome]] = {}
        self._nearest: dict[str, str | None] = {}
        for draft in holders:
            decision = decisions.get(draft.key)
            if decision is not None and decision.choice is Choice.INJECT and Mode.OUTPUT in decision.modes:
                self.injected.add(draft.key)

    def lists(self, key: str) -> tuple[Inputs, Outcome]:
        """What a container says that went in and came out."""
        found = self._lists.get(key)
        if found is None:
            texts = self.drafts[key].shown.texts
            inputs, outputs = container_lists(texts) if texts else (None, None)
            found = self._lists[key] = (_inputs(inputs), _outcome(outputs, key))
        return found

    def injectable(self, key: str | None) -> str | None:
        """The innermost composite tool or agent, from a key outward, whose own input and output are recorded."""
        path: list[str] = []
        found: str | None = None
        while key is not None:
            if key in self._nearest:
                found = self._nearest[key]
                break
            path.append(key)
            if self._may_be_injected(key):
                found = key
                break
            key = self.parent[key]
        for passed in path:
            self._nearest[passed] = found
        return found

    def _may_be_injected(self, key: str) -> bool:
        decision = self._decisions.get(key)
        if decision is not None:  # a composite tool: what is recorded of it, its own decision knows
            return decision.choice is not _REFUSE and Mode.OUTPUT in decision.modes
        if self.drafts[key].shown.stands is not Stands.AGENT:
            return False
        inputs, outcome = self.lists(key)
        return inputs.state is State.WHOLE and outcome.state is State.WHOLE


def _inputs(read: ReadList | None) -> Inputs:
    if read is None:
        return _NO_INPUTS
    if read.state is not State.WHOLE:
        return Inputs(read.state, read.parts, read.order, states=(read.state,))
    return Inputs(State.WHOLE, read.parts, read.order)


def _outcome(read: ReadList | None, key: str) -> Outcome:
    if read is None:
        return _NO_OUTCOME
    if read.state is not State.WHOLE:
        return Outcome(Ending.UNKNOWN, read.state, read.parts)
    return Outcome(Ending.VALUE, State.WHOLE, read.parts, witnesses=(key,))


def _mark_unverified(nodes: list[Node], decisions: dict[str, Decision], alone: set[str]) -> None:
    if not alone:
        return
    reached = set(alone)
    for node in nodes:
        decision = decisions[node.key]
        producers = [edge.producer for edge in decision.edges if edge.kind is not EdgeKind.RETURN]
        if node.structure.extends is not None:
            producers.append(node.structure.extends)
        if any(producer in reached for producer in producers):
            reached.add(node.key)
            decisions[node.key] = decision._replace(unverified_upstream=True)


def _mark_covered(nodes: list[Node], decisions: dict[str, Decision], map_: _Map) -> None:
    if not map_.injected:
        return
    cover: dict[str, str | None] = {}
    for draft in map_.holders:  # outer ones first
        above = map_.parent[draft.key]
        around = cover.get(above) if above is not None else None
        cover[draft.key] = around or (draft.key if draft.key in map_.injected else None)
    for node in nodes:
        found = cover.get(node.agent) if node.agent is not None else None
        if found is not None:
            decisions[node.key] = decisions[node.key]._replace(covered_by=found)


def _containers(nodes: list[Node], decisions: dict[str, Decision], map_: _Map) -> dict[str, Container]:
    inside: dict[str, list[str]] = {}
    worst: dict[str, Choice] = {}
    for node in nodes:
        if node.agent is not None:
            inside.setdefault(node.agent, []).append(node.key)
            _worsen(worst, node.agent, decisions[node.key].choice)
    for draft in reversed(map_.holders):  # inner ones first
        above = map_.parent[draft.key]
        if above is not None and draft.key in worst:
            _worsen(worst, above, worst[draft.key])
    found: dict[str, Container] = {}
    for draft in map_.holders:
        key = draft.key
        if key in decisions:
            continue
        inputs, outcome = map_.lists(key) if key in map_.injected else (_NO_INPUTS, _NO_OUTCOME)
        found[key] = Container(
            key,
            draft.shown.name,
            draft.shown.agent_name,
            worst.get(key),
            tuple(sorted(inside.get(key, ()))),
            map_.parent[key],
            inputs,
            outcome,
            key in map_.injected,
            draft.shown.failed,
        )
    return found


def _worsen(worst: dict[str, Choice], key: str, choice: Choice) -> None:
    before = worst.get(key)
    if before is None or _WORSE[choice] > _WORSE[before]:
        worst[key] = choice
