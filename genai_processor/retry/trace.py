# SPDX-License-Identifier: Apache-2.0
"""One trace, as far as it has been seen: its tree, its calls (each with all its views), its turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from genai_processor.retry.nodes import Node, gather
from genai_processor.retry.policy import same_tool
from genai_processor.spans.read import conversation_of, tools_on_offer
from genai_processor.spans.records import Operation, Span, View


class Trace:
    """The spans of one trace. Build it, then ask.

    Args:
        spans: The spans, in the order in which they ended (any order works; a second copy of a span is ignored).
        length_limit: The SDK's attribute value length limit if it is known, 0 if there is none, else None: then it is
            guessed from lengths.
        partial: Spans of this trace are known to be missing here, so what is missing proves nothing.
    """

    def __init__(self, spans: Iterable[Span], *, length_limit: int | None = None, partial: bool = False) -> None:
        self.nodes: list[Node] = []
        self.by_id: dict[str, Node] = {}
        self.length_limit = length_limit
        self.partial = partial
        self._suspected: int | None = None
        for span in spans:
            if span.span_id and span.span_id in self.by_id:
                continue
            node = Node(span, len(self.nodes))
            self.nodes.append(node)
            if span.span_id:
                self.by_id[span.span_id] = node
        self._link()
        merge_views([node for node in self.nodes if node.call is not None])

    @classmethod
    def of(cls, nodes: list[Node], *, length_limit: int, partial: bool) -> Trace:
        """A trace of nodes that are linked and merged already (live: the spans above them are still open)."""
        trace = cls((), length_limit=length_limit, partial=partial)
        trace.nodes = nodes
        trace.by_id = {node.span.span_id: node for node in nodes}
        return trace

    @property
    def trace_id(self) -> str:
        """The trace's id ("" for spans without context)."""
        return self.nodes[0].span.trace_id if self.nodes else ""

    def _link(self) -> None:
        for node in self.nodes:
            parent = self.by_id.get(node.span.parent_span_id or "")
            if parent is not None and parent is not node:
                parent.add_child(node)
        for node in self._bottom_up():
            if node.children:
                gather(node, node.children)

    def _bottom_up(self) -> Iterator[Node]:
        """Children before parents, without recursion; spans in a parent cycle come last, as leaves."""
        order: list[Node] = []
        stack = [node for node in self.nodes if node.parent is None]
        while stack:
            node = stack.pop()
            order.append(node)
            stack.extend(node.children)
        return reversed(order)

    def calls(self) -> list[Node]:
        """The outermost span of every call, by start."""
        return sorted((node for node in self.nodes if node.call is not None and node.outer is None), key=lambda n: n.when)

    def turns(self) -> list[Node]:
        """The inferences, by start."""
        return sorted((node for node in self.nodes if node.operation is Operation.INFERENCE), key=lambda n: n.when)

    def conversation(self, node: Node) -> str | None:
        """The conversation of a span: its own, its nearest ancestor's, else the root's, else an inference's."""
        for candidate in (node, *node.ancestors(), *node.views()[1:]):
            if candidate.dialect is not None:
                found = conversation_of(candidate.span, candidate.dialect)
                if found is not None:
                    return found
        return self._common_conversation()

    def _common_conversation(self) -> str | None:
        ranked = sorted(self.nodes, key=lambda n: (n.parent is not None, n.operation is not Operation.INFERENCE))
        for node in ranked:
            if node.dialect is not None and (node.parent is None or node.operation is Operation.INFERENCE):
                found = conversation_of(node.span, node.dialect)
                if found is not None:
                    return found
        return None

    def is_cut(self, value: str) -> bool:
        """Whether telemetry shortened a text: it is as long as the limit, known or guessed.

        Offline the limit is unknown; then the longest length counts as one if at least two values have it.
        """
        if self.length_limit is not None:
            return 0 < self.length_limit <= len(value)
        if self._suspected is None:
            self._suspected = suspected_limit(node.span for node in self.nodes)
        return 0 < self._suspected <= len(value)

    def records_any(self, keys: tuple[str, ...]) -> bool:
        """Whether some span has one of the keys; True for no keys."""
        return not keys or any(key in node.span.attributes for node in self.nodes for key in keys)

    def longest_value(self) -> int:
        """The length of the longest string value on any span."""
        return max((len(text) for node in self.nodes for text in _strings(node.span)), default=0)

    def server_lists(self) -> set[str]:
        """The tools that an MCP server on this trace said it serves."""
        names: set[str] = set()
        for node in self.nodes:
            if node.operation is Operation.MCP and node.dialect is not None and "tools/list" in node.span.name:
                offered = tools_on_offer(node.span, node.dialect, self.is_cut)
                names.update(offered.schemas if offered is not None else ())
        return names


def merge_views(tools: list[Node]) -> None:
    """Give every span that shows the same call as a span above or beside it to that span (VERDICT, section 4)."""
    for node in tools:
        adopt(node)
    for server in [node for node in tools if node.outer is None and _is_view(node, View.MCP_SERVER)]:
        client = next((node for node in tools if _serves(server, node)), None)
        if client is not None:
            client.add_view(server)


def adopt(node: Node) -> None:
    """Take over the tool spans below that show the same call."""
    for nested, crossed in node.tools:
        if not crossed and nested.outer is None and _same_call(node, nested):
            node.add_view(nested)


def suspected_limit(spans: Iterable[Span]) -> int:
    """The length that at least two values share and none exceeds, or 0."""
    lengths = Counter(len(text) for span in spans for text in _strings(span))
    longest = max(lengths, default=0)
    return longest if lengths[longest] >= 2 else 0


def _strings(span: Span) -> Iterator[str]:
    for value in _attribute_values(span):
        if isinstance(value, str):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, str))


def _attribute_values(span: Span) -> Iterator[Any]:
    yield from span.attributes.values()
    for event in span.events:
        yield from event.attributes.values()


def _is_view(node: Node, *views: View) -> bool:
    return node.call is not None and node.call.view in views


def _same_call(outer: Node, inner: Node) -> bool:
    assert outer.call is not None
    assert inner.call is not None
    if same_tool(outer.call.tool, inner.call.tool):
        return True
    return inner.call.tool is None and inner.call.view is not View.FRAMEWORK


def _serves(server: Node, client: Node) -> bool:
    """Whether a SERVER span shows a call that a span beside it shows from the client's side."""
    if client is server or client.outer is not None or not _is_view(client, View.MCP_CLIENT, View.FRAMEWORK):
        return False
    if any(_is_view(view, View.MCP_SERVER) for view in client.views()):
        return False
    one, two = server.call, client.call
    assert one is not None
    assert two is not None
    if not same_tool(one.tool, two.tool) or (None not in (one.arguments, two.arguments) and one.arguments != two.arguments):
        return False
    started, begin, end = server.span.start_ns or 0, client.span.start_ns or 0, client.span.end_ns
    return begin <= started and (end is None or started <= end)


CutTest = Callable[[str], bool]
