# SPDX-License-Identifier: Apache-2.0
"""The inferences of traces that are still running: what a call may have been proposed by. Live only, and bounded."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from genai_processor.retry.locks import guard_with_lock
from genai_processor.retry.nodes import Node
from genai_processor.spans.live import from_readable

_MAX_TURNS: Final = 64
_MAX_TRACES: Final = 10_000
_MAX_WELL: Final = 1_000


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

    __slots__ = ("conversation", "opened", "size", "spans", "well")

    def __init__(self, opened: float = 0.0) -> None:
        self.spans: list[Any] = []  # `ReadableSpan`s; a node in place of each that a verdict needed
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
        self._clock = clock
        self._traces: OrderedDict[int, OpenTrace] = OrderedDict()
        self._size = 0

    def get(self, trace_id: int) -> OpenTrace | None:
        """The trace of that id, if anything of it is kept."""
        return self._traces.get(trace_id)

    def keep(self, span: Any, values: Mapping[str, Any]) -> None:
        """Keep a reference to a span that is no root; nothing of it is parsed."""
        trace_id = span._context[0]  # a span context is a tuple, and its properties are slow
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._open(trace_id)
        messages = values.get("gen_ai.input.messages") or values.get("input.value")
        size = 2 * len(messages) + 500 if messages.__class__ is str else 2_000
        trace.spans.append(span)
        trace.size += size
        self._size += size  # an estimate: threads may lose a little of it to each other
        conversation = values.get("gen_ai.conversation.id")
        if conversation.__class__ is str and conversation:
            trace.conversation = conversation
        if len(trace.spans) > 2 * _MAX_TURNS or self._size > self._limits.max_bytes:
            self._shrink(trace)

    def nodes(self, trace: OpenTrace) -> list[Node]:
        """What is kept of a trace, as nodes, each read once."""
        with self._lock:
            spans = trace.spans
            for index in range(len(spans)):
                if not isinstance(spans[index], Node):
                    spans[index] = Node(from_readable(spans[index]), index)
            return list(spans)

    def close(self, trace_id: int) -> None:
        """Forget a trace whose root has ended: nothing comes that it could bear on."""
        done = self._traces.pop(trace_id, None)
        if done is not None:
            self._size -= done.size

    def _open(self, trace_id: int) -> OpenTrace:
        with self._lock:
            trace = self._traces.setdefault(trace_id, OpenTrace(self._clock()))
            if len(self._traces) > _MAX_TRACES or self._clock() - self._oldest().opened > self._limits.max_age:
                self.close(next(iter(self._traces)))
            return trace

    def _oldest(self) -> OpenTrace:
        return self._traces[next(iter(self._traces))]

    def _shrink(self, trace: OpenTrace) -> None:
        """Forget the older half of a trace's turns; if that is not it, the oldest traces."""
        with self._lock:
            if len(trace.spans) > 2 * _MAX_TURNS or trace.size > self._limits.max_bytes // 2:
                kept = max(1, min(_MAX_TURNS, len(trace.spans) // 2))
                freed = trace.size - trace.size * kept // len(trace.spans)
                del trace.spans[:-kept]
                trace.size -= freed
                self._size -= freed
            while self._size > self._limits.max_bytes and len(self._traces) > 1:
                oldest = next(iter(self._traces))
                if self._traces[oldest] is trace:
                    self._traces.move_to_end(oldest)
                    continue
                self.close(oldest)
