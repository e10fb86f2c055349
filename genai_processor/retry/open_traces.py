# SPDX-License-Identifier: Apache-2.0
"""The inferences of traces that are still running: what a call may have been proposed by. Live only, and bounded."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from genai_processor.forks import guard_with_lock
from genai_processor.retry.nodes import Node
from genai_processor.retry.seen import SeenNames
from genai_processor.spans.live import from_readable

_MAX_TURNS: Final = 64
_MAX_TRACES: Final = 10_000
_MAX_CLOSED: Final = 20_000
_MAX_WELL: Final = 1_000
_ALSO_LARGE: Final = frozenset(
    {
        "gen_ai.tool.definitions",
        "gen_ai.system_instructions",
        "input.value",
        "output.value",
        "response",
        "traceloop.entity.output",
    }
)
"""What may be large on a span, beside its messages."""


class Limits(NamedTuple):
    """How much of the past is kept in memory.

    Attributes:
        max_calls: Tool calls, over all scopes.
        max_bytes: Estimated bytes of messages and arguments that are referred to.
        max_age: Seconds after which an open trace's turns are forgotten.
    """

    max_calls: int = 10_000
    max_bytes: int = 64 * 1024 * 1024
    max_age: int = 3600


DEFAULT_LIMITS: Final = Limits()


class OpenTrace:
    """The inferences, agents and steps of one trace that ended so far, oldest first."""

    __slots__ = ("conversation", "opened", "partial", "read", "size", "spans", "well")

    def __init__(self, opened: float = 0.0) -> None:
        self.spans: list[Any] = []  # `ReadableSpan`s
        self.read: dict[int, Node] = {}  # those that a verdict needed, by span id
        self.partial = False  # some were forgotten: what is missing proves nothing
        self.conversation: str | None = None
        self.well: set[str] | None = None
        self.size = 0
        self.opened = opened

    def came_back(self, tool: str) -> None:
        """Note that a call of a tool ended well: there is such a tool."""
        if self.well is None:
            self.well = {tool}
        elif len(self.well) < _MAX_WELL:
            self.well.add(tool)


class OpenTraces:
    """The open traces of a process, oldest first. Keeping a span takes no lock but for a trace's first.

    Args:
        limits: How much is kept.
        clock: Monotonic seconds.
    """

    _lock: threading.RLock

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        guard_with_lock(self)
        self._limits = limits
        self._max_bytes = limits.max_bytes
        self._clock = clock
        self._traces: OrderedDict[int, OpenTrace] = OrderedDict()
        self._size = 0
        self._begun: dict[int, None] = {}
        """Traces whose root is open in this process."""
        self._entered: dict[int, int] = {}
        """Traces that came in, with how many spans that came in are open."""
        self._closed: set[int] = set()
        self._closed_before: set[int] = set()
        """The last traces that were closed: should one go on, its earlier turns are missing."""
        self._forgotten = SeenNames()
        """The traces that were dropped while they were open."""

    def get(self, trace_id: int) -> OpenTrace | None:
        """The trace of that id, if anything of it is kept."""
        return self._traces.get(trace_id)

    def has_lost(self, trace_id: int) -> bool:
        """Whether something of a trace was kept once and is not any more."""
        return trace_id in self._closed or trace_id in self._closed_before or str(trace_id) in self._forgotten

    def keep(self, span: Any, values: Mapping[str, Any]) -> None:
        """Keep a reference to a span that is no root; nothing of it is parsed."""
        trace_id = span._context[0]  # a span context is a tuple, and its properties are slow
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._open(trace_id)
        size = 500
        messages = values.get("gen_ai.input.messages")
        if messages.__class__ is str:
            size += 2 * len(messages)
        messages = values.get("gen_ai.output.messages")
        if messages.__class__ is str:
            size += 2 * len(messages)
        if not _ALSO_LARGE.isdisjoint(values):
            size += 2 * sum(len(values[key]) for key in _ALSO_LARGE if values.get(key).__class__ is str)
        spans = trace.spans
        spans.append(span)
        trace.size += size
        self._size += size  # an estimate: threads may lose a little of it to each other
        if "gen_ai.conversation.id" in values or "session.id" in values:
            self._note_conversation(trace, values)
        if len(spans) > 2 * _MAX_TURNS or self._size > self._max_bytes:
            self._shrink(trace)

    def began(self, span: Any, values: Mapping[str, Any]) -> None:
        """Note the conversation that an agent names as it begins: its calls end before it does."""
        trace_id = span._context[0]
        self._note_conversation(self._traces.get(trace_id) or self._open(trace_id), values)

    @staticmethod
    def _note_conversation(trace: OpenTrace, values: Mapping[str, Any]) -> None:
        conversation = values.get("gen_ai.conversation.id") or values.get("session.id")
        if conversation.__class__ is str and conversation.strip():
            trace.conversation = conversation

    def nodes(self, trace: OpenTrace) -> list[Node]:
        """What is kept of a trace, as nodes, each read once."""
        nodes: list[Node] = []
        for span in list(trace.spans):  # without the lock: the collector may end a span in here, whose judging wants others
            key = span._context[1]
            node = trace.read.get(key)
            if node is None:
                node = trace.read.setdefault(key, Node(from_readable(span), len(nodes)))
            nodes.append(node)
        return nodes

    def begin(self, trace_id: int) -> None:
        """Note that a trace has begun in this process."""
        begun = self._begun
        begun[trace_id] = None
        if len(begun) > _MAX_TRACES:  # of a root that never ends, nobody says so
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # another thread was faster
                del begun[next(iter(begun))]

    def enter(self, trace_id: int) -> None:
        """Note that a trace has come in, perhaps once more, from another process or through a carrier."""
        with self._lock:
            self._entered[trace_id] = self._entered.get(trace_id, 0) + 1
            if len(self._entered) > _MAX_TRACES:
                del self._entered[next(iter(self._entered))]

    def end(self, trace_id: int) -> None:
        """Close a trace whose root has ended, unless another part of it, which came in, is running here."""
        self._begun.pop(trace_id, None)
        if trace_id in self._traces and trace_id not in self._entered:  # of most traces nothing was kept
            self._close(trace_id)

    def leave(self, trace_id: int) -> None:
        """Close a trace of which a part that came in has ended, unless its root or another such part is running here."""
        with self._lock:
            if trace_id not in self._entered:
                return
            running = self._entered.pop(trace_id) - 1
            if running > 0:
                self._entered[trace_id] = running
                return
        if trace_id not in self._begun:
            self._close(trace_id)

    def _close(self, trace_id: int) -> None:
        if self._drop(trace_id):
            self._closed.add(trace_id)
            if len(self._closed) > _MAX_CLOSED:
                self._closed_before, self._closed = self._closed, set()

    def _drop(self, trace_id: int) -> bool:
        done = self._traces.pop(trace_id, None)
        if done is None:
            return False
        self._size -= done.size
        done.partial = True  # some thread may be keeping a span in it right now
        done.read = {}
        done.spans = []  # calls that are remembered for longer refer to it
        return True

    def _open(self, trace_id: int) -> OpenTrace:
        with self._lock:
            now = self._clock()
            new = OpenTrace(now)
            trace = self._traces.setdefault(trace_id, new)
            if trace is new:
                new.partial = self.has_lost(trace_id)
            oldest = self._oldest(new)
            if oldest is not None:
                too_old = now - oldest[1].opened > self._limits.max_age
                if too_old or len(self._traces) > _MAX_TRACES:
                    self._forget(oldest[0])
            return trace

    def _oldest(self, apart_from: OpenTrace) -> tuple[int, OpenTrace] | None:
        try:
            return next((held for held in self._traces.items() if held[1] is not apart_from), None)
        except RuntimeError:  # another thread has just closed one; the next span will ask again
            return None

    def _forget(self, trace_id: int) -> None:
        """Drop a trace that is still open. If it goes on, what is missing from it proves nothing."""
        self._forgotten.add(str(trace_id))
        self._drop(trace_id)

    def _shrink(self, trace: OpenTrace) -> None:
        """Forget the older half of a trace's turns; if that is not it, the oldest traces."""
        with self._lock:
            if len(trace.spans) > 2 * _MAX_TURNS or trace.size > self._max_bytes // 2:
                kept = max(1, min(_MAX_TURNS, len(trace.spans) // 2))
                freed = trace.size - trace.size * kept // len(trace.spans)
                trace.partial = True
                del trace.spans[:-kept]
                trace.read = {}
                trace.size -= freed
                self._size -= freed
            while self._size > self._max_bytes and len(self._traces) > 1:
                oldest = self._oldest(trace)
                if oldest is None:
                    return
                self._forget(oldest[0])
