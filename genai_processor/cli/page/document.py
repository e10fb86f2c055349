# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file with everything in it, which asks for nothing and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from genai_processor.cli.page import words
from genai_processor.cli.page.chosen import MOST_NODES, choose
from genai_processor.cli.page.facts import container_facts, edge_facts, inside_counts, node_facts, problem_facts
from genai_processor.cli.page.graph import graph
from genai_processor.cli.page.overview import left_out, legend, overview, summary
from genai_processor.cli.page.text import html, island, shown
from genai_processor.cli.page.tree import rows
from genai_processor.replay import Plan

_SCRIPTS = ("tree.js", "graph.js", "panel.js", "start.js")


def page(plan: Plan, name: str, *, values: bool = False, most: int = MOST_NODES) -> bytes:
    """A plan as a page. Equal plans of one name make equal pages.

    Args:
        plan: The plan.
        name: What was planned, say the name of a file.
        values: Put recorded messages, arguments, results and error messages on the page, too, as far as the plan has them.
        most: How many nodes are drawn.

    Returns:
        UTF-8.
    """
    chosen = choose(plan, most)
    numbers = {node.key: at for at, node in enumerate(chosen.nodes)}
    edges, left = edge_facts(plan, numbers)
    inside = inside_counts(plan, chosen)
    shown_rows = list(rows(plan, chosen, inside))
    left_inner = sum(left.values())
    facts: dict[str, Any] = {
        "nodes": [node_facts(node, plan, values=values) for node in chosen.nodes],
        "containers": {
            f"row{at}": container_facts(plan.containers[row.key], plan, inside.get(row.key, {}))
            for at, row in enumerate(chosen.rows)
            if row.key in plan.containers
        },
        "edges": edges,
        "left": left,
        "problems": problem_facts(plan.problems),
        "words": _words(),
    }
    style, script = _text("page.css"), "".join(map(_text, _SCRIPTS))
    script = f'(() => {{\n"use strict";\n{script}}})();\n'
    parts = {
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'",
        "title": html(shown(name)),
        "summary": summary(plan),
        "left": f'<p class="left-out">{said}</p>' if (said := left_out(plan, chosen, left_inner)) else "",
        "values": '<p class="left-out">This page holds recorded messages, arguments and results.</p>' if values else "",
        "tree": "".join(shown_rows),
        "graph": graph(plan, chosen, edges),
        "legend": legend(plan, edges),
        "overview": "\n".join(overview(plan)),
        "facts": island(facts),
        "style": style,
        "script": script,
    }
    # In one pass: what is put in is not looked through for more places.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _text("page.html")).encode()


def _words() -> dict[str, dict[str, str]]:
    tables: dict[str, dict[Any, str]] = {
        "choices": words.CHOICES,
        "reasons": words.REASONS,
        "modes": words.MODES,
        "orders": words.ORDERS,
        "edges": words.EDGES,
        "states": words.STATES,
        "endings": words.ENDINGS,
    }
    return {name: {str(word): said for word, said in table.items()} for name, table in tables.items()}


@cache
def _text(name: str) -> str:
    return files("genai_processor.cli.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
