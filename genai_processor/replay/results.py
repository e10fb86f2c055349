# SPDX-License-Identifier: Apache-2.0
"""What a replay hands back: what became of each node, what diverged, and where to start again."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from genai_processor.errors import ReplayDivergence
from genai_processor.replay.decisions import Plan
from genai_processor.replay.records import EdgeKind, Node, Outcome

ORDERLESS: Final = frozenset({EdgeKind.RETURN, EdgeKind.DELEGATE})
"""Edges between a composite and what is inside: neither has to be over before the other begins."""


class Done(enum.StrEnum):
    """What became of a node."""

    RECOMPUTED = "recomputed"
    """It ran on what came from upstream, and both digests were as recorded."""
    RAN_ON_RECORD = "ran_on_record"
    """It ran on its recorded input, and its output was as recorded."""
    INJECTED = "injected"
    """Its input was as recorded; its recorded outcome is its value."""
    INJECTED_UNVERIFIED = "injected_unverified"
    """It was refused; `allow_unverified` made its recorded outcome its value."""
    REFUSED = "refused"
    """It cannot be replayed: the decision says why."""
    COVERED = "covered"
    """What stands around it was injected."""
    RESUMED = "resumed"
    """It was within the boundary that the replay was resumed from."""
    DIVERGED = "diverged"
    NOT_REACHED = "not_reached"
    """What it depends on diverged."""


class ReplayBoundary(NamedTuple):
    """How far a replay is valid: `resume` takes these nodes' values as they are, and runs the rest.

    Attributes:
        plan: What was replayed.
        outcomes: Key of each node within -> its outcome, which was compared or is the recorded one. With a node, all are
            within that it depends on.
    """

    plan: Plan
    outcomes: Mapping[str, Outcome]


def boundary_around(plan: Plan, outcomes: Mapping[str, Outcome], uncompared: Collection[str]) -> ReplayBoundary:
    """The boundary around outcomes, without those that nothing is recorded to compare with, and what depends on them.

    Args:
        plan: What was replayed.
        outcomes: Key -> outcome, with each node's those of all that it depends on.
        uncompared: Keys of nodes that ran, and whose outcome is recorded nowhere.
    """
    within: dict[str, Outcome] = {}
    left = set(uncompared)
    for node in plan.nodes:  # producers before consumers
        if node.key not in outcomes:
            continue
        needed = {edge.producer for edge in plan.decisions[node.key].edges if edge.kind not in ORDERLESS}
        if node.key in left or not left.isdisjoint(needed):
            left.add(node.key)
        else:
            within[node.key] = outcomes[node.key]
    return ReplayBoundary(plan, MappingProxyType(within))


class ReplayResult(NamedTuple):
    """A finished replay.

    Attributes:
        run_id: Its id, which the spans that it made bear.
        plan: What was replayed.
        nodes: Key -> what became of it, in the plan's order.
        outcomes: Key -> outcome, of each node that has one.
        divergences: In the plan's order. After one nothing was run that depends on it.
        boundary: How far the replay is valid.
    """

    run_id: str
    plan: Plan
    nodes: Mapping[str, Done]
    outcomes: Mapping[str, Outcome]
    divergences: tuple[ReplayDivergence, ...]
    boundary: ReplayBoundary

    @property
    def diverged(self) -> bool:
        """Whether it went another way than the record."""
        return bool(self.divergences)

    def count(self, done: Done) -> int:
        """How many nodes that became of."""
        return sum(one is done for one in self.nodes.values())


def divergence(node: Node, where: str, expected: bytes, got: bytes, different: str) -> ReplayDivergence:
    """The error that says so."""
    named = " ".join(filter(None, (node.name, node.tool or node.model)))
    now, then = got.hex() or "none", expected.hex() or "none"
    return ReplayDivergence(
        f"The {where} of {named} ({node.key}) is not what was recorded: {now}, not {then}\n{different}",
        node=node.key,
        where=where,
        expected=expected.hex(),
        got=got.hex(),
        difference=different,
    )
