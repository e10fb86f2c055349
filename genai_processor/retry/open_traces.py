# SPDX-License-Identifier: Apache-2.0
"""The inferences of traces that are still running: what a call may have been proposed by. Live only, and bounded."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from genai_processor.retry.nodes import Node
from genai_processor.spans.live import from_readable

_MAX_TURNS: Final = 64
_MAX_TRACES: Final = 10_000
_MAX_WELL: Final = 1_000
_HEAVY_KEYS: Final = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "input.value",
    "output.value",
)


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


class OpenTrace:
    """The inferences, agents and steps of one trace that ended so far, oldest first."""

    __slots__ = ("_sizes", "bytes", "conversation", "opened", "spans", "well")

    def __init__(self, opened: float = 0.0) -> None:
        self.spans: list[Any] = []  # `ReadableSpan`s; a node in place of each that a verdict needed
        self._sizes: list[int] = []
        self.conversation: str | None = None
        self.well: set[str] | None = None
        self.bytes = 0
        self.opened = opened

    def add(self, span: Any, size: int, limit: int) -> None:
        """Keep a reference to one more span; forget the oldest ones beyond the bounds."""
        self.spans.append(span)
        self._sizes.append(size)
        self.bytes += size
        if len(self.spans) > 2 * _MAX_TURNS or self.bytes > limit:
            keep = _MAX_TURNS
            while keep > 1 and sum(self._sizes[-keep:]) > limit // 2:
                keep //= 2
            del self.spans[:-keep], self._sizes[:-keep]
            self.bytes = sum(self._sizes)

    def came_back(self, tool: str) -> None:
        """Note that a call of a tool ended well: there is such a tool."""
        if self.well is None:
            self.well = {tool}
        elif len(self.well) < _MAX_WELL:
            self.well.add(tool)

    def nodes(self) -> list[Node]:
        """What is kept, as nodes, each read once."""
        spans = self.spans
        for index in range(len(spans)):
            if not isinstance(spans[index], Node):
                spans[index] = Node(from_readable(spans[index]), index)
        return list(spans)


class OpenTraces:
    """The open traces of a process, least recently used first. The caller holds a lock.

    Args:
        limits: How much is kept.
        clock: Monotonic seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._traces: OrderedDict[int, OpenTrace] = OrderedDict()
        self._bytes = 0

    def get(self, trace_id: int) -> OpenTrace | None:
        """The trace of that id, if anything of it is kept."""
        return self._traces.get(trace_id)

    def keep(self, span: Any, values: Mapping[str, Any]) -> None:
        """Keep a reference to a span that is no root; nothing of it is parsed."""
        size = 500
        for key in _HEAVY_KEYS:
            value = values.get(key)
            if value.__class__ is str:
                size += len(value)
        trace_id = span._context.trace_id
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = OpenTrace(self._clock())
        else:
            self._traces.move_to_end(trace_id)
        before = trace.bytes
        trace.add(span, size, self._limits.max_bytes // 2)
        self._bytes += trace.bytes - before
        conversation = values.get("gen_ai.conversation.id")
        if conversation.__class__ is str and conversation:
            trace.conversation = conversation
        if self._bytes > self._limits.max_bytes or len(self._traces) > _MAX_TRACES:
            self._shrink()

    def close(self, trace_id: int) -> None:
        """Forget a trace whose root has ended: nothing comes that it could bear on."""
        done = self._traces.pop(trace_id, None)
        if done is not None:
            self._bytes -= done.bytes

    def _shrink(self) -> None:
        now = self._clock()
        while len(self._traces) > 1:
            oldest = next(iter(self._traces))
            fits = self._bytes <= self._limits.max_bytes and len(self._traces) <= _MAX_TRACES
            if fits and now - self._traces[oldest].opened <= self._limits.max_age:
                return
            self.close(oldest)
