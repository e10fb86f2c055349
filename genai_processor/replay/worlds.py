# SPDX-License-Identifier: Apache-2.0
"""Which traces are one world, and which worlds belong together after all.

A world is the traces of one conversation; a trace that names none is a world by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from genai_processor.replay.graph import World
from genai_processor.replay.lookup import Op
from genai_processor.replay.parts import PartKind
from genai_processor.replay.records import Operation
from genai_processor.replay.shown import Shown
from genai_processor.replay.tree import Tree

_INFERENCE = Operation.INFERENCE
_CALL = PartKind.CALL


class _Sets:
    """Numbers from zero on, put together in sets; each set goes by its smallest number."""

    def __init__(self, size: int) -> None:
        self._head = list(range(size))

    def of(self, at: int) -> int:
        head = self._head
        while head[at] != at:
            head[at] = head[head[at]]
            at = head[at]
        return at

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self.of(one), self.of(other)))
        self._head[second] = first


def islands_of(traces: Mapping[str, Mapping[str, Shown]]) -> list[list[str]]:
    """The traces that have to be planned together, for they share a conversation or a link; the rest one by one.

    Args:
        traces: What each trace's spans say, by span id.

    Returns:
        Trace ids, sorted, each island's too.
    """
    ordered = sorted(traces)
    sets = _Sets(len(ordered))
    places: dict[str, int] | None = None
    by_conversation: dict[str, int] = {}
    for at, trace_id in enumerate(ordered):
        for shown in traces[trace_id].values():
            if shown.conversation is not None:
                sets.join(at, by_conversation.setdefault(shown.conversation, at))
            for link in shown.links:
                if places is None:
                    places = {trace_id: at for at, trace_id in enumerate(ordered)}
                if link.trace_id in places:
                    sets.join(at, places[link.trace_id])
    found: dict[int, list[str]] = {}
    for at, trace_id in enumerate(ordered):
        found.setdefault(sets.of(at), []).append(trace_id)
    return list(found.values())


def worlds_of(trees: Iterable[Tree]) -> list[list[Tree]]:
    """The trees of each world: those of one conversation together, every other by itself; all by their trace ids."""
    ordered = sorted(trees, key=lambda tree: tree.trace_id)
    sets = _Sets(len(ordered))
    by_conversation: dict[str, int] = {}
    for at, tree in enumerate(ordered):
        for name in [tree.conversation] if tree.conversation is not None else _conversations(tree):
            sets.join(at, by_conversation.setdefault(name, at))
    worlds: dict[int, list[Tree]] = {}
    for at, tree in enumerate(ordered):
        worlds.setdefault(sets.of(at), []).append(tree)
    return list(worlds.values())


def _conversations(tree: Tree) -> set[str]:
    return {draft.conversation for draft in tree.nodes if draft.conversation is not None}


def sayers_of(traces: Mapping[str, Mapping[str, Shown]], worlds: Iterable[World]) -> Iterator[str]:
    """The traces in which somebody may have proposed the calls that worlds read of without anybody there who did."""
    wanted = {(part.call_id, part.digest) for world in worlds for _, _, part in world.open}
    for trace_id, spans in traces.items():
        for shown in spans.values():
            said = shown.output.parts if shown.operation is _INFERENCE and shown.output is not None else ()
            if any((part.call_id, part.digest) in wanted for part in said if part.kind is _CALL):
                yield trace_id
                break


def join_worlds(worlds: list[World]) -> list[list[World]]:
    """Join worlds where an input proves it: it repeats a call, id and arguments, that exactly one other world proposed.

    Ids that count (`call_1`) prove nothing.

    Args:
        worlds: Worlds by their first traces, among them everyone that proposed such a call.

    Returns:
        The worlds that belong together.
    """
    open_calls = [(at, *call) for at, world in enumerate(worlds) for call in world.open]
    if not open_calls:
        return [[world] for world in worlds]
    wanted = {(part.call_id, part.digest) for _, _, _, part in open_calls}
    sayers: dict[tuple[str | None, bytes], list[tuple[int, Op, int]]] = {}
    for at, world in enumerate(worlds):
        for op in world.inferences:
            for slot, part in enumerate(op.outcome.parts):
                if part.kind is _CALL and (part.call_id, part.digest) in wanted:
                    sayers.setdefault((part.call_id, part.digest), []).append((at, op, slot))
    sets = _Sets(len(worlds))
    for at, op, slot, part in open_calls:
        found = [sayer for sayer in sayers.get((part.call_id, part.digest), []) if sayer[0] != at]
        if len(found) != 1 or _apart(op, found[0][1]):
            continue
        other, producer, producer_slot = found[0]
        worlds[at].take_over(worlds[other], op, slot, part, producer, producer_slot)
        sets.join(at, other)
    groups: dict[int, list[World]] = {}
    for at, world in enumerate(worlds):
        groups.setdefault(sets.of(at), []).append(world)
    return list(groups.values())


def _apart(one: Op, other: Op) -> bool:
    """Whether two operations name different conversations."""
    first, second = one.draft.conversation, other.draft.conversation
    return first is not None and second is not None and first != second
