# SPDX-License-Identifier: Apache-2.0
"""What ended, or is still open, below spans that have not ended yet. Live only; a recorded trace has its whole tree.

Everything is passed up one level as a span ends, so the table holds only parents that are open. One that never ends would
stay for good; past the bound the older half is dropped, and from then on nothing that began earlier can prove that it never
started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from genai_processor.retry.nodes import Below, Nested, Node

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_OPEN: Final = 200_000
_OPEN: Final = 2**63
_OUTWARD: Final = frozenset({2, 3})  # the SDK's numbers of CLIENT and PRODUCER


class Evidence:
    """Who stands below whom, by span id. The caller holds a lock."""

    def __init__(self) -> None:
        self._below: dict[int, int] = {}
        self._tools: dict[int, list[Nested]] = {}
        self._watched: dict[int, tuple[int, ...]] = {}
        """Open spans in or below tool spans, each with those tool spans, outermost first."""
        self._open: dict[int, int] = {}
        """How many spans are open below each open tool span."""
        self._lost_at = -1
        self.lost = 0
        """How often the older half was dropped."""

    def concerns(self, span: Any) -> bool:
        """Whether a span that begins may have to be watched: it is a tool span, or some tool span is open."""
        if self._watched:
            return True
        values = getattr(span._attributes, "_dict", None)
        return (values is not None and values.get("gen_ai.operation.name") == "execute_tool") or span._name.startswith(
            "execute_tool "
        )

    def started(self, span: Any) -> None:
        """Watch a tool span, and whatever begins below one."""
        parent = span._parent
        tools: tuple[int, ...] = ()
        if self._watched and parent is not None:
            tools = self._watched.get(parent.span_id, ())
        values = getattr(span._attributes, "_dict", None)
        is_tool = values is not None and values.get("gen_ai.operation.name") == "execute_tool"
        if not (is_tool or tools or span._name.startswith("execute_tool ")):
            return
        own = span._context.span_id
        for tool in tools:
            self._open[tool] = self._open.get(tool, 0) + 1
        if is_tool or span._name.startswith("execute_tool "):
            tools = (*tools, own)
            self._open.setdefault(own, 0)
        self._watched[own] = tools
        if len(self._watched) > MAX_OPEN:
            self._watched.clear()
            self._open.clear()
            self._lost_at = max(self._lost_at, span._start_time or 0)

    def ended(self, span: ReadableSpan, *, model: bool, silent: bool) -> tuple[int, ...]:
        """Pass up what stood below a span that is no tool call.

        Args:
            span: The span.
            model: It is an inference or an agent.
            silent: It is MCP traffic, which is none of the tool's doing.

        Returns:
            The spans that it stood below and that may be tool spans which have ended before.
        """
        context: Any = span.context
        own = context.span_id if context is not None else 0
        flags = self._below.pop(own, Below.NOTHING)
        tools = self._tools.pop(own, None) if self._tools else None
        parent: Any = span.parent
        watched = self._unwatch(own) if self._watched else ()
        if parent is None or parent.is_remote:
            return watched
        if model:
            flags |= Below.MODEL
        elif not silent:
            flags |= Below.OUTSIDE if span.kind._value_ in _OUTWARD else Below.OTHER
        above = parent.span_id
        below = self._below
        if flags:
            below[above] = below.get(above, Below.NOTHING) | flags
            if len(below) > MAX_OPEN:
                self._drop(span)
        if tools:
            crossed = [Nested(tool, True) for tool, _ in tools] if model else tools
            self._tools.setdefault(above, []).extend(crossed)
        return watched or (above,)

    def _unwatch(self, own: int) -> tuple[int, ...]:
        """Count a span as ended below the tool spans that are still open; returns those that are not."""
        late = []
        for tool in self._watched.pop(own, ()):
            if tool in self._open:
                if tool != own:
                    self._open[tool] -= 1
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
        if self._watched:
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
