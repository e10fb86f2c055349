# SPDX-License-Identifier: Apache-2.0
"""Two small bounded tables of a witness: whose arguments are referred to, and which served calls await their client."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from genai_processor.retry.came_back import CameBack
from genai_processor.retry.nodes import Node
from genai_processor.retry.trace import serves
from genai_processor.spans.records import View

_MAX_SERVED: Final = 1_000


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

    def match(self, node: Node) -> None:
        """Keep a server's span; give a client's span the server's that shows the same call."""
        assert node.call is not None
        trace_id = node.span.trace_id
        if node.call.view is View.MCP_SERVER:
            waiting = self._by_trace.setdefault(trace_id, [])
            waiting.append(node)
            del waiting[:-_MAX_SERVED]
            if len(self._by_trace) > _MAX_SERVED:
                self._by_trace.popitem(last=False)
            return
        waiting = self._by_trace.get(trace_id, [])
        if not waiting or any(view.call is not None and view.call.view is View.MCP_SERVER for view in node.views()):
            return
        found = next((server for server in waiting if server.outer is None and serves(server, node)), None)
        if found is not None:
            node.add_view(found)
