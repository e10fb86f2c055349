# SPDX-License-Identifier: Apache-2.0
"""The span tree of a plan as rows of HTML: flat, because a browser cuts off what is nested too deep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from genai_processor.cli.page.chosen import Chosen, Row
from genai_processor.cli.page.facts import subject
from genai_processor.cli.page.text import html, shown
from genai_processor.replay import Choice, Container, Node, Plan

_DEEPEST = 24
"""How deep rows are indented. Deeper ones say how deep they are."""

_MOST_REFUSED = 3


class _Boundaries:
    """What stands where, by key."""

    def __init__(self, plan: Plan, names: Mapping[str, str]) -> None:
        self.moved: dict[str, list[str]] = {}
        self.alone: set[str] = set()
        self.covered: dict[str, int] = {}
        self.names = names
        for boundary in plan.boundaries:
            if boundary.moved_to is None:
                self.alone.add(boundary.refused)
            else:
                self.moved.setdefault(boundary.moved_to, []).append(boundary.refused)
        for decision in plan.decisions.values():
            if decision.covered_by is not None:
                self.covered[decision.covered_by] = self.covered.get(decision.covered_by, 0) + 1

    def line(self, key: str) -> str:
        """What is written at a boundary, or "" where there is none."""
        if key in self.alone:
            return "Boundary. It stands alone; what depends on it is unverified."
        count, refused = self.covered.get(key, 0), self.moved.get(key, [])
        if not count:
            return ""
        said = f"Boundary. Its recorded outcome stands for the {counted(count, 'node')} inside."
        if refused:
            said += f" Moved up from {', '.join(self.names.get(found, found) for found in refused[:_MOST_REFUSED])}"
            said += f" and {len(refused) - _MOST_REFUSED} more, refused." if len(refused) > _MOST_REFUSED else ", refused."
        return said


def counted(count: int, what: str) -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def title(node: Node) -> str:
    """What a node is called in running text."""
    return shown(f"{node.name} {subject(node)}".strip(), 80)


def rows(plan: Plan, chosen: Chosen, inside: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """The rows as HTML, in the order in which they are read.

    Args:
        plan: The plan.
        chosen: What is on the page.
        inside: For each row that holds others, how many nodes are in it by decision.
    """
    numbers = {node.key: at for at, node in enumerate(chosen.nodes)}
    names = {node.key: title(node) for node in plan.nodes if plan.decisions[node.key].choice is Choice.REFUSE}
    boundaries = _Boundaries(plan, names)
    for at, row in enumerate(chosen.rows):
        number = numbers.get(row.key)
        line = boundaries.line(row.key)
        if number is not None:
            inner, classes = _node(chosen.nodes[number], plan), [_choice(plan, row.key)]
            if plan.decisions[row.key].covered_by is not None:
                classes.append("covered")
        else:
            inner, classes = _container(plan.containers[row.key], inside.get(row.key, {})), ["container"]
        if line:
            classes.append("alone" if row.key in boundaries.alone else "boundary")
            inner += f'<span class="line">{html(line)}</span>'
        yield _row(at, row, number, classes, inner)


def _row(at: int, row: Row, number: int | None, classes: list[str], inner: str) -> str:
    classes = ["row", f"d{min(row.depth, _DEEPEST)}", *classes]
    if row.cover is not None:
        classes.append(f"k{min(row.cover, _DEEPEST)}")
    deep = f'<span class="deep">{row.depth}</span>' if row.depth > _DEEPEST else ""
    twist = '<span class="twist" aria-hidden="true"></span>' if row.holds else ""
    opened = ' aria-expanded="true"' if row.holds else ""
    whose = f' data-node="{number}"' if number is not None else ""
    return (
        f'<div role="treeitem" id="row{at}" class="{" ".join(classes)}" data-depth="{row.depth}"{whose} tabindex="-1" '
        f'aria-level="{row.depth + 1}" aria-posinset="{row.position}" aria-setsize="{row.siblings}" '
        f'aria-selected="false"{opened}>'
        f"{twist}{deep}{inner}</div>\n"
    )


def _choice(plan: Plan, key: str) -> str:
    return str(plan.decisions[key].choice)


def _node(node: Node, plan: Plan) -> str:
    decision = plan.decisions[node.key]
    why = ", ".join(decision.reasons)
    if decision.covered_by is not None:
        why += f" · covered by {_called(decision.covered_by, plan)}"
    if decision.unverified_upstream:
        why += " · unverified upstream"
    call = f'<bdi class="call">{html(shown(node.call_id, 24))}</bdi>' if node.call_id else ""
    return (
        f'<span class="what"><span class="operation">{html(shown(node.name, 60))}</span> '
        f'<bdi class="subject">{html(shown(subject(node), 80))}</bdi>{call}</span>'
        f'<span class="says {decision.choice}">{decision.choice}</span>'
        f'<span class="why">{html(why)}</span>'
    )


def _called(key: str, plan: Plan) -> str:
    container = plan.containers.get(key)
    if container is not None:
        return shown(container.agent_name or container.name or "an agent", 40)
    return shown(subject(plan.node(key)) or "a tool", 40)


def _container(container: Container, inside: Mapping[str, int]) -> str:
    if container.injected:
        says = '<span class="says inject">inject</span>'
    elif container.worst is None:
        says = '<span class="worst">nothing inside</span>'
    else:
        says = f'<span class="worst">worst <span class="says {container.worst}">{container.worst}</span></span>'
    count = ", ".join(f"{inside[choice]:,} {choice}" for choice in map(str, Choice) if inside.get(choice))
    named = container.agent_name or ""
    name = "" if not named or named in container.name else f' <bdi class="subject">{html(shown(named, 60))}</bdi>'
    return (
        f'<span class="what"><bdi class="subject">{html(shown(container.name, 80) or "agent")}</bdi>{name}</span>{says}'
        f'<span class="why">{html(count)}</span>'
    )
