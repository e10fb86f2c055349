# SPDX-License-Identifier: Apache-2.0
"""Producers before consumers, circles found, and who is whose ancestor. Without recursion, in time that grows linearly."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import pairwise

from genai_processor.replay.lookup import Op
from genai_processor.replay.records import EdgeKind

_RETURN = EdgeKind.RETURN
_SEARCHED = 20_000
"""How many operations a search for an ancestor visits. Beyond it two producers count as independent, the careful answer."""


def _producers_of(op: Op) -> list[Op]:
    """The operations that have to come before one, each perhaps several times."""
    found = [edge.producer for edge in op.found if edge.kind is not _RETURN]
    if op.extends is not None:
        found.append(op.extends)
    return found


def arrange(ops: list[Op]) -> list[Op]:
    """Put the operations of one world in order, set their `level`, and mark those on a circle.

    Equal values may be a coincidence: an edge for which nothing else speaks does not make a circle, it is one of several
    sources that the value may have.

    Args:
        ops: The operations, sorted by key.

    Returns:
        Producers before consumers, by level, then by key; last those on circles, by key, and behind them what depends on
        them, producers before consumers again.
    """
    order, left = _levels(ops)
    if left:
        done = set(map(id, order))
        if _doubt(list(_circles(left, done))):
            order, left = _levels(ops)
            done = set(map(id, order))
    if left:
        level = 1 + max([op.level for op in order], default=-1)
        for circle in _circles(left, done):
            for op in circle:
                op.cycle = True
                op.level = level
        circling = [op for op in left if op.cycle]
        behind = [op for op in left if not op.cycle]
        order += circling + _levels(behind, set(map(id, behind)), level + 1)[0]
    return order


def _doubt(circles: list[list[Op]]) -> bool:
    """Drop what only equal values speak for out of circles; whether there was any."""
    found = False
    for circle in circles:
        members = set(map(id, circle))
        for op in circle:
            kept = [edge for edge in op.found if edge.sure or id(edge.producer) not in members or edge.kind is _RETURN]
            if len(kept) < len(op.found):
                op.ambiguous += len(op.found) - len(kept)
                op.found = kept
                found = True
    return found


def _levels(ops: list[Op], among: Set[int] = frozenset(), level: int = 0) -> tuple[list[Op], list[Op]]:
    """The operations by level, and those that have none because they are on a circle or behind one.

    Args:
        ops: The operations, sorted by key.
        among: Their ids, if whoever else they depend on comes before all of them.
        level: The first level.
    """
    waiting: dict[Op, int] = {}
    consumers: dict[Op, list[Op]] = {}
    ready: list[Op] = []
    for op in ops:
        producers = set(_producers_of(op))
        if among:
            producers = {producer for producer in producers if id(producer) in among}
        if producers:
            waiting[op] = len(producers)
            for producer in producers:
                consumers.setdefault(producer, []).append(op)
        else:
            ready.append(op)
    order: list[Op] = []
    while ready:
        following: list[Op] = []
        for op in ready:
            op.level = level
            below = consumers.get(op)
            if below is not None:
                for consumer in below:
                    waiting[consumer] -= 1
                    if not waiting[consumer]:
                        following.append(consumer)
        order.extend(ready)
        if len(following) > 1:
            following.sort(key=lambda op: op.key)
        ready = following
        level += 1
    if len(order) == len(ops):
        return order, []
    done = set(map(id, order))
    return order, [op for op in ops if id(op) not in done]


def _circles(left: list[Op], done: set[int]) -> Iterator[list[Op]]:
    """The circles among operations: strongly connected components (Tarjan), with a stack of its own."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[Op] = []
    on_path: set[int] = set()
    for root in left:
        if id(root) in number:
            continue
        stack = [(root, iter([op for op in _producers_of(root) if id(op) not in done]))]
        number[id(root)] = lowest[id(root)] = len(number)
        path.append(root)
        on_path.add(id(root))
        while stack:
            op, following = stack[-1]
            step = next(following, None)
            if step is not None:
                if id(step) not in number:
                    number[id(step)] = lowest[id(step)] = len(number)
                    path.append(step)
                    on_path.add(id(step))
                    stack.append((step, iter([op for op in _producers_of(step) if id(op) not in done])))
                elif id(step) in on_path:
                    lowest[id(op)] = min(lowest[id(op)], number[id(step)])
                continue
            stack.pop()
            if stack:
                above = stack[-1][0]
                lowest[id(above)] = min(lowest[id(above)], lowest[id(op)])
            if lowest[id(op)] == number[id(op)]:
                component = []
                while True:
                    member = path.pop()
                    on_path.discard(id(member))
                    component.append(member)
                    if member is op:
                        break
                if len(component) > 1 or any(producer is op for producer in _producers_of(op)):
                    yield component


def mark_fan_ins(ops: list[Op]) -> None:
    """Mark the operations whose new slots two or more independent producers feed.

    Args:
        ops: Operations whose `level` is set.
    """
    for op in ops:
        if len(op.found) + op.unobserved < 2:
            continue
        producers = {id(edge.producer): edge.producer for edge in op.found if edge.kind is not _RETURN}
        if op.extends is not None and producers:
            known = op.extends
            fresh = {id(edge.producer): edge.producer for edge in op.found if _is_new(edge.kind, edge.slot, op.begins)}
            producers = {key: producer for key, producer in fresh.items() if producer is not known}
        independent = op.unobserved
        if len(producers) + independent < 2:
            continue
        if independent or op.cycle or not _is_chain(list(producers.values())):
            op.fan_in = True


def _is_new(kind: EdgeKind, slot: int, begins: int) -> bool:
    return kind is not _RETURN and (slot < 0 or slot >= begins)


def _is_chain(producers: list[Op]) -> bool:
    """Whether the producers are each other's ancestors."""
    producers.sort(key=lambda op: (op.level, op.key))
    if any(one.level == other.level for one, other in pairwise(producers)):
        return False
    return all(is_ancestor(one, other) for one, other in pairwise(producers))


def is_ancestor(ancestor: Op, op: Op) -> bool:
    """Whether an operation is known to come before another one; False if that would take long to find out."""
    stack = [op]
    seen = {id(op)}
    while stack:
        for producer in _producers_of(stack.pop()):
            if producer is ancestor:
                return True
            if producer.level > ancestor.level and id(producer) not in seen:
                if len(seen) > _SEARCHED:
                    return False
                seen.add(id(producer))
                stack.append(producer)
    return False
