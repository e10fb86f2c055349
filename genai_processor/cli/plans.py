# SPDX-License-Identifier: Apache-2.0
"""A replay plan as a tree for people, as one JSON object, or as a Mermaid drawing of the content graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from genai_processor.cli.console import printable
from genai_processor.cli.decisions import decision_rows, input_order
from genai_processor.replay import Choice, Container, Decision, Node, Plan

_STYLES = {Choice.RECOMPUTE: "green", Choice.INJECT: "yellow", Choice.REFUSE: "bold red"}
_MAX_LINES = 10_000
_MAX_INDENT = 40


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan as plain data: nodes in order, edges, containers, boundaries, problems, and each span's decision."""
    spans = dict(decision_rows(plan))
    return {
        "nodes": [_node_row(node, plan.decisions[node.key]) for node in plan.nodes],
        "containers": [_container_row(container) for container in plan.containers.values()],
        "boundaries": [{"refused": found.refused, "moved_to": found.moved_to} for found in plan.boundaries],
        "problems": [{"place": found.place, "problem": found.problem} for found in plan.problems],
        "spans": spans,
    }


def _node_row(node: Node, decision: Decision) -> dict[str, Any]:
    return {
        "key": node.key,
        "operation": str(node.operation),
        "name": node.name,
        "tool": node.tool,
        "model": node.model,
        "agent": node.agent,
        "agent_name": node.agent_name,
        "call_id": node.call_id,
        "dialect": node.dialect,
        "span_ids": list(node.span_ids),
        "decision": str(decision.choice),
        "reasons": list(map(str, decision.reasons)),
        "modes": list(map(str, decision.modes)),
        "remedy": decision.remedy,
        "order": str(decision.order),
        "input_order": input_order(node),
        "input_digest": node.inputs.digest.hex(),
        "output_digest": node.outcome.digest.hex(),
        "ending": str(node.outcome.ending),
        "structure_allows_recompute": decision.structure_allows_recompute,
        "covered_by": decision.covered_by,
        "unverified_upstream": decision.unverified_upstream,
        "extends": node.structure.extends,
        "edges": [
            {"kind": str(edge.kind), "producer": edge.producer, "slot": edge.slot, "equal": edge.equal}
            for edge in decision.edges
        ],
    }


def _container_row(container: Container) -> dict[str, Any]:
    return {
        "key": container.key,
        "name": container.name,
        "worst": str(container.worst) if container.worst is not None else None,
        "parent": container.parent,
        "inside": list(container.inside),
        "injected": container.injected,
    }


def print_plan(plan: Plan, out: Console) -> None:
    """Print the span tree, each node with its decision, then what stands in the way."""
    for lines, (depth, what) in enumerate(_walk(plan)):
        if lines == _MAX_LINES:
            out.print(f"… {len(plan.nodes) + len(plan.containers) - lines} more: --format json has them", style="dim")
            break
        line = Text("  " * min(depth, _MAX_INDENT), overflow="ellipsis", no_wrap=True)
        if isinstance(what, Container):
            line.append(printable(what.name) or "agent", style="bold")
            if what.injected:
                line.append("  injected: its recorded answer stands for what is inside", style="yellow")
        else:
            _describe(line, what, plan.decisions[what.key])
        out.print(line)
    counts = dict.fromkeys(Choice, 0)
    for decision in plan.decisions.values():
        counts[decision.choice] += 1
    summary = Text()
    for choice, count in counts.items():
        summary.append(f"{count} {choice}  ", style=_STYLES[choice])
    out.print(summary)
    for boundary in plan.boundaries[:_MAX_LINES]:
        where = f"moved up to {boundary.moved_to.partition(':')[2]}" if boundary.moved_to else "stands alone"
        out.print(f"boundary: {boundary.refused.partition(':')[2]} is refused, {where}", highlight=False, markup=False)
    for problem in plan.problems[:_MAX_LINES]:
        place = f"{problem.place}: " if problem.place else ""
        out.print(printable(f"{place}{problem.problem}"), highlight=False, markup=False)


def _describe(line: Text, node: Node, decision: Decision) -> None:
    line.append(f"{decision.choice:<10}", style=_STYLES[decision.choice])
    line.append(printable(f"{node.name} {node.tool or node.model or ''}".strip()))
    if decision.modes and decision.choice is Choice.INJECT:
        line.append(f" ({'|'.join(decision.modes)})", style="dim")
    line.append(f"  {', '.join(decision.reasons)}", style="dim")
    if decision.covered_by is not None:
        line.append("  covered", style="dim")
    if decision.unverified_upstream:
        line.append("  unverified upstream", style="red")
    if decision.choice is Choice.REFUSE and decision.remedy:
        line.append(f"  → {decision.remedy}")


def _walk(plan: Plan) -> Iterator[tuple[int, Container | Node]]:
    """Containers and nodes as they stand in each other, nodes in the order of the plan, before containers beside them."""
    below: dict[str | None, list[str]] = {}
    nodes = {node.key: node for node in plan.nodes}
    for node in plan.nodes:
        below.setdefault(node.agent, []).append(node.key)
    for key, container in plan.containers.items():
        below.setdefault(container.parent, []).append(key)
    stack = [(0, key) for key in reversed(below.get(None, []))]
    while stack:
        depth, key = stack.pop()
        yield depth, nodes[key] if key in nodes else plan.containers[key]
        stack.extend([(depth + 1, inner) for inner in reversed(below.get(key, ()))])


def mermaid(plan: Plan) -> str:
    """The content graph as a Mermaid flowchart: a box for each node, an arrow for each kind of edge between two."""
    names = {node.key: f"n{at}" for at, node in enumerate(plan.nodes)}
    lines = ["flowchart TD"]
    for node in plan.nodes:
        decision = plan.decisions[node.key]
        label = _label(f"{node.name} {node.tool or node.model or ''}".strip())
        reasons = _label(", ".join(decision.reasons))
        lines.append(f'  {names[node.key]}["{label}<br/>{decision.choice}: {reasons}"]:::{decision.choice}')
    for node in plan.nodes:
        drawn = set()
        for edge in plan.decisions[node.key].edges:
            arrow = (edge.producer, edge.kind)
            if arrow not in drawn and edge.producer in names:
                drawn.add(arrow)
                lines.append(f"  {names[edge.producer]} -->|{edge.kind}| {names[node.key]}")
    lines.append("  classDef recompute fill:#d3f0d3,stroke:#2a7a2a,color:#000")
    lines.append("  classDef inject fill:#fdf0c8,stroke:#a07a10,color:#000")
    lines.append("  classDef refuse fill:#f8d0d0,stroke:#a02020,color:#000")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Text that cannot end a label or be taken for markup."""
    return "".join(char if char.isalnum() or char in " _-.,:/" else f"#{ord(char)};" for char in text)
