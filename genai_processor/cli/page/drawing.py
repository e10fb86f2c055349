# SPDX-License-Identifier: Apache-2.0
"""One block of the content graph as SVG: frames, arrows and boxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from genai_processor.cli.console import printable
from genai_processor.cli.page.blocks import Block, Drawn
from genai_processor.cli.page.chosen import Chosen
from genai_processor.cli.page.facts import subject
from genai_processor.cli.page.layout import HEIGHT, WIDTH, Frame, lay_out
from genai_processor.cli.page.text import html, shown
from genai_processor.cli.page.tree import title
from genai_processor.replay import EdgeKind, Node, OrderEvidence, Plan

_PAD, _CAP = 12, 22
_NUMBERS, _LETTERS, _SMALL = 7, 22, 26
_RULE = f'<path class="rule" d="M1 16H{WIDTH - 1}"/>'


class Drawing:
    """A block with the place of everything in it.

    Args:
        block: The block.
        chosen: What is on the page.
        around: The groups of nodes.
    """

    def __init__(self, block: Block, chosen: Chosen, around: Mapping[str, str]) -> None:
        self.block = block
        self.chosen = chosen
        local = {number: at for at, number in enumerate(block.nodes)}
        keys = [chosen.nodes[number].key for number in block.nodes]
        self.held = sorted({around[key] for key in keys if key in around})
        numbers = {key: at for at, key in enumerate(self.held, 1)}
        members = [numbers.get(around.get(key, ""), 0) for key in keys]
        inner = {key: at for at, key in enumerate(keys)}
        pairs = dict.fromkeys(
            (local[edge.producer], local[edge.consumer]) for edge in block.edges if edge.kind != EdgeKind.RETURN
        )
        after = [(inner[around[key]], at) for at, key in enumerate(keys) if around.get(key) in inner]
        laid = lay_out(members, list(pairs), after)
        frames = {self.held[group - 1]: _padded(frame) for group, frame in laid.frames.items()}
        # A frame reaches over the boxes in it, perhaps over the edge of the drawing.
        left = min([0.0, *[frame.x for frame in frames.values()]])
        top = min([0.0, *[frame.y for frame in frames.values()]])
        self.framed = {key: frame._replace(x=frame.x - left, y=frame.y - top) for key, frame in frames.items()}
        self.places = {number: (laid.places[at][0] - left, laid.places[at][1] - top) for number, at in local.items()}
        self.ways = {
            (block.nodes[one], block.nodes[other]): [(x - left, y - top) for x, y in points]
            for (one, other), points in laid.ways.items()
        }
        self.stacked = {block.nodes[at]: (begin - top, end - top) for at, (begin, end) in laid.stacked.items()}
        right = max([laid.width, *[frame.x + frame.width for frame in frames.values()]])
        bottom = max([laid.height, *[frame.y + frame.height for frame in frames.values()]])
        self.size = (right - left, bottom - top)
        self.into: dict[int, list[Drawn]] = {}
        self.out: dict[int, list[Drawn]] = {}
        for edge in block.edges:
            if edge.kind != EdgeKind.RETURN:
                self.into.setdefault(edge.consumer, []).append(edge)
                self.out.setdefault(edge.producer, []).append(edge)
        self.rank = {edge: at for edges in self.into.values() for at, edge in enumerate(edges)}
        for edges in self.out.values():
            edges.sort(key=self._towards)

    def _towards(self, edge: Drawn) -> tuple[float, int, tuple[int, ...]]:
        """Where an edge goes to, by which those out of a box stand side by side."""
        way = self.ways.get((edge.producer, edge.consumer))
        x = way[0][0] if way else self.places[edge.consumer][0] + _port(self.rank[edge], len(self.into[edge.consumer]))
        return x, edge.source, edge.slots

    def frames(self, plan: Plan) -> Iterator[tuple[str, str]]:
        """A frame around what is inside of something injected, or of a composite tool, and what is written on it."""
        injected = {plan.decisions[self.chosen.nodes[number].key].covered_by for number in self.block.nodes}
        for key, frame in sorted(self.framed.items()):
            container = plan.containers.get(key)
            name = shown(container.agent_name or container.name if container is not None else subject(plan.node(key)), 60)
            kind, said = ("boundary", f"boundary: {name}") if key in injected else ("composite", f"in {name}")
            most = int(frame.width / 6.5)
            said = said if len(said) <= most else f"{said[: most - 1]}…"
            yield (
                f'<rect class="frame {kind}" x="{frame.x:g}" y="{frame.y:g}" width="{frame.width:g}" '
                f'height="{frame.height:g}" rx="3"/>\n',
                f'<text class="framed {kind}" x="{frame.x + 10:g}" y="{frame.y + 15:g}">{html(said)}</text>\n',
            )

    def arrows(self, *, labelled: bool) -> Iterator[str]:
        """The edges."""
        for edge in self.block.edges:
            path, (x, y) = self._path(edge)
            label = edge.kind if edge.equal else f"{edge.kind} ≠"
            yield (
                f'<path class="edge {edge.kind}" data-from="{edge.producer}" data-to="{edge.consumer}" '
                f'data-kind="{label}" d="{path}"/>\n'
            )
            if labelled:
                yield f'<text class="kind" x="{x:g}" y="{y:g}">{label}</text>\n'

    def _path(self, edge: Drawn) -> tuple[str, tuple[float, float]]:
        (x1, y1), (x2, y2) = self.places[edge.producer], self.places[edge.consumer]
        if edge.kind == EdgeKind.RETURN or y2 < y1 + HEIGHT:
            return _backwards(x1, y1, x2, y2)
        out, into = self.out[edge.producer], self.into[edge.consumer]
        start = (x1 + (_port(out.index(edge), len(out)) if len(out) <= _NUMBERS else WIDTH / 2), y1 + HEIGHT)
        end = (x2 + _port(self.rank[edge], len(into)), y2)
        head = tail = ""
        if edge.producer in self.stacked:  # along the gap beside its column
            bottom = self.stacked[edge.producer][1]
            side = x1 + WIDTH
            head = f"M{side:g} {y1 + HEIGHT / 2:g}h4q4 0 4 4V{bottom:g}"
            start = (side + 8, bottom)
        if edge.consumer in self.stacked:
            end = (x2 - 9, self.stacked[edge.consumer][0])
            tail = f"V{y2 + HEIGHT / 2 - 4:g}q0 4 4 4H{x2:g}"
        points = [start, *self.ways.get((edge.producer, edge.consumer), []), end]
        path = head or f"M{start[0]:g} {start[1]:g}"
        for at in range(1, len(points), 2):
            (ax, ay), (bx, by) = points[at - 1], points[at]
            bend = (by - ay) * 0.45
            path += f"C{ax:g} {ay + bend:g} {bx:g} {by - bend:g} {bx:g} {by:g}"
            if at + 1 < len(points):
                path += f"L{points[at + 1][0]:g} {points[at + 1][1]:g}"
        # Of edges that meet, the labels stand at different heights.
        part = (0.5, 0.34, 0.66)[self.rank[edge] % 3] if len(points) == 2 and len(into) > 1 else 0.5
        return path + tail, _between(points[0], points[1], part)

    def boxes(self, plan: Plan) -> Iterator[str]:
        """The nodes."""
        for number in self.block.nodes:
            node = self.chosen.nodes[number]
            decision = plan.decisions[node.key]
            choice = str(decision.choice)
            x, y = self.places[number]
            classes = ["node", choice]
            marks = [choice]
            if decision.covered_by is not None:
                classes.append("covered")
                marks.append("covered")
            if decision.unverified_upstream:
                classes.append("unverified")
                marks.append("unverified")
            why = ", ".join(decision.reasons)
            yield (
                f'<g class="{" ".join(classes)}" id="node{number}" data-node="{number}" transform="translate({x:g} {y:g})" '
                f'tabindex="-1" role="button" aria-label="{html(f"{title(node)}: {choice}, {why}")}">'
                f'<path class="box" d="{_SHAPES[choice]}"/>{self._strip(number, node)}<g{_clipped(node)}>{_names(node)}</g>'
                f'<text class="says {choice}" x="12" y="62">{_MARKS[choice]} {" · ".join(marks)}</text></g>\n'
            )

    def _strip(self, number: int, node: Node) -> str:
        """The slots of the input, in their recorded order, above where their edges arrive."""
        if node.inputs.order is OrderEvidence.NOT_RECORDED:
            missing = "order" if len(node.inputs.parts) else "input"
            return f'{_RULE}<text class="slot no" x="12" y="12">{missing} not recorded</text>'
        into = self.into.get(number, [])
        if not into or node.inputs.order is OrderEvidence.NO_LIST:
            return ""
        numbers = []
        for at, edge in enumerate(into):
            if len(into) <= _NUMBERS or at in (0, len(into) - 1):
                said = _range(edge.slots) if edge.equal else f"{_range(edge.slots)}≠"
                numbers.append(f'<text class="slot" x="{_port(at, len(into)):g}" y="12">{said}</text>')
        return _RULE + "".join(numbers)


def _clipped(node: Node) -> str:
    """Only what may reach beyond its box is cut off there: that costs time."""
    plain = all(text.isascii() for text in (node.name, subject(node), node.call_id or ""))
    return "" if plain else ' clip-path="url(#inside)"'


def _names(node: Node) -> str:
    name, what = _short(node.name, 16), _short(subject(node), _LETTERS)
    if not what:
        return f'<text class="subject" x="12" y="40">{html(_short(node.name, _LETTERS))}</text>'
    if node.call_id:
        name += f" {_short(node.call_id, _SMALL - 1 - len(name))}"
    return (
        f'<text class="operation" x="12" y="29">{html(name)}</text><text class="subject" x="12" y="45">{html(what)}</text>'
    )


def _short(text: str, most: int) -> str:
    """As much of a text as a box has room for, escapes included."""
    said = printable(text[: most + 1])
    return said if len(said) <= most else f"{said[: most - 1]}…"


def _padded(frame: Frame) -> Frame:
    return Frame(frame.x - _PAD, frame.y - _CAP, frame.width + 2 * _PAD, frame.height + _CAP + _PAD)


def _between(one: tuple[float, float], other: tuple[float, float], part: float) -> tuple[float, float]:
    """A point of the curve between two points, a little lower: where the middle of a label's line is."""
    (ax, ay), (bx, by), rest = one, other, 1 - part
    x = ax + (bx - ax) * part**2 * (3 - 2 * part)
    y = ay + (by - ay) * (1.35 * part * rest**2 + 1.65 * part**2 * rest + part**3)
    return round(x, 1), round(y + 3, 1)


def _port(at: int, count: int) -> float:
    """Where along a box one of several edges ends."""
    width = min(WIDTH - 32, 34 * (count - 1))
    return round((WIDTH - width) / 2 + (width * at / (count - 1) if count > 1 else 0), 1)


def _range(slots: Sequence[int]) -> str:
    if slots[0] < 0:
        return "–"
    if slots[-1] - slots[0] == len(slots) - 1:
        return f"{slots[0]}" if len(slots) == 1 else f"{slots[0]}–{slots[-1]}"
    return f"{slots[0]}…{slots[-1]}"


def _backwards(x1: float, y1: float, x2: float, y2: float) -> tuple[str, tuple[float, float]]:
    """From the side of a box to that of one which is not below it."""
    if abs(x1 - x2) < WIDTH:  # one above the other
        ax, bx = x1 + WIDTH, x2 + WIDTH
        bend = max(ax, bx) + 44
        far = bend
    else:
        ax, bx = (x1, x2 + WIDTH) if x1 > x2 else (x1 + WIDTH, x2)
        bend = far = (ax + bx) / 2
    y, z = y1 + HEIGHT / 2, y2 + HEIGHT / 2
    return f"M{ax:g} {y:g}C{bend:g} {y:g} {bend:g} {z:g} {bx:g} {z:g}", (round(far, 1), (y + z) / 2)


_MARKS = {"recompute": "○", "inject": "■", "refuse": "✕"}

_SHAPES = {
    "recompute": f"M16 0H{WIDTH - 16}a16 16 0 0 1 16 16V{HEIGHT - 16}a16 16 0 0 1 -16 16H16a16 16 0 0 1 -16 -16V16"
    "a16 16 0 0 1 16 -16Z",
    "inject": f"M0 0H{WIDTH}V{HEIGHT}H0Z",
    "refuse": f"M9 0H{WIDTH - 9}l9 9V{HEIGHT - 9}l-9 9H9l-9 -9V9Z",
}
"""The outline of a node tells its decision, too."""
