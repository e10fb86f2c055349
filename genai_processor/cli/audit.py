# SPDX-License-Identifier: Apache-2.0
"""What of many plans could be replayed, by instrumentation, and what to record for the rest."""

from __future__ import annotations

import collections
from typing import Any

from rich.console import Console
from rich.table import Table

from genai_processor.cli.console import printable
from genai_processor.replay import Choice, Plan, Reason

_SHOWN_REASONS = 4


class Audit:
    """Adds up plans."""

    def __init__(self) -> None:
        self.choices: dict[str, collections.Counter[Choice]] = {}
        self.reasons: dict[str, collections.Counter[tuple[Choice, Reason]]] = {}
        self.remedies: dict[Reason, str] = {}
        self.allows: collections.Counter[str] = collections.Counter()
        self.files = self.replayable = 0

    def add(self, plan: Plan) -> None:
        """Add a plan: it could be replayed if nothing is refused but what an injected agent or tool covers."""
        self.files += 1
        if plan.nodes and not any(
            decision.choice is Choice.REFUSE and decision.covered_by is None for decision in plan.decisions.values()
        ):
            self.replayable += 1
        for node in plan.nodes:
            decision = plan.decisions[node.key]
            self.choices.setdefault(node.dialect, collections.Counter())[decision.choice] += 1
            counted = self.reasons.setdefault(node.dialect, collections.Counter())
            for reason in decision.reasons:
                counted[decision.choice, reason] += 1
            if decision.remedy:
                self.remedies.setdefault(decision.reasons[0], decision.remedy)
            self.allows[node.dialect] += decision.structure_allows_recompute


def audit_json(audit: Audit) -> dict[str, Any]:
    """The sums as plain data."""
    return {
        "files": audit.files,
        "replayable": audit.replayable,
        "instrumentations": [
            {
                "instrumentation": dialect,
                "nodes": counts.total(),
                **{str(choice): counts[choice] for choice in Choice},
                "structure_allows_recompute": audit.allows[dialect],
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
    refused = {reason for counts in audit.reasons.values() for choice, reason in counts if choice is Choice.REFUSE}
    for reason in sorted(refused):
        if reason in audit.remedies:
            out.print(f"{reason}: {audit.remedies[reason]}", highlight=False, markup=False)
