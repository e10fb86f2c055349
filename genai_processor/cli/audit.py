# SPDX-License-Identifier: Apache-2.0
"""What of many plans could be replayed, by instrumentation, and what to record for the rest."""

from __future__ import annotations

import collections
from typing import Any

from rich.console import Console
from rich.table import Table

from genai_processor.cli.console import printable
from genai_processor.replay import Choice, Operation, Plan, Reason

_SHOWN_REASONS = 4


class Audit:
    """Adds up plans."""

    def __init__(self) -> None:
        self.choices: dict[str, collections.Counter[Choice]] = {}
        self.reasons: dict[str, collections.Counter[tuple[Choice, Reason]]] = {}
        self.remedies: dict[Reason, str] = {}
        self.allows: collections.Counter[str] = collections.Counter()
        self.files = self.replayable = self.empty = 0
        self.models: collections.Counter[str] = collections.Counter()
        self.stamped: collections.Counter[str] = collections.Counter()
        self.without: dict[str, collections.Counter[Choice]] = {}
        self.replayable_without = 0

    def add(self, plan: Plan, without: Plan | None = None) -> None:
        """Add a plan: it could be replayed if nothing is refused but what an injected agent or tool covers.

        Args:
            plan: The plan.
            without: What it would be had nobody stamped its spans for replay; the same, if None.
        """
        self.files += 1
        self.replayable += _is_replayable(plan)
        self.empty += not plan.nodes
        without = without if without is not None else plan
        self.replayable_without += _is_replayable(without)
        for node in without.nodes:
            self.without.setdefault(node.dialect, collections.Counter())[without.decisions[node.key].choice] += 1
        for node in plan.nodes:
            if node.operation is Operation.INFERENCE:
                self.models[node.dialect] += 1
                self.stamped[node.dialect] += node.inputs.stamped
            decision = plan.decisions[node.key]
            self.choices.setdefault(node.dialect, collections.Counter())[decision.choice] += 1
            counted = self.reasons.setdefault(node.dialect, collections.Counter())
            for reason in decision.reasons:
                counted[decision.choice, reason] += 1
            if decision.remedy:
                self.remedies.setdefault(decision.reasons[0], decision.remedy)
            self.allows[node.dialect] += decision.structure_allows_recompute


def _is_replayable(plan: Plan) -> bool:
    refused = (one.choice is Choice.REFUSE and one.covered_by is None for one in plan.decisions.values())
    return bool(plan.nodes) and not any(refused)


def audit_json(audit: Audit) -> dict[str, Any]:
    """The sums as plain data."""
    return {
        "files": audit.files,
        "replayable": audit.replayable,
        "empty": audit.empty,
        "replayable_without_stamps": audit.replayable_without,
        "instrumentations": [
            {
                "instrumentation": dialect,
                "nodes": counts.total(),
                **{str(choice): counts[choice] for choice in Choice},
                "structure_allows_recompute": audit.allows[dialect],
                "models": audit.models[dialect],
                "stamped": audit.stamped[dialect],
                "without_stamps": {str(choice): audit.without[dialect][choice] for choice in Choice},
                "reasons": [
                    {"decision": str(choice), "reason": str(reason), "nodes": count}
                    for (choice, reason), count in _ranked(audit.reasons[dialect])
                ],
            }
            for dialect, counts in sorted(audit.choices.items())
        ],
        "remedies": {str(reason): remedy for reason, remedy in sorted(audit.remedies.items())},
    }


def _ranked(counts: collections.Counter[tuple[Choice, Reason]]) -> list[tuple[tuple[Choice, Reason], int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def print_audit(audit: Audit, out: Console) -> None:
    """Print the shares, then what to do about each reason to refuse."""
    table = Table(box=None, pad_edge=False)
    table.add_column("instrumentation")
    for name in ("nodes", "recompute", "inject", "refuse"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why not recompute")
    for dialect, counts in sorted(audit.choices.items()):
        total = counts.total()
        why = [
            f"{reason} {count}"
            for (choice, reason), count in _ranked(audit.reasons[dialect])
            if choice is not Choice.RECOMPUTE
        ]
        shares = [f"{100 * counts[choice] / total:.0f} %" for choice in Choice]
        table.add_row(printable(dialect), str(total), *shares, ", ".join(why[:_SHOWN_REASONS]))
    out.print(table)
    out.print(f"{audit.replayable} of {audit.files} files could be replayed", highlight=False)
    for dialect in sorted(audit.stamped):
        if count := audit.stamped[dialect]:
            now, then = audit.choices[dialect][Choice.REFUSE], audit.without[dialect][Choice.REFUSE]
            out.print(
                f"{printable(dialect)}: {count} of {audit.models[dialect]} models are stamped for replay; "
                f"{now} of {audit.choices[dialect].total()} nodes are refused, without the stamps {then}",
                highlight=False,
                markup=False,
            )
    if audit.empty:
        out.print(f"{audit.empty} of them show no model, tool or retrieval: nothing is to be replayed", highlight=False)
    if audit.stamped.total():
        out.print(f"without the stamps {audit.replayable_without} files could be replayed", highlight=False)
    refused = {reason for counts in audit.reasons.values() for choice, reason in counts if choice is Choice.REFUSE}
    for reason in sorted(refused):
        if reason in audit.remedies:
            out.print(f"{reason}: {audit.remedies[reason]}", highlight=False, markup=False)
