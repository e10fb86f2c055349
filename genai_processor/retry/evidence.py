# SPDX-License-Identifier: Apache-2.0
"""What ended, or is still open, below spans that have not ended yet. Live only; a recorded trace has its whole tree.

Everything is passed up one level as a span ends, so the table holds only parents that are open. One that never ends would
stay for good; past the bound the older half is dropped, and from then on nothing that began earlier can prove that it never
started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from genai_processor.retry.nodes import Below, Nested, Node

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_OPEN: Final = 200_000
_OPEN: Final = 2**63
_OTHER, _OUTSIDE, _MODEL = Below.OTHER, Below.OUTSIDE, Below.MODEL
_OUTWARD: Final = frozenset({2, 3})  # the SDK's numbers of CLIENT and PRODUCER


def begins_tool_span(values: Mapping[str, Any]) -> bool:
    """Whether attributes at a span's start say that it shows a tool call. Some say so only later, and are not watched."""
    operation = values.get("gen_ai.operation.name")
    if operation is not None:
        return bool(operation == "execute_tool")
    return any(values.get(key) == tool for key, tool in _TOOL_MARKS)


_TOOL_MARKS: Final = (
    ("openinference.span.kind", "TOOL"),
    ("traceloop.span.kind", "tool"),
    ("mcp.method.name", "tools/call"),
)


class Evidence:
    """Who stands below whom, by span id. The caller holds a lock."""

    def __init__(self) -> None:
        self._below: dict[int, int] = {}
        self._tools: dict[int, list[Nested]] = {}
        self.watched: dict[int, tuple[int, ...]] = {}
        """Open spans in or below tool spans, each with those tool spans, outermost first."""
        self._open: dict[int, int] = {}
        """How many spans are open below an open tool span; nothing for none."""
        self._lost_at = -1
        self.lost = 0
        """How often the older half was dropped."""

    def started(self, span: Any, begins_tool: bool) -> None:
        """Watch a tool span, and whatever begins below one."""
        parent = span._parent
        tools = self.watched.get(parent.span_id, ()) if parent is not None else ()
        if not (begins_tool or tools):
            return
        own = span._context.span_id
        for tool in tools:
            self._open[tool] = self._open.get(tool, 0) + 1
        self.watched[own] = (*tools, own) if begins_tool else tools
        if len(self.watched) > MAX_OPEN:
            self.watched.clear()
            self._open.clear()
            self._lost_at = max(self._lost_at, span._start_time or 0)

    def ended(self, span: Any, own_flags: int = -1) -> tuple[int, ...]:
        """Pass up what stood below a span that is no tool call.

        Args:
            span: The span.
            own_flags: What the span itself is to those above it; by default what its kind says.

        Returns:
            The spans that it stood below and that may be tool spans which have ended before.
        """
        # A span context is a tuple (trace id, span id, is remote, …); its properties cost as much as all the rest here.
        context, parent, below = span._context, span._parent, self._below
        own = context[1] if context is not None else 0
        flags = below.pop(own, 0)
        tools = self._tools.pop(own, None) if self._tools else None
        watched = self._unwatch(own) if self.watched else ()
        if parent is None or parent[2]:
            return watched
        if own_flags < 0:
            own_flags = _OUTSIDE if span._kind._value_ in _OUTWARD else _OTHER
        flags |= own_flags
        above = parent[1]
        if flags:
            below[above] = below.get(above, 0) | flags
            if len(below) > MAX_OPEN:
                self._drop(span)
        if tools:
            crossed = [Nested(tool, True) for tool, _ in tools] if own_flags == _MODEL else tools
            self._tools.setdefault(above, []).extend(crossed)
        return watched or (above,)

    def glanced(self, own: int, parent: Any) -> bool:
        """Pass up a tool call that came back, if nobody will ask for more than that.

        Returns:
            False, with nothing changed, if a tool span is open above it or one stands below it.
        """
        if self.watched:
            if len(self.watched.get(own, ())) > 1 or own in self._tools:
                return False
            self.watched.pop(own, None)
            if self._open:
                self._open.pop(own, None)
        elif own in self._tools:
            return False
        self._below.pop(own, None)
        if parent is not None and not parent.is_remote:
            above = parent.span_id
            self._below[above] = self._below.get(above, Below.NOTHING) | Below.NESTED
        return True

    def _unwatch(self, own: int) -> tuple[int, ...]:
        """Count a span as ended below the tool spans that are still open; returns those that are not."""
        late = []
        for tool in self.watched.pop(own, ()):
            if tool == own:
                continue
            if tool in self.watched:
                self._open[tool] = self._open.get(tool, 1) - 1
            else:
                late.append(tool)
        return tuple(late)

    def take(self, span: ReadableSpan, node: Node) -> bool:
        """Give a tool span what stood below it, and tell its parent of it.

        Returns:
            Whether evidence may have been lost since it began.
        """
        context: Any = span.context
        own = context.span_id if context is not None else 0
        flags = self._below.pop(own, Below.NOTHING)
        node.tools = tuple(self._tools.pop(own, ()))
        if self.watched:
            self._unwatch(own)
            if self._open.pop(own, 0) > 0:
                node.latest = _OPEN
                flags |= Below.OTHER
        node.below = flags
        parent: Any = span.parent
        if parent is not None and not parent.is_remote:
            above = self._tools.setdefault(parent.span_id, [])
            above.append(Nested(node, False))
            if len(self._tools) > MAX_OPEN or len(above) > MAX_OPEN:
                self._drop(span)
        return (span.start_time or 0) <= self._lost_at

    def _drop(self, span: ReadableSpan) -> None:
        """Forget the older half of what is open."""
        for table in (self._below, self._tools):
            for key in list(table)[: len(table) // 2]:
                del table[key]
        for held in self._tools.values():
            del held[: -MAX_OPEN // 2]
        self._lost_at = max(self._lost_at, span.end_time or span.start_time or 0)
        self.lost += 1
