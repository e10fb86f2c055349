# SPDX-License-Identifier: Apache-2.0
"""A plan is made piece by piece, so that what only its making needs goes away before the next piece is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from genai_processor.replay.beginnings import mark_beginnings
from genai_processor.replay.boundary import decide
from genai_processor.replay.cover import containers_of, draw
from genai_processor.replay.decisions import Boundary, Container, Decision, Declared, Plan, Problem
from genai_processor.replay.freeze import frozen
from genai_processor.replay.graph import World
from genai_processor.replay.order import arrange, mark_fan_ins
from genai_processor.replay.records import Node
from genai_processor.replay.tree import Tree

_new = tuple.__new__  # cheaper than `_replace`


class Piece(NamedTuple):
    """What is planned of some worlds.

    Attributes:
        groups: The nodes of each group of worlds that belong together, with the smallest trace id there.
        decisions: The decision of each node, by key.
        containers: Their containers, by key.
        boundaries: Their boundaries.
        problems: What is wrong with a world, with its smallest trace id.
    """

    groups: list[tuple[str, list[Node]]]
    decisions: dict[str, Decision]
    containers: dict[str, Container]
    boundaries: tuple[Boundary, ...]
    problems: list[tuple[str, Problem]]


def decided(groups: Sequence[Sequence[World]], trees: Iterable[Tree], declared: Declared) -> Piece:
    """Order and freeze the operations of joined worlds, and decide what is done with them. The worlds are then used up.

    Args:
        groups: The worlds that belong together.
        trees: The trees of all of them.
        declared: What the user says of tools and models.
    """
    found: list[tuple[str, list[Node]]] = []
    nodes: list[Node] = []
    decisions: dict[str, Decision] = {}
    problems: list[tuple[str, Problem]] = []
    for worlds in groups:
        first = worlds[0]
        ops = first.ops if len(worlds) == 1 else sorted([op for world in worlds for op in world.ops], key=lambda op: op.key)
        ops = arrange(ops)
        mark_fan_ins(ops)
        mark_beginnings(ops)
        mine: list[Node] = []
        for op in ops:
            node, edges = frozen(op)
            mine.append(node)
            decision = decide(node, declared)
            decisions[node.key] = _new(Decision, (*decision[:6], edges, None, False)) if edges else decision
        nodes.extend(mine)
        found.append((first.first, mine))
    for worlds in groups:
        for world in worlds:
            problems.extend([(world.first, problem) for problem in world.noted])
            for op, target in world.missing:
                problem = f"links to span {target}, which is not in the record: add the file that has it"
                problems.append((world.first, Problem(op.key, problem)))
            world.let_go()
    containers, boundaries = draw(nodes, decisions, containers_of(trees))
    return Piece(found, decisions, containers, boundaries, problems)


def put_together(pieces: Sequence[Piece], declared: Declared, problems: Iterable[Problem]) -> Plan:
    """The plan that pieces make: by trace, whatever order they were made in.

    Args:
        pieces: The pieces.
        declared: What the decisions rest on.
        problems: What could not be read.
    """
    nodes: list[Node] = []
    decisions: dict[str, Decision] = {}
    groups = sorted([(first, mine, piece) for piece in pieces for first, mine in piece.groups], key=lambda group: group[0])
    for _, mine, piece in groups:
        nodes.extend(mine)
        known = piece.decisions
        for node in mine:
            decisions[node.key] = known[node.key]
    containers = {key: container for piece in pieces for key, container in piece.containers.items()}
    boundaries = [boundary for piece in pieces for boundary in piece.boundaries]
    of_worlds = sorted([found for piece in pieces for found in piece.problems], key=lambda found: found[0])
    return Plan(
        tuple(nodes),
        decisions,
        dict(sorted(containers.items(), key=lambda item: item[0].partition(":")[0])),
        tuple(sorted(boundaries, key=lambda boundary: boundary.refused)),
        (*problems, *[problem for _, problem in of_worlds]),
        declared,
    )
