# SPDX-License-Identifier: Apache-2.0
"""What ended, or is still open, below spans that have not ended yet. Live only; a recorded trace has its whole tree.

Everything is passed up one level as a span ends, so the table holds only parents that are open. One that never ends would
stay for good; past the bound the older half is dropped, and from then on nothing that began earlier can prove that it never
started.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from genai_processor.forks import guard_with_lock
from genai_processor.retry.nodes import Below, Nested, Node

MAX_OPEN: Final = 200_000
_MAX_SIZE: Final = 32_000_000  # characters of nested calls, over all open spans
_MAX_NESTED: Final = 64  # nested calls that are kept as such; of more, only that there were some
_OPEN: Final = 2**63
_OTHER, _OUTSIDE, _MODEL, _NESTED = Below.OTHER, Below.OUTSIDE, Below.MODEL, Below.NESTED
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
    """Who stands below whom, by span id.

    What nearly every span does is written as single operations on dictionaries, which threads cannot tear: a lock around
    them would cost more than they do, and make threads wait for each other. Only what adds to a value takes the lock.

    A parent that the API calls remote counts where it is open in this process: its context went through a carrier.
    """

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self._below: dict[int, int] = {}
        """What stands below each open span, as bits of `Below`."""
        self._tools: dict[int, list[Nested]] = {}
        self.watched: dict[int, tuple[int, ...]] = {}
        """Open spans in or below tool spans, each with those tool spans, outermost first."""
        self.open_tools: dict[int, Any] = {}
        """The tool spans that are open, by span id. Whoever judges one takes it out, once its verdict can be found."""
        self._open: dict[int, int] = {}
        """How many spans are open below an open tool span; nothing for none."""
        self._suspects: set[int] = set()
        """The tool spans that were open when evidence was lost."""
        self._sizes: dict[int, int] = {}
        """About how many characters the nested calls of each open span hold."""
        self._size = 0

    def started(self, span: Any, begins_tool: bool) -> None:
        """Watch a tool span, and whatever begins below one."""
        parent = span._parent
        tools = self.watched.get(parent[1], ()) if parent is not None else ()
        if parent is not None and not tools and parent[1] in self.open_tools:
            self._add(parent[1], _OTHER, span)  # it is being judged: it has asked already, and looks once more
        if not (begins_tool or tools):
            return
        own = span._context[1]
        if tools:
            with self._lock:
                for tool in tools:
                    if tool in self.watched:
                        self._open[tool] = self._open.get(tool, 0) + 1
                    else:  # it is ending just now, and has asked already
                        self._add(tool, _OTHER, span)
        if begins_tool:
            self.open_tools[own] = span
            self.watched[own] = (*tools, own)
        else:
            self.watched[own] = tools
        if len(self.watched) > MAX_OPEN:
            with self._lock:
                self._note_loss()
                self.watched.clear()
                self._open.clear()

    def ended(self, span: Any, own_flags: int = -1) -> tuple[int, ...]:
        """Pass up what stood below a span that is no tool call.

        Args:
            span: The span.
            own_flags: What the span itself is to those above it; by default what its kind says.

        Returns:
            The tool spans, ended before it, that it stood below as far as that was watched.
        """
        # A span context is a tuple (trace id, span id, is remote, …); its properties cost as much as all the rest here.
        context, parent, below = span._context, span._parent, self._below
        own = context[1] if context is not None else 0
        flags = below.pop(own, 0)
        if not (self._tools or self._sizes or self.watched):
            # No tool span is open, nor has one ended below an open span: what follows below, for that case only, because
            # that is how nearly every span of an application ends.
            if parent is None or parent[2]:
                return ()
            if own_flags < 0:
                own_flags = _OUTSIDE if span._kind._value_ in _OUTWARD else _OTHER
            flags |= own_flags
            if flags:
                known = below.setdefault(parent[1], flags)
                if known | flags != known or len(below) > MAX_OPEN:
                    self._add(parent[1], flags, span)
            return ()
        tools = self._tools.pop(own, None) if self._tools else None
        size = self._shed(own) if self._sizes else 0
        if parent is not None and (not parent[2] or parent[1] in self.watched):
            if own_flags < 0:
                own_flags = _OUTSIDE if span._kind._value_ in _OUTWARD else _OTHER
            size -= self._pass_up(span, parent[1], flags | own_flags, tools, own_flags == _MODEL)
            if size:
                self._load(parent[1], size, span)
        # Last: a tool span that ends in between must find its child either open or told.
        return self._unwatch(own) if self.watched else ()

    def _pass_up(self, span: Any, above: int, flags: int, tools: list[Nested] | None, crosses: bool) -> int:
        """Tell a span what stands below it; returns the size of what had to be let go for that."""
        below = self._below
        if flags:
            known = below.setdefault(above, flags)
            if known | flags != known or len(below) > MAX_OPEN:
                self._add(above, flags, span)
        if tools:
            crossed = [Nested(tool, True) for tool, _ in tools] if crosses else tools
            held = self._tools.setdefault(above, [])
            held.extend(crossed)
            if len(held) > _MAX_NESTED:
                return self._shorten(held, above, span)
        return 0

    def _shorten(self, held: list[Nested], above: int, span: Any) -> int:
        """Let go of the oldest nested calls of a span beyond the bound; returns their size."""
        with self._lock:
            excess = held[:-_MAX_NESTED]
            del held[: len(excess)]
            self._add(above, _NESTED, span)
        return sum(nested.node.size for nested in excess)

    def _shed(self, own: int) -> int:
        """Count out what the nested calls of a span held."""
        with self._lock:
            size = self._sizes.pop(own, 0)
            self._size -= size
            return size

    def _load(self, above: int, size: int, span: Any) -> None:
        with self._lock:
            held = self._tools.get(above)
            if held is None:  # it has ended since
                self._shed(above)
                return
            self._sizes[above] = self._sizes.get(above, 0) + size
            self._size += size
            if self._size > _MAX_SIZE:
                self._drop(span)

    def _add(self, above: int, flags: int, span: Any) -> None:
        with self._lock:
            known = self._below.setdefault(above, flags)  # others insert without the lock, but change nothing
            if known | flags != known:
                self._below[above] = known | flags
            if len(self._below) > MAX_OPEN:
                self._drop(span)

    def glanced(self, own: int, parent: Any, span: Any) -> bool:
        """Pass up a tool call that came back, if nobody will ask for more than that.

        Returns:
            False, with nothing changed, if a tool span is open above it or one stands below it.
        """
        if own in self._tools or len(self.watched.get(own, ())) > 1:
            return False
        self.watched.pop(own, None)
        if self._suspects:
            self._suspects.discard(own)
        if self._open:
            self._open.pop(own, None)
        below = self._below
        below.pop(own, None)
        if parent is not None and (not parent[2] or parent[1] in self.watched):
            known = below.setdefault(parent[1], _NESTED)
            if not known & _NESTED or len(below) > MAX_OPEN:
                self._add(parent[1], _NESTED, span)
        return True

    def is_nested(self, span: Any) -> bool:
        """Whether a tool span is open above a span."""
        parent = span._parent
        return parent is not None and parent.span_id in self.watched

    def _unwatch(self, own: int) -> tuple[int, ...]:
        """Count a span as ended below the tool spans that are still open; returns those that are not."""
        if self._suspects:
            self._suspects.discard(own)
        if self._open:
            self._open.pop(own, None)
        return self._count_out(own, self.watched.pop(own, ()))

    def _count_out(self, own: int, tools: tuple[int, ...]) -> tuple[int, ...]:
        if not tools or tools == (own,):
            return ()
        late = []
        with self._lock:
            for tool in tools:
                if tool == own:
                    continue
                if tool in self.watched:
                    self._open[tool] = self._open.get(tool, 1) - 1
                else:
                    late.append(tool)
        return tuple(late)

    def take(self, span: Any, node: Node) -> tuple[bool, tuple[int, ...]]:
        """Give a tool span what stood below it, and tell its parent of it.

        Returns:
            Whether evidence may have been lost since it began; and the tool spans, ended before it, that it stood below.
        """
        context, parent = span._context, span._parent
        own = context.span_id if context is not None else 0
        # Not seen to begin: nobody has watched what began below it, and may still be open.
        lost = own not in self.open_tools or own in self._suspects
        self._suspects.discard(own)
        # What ends below it from here on comes late; so its own entry goes first, and what was told goes last.
        tools = self.watched.pop(own, ())
        still_open = self._open.pop(own, 0) > 0
        flags = self._below.pop(own, 0)
        node.tools = tuple(self._tools.pop(own, ()))
        node.size = _size_of(node) + (self._shed(own) if self._sizes else 0)
        if still_open:
            node.latest = _OPEN
            flags |= _OTHER
        node.below = flags
        if parent is not None and (not parent[2] or parent[1] in self.watched):
            above = self._tools.setdefault(parent[1], [])
            above.append(Nested(node, False))
            size = node.size
            if len(above) > _MAX_NESTED:
                size -= self._shorten(above, parent[1], span)
            if len(self._tools) > MAX_OPEN // 20:
                self._drop(span)
            self._load(parent[1], size, span)
        return lost, self._count_out(own, tools)

    def lost(self, span: Any) -> None:
        """Note that those above a span can be told only that there was one: for what is open now, absence proves nothing."""
        if span._parent is not None:
            self._add(span._parent.span_id, _OTHER, span)
        if span._context is not None:
            own = span._context.span_id
            for table in (self._below, self._tools):
                table.pop(own, None)
            self._shed(own)
            self._unwatch(own)
        self._note_loss()

    def _note_loss(self) -> None:
        with self._lock:
            self._suspects = set(self.open_tools)

    def tell(self, own: int, span: Any) -> None:
        """Tell a tool span that another one has begun below it."""
        self._add(own, _OTHER, span)

    def told(self, own: int) -> bool:
        """Whether something was told to a tool span after it was asked what stood below it."""
        return self._below.pop(own, 0) != 0

    def _drop(self, span: Any) -> None:
        """Forget the older half of what is open."""
        with self._lock:
            for table in (self._below, self._tools):
                for key in list(table)[: (len(table) + 1) // 2]:
                    table.pop(key, None)
            for key in [key for key in self._sizes if key not in self._tools]:
                self._shed(key)
            self._note_loss()


def _size_of(node: Node) -> int:
    size = 500
    for value in node.span.attributes.values():
        if value.__class__ is str:
            size += len(value)
    return size
