# SPDX-License-Identifier: Apache-2.0
"""How it prints where two runs part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from genai_processor.replay import Difference, Node, Parting

_SAID = {
    Parting.INPUT: "was given something else",
    Parting.OUTPUT: "was given the same, and made something else",
    Parting.ONLY_IN_FIRST: "is only in the first",
    Parting.ONLY_IN_SECOND: "is only in the second",
}


def differences_json(found: Sequence[Difference]) -> dict[str, Any]:
    """The differences as one JSON object."""
    return {
        "differences": [
            {
                "parting": one.parting.value,
                "first": _node(one.first),
                "second": _node(one.second),
                "difference": one.difference,
            }
            for one in found
        ]
    }


def _node(node: Node | None) -> dict[str, Any] | None:
    if node is None:
        return None
    return {
        "node": node.key,
        "operation": node.name,
        "tool": node.tool,
        "input_digest": node.inputs.digest.hex(),
        "output_digest": node.outcome.digest.hex(),
    }


def print_differences(found: Sequence[Difference], nodes: int, console: Console) -> None:
    """Print them one after the other.

    Args:
        found: The differences.
        nodes: How many nodes the first run has.
        console: Where.
    """
    if not found:
        console.print(Text(f"The runs are the same, node by node ({nodes})."))
    for one in found:
        node = one.first or one.second
        if node is None:
            continue
        names = " ".join(filter(None, (node.name, node.tool or node.model)))
        keys = " / ".join(each.key for each in (one.first, one.second) if each is not None)
        console.print(Text(f"{names} {_SAID[one.parting]}"), soft_wrap=True)
        console.print(Text(f"  {keys}"), soft_wrap=True)
        for line in one.difference.splitlines():
            console.print(Text(f"  {line}"), soft_wrap=True)
