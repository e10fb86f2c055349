# SPDX-License-Identifier: Apache-2.0
"""Where the page draws the nodes of a content graph."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from genai_processor.cli.page.layout import HEIGHT, WIDTH, Laid, lay_out
from genai_processor.cli.page.levels import levels_of


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], list[tuple[int, int]]]:
    """Groups of nodes, edges of any shape (circles among them), and wishes."""
    count = draw(st.integers(1, 14))
    node = st.integers(0, count - 1)
    pairs = st.lists(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), max_size=24, unique=True)
    return draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), draw(pairs), draw(pairs)


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return (
        one[0] < other[0] + other[2]
        and other[0] < one[0] + one[2]
        and one[1] < other[1] + other[3]
        and other[1] < one[1] + one[3]
    )


def boxes(laid: Laid) -> list[tuple[float, float, float, float]]:
    return [(x, y, WIDTH, HEIGHT) for x, y in laid.places]


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_no_box_covers_another_and_all_are_inside_of_the_drawing(
    graph: tuple[list[int], list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    laid = lay_out(*graph)
    for one, other in combinations(boxes(laid), 2):
        assert not overlap(one, other)
    for x, y, width, height in boxes(laid):
        assert x >= -0.1
        assert y >= 0
        assert x + width <= laid.width + 0.1
        assert y + height <= laid.height


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_a_frame_holds_all_of_its_group_and_nobody_else(
    graph: tuple[list[int], list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    groups = graph[0]
    laid = lay_out(*graph)
    for group, frame in laid.frames.items():
        for node, box in enumerate(boxes(laid)):
            assert overlap(tuple(frame), box) == (groups[node] == group)


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_without_circles_producers_stand_above_their_consumers(
    graph: tuple[list[int], list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    groups, edges, after = graph
    forward = [pair for pair in edges if pair[0] < pair[1]]
    laid = lay_out(groups, forward, after)
    for one, other in forward:
        assert laid.places[one][1] + HEIGHT < laid.places[other][1]
    wishes = [pair for pair in after if pair[0] < pair[1]]
    levels = levels_of(len(groups), forward, wishes)
    assert all(levels[one] < levels[other] for one, other in [*forward, *wishes])


def test_a_circle_gives_up_a_wish_before_an_edge() -> None:
    assert levels_of(2, [(0, 1)], [(1, 0)]) == [0, 1]
    assert sorted(levels_of(2, [(0, 1), (1, 0)])) == [0, 1]


def test_siblings_stand_in_the_order_of_their_edges() -> None:
    laid = lay_out([0, 0, 0, 0, 0], [(0, 3), (0, 1), (0, 2), (3, 4), (1, 4), (2, 4)])
    assert sorted((1, 2, 3), key=lambda node: laid.places[node][0]) == [3, 1, 2]


def test_a_wide_layer_has_several_rows_and_a_long_chain_no_recursion() -> None:
    wide = lay_out([0] * 1_002, [*((0, at) for at in range(1, 1_001)), *((at, 1_001) for at in range(1, 1_001))])
    assert wide.width < 8 * WIDTH
    assert len(wide.stacked) == 1_000
    deep = lay_out([0] * 5_000, [(at, at + 1) for at in range(4_999)])
    assert deep.height > 5_000 * HEIGHT
