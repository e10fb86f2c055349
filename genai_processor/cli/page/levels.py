# SPDX-License-Identifier: Apache-2.0
"""In which layer each node of a graph is drawn."""

from __future__ import annotations

from collections.abc import Iterable


def levels_of(count: int, edges: Iterable[tuple[int, int]], after: Iterable[tuple[int, int]] = ()) -> list[int]:
    """The layer of each node: one more than the lowest of what it is below. A circle is cut above its first node."""
    following: list[list[tuple[int, bool]]] = [[] for _ in range(count)]
    waiting, wishes = [0] * count, [0] * count
    for binding, pairs in ((True, edges), (False, after)):
        for one, other in pairs:
            if one != other:
                following[one].append((other, binding))
                (waiting if binding else wishes)[other] += 1
    levels, done = [0] * count, [False] * count
    ready = [node for node in range(count) if not waiting[node] and not wishes[node]]
    placed = 0
    while placed < count:
        if not ready:  # a circle: give up a wish if that is enough, else an edge
            left = [node for node in range(count) if not done[node]]
            ready.append(next((node for node in left if not waiting[node]), left[0]))
        node = ready.pop()
        if done[node]:
            continue
        done[node] = True
        placed += 1
        for other, binding in following[node]:
            if done[other]:
                continue
            levels[other] = max(levels[other], levels[node] + 1)
            (waiting if binding else wishes)[other] -= 1
            if not waiting[other] and not wishes[other]:
                ready.append(other)
    return levels
