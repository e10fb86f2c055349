# SPDX-License-Identifier: Apache-2.0
"""Two small bounded tables of a witness: whose arguments are referred to, and which served calls await their client."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from genai_processor.retry.came_back import CameBack
from genai_processor.retry.nodes import Node
from genai_processor.retry.trace import serves
from genai_processor.spans.records import View

_MAX_SERVED: Final = 1_000
_MAX_SERVED_SIZE: Final = 4_000_000  # characters


class HeldArguments:
    """The calls whose large arguments are kept until they must be compared, oldest first. The caller holds a lock.

    Args:
        limit: How many characters are kept in all.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._calls: deque[tuple[CameBack, int]] = deque()
        self._size = 0

    def add(self, call: CameBack) -> None:
        """Count one more; let go of the oldest beyond the bound."""
        size = call.held
        self._calls.append((call, size))
        self._size += size
        while self._size > self._limit:
            oldest, held = self._calls.popleft()
            self._size -= held
            oldest.release()


class ServedCalls:
    """MCP server spans that ended and may turn out to show a call whose client's span stands beside them."""

    def __init__(self) -> None:
        self._by_trace: OrderedDict[str, list[Node]] = OrderedDict()
        self._order: deque[tuple[Node, int]] = deque()
        self._size = 0

    def match(self, node: Node, is_alone: Callable[[], bool]) -> None:
        """Keep a server's span; give a client's span the server's that shows the same call, if only one can.

        Args:
            node: The span that has ended.
            is_alone: Whether no other call of its tool is open in its trace, which a server's span may belong to as well.
        """
        assert node.call is not None
        trace_id = node.span.trace_id
        if node.call.view is View.MCP_SERVER:
            self._by_trace.setdefault(trace_id, []).append(node)
            size = sum(len(value) for value in node.span.attributes.values() if isinstance(value, str))
            self._order.append((node, size))
            self._size += size
            while len(self._order) > _MAX_SERVED or self._size > _MAX_SERVED_SIZE:
                self._forget_oldest()
            return
        waiting = self._by_trace.get(trace_id, [])
        if not waiting or any(view.call is not None and view.call.view is View.MCP_SERVER for view in node.views()):
            return
        found = [server for server in waiting if server.outer is None and serves(server, node)]
        if len(found) == 1 and is_alone():
            node.add_view(found[0])

    def _forget_oldest(self) -> None:
        oldest, size = self._order.popleft()
        self._size -= size
        waiting = self._by_trace[oldest.span.trace_id]
        waiting.remove(oldest)
        if not waiting:
            del self._by_trace[oldest.span.trace_id]
