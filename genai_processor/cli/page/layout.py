# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a graph are drawn: in layers, what was made above what was made of it.

Plain layered drawing: a longest path gives the layer, long edges get stand-ins in the layers that they cross, layers are
ordered by where their neighbours stand, and each is put as straight below its neighbours as its order allows. Nodes of a
group have a lane of their own, so that a frame around them holds nobody else. Equal graphs are drawn equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from genai_processor.cli.page.levels import levels_of

WIDTH, HEIGHT = 184, 72
"""Of the box of a node."""

_GAP, _THIN, _LAYER_GAP, _ROW_GAP, _LANE_GAP = 22, 14, 52, 16, 46
_ABREAST, _ABREAST_IN_GROUP = 5, 2
_SWEEPS = 6
_STAND_INS = 20_000


class Frame(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


class Laid(NamedTuple):
    """A drawing.

    Attributes:
        places: The upper left corner of each node's box.
        ways: For each edge the points between its ends, from above to below.
        stacked: For each node of a layer with several rows, where that begins and ends.
        frames: A frame around the nodes of each group but 0.
        width: Of all of it.
        height: Of all of it.
    """

    places: list[tuple[float, float]]
    ways: dict[tuple[int, int], list[tuple[float, float]]]
    stacked: dict[int, tuple[float, float]]
    frames: dict[int, Frame]
    width: float
    height: float


class _Item:
    """A node, or a stand-in for an edge that crosses its layer."""

    __slots__ = ("above", "below", "group", "lane", "node", "order", "row", "stacked", "x")

    def __init__(self, node: int | None, group: int, order: tuple[int, int]) -> None:
        self.node = node
        self.group = group
        self.order = order
        self.lane = 0
        self.row = 0
        self.stacked = False
        self.x = 0.0
        self.above: list[_Item] = []
        self.below: list[_Item] = []

    @property
    def weight(self) -> float:
        return 8.0 if self.node is not None else 1.0

    @property
    def width(self) -> float:
        return WIDTH if self.node is not None else _THIN


def lay_out(
    groups: Sequence[int], edges: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]] = (), most: int = _ABREAST
) -> Laid:
    """Draw a graph.

    Args:
        groups: The group of each node; 0 is none.
        edges: Producer and consumer of each edge, each pair once; of two siblings that with the earlier edge stands left.
        after: Pairs of which the second stands below the first, where nothing speaks against it.
        most: How many nodes stand abreast; a wider layer has several rows.
    """
    levels = levels_of(len(groups), edges, after)
    layers: list[list[_Item]] = [[] for _ in range(max(levels, default=-1) + 1)]
    first: dict[int, int] = {}
    for at, (producer, _) in enumerate(edges):
        first.setdefault(producer, at)
    items = [_Item(node, group, (first.get(node, len(edges)), node)) for node, group in enumerate(groups)]
    for item, level in zip(items, levels, strict=True):
        layers[level].append(item)
    chains: dict[tuple[int, int], list[_Item]] = {}
    room = _STAND_INS
    for producer, consumer in edges:
        begin, end = levels[producer], levels[consumer]
        if end <= begin or end - begin - 1 > room:
            continue  # backwards, or more than can be drawn well: it goes straight
        group = groups[consumer] if groups[producer] == groups[consumer] else 0
        chain = [_Item(None, group, (len(edges), consumer)) for _ in range(begin + 1, end)]
        room -= len(chain)
        for level, item in enumerate(chain, begin + 1):
            layers[level].append(item)
        path = [items[producer], *chain, items[consumer]]
        for one, other in pairwise(path):
            one.below.append(other)
            other.above.append(one)
        chains[producer, consumer] = chain
    _give_lanes(layers)
    _put_in_order(layers)
    _put_side_by_side(layers, most)
    return _measure(layers, chains, len(groups))


def _give_lanes(layers: list[list[_Item]]) -> None:
    """Each group gets the first lane that is free in all layers that it reaches over."""
    spans: dict[int, list[int]] = {}
    for level, layer in enumerate(layers):
        for item in layer:
            if item.group:
                span = spans.setdefault(item.group, [level, level])
                span[1] = level
    free: list[int] = []
    lanes: dict[int, int] = {0: 0}
    for group, (begin, end) in sorted(spans.items(), key=lambda entry: (entry[1][0], entry[0])):
        lane = next((at for at, busy in enumerate(free) if busy < begin), len(free))
        if lane == len(free):
            free.append(end)
        free[lane] = end
        lanes[group] = lane + 1
    for layer in layers:
        for item in layer:
            item.lane = lanes[item.group]


def _put_in_order(layers: list[list[_Item]]) -> None:
    """Order each layer, lane by lane, by the mean place of its neighbours above, then below, and so on."""
    place: dict[int, float] = {}

    def note(layer: list[_Item]) -> None:
        counts: dict[int, int] = {}
        for item in layer:
            counts[item.lane] = counts.get(item.lane, 0) + 1
        begin, lane = 0, None
        for at, item in enumerate(layer):
            if item.lane != lane:
                begin, lane = at, item.lane
            place[id(item)] = at - begin - (counts[item.lane] - 1) / 2

    for layer in layers:
        layer.sort(key=lambda item: (item.lane, item.order))
        note(layer)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted: dict[int, float] = {}
            for item in layer:
                near = [other for other in (item.above if down else item.below) if other.lane == item.lane]
                wanted[id(item)] = sum(place[id(other)] for other in near) / len(near) if near else place[id(item)]
            layer.sort(key=lambda item: (item.lane, round(wanted[id(item)], 9), item.node is None, item.order))
            note(layer)


def _put_side_by_side(layers: list[list[_Item]], most: int) -> None:
    """Give each item the x of its middle, lane by lane."""
    strips = [_strips(layer, most) for layer in layers]
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in strips if down else reversed(strips):
            for strip, wide in row:
                if not wide:
                    _settle(strip, down=down)
    edges: dict[int, tuple[float, float]] = {}
    for layer in layers:
        for item in layer:
            left, right = edges.get(item.lane, (item.x, item.x))
            edges[item.lane] = (min(left, item.x - item.width / 2), max(right, item.x + item.width / 2))
    shift: dict[int, float] = {}
    at = 0.0
    for lane in sorted(edges):
        left, right = edges[lane]
        shift[lane] = at - left
        at += right - left + _LANE_GAP
    for layer in layers:
        for item in layer:
            item.x += shift[item.lane]


def _strips(layer: list[_Item], most: int) -> list[tuple[list[_Item], bool]]:
    """The items of a layer by lane, and whether they are too many to stand abreast: then they are put into rows here."""
    found = []
    lanes: dict[int, list[_Item]] = {}
    for item in layer:
        lanes.setdefault(item.lane, []).append(item)
    for lane, strip in lanes.items():
        abreast = min(most, _ABREAST_IN_GROUP) if lane else most
        boxes = [item for item in strip if item.node is not None]
        wide = len(boxes) > abreast
        if wide:
            rows = -(-len(boxes) // abreast)
            columns = -(-len(boxes) // rows)
            for at, item in enumerate(boxes):
                item.row, item.stacked = at // columns, True
                item.x = (at % columns - (columns - 1) / 2) * (WIDTH + _GAP)
            beside = columns / 2 * (WIDTH + _GAP)
            for at, item in enumerate([item for item in strip if item.node is None]):
                item.x = beside + at * _THIN
        found.append((strip, wide))
    return found


def _settle(strip: list[_Item], *, down: bool) -> None:
    """Put items as near to the middle of their neighbours as their order and widths allow (pool adjacent violators)."""
    offset = 0.0
    blocks: list[tuple[float, float, list[tuple[_Item, float]]]] = []  # weighted sum, weight, items with offsets
    for at, item in enumerate(strip):
        if at:
            offset += (strip[at - 1].width + item.width) / 2 + _GAP
        wish, weight = _wish(item, down=down), item.weight
        total, heft, members = (wish - offset) * weight, weight, [(item, offset)]
        while blocks and blocks[-1][0] / blocks[-1][1] > total / heft:
            before = blocks.pop()
            total, heft, members = before[0] + total, before[1] + heft, before[2] + members
        blocks.append((total, heft, members))
    for total, heft, members in blocks:
        for item, offset in members:
            item.x = total / heft + offset


def _wish(item: _Item, *, down: bool) -> float:
    near = [other for other in (item.above if down else item.below) if other.lane == item.lane]
    if not near:
        return item.x
    return sum(other.x * other.weight for other in near) / sum(other.weight for other in near)


def _measure(layers: list[list[_Item]], chains: dict[tuple[int, int], list[_Item]], count: int) -> Laid:
    places: list[tuple[float, float]] = [(0.0, 0.0)] * count
    tops: dict[int, tuple[float, float]] = {}
    stacked: dict[int, tuple[float, float]] = {}
    corners: dict[int, list[float]] = {}
    top = right = 0.0
    for layer in layers:
        rows = 1 + max(item.row for item in layer) if layer else 1
        tall = rows * HEIGHT + (rows - 1) * _ROW_GAP
        for item in layer:
            tops[id(item)] = (top, top + tall)
            left, y = item.x - item.width / 2, top + item.row * (HEIGHT + _ROW_GAP)
            right = max(right, left + item.width)
            box = corners.setdefault(item.group, [left, y, left, y])
            box[:] = (min(box[0], left), min(box[1], y), max(box[2], left + item.width), max(box[3], y + HEIGHT))
            if item.node is not None:
                places[item.node] = (round(left, 1), y)
                if item.stacked:
                    stacked[item.node] = (top, top + tall)
        top += tall + _LAYER_GAP
    ways = {
        pair: [(round(item.x, 1), y) for item in chain for y in tops[id(item)]] for pair, chain in chains.items() if chain
    }
    frames = {
        group: Frame(round(left, 1), up, round(over - left, 1), down - up)
        for group, (left, up, over, down) in corners.items()
        if group
    }
    return Laid(places, ways, stacked, frames, round(right, 1), max(0.0, top - _LAYER_GAP))
