# SPDX-License-Identifier: Apache-2.0
"""What of many plans could be replayed, by instrumentation and recorded content, and what to record for the rest."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from genai_processor.cli.console import printable
from genai_processor.replay import Choice, Node, Operation, Plan, Reason

_SHOWN_REASONS = 3
_INJECT, _REFUSE = Choice.INJECT, Choice.REFUSE


class Row(NamedTuple):
    """What is added up together.

    Attributes:
        instrumentation: The dialect's name.
        content: Whether it recorded what was said: a model's messages, or, where there is no model, what tools were given.
    """

    instrumentation: str
    content: bool


class Sums:
    """The nodes of one row."""

    def __init__(self) -> None:
        self.choices: collections.Counter[Choice] = collections.Counter()
        self.reasons: collections.Counter[tuple[Choice, Reason]] = collections.Counter()
        self.without: collections.Counter[Choice] = collections.Counter()
        self.files = self.replayable = self.allows = self.models = self.stamped = 0


class Audit:
    """Adds up plans."""

    def __init__(self) -> None:
        self.rows: collections.defaultdict[Row, Sums] = collections.defaultdict(Sums)
        self.remedies: dict[Reason, str] = {}
        self.files = self.replayable = self.empty = self.replayable_without = 0

    def add(self, plan: Plan, without: Plan | None = None) -> None:
        """Add a plan: it could be replayed if nothing is refused but what an injected agent or tool covers.

        Args:
            plan: The plan.
            without: What it would be had nobody stamped its spans for replay; the same, if None.
        """
        without = without if without is not None else plan
        replayable = _is_replayable(plan)
        self.files += 1
        self.replayable += replayable
        self.empty += not plan.nodes
        self.replayable_without += _is_replayable(without)
        rows = _rows_of(plan.nodes)
        for row in rows.values():
            self.rows[row].files += 1
            self.rows[row].replayable += replayable
        for node in without.nodes:
            self.rows[rows[node.dialect]].without[without.decisions[node.key].choice] += 1
        for node in plan.nodes:
            sums, decision = self.rows[rows[node.dialect]], plan.decisions[node.key]
            if node.operation is Operation.INFERENCE:
                sums.models += 1
                sums.stamped += node.inputs.stamped
            sums.choices[decision.choice] += 1
            sums.reasons.update([(decision.choice, reason) for reason in decision.reasons])
            sums.allows += decision.structure_allows_recompute
            if decision.remedy:
                self.remedies.setdefault(decision.reasons[0], decision.remedy)


def _is_replayable(plan: Plan) -> bool:
    refused = (one.choice is _REFUSE and one.covered_by is None for one in plan.decisions.values())
    return bool(plan.nodes) and not any(refused)


def _rows_of(nodes: Iterable[Node]) -> dict[str, Row]:
    """The row of each instrumentation of one file."""
    nodes_of: dict[str, list[Node]] = {}
    for node in nodes:
        nodes_of.setdefault(node.dialect, []).append(node)
    found = {}
    for dialect, mine in nodes_of.items():
        models = [node for node in mine if node.operation is Operation.INFERENCE]
        found[dialect] = Row(dialect, any(map(_has_content, models or mine)))
    return found


def _has_content(node: Node) -> bool:
    parts = node.inputs.parts
    if node.operation is not Operation.INFERENCE:
        parts = parts or node.outcome.parts
    return any(not part.missing for part in parts)


def audit_json(audit: Audit) -> dict[str, Any]:
    """The sums as plain data."""
    return {
        "files": audit.files,
        "replayable": audit.replayable,
        "empty": audit.empty,
        "replayable_without_stamps": audit.replayable_without,
        "instrumentations": [
            {
                "instrumentation": row.instrumentation,
                "content": row.content,
                "files": sums.files,
                "replayable": sums.replayable,
                "nodes": sums.choices.total(),
                **{str(choice): sums.choices[choice] for choice in Choice},
                "structure_allows_recompute": sums.allows,
                "models": sums.models,
                "stamped": sums.stamped,
                "without_stamps": {str(choice): sums.without[choice] for choice in Choice},
                "reasons": [
                    {"decision": str(choice), "reason": str(reason), "nodes": count}
                    for (choice, reason), count in _ranked(sums.reasons)
                ],
            }
            for row, sums in _in_order(audit)
        ],
        "remedies": {str(reason): remedy for reason, remedy in sorted(audit.remedies.items())},
    }


def _in_order(audit: Audit) -> list[tuple[Row, Sums]]:
    """By name, with content before without."""
    return sorted(audit.rows.items(), key=lambda item: (item[0].instrumentation, not item[0].content))


def _ranked(counts: collections.Counter[tuple[Choice, Reason]]) -> list[tuple[tuple[Choice, Reason], int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def print_audit(audit: Audit, out: Console) -> None:
    """Print the shares, then what to do about each reason to refuse."""
    table = Table(box=None, pad_edge=False)
    table.add_column("instrumentation")
    table.add_column("content", no_wrap=True)
    for name in ("files", "nodes", "recompute", "inject", "refuse"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why inject")
    table.add_column("why refuse")
    for row, sums in _in_order(audit):
        total = sums.choices.total()
        shares = [f"{100 * sums.choices[choice] / total:.0f} %" for choice in Choice]
        counts = [str(sums.files), str(total)]
        why = [_why(sums, choice) for choice in (_INJECT, _REFUSE)]
        table.add_row(printable(row.instrumentation), "recorded" if row.content else "none", *counts, *shares, *why)
    out.print(table)
    out.print(f"{audit.replayable} of {audit.files} files could be replayed", highlight=False)
    for row, sums in _in_order(audit):
        if sums.stamped:
            out.print(
                f"{printable(row.instrumentation)}: {sums.stamped} of {sums.models} models are stamped for replay; "
                f"{sums.choices[_REFUSE]} of {sums.choices.total()} nodes are refused, "
                f"without the stamps {sums.without[_REFUSE]}",
                highlight=False,
                markup=False,
            )
    if audit.empty:
        out.print(f"{audit.empty} of them show no model, tool or retrieval: nothing is to be replayed", highlight=False)
    if any(sums.stamped for sums in audit.rows.values()):
        out.print(f"without the stamps {audit.replayable_without} files could be replayed", highlight=False)
    refused = {reason for sums in audit.rows.values() for choice, reason in sums.reasons if choice is _REFUSE}
    for reason in sorted(refused):
        if reason in audit.remedies:
            out.print(f"{reason}: {audit.remedies[reason]}", highlight=False, markup=False)


def _why(sums: Sums, choice: Choice) -> str:
    why = [f"{reason} {count}" for (chosen, reason), count in _ranked(sums.reasons) if chosen is choice]
    return ", ".join(why[:_SHOWN_REASONS])
