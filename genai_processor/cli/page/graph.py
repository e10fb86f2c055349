# SPDX-License-Identifier: Apache-2.0
"""The content graph of a plan as SVG: nodes in layers, what was made above what was made of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from genai_processor.cli.page.blocks import blocks, groups, merged
from genai_processor.cli.page.chosen import Chosen
from genai_processor.cli.page.drawing import Drawing
from genai_processor.cli.page.facts import EdgeFacts
from genai_processor.cli.page.layout import HEIGHT, WIDTH
from genai_processor.cli.page.text import html
from genai_processor.replay import Plan

_MARGIN, _HEAD, _BETWEEN, _SHELF, _LETTER = 28, 30, 56, 1_160, 7.6
_LABELLED = 60
"""Up to how many drawn edges have their kind written beside them. Of more, those of a chosen node do."""


def graph(plan: Plan, chosen: Chosen, edges: Iterable[EdgeFacts]) -> str:
    """The drawing.

    Args:
        plan: The plan.
        chosen: What is on the page.
        edges: The content edges that are on it.
    """
    drawn = merged(edges)
    around = groups(plan)
    placed, (width, height) = _shelve([Drawing(block, chosen, around) for block in blocks(chosen, drawn)])
    parts: list[str] = []
    for drawing, x, y in placed:
        parts.append(f'<g transform="translate({x:g} {y:g})">\n')
        if len(placed) > 1:
            parts.append(f'<text class="run" x="0" y="-14">{html(_fitted(drawing.block.name, drawing.size[0]))}</text>\n')
        frames = list(drawing.frames(plan))
        parts.extend(box for box, _ in frames)
        parts.extend(drawing.arrows(labelled=len(drawn) <= _LABELLED))
        parts.extend(name for _, name in frames)
        parts.extend(drawing.boxes(plan))
        parts.append("</g>\n")
    return (
        f'<svg id="graph" role="group" aria-label="Content graph" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}">\n{_DEFINITIONS}{"".join(parts)}</svg>\n'
    )


_DEFINITIONS = (
    f'<defs><clipPath id="inside"><rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}"/></clipPath>'
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
    'markerUnits="userSpaceOnUse"><path class="tip" d="M0.5 0.8 L7.5 4 L0.5 7.2 Z"/></marker>'
    '<marker id="tip-on" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" orient="auto" '
    'markerUnits="userSpaceOnUse"><path class="tip on" d="M0.5 0.8 L7.5 4 L0.5 7.2 Z"/></marker></defs>\n'
)


def _fitted(name: str, width: float) -> str:
    most = int((width + _BETWEEN / 2) / _LETTER)
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _shelve(drawings: Sequence[Drawing]) -> tuple[list[tuple[Drawing, float, float]], tuple[float, float]]:
    """Put drawings side by side, and below each other where all of it would be too wide."""
    placed = []
    headed = _HEAD if len(drawings) > 1 else 0
    area = sum((drawing.size[0] + _BETWEEN) * (drawing.size[1] + _BETWEEN) for drawing in drawings)
    shelf = min(max(_SHELF, 0.8 * area**0.5), 4 * _SHELF)
    x, y, tallest, widest = float(_MARGIN), float(_MARGIN), 0.0, 0.0
    for drawing in drawings:
        width, height = drawing.size
        if x > _MARGIN and x + width > shelf:
            x, y, tallest = float(_MARGIN), y + tallest + _BETWEEN, 0.0
        placed.append((drawing, x, y + headed))
        tallest = max(tallest, height + headed)
        widest = max(widest, x + width)
        x += width + _BETWEEN
    return placed, (widest + _MARGIN, y + tallest + _MARGIN)
