# SPDX-License-Identifier: Apache-2.0
"""What is done with every node, and why: decisions, boundaries and the plan that holds them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from genai_processor.replay.records import Edge, Inputs, Node, OrderEvidence, Outcome


class Choice(enum.StrEnum):
    """What is done with a node. `refuse` is the lowest, `recompute` the highest."""

    RECOMPUTE = "recompute"
    INJECT = "inject"
    REFUSE = "refuse"


class Mode(enum.StrEnum):
    """How a node is injected."""

    OUTPUT = "output"
    """It is not run; its recorded outcome is its value."""
    INPUTS = "inputs"
    """The caller's function runs it on its recorded input, nothing from upstream, and its output is compared."""


class Reason(enum.StrEnum):
    """Why a decision came about. `reasons.REMEDIES` says what to do about each."""

    CYCLE = "cycle"
    CONFLICTING_COPIES = "conflicting_copies"
    UNREADABLE = "unreadable"
    INPUT_CUT = "input_cut"
    INPUT_REDACTED = "input_redacted"
    INPUT_WITHHELD = "input_withheld"
    INPUT_HELD_BY_PROVIDER = "input_held_by_provider"
    INPUT_DELTA = "input_delta"
    INPUT_COMPACTED = "input_compacted"
    INPUT_CHANGED = "input_changed"
    ORDER_NOT_RECORDED = "order_not_recorded"
    INPUT_NOT_RECORDED = "input_not_recorded"
    ARGUMENTS_WITHHELD = "arguments_withheld"
    ARGUMENTS_CUT = "arguments_cut"
    ARGUMENTS_REDACTED = "arguments_redacted"
    CALL_AMBIGUOUS = "call_ambiguous"
    OUTCOME_NOT_RECORDED = "outcome_not_recorded"
    OUTCOME_CUT = "outcome_cut"
    OUTCOME_REDACTED = "outcome_redacted"
    OUTCOME_CHANGED = "outcome_changed"
    EFFECT_NOT_DECLARED = "effect_not_declared"
    EXTERNAL = "external"
    SAMPLED = "sampled"
    FAN_IN = "fan_in"
    SOURCE_UNOBSERVED = "source_unobserved"
    SOURCE_AMBIGUOUS = "source_ambiguous"
    OUTPUT_NOT_RECORDED = "output_not_recorded"
    CONSTANT_INPUTS = "constant_inputs"
    SINGLE_CHAIN = "single_chain"


class Declared(NamedTuple):
    """What the user says of what the record cannot show. Each entry is a pattern (`get_*`), matched with case.

    Attributes:
        deterministic: Tools that are read-only *and* answer the same every time; the operation names `retrieval`,
            `reranking` and `embeddings`, and the names of data sources and embedding models, can stand here, too.
        models: Models that answer the same to the same (a scripted one, a cache).
        recompute: Operation names (`chat`) for which the caller gave a function that may stand for a sampled model; `*` is
            every inference.
    """

    deterministic: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()


class Decision(NamedTuple):
    """What is done with a node, and why.

    Attributes:
        choice: Recompute it, inject it, or refuse.
        reasons: Why; the first decided.
        modes: The sound modes of an injection. For `recompute`, those that would be sound if it were injected instead; for
            `refuse`, empty, or `(OUTPUT,)` where `allow_unverified` may lift the refusal (its outcome is recorded).
        remedy: What to do so that the decision is a higher one; "" if there is nothing to do.
        order: By what the order of its input is known.
        structure_allows_recompute: Nothing but a declaration or a function is missing for `recompute`.
        edges: The content edges into the node's new slots, and the echoes of the node whose whole input and output its list
            begins with (`Structure.extends`). `Plan.edges_into` has those into the older slots, too.
        covered_by: Key of the outermost injected composite tool or container that it is inside of, or None.
        unverified_upstream: A node that it depends on was refused and nothing around that could be injected.
    """

    choice: Choice
    reasons: tuple[Reason, ...]
    modes: tuple[Mode, ...]
    remedy: str
    order: OrderEvidence
    structure_allows_recompute: bool
    edges: tuple[Edge, ...] = ()
    covered_by: str | None = None
    unverified_upstream: bool = False


class Container(NamedTuple):
    """A span that only holds others: an agent, a workflow, a step. It has no decision of its own.

    Attributes:
        key: Its key.
        name: Its span's name.
        agent_name: The agent's name if it is one's, else None.
        worst: The worst decision inside, or None if no node is inside.
        inside: Keys of the nodes whose innermost container it is, sorted.
        parent: Key of the container or composite tool around it, or None.
        inputs: What it says that went in, read only if it is injected.
        outcome: What it says that came out, likewise.
        injected: A boundary moved up to it: its recorded outcome stands for everything inside.
        failed: It is a step, of no agent's own, and ended in an error.
    """

    key: str
    name: str
    agent_name: str | None
    worst: Choice | None
    inside: tuple[str, ...]
    parent: str | None
    inputs: Inputs
    outcome: Outcome
    injected: bool = False
    failed: bool = False


class Boundary(NamedTuple):
    """Where a replay stops recomputing because of a refused node.

    Attributes:
        refused: Key of the node.
        moved_to: Key of the composite tool or container around it that is injected instead, or None: then the node stands
            alone, and what descends from it is `unverified_upstream`.
    """

    refused: str
    moved_to: str | None


class Problem(NamedTuple):
    """Something about the input that no node can carry.

    Attributes:
        place: A file, with its line if there is one, or the key of a span.
        problem: What is wrong, and what to do.
    """

    place: str
    problem: str


class Plan:
    """What to do with every node of one or more recorded runs.

    Attributes:
        nodes: Every node, producers before consumers: the nodes of one conversation (or trace) together, by how long the
            longest chain of producers before them is, then by key. Nodes on a cycle, and behind them what depends on
            them, come last of theirs.
        decisions: The decision of each, by key.
        containers: Every container, by key.
        boundaries: The boundaries, in the order of the refused nodes.
        problems: What could not be read.
        declared: What the decisions rest on.
    """

    __slots__ = (
        "_by_span",
        "_consumers",
        "_nodes",
        "boundaries",
        "containers",
        "decisions",
        "declared",
        "nodes",
        "problems",
    )

    def __init__(
        self,
        nodes: tuple[Node, ...],
        decisions: Mapping[str, Decision],
        containers: Mapping[str, Container],
        boundaries: tuple[Boundary, ...],
        problems: tuple[Problem, ...],
        declared: Declared,
    ) -> None:
        self.nodes = nodes
        self.decisions = decisions
        self.containers = containers
        self.boundaries = boundaries
        self.problems = problems
        self.declared = declared
        self._nodes: dict[str, Node] | None = None
        self._by_span: dict[str, list[Node]] | None = None
        self._consumers: dict[str, list[Edge]] | None = None

    def node(self, key: str) -> Node:
        """The node with a key.

        Raises:
            KeyError: No node has it.
        """
        if self._nodes is None:
            self._nodes = {node.key: node for node in self.nodes}
        return self._nodes[key]

    def node_of(self, span_id: str, trace_id: str | None = None) -> Node | None:
        """The node that a span shows; None if none does, or if several traces have the id and none is named."""
        if self._by_span is None:
            by_span: dict[str, list[Node]] = {}
            for node in self.nodes:
                for shown in node.span_ids:
                    by_span.setdefault(shown, []).append(node)
            self._by_span = by_span  # when it is whole: other threads may read the same plan
        found = self._by_span.get(span_id, [])
        if trace_id is not None:
            found = [node for node in found if node.trace_id == trace_id]
        return found[0] if len(found) == 1 else None

    def edges_into(self, key: str) -> tuple[Edge, ...]:
        """All content edges into a node by slot, also those into the slots that it has from the node that it extends."""
        found = list(self.decisions[key].edges)
        at = self.node(key).structure.extends
        while at is not None:
            found.extend([edge._replace(consumer=key) for edge in self.decisions[at].edges if edge.slot >= 0])
            at = self.node(at).structure.extends
        return tuple(sorted(found, key=lambda edge: (edge.slot, edge.kind, edge.producer)))

    def edges_from(self, key: str) -> Sequence[Edge]:
        """The content edges out of a node, in the order of their consumers."""
        if self._consumers is None:
            consumers: dict[str, list[Edge]] = {}
            for node in self.nodes:
                for edge in self.decisions[node.key].edges:
                    consumers.setdefault(edge.producer, []).append(edge)
            self._consumers = consumers  # likewise
        return self._consumers.get(key, ())
