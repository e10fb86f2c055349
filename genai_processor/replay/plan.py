# SPDX-License-Identifier: Apache-2.0
"""From recorded spans to a plan: what is done with every node."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from genai_processor.replay.decisions import Declared, Plan, Problem
from genai_processor.replay.graph import World
from genai_processor.replay.lookup import Op
from genai_processor.replay.pieces import Piece, decided, put_together
from genai_processor.replay.reading import SpanReader
from genai_processor.replay.restoring import restore
from genai_processor.replay.shown import Shown
from genai_processor.replay.stamps import key_of
from genai_processor.replay.tree import Tree
from genai_processor.replay.worlds import islands_of, join_worlds, sayers_of, worlds_of
from genai_processor.spans.live import from_readable
from genai_processor.spans.records import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the garbage collector out: the records that are made here live on, and it would look at them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Planner:
    """Takes spans one by one, in any order and as often as they come, and keeps of each what a plan needs.

    Args:
        declared: What the user says of tools and models.
        keep_values: Keep what was said, which a replay needs; without it the plan has digests only, and takes less memory.
        length_limit: The attribute value length limit of the SDK that recorded the spans, 0 if it had none, None if nobody
            knows.
        digest_key: The `GENAI_PROCESSOR_DIGEST_KEY` that the stamps of the recording are keyed with, if they are.

    Attributes:
        stamped: How many spans came with a stamp, copies counted.
    """

    def __init__(
        self,
        declared: Declared | None = None,
        *,
        keep_values: bool = True,
        length_limit: int | None = None,
        digest_key: str | None = None,
    ) -> None:
        self._declared = declared if declared is not None else Declared()
        self._reader = SpanReader(keep_values=keep_values, length_limit=length_limit, key=key_of(digest_key))
        self._traces: dict[str, dict[str, Shown]] = {}
        self._conflicting: dict[str, set[str]] = {}
        self._problems: list[Problem] = []
        self.stamped = 0

    def add(self, span: Span | ReadableSpan) -> None:
        """Take a span, read or live. A copy of one that is there already changes nothing, unless it says something else."""
        shown = self._reader.read(span if isinstance(span, Span) else from_readable(span))
        self.stamped += shown.stamp is not None
        trace = self._traces.get(shown.trace_id)
        if trace is None:
            trace = self._traces[shown.trace_id] = {}
        before = trace.setdefault(shown.span_id, shown)
        if before is not shown and before != shown:
            if before.stamp is None or shown.stamp is None:  # a copy from behind the processor, and one from beside it
                stamp = before.stamp or shown.stamp
                before, shown = before._replace(stamp=stamp), shown._replace(stamp=stamp)
                trace[shown.span_id] = before
            if before != shown:
                self._conflicting.setdefault(shown.trace_id, set()).add(shown.span_id)
                if repr(shown) < repr(before):  # whichever came first
                    trace[shown.span_id] = shown

    def add_all(self, spans: Iterable[Span | ReadableSpan]) -> None:
        """Take many spans, which is cheaper than one by one: the garbage collector has a rest meanwhile."""
        with _without_collector():
            for span in spans:
                self.add(span)

    def note(self, place: str, problem: str) -> None:
        """Note something that could not be read."""
        self._problems.append(Problem(place, problem))

    def plan(self, *, stamps: bool = True) -> Plan:
        """The plan of all spans so far.

        Args:
            stamps: Believe what a recording stamped on spans (`GENAI_PROCESSOR_RECORD_FOR_REPLAY`); without, the plan is
                what it would be had nobody stamped them.
        """
        with _without_collector():
            return self._plan(stamps and self.stamped > 0)

    def _plan(self, stamps: bool) -> Plan:
        done: dict[str, Piece] = {}
        waiting: dict[str, tuple[list[Tree], list[World]]] = {}
        islands = islands_of(self._traces)
        for island in islands:
            trees, worlds = self._joined(island, stamps)
            if any(world.open for world in worlds):
                waiting[island[0]] = trees, worlds
            else:
                done[island[0]] = decided([[world] for world in worlds], trees, self._declared)
        pieces = list(done.values())
        if waiting:
            pieces = self._with_waiting(islands, done, waiting, stamps)
        problems = self._problems
        if not any(piece.decisions for piece in pieces):
            nothing = Problem("", "no span shows a model, a tool or a retrieval: nothing is to be replayed")
            problems = [*problems, nothing]
        return put_together(pieces, self._declared, problems)

    def _joined(self, island: Sequence[str], stamps: bool) -> tuple[list[Tree], list[World]]:
        trees = {
            trace_id: Tree(trace_id, list(self._traces[trace_id].values()), self._conflicting.get(trace_id, ()))
            for trace_id in island
        }
        ops_of: dict[int, Op] = {}
        groups = worlds_of(trees.values())
        worlds = [World(group, trees, ops_of) for group in groups]
        if stamps:
            for group, world in zip(groups, worlds, strict=True):
                world.noted = restore(world.ops, [holder for tree in group for holder in tree.holders])
        for world in worlds:  # once all are there: a link may lead into another one
            world.join()
        return list(trees.values()), worlds

    def _with_waiting(
        self,
        islands: Sequence[Sequence[str]],
        done: dict[str, Piece],
        waiting: dict[str, tuple[list[Tree], list[World]]],
        stamps: bool,
    ) -> list[Piece]:
        """Plan what reads of calls that nobody there proposed together with what proposed them."""
        found = set(sayers_of(self._traces, [world for _, worlds in waiting.values() for world in worlds]))
        for island in islands:
            if island[0] in done and not found.isdisjoint(island):
                del done[island[0]]
                waiting[island[0]] = self._joined(island, stamps)
        trees = [tree for some, _ in waiting.values() for tree in some]
        worlds = sorted([world for _, some in waiting.values() for world in some], key=lambda world: world.first)
        return [*done.values(), decided(join_worlds(worlds), trees, self._declared)]


def plan(
    trace: Iterable[Span | ReadableSpan],
    *,
    declared: Declared | None = None,
    recompute: Iterable[str] = (),
    keep_values: bool = True,
    length_limit: int | None = None,
    digest_key: str | None = None,
) -> Plan:
    """Plan the replay of recorded runs.

    Args:
        trace: Their spans, in any order, of one trace or of many.
        declared: What the user says of tools and models.
        recompute: Names of operations (`chat`, or `*` for every inference) for which there is a function to recompute with;
            a mapping of such functions will do.
        keep_values: Keep what was said, which a replay needs.
        length_limit: The attribute value length limit of the SDK that recorded them, 0 if it had none, None if nobody knows.
        digest_key: The `GENAI_PROCESSOR_DIGEST_KEY` that stamps are keyed with, if they are.

    Returns:
        The plan. Nothing raises: what cannot be read is refused where it stands, or is among the plan's problems.
    """
    base = declared if declared is not None else Declared()
    names: Sequence[str] = sorted({*base.recompute, *recompute})
    planner = Planner(
        base._replace(recompute=tuple(names)), keep_values=keep_values, length_limit=length_limit, digest_key=digest_key
    )
    planner.add_all(trace)
    return planner.plan()
