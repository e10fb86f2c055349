# SPDX-License-Identifier: Apache-2.0
"""What a page says of a plan as a whole: counts, reasons with their remedies, problems, and what the page leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from genai_processor.cli.page.chosen import Chosen
from genai_processor.cli.page.facts import EdgeFacts, problem_facts
from genai_processor.cli.page.text import html, shown
from genai_processor.cli.page.tree import counted
from genai_processor.cli.page.words import CHOICES, EDGES, REASONS
from genai_processor.replay import Choice, Plan, Reason

_DONE = {Choice.RECOMPUTE: "recomputed", Choice.INJECT: "injected", Choice.REFUSE: "refused"}


def _choice_counts(plan: Plan) -> dict[Choice, int]:
    """How many nodes have each decision."""
    counts = dict.fromkeys(Choice, 0)
    for decision in plan.decisions.values():
        counts[decision.choice] += 1
    return counts


def summary(plan: Plan) -> str:
    """The plan in a sentence."""
    counts = _choice_counts(plan)
    decided = ", ".join(f'<span class="says {choice}">{count:,} {_DONE[choice]}</span>' for choice, count in counts.items())
    said = f"<strong>{counted(len(plan.nodes), 'node')}</strong>: {decided}."
    if plan.boundaries:
        alone = sum(boundary.moved_to is None for boundary in plan.boundaries)
        said += f" {len(plan.boundaries):,} {'boundary' if len(plan.boundaries) == 1 else 'boundaries'}"
        if alone == len(plan.boundaries):
            said += " that could not be moved up." if alone == 1 else ", none of which could be moved up."
        else:
            said += f", of which {alone:,} could not be moved up." if alone else ", moved up."
    covered = sum(decision.covered_by is not None for decision in plan.decisions.values())
    unverified = sum(decision.unverified_upstream for decision in plan.decisions.values())
    if covered:
        said += f" {covered:,} covered by what is injected around them."
    if unverified:
        said += f" {unverified:,} unverified, because of a refusal before them."
    return said


def left_out(plan: Plan, chosen: Chosen, left_edges: int) -> str:
    """What is not on the page, or ""."""
    said = []
    if chosen.left_nodes:
        drawn, every = len(chosen.nodes), len(plan.nodes)
        said.append(f"This page draws {drawn:,} of {every:,} nodes; {chosen.left_nodes:,} are left out.")
        if chosen.left_traces:
            said.append(f"No node of {counted(chosen.left_traces, 'trace')} is drawn.")
        if any(decision.choice is Choice.REFUSE for decision in plan.decisions.values()):
            said.append("Traces in which something is refused come first.")
        if chosen.parted:
            said.append("Of one trace a part is drawn: what is refused, with what it reads, then its first nodes.")
        said.append("Counts and reasons are of the whole plan.")
    if chosen.left_containers:
        said.append(_left(chosen.left_containers, "container"))
    if left_edges:
        said.append(_left(left_edges, "content edge"))
    return f"{' '.join(said)} Everything is in <code>--format json</code>." if said else ""


def _left(count: int, what: str) -> str:
    return f"{counted(count, what)} {'is' if count == 1 else 'are'} left out."


def overview(plan: Plan) -> Iterator[str]:
    """The parts of what is said of the plan while no node is chosen."""
    yield '<h2>The plan</h2><p class="hint">Choose a node, in the tree or in the graph, to see what it rests on.</p>'
    yield "<h3>Reasons</h3>" + _reasons(plan)
    if plan.problems:
        yield f"<h3>Problems of the record</h3>{_problems(plan)}"
    yield f"<h3>Declared</h3>{_declared(plan)}"


def _reasons(plan: Plan) -> str:
    counts: dict[tuple[Choice, Reason], int] = {}
    remedies: dict[Reason, str] = {}
    for decision in plan.decisions.values():
        for reason in decision.reasons:
            counts[decision.choice, reason] = counts.get((decision.choice, reason), 0) + 1
            if reason is decision.reasons[0]:
                remedies.setdefault(reason, decision.remedy)
    if not counts:
        return "<p>No node, no reason.</p>"
    order = [Choice.REFUSE, Choice.INJECT, Choice.RECOMPUTE]
    found = [(order.index(choice), -count, reason) for (choice, reason), count in counts.items()]
    rows = []
    for rank, less, reason in sorted(found):
        choice, count = order[rank], -less
        remedy = remedies.get(reason, "")
        advice = f'<span class="remedy">→ {html(remedy)}</span>' if remedy else ""
        rows.append(
            f'<li><button type="button" class="reason" data-find="{reason}" disabled>'
            f'<span class="says {choice}">{reason}</span><span class="count">{count:,}</span></button>'
            f"<p>{html(REASONS[reason])}{advice}</p></li>"
        )
    return f'<ul class="reasons">{"".join(rows)}</ul>'


def _problems(plan: Plan) -> str:
    rows = [
        f"<li>{f'<bdi class=place>{html(place)}</bdi> ' if place else ''}<bdi>{html(problem)}</bdi></li>"
        for place, problem in problem_facts(plan.problems)
    ]
    more = len(plan.problems) - len(rows)
    rows += [f"<li>{more:,} more: --format json has them</li>"] if more else []
    return f'<ul class="problems">{"".join(rows)}</ul>'


def _declared(plan: Plan) -> str:
    said = plan.declared
    named = (("deterministic", said.deterministic), ("models", said.models), ("recompute", said.recompute))
    rows = [f"<dt>{name}</dt><dd><bdi>{html(shown(', '.join(globs)))}</bdi></dd>" for name, globs in named if globs]
    return f"<dl>{''.join(rows)}</dl>" if rows else "<p>Nothing: no tool, no model, no function.</p>"


def legend(plan: Plan, edges: Iterable[EdgeFacts]) -> str:
    """What the signs mean: all decisions, and of everything else what there is.

    Args:
        plan: The plan.
        edges: The content edges that are on the page.
    """
    drawn = [edge for edge in edges if isinstance(edge[1], int) and isinstance(edge[2], int)]
    kinds = {edge[0] for edge in drawn}
    signs = [f'<li><span class="says {choice}">{choice}</span></li>' for choice in CHOICES]
    lines = [
        f'<li title="{html(said)}"><svg class="sample" aria-hidden="true"><path class="edge {kind}" d="M1 6H33"/></svg>'
        f"{kind}</li>"
        for kind, said in EDGES.items()
        if kind in kinds
    ]
    notes = ["numbers at a box: the slots of its input, in recorded order"] if kinds else []
    if any(decision.covered_by is not None for decision in plan.decisions.values()):
        notes.append("a box with a broken line is covered by the boundary around it")
    if not all(edge[5] for edge in drawn):
        notes.append("≠ the framework changed the value on the way")
    return f'<ul class="legend">{"".join(signs)}{"".join(lines)}{"".join(f"<li>{note}</li>" for note in notes)}</ul>'
