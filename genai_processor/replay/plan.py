# SPDX-License-Identifier: Apache-2.0
"""From recorded spans to a plan: what is done with every node."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from genai_processor.replay.boundary import decide
from genai_processor.replay.cover import containers_of, draw
from genai_processor.replay.freeze import frozen
from genai_processor.replay.graph import World, join_worlds, worlds_of
from genai_processor.replay.lookup import Op
from genai_processor.replay.order import arrange, mark_fan_ins
from genai_processor.replay.reading import SpanReader
from genai_processor.replay.records import Decision, Declared, Node, Plan, Problem
from genai_processor.replay.restoring import restore
from genai_processor.replay.shown import Shown
from genai_processor.replay.stamps import key_of
from genai_processor.replay.tree import Tree
from genai_processor.spans.live import from_readable
from genai_processor.spans.records import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_new = tuple.__new__  # cheaper than `_replace`


@contextmanager
def without_collector() -> Iterator[None]:
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
        with without_collector():
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
        with without_collector():
            return self._plan(stamps)

    def _plan(self, stamps: bool) -> Plan:
        trees: dict[str, Tree] = {}
        for trace_id, spans in self._traces.items():
            trees[trace_id] = Tree(trace_id, list(spans.values()), self._conflicting.get(trace_id, ()))
        ops_of: dict[int, Op] = {}
        problems = list(self._problems)
        worlds: list[World] = []
        for together in worlds_of(trees.values()):
            world = World(together, trees, ops_of)
            if stamps and self.stamped:
                problems.extend(restore(world.ops, [holder for tree in together for holder in tree.holders]))
            world.join()
            worlds.append(world)
        nodes: list[Node] = []
        decisions: dict[str, Decision] = {}
        for group in join_worlds(worlds):
            ops = arrange(group)
            mark_fan_ins(ops)
            for op in ops:
                node, edges = frozen(op)
                nodes.append(node)
                decision = decide(node, self._declared)
                decisions[node.key] = _new(Decision, (*decision[:6], edges, None, False)) if edges else decision
        for world in worlds:
            for op, target in world.missing:
                problems.append(
                    Problem(op.key, f"links to span {target}, which is not in the record: add the file that has it")
                )
        if not nodes:
            problems.append(Problem("", "no span shows a model, a tool or a retrieval: nothing is to be replayed"))
        containers, boundaries = draw(nodes, decisions, containers_of(trees.values()))
        return Plan(tuple(nodes), decisions, containers, boundaries, tuple(problems), self._declared)


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
