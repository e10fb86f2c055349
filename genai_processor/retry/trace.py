# SPDX-License-Identifier: Apache-2.0
"""One trace, as far as it has been seen: its tree, its calls (each with all its views), its turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from genai_processor.attributes import GENAI_REPLAY_RUN_ID
from genai_processor.retry.copies import merged
from genai_processor.retry.nodes import Node, gather, may_name_conversation
from genai_processor.retry.views import adopt, merge_views, serves
from genai_processor.spans.read import conversation_of, tools_on_offer
from genai_processor.spans.records import Operation, Span

__all__ = ["Trace", "adopt", "merge_views", "serves"]


class Trace:
    """The spans of one trace. Build it, then ask.

    Args:
        spans: The spans, in the order in which they ended (any order works; copies of one span are merged).
        length_limit: The SDK's attribute value length limit if it is known, 0 if there is none, else None: then it is
            guessed from lengths.
        partial: Spans of this trace are known to be missing here, so what is missing proves nothing.
        damaged: Among them may be some below a call that nobody will see any more: then not even a framework's own word
            that it never started is proof, because what speaks against it may be what is missing.
    """

    def __init__(
        self, spans: Iterable[Span], *, length_limit: int | None = None, partial: bool = False, damaged: bool = False
    ) -> None:
        nodes: list[Node] = []
        self._begin(nodes, length_limit, partial, damaged)
        by_id = self.by_id
        for span in spans:
            span_id = span.span_id
            if GENAI_REPLAY_RUN_ID in span.attributes:
                continue
            if span_id and span_id in by_id:
                copy = by_id[span_id]
                told = merged(copy.span, span)
                if told is not copy.span:
                    by_id[span_id] = nodes[copy.order] = Node(told, copy.order)
                continue
            node = Node(span, len(nodes))
            nodes.append(node)
            if span_id:
                by_id[span_id] = node
        self.trace_id = nodes[0].span.trace_id if nodes else ""
        if len(nodes) > 1:
            self._link()
            merge_views([node for node in nodes if node.call is not None])

    @classmethod
    def of(cls, nodes: list[Node], *, length_limit: int, partial: bool, damaged: bool = False) -> Trace:
        """A trace of nodes that are linked and merged already (live: the spans above them are still open)."""
        trace = cls.__new__(cls)
        trace._begin(nodes, length_limit, partial, damaged)
        trace.trace_id = nodes[0].span.trace_id if nodes else ""
        return trace

    def _begin(self, nodes: list[Node], length_limit: int | None, partial: bool, damaged: bool) -> None:
        self.nodes = nodes
        self.damaged = damaged
        self.by_id: dict[str, Node] = {}
        self.length_limit = length_limit
        self.partial = partial or damaged
        self._calls: list[Node] | None = None
        self._turns: list[Node] | None = None
        self._conversations: dict[int, str | None] = {}
        self._named: bool | None = None
        self._found: dict[object, Any] = {}
        self._lengths: Iterator[int] | None = None
        self._longest = self._second = -1

    def _link(self) -> None:
        get = self.by_id.get
        any_tool = False
        for node in self.nodes:
            parent_id = node.span.parent_span_id
            parent = get(parent_id) if parent_id else None
            if parent is not None and parent is not node:
                parent.add_child(node)
            any_tool = any_tool or node.operation is _TOOL
        if not (any_tool or len(self.nodes) > _MAX_DEPTH):
            return
        for node in self._bottom_up():
            gather(node, node.children)
            for child in node.children:
                if child.tools and child.call is None:
                    child.tools = ()  # passed on: only a tool span is asked for them later

    def _bottom_up(self) -> Iterator[Node]:
        """Tool spans and what stands below them, children before parents, as far as they have children.

        Nothing else passes anything up that somebody asks for. Without recursion; spans in a parent cycle are left out. No
        run nests a thousand deep; where spans do, the tree is cut, because every call walks up to its root.
        """
        order: list[Node] = []
        stack = [(node, False, 1) for node in self.nodes if node.parent is None and node.children]
        while stack:
            node, below, depth = stack.pop()
            if depth > _MAX_DEPTH and node.parent is not None:
                node.parent.children.remove(node)
                node.parent = None
                self.partial = True
                stack.append((node, False, 1))
                continue
            below = below or node.operation is _TOOL
            if below:
                order.append(node)
            stack.extend([(child, below, depth + 1) for child in node.children if child.children])
        return reversed(order)

    def calls(self) -> list[Node]:
        """The outermost span of every call, by start."""
        if self._calls is None:
            self._calls = [node for node in self.nodes if node.call is not None and node.outer is None]
            if len(self._calls) > 1:
                self._calls.sort(key=_when)
        return self._calls

    def turns(self) -> list[Node]:
        """The inferences, by start."""
        if self._turns is None:
            self._turns = [node for node in self.nodes if node.operation is _INFERENCE]
            if len(self._turns) > 1:
                self._turns.sort(key=_when)
        return self._turns

    def release(self) -> None:
        """Undo the links that go up, so that the nodes are freed as soon as nobody refers to them. Ends its use."""
        self._lengths = None
        self._found.clear()
        for node in self.nodes:
            node.parent = node.outer = None

    def once(self, key: object, find: Callable[[], _T]) -> _T:
        """What `find` returns; it is called once for each key."""
        if key not in self._found:
            self._found[key] = find()
        found: _T = self._found[key]
        return found

    def conversation(self, node: Node) -> str | None:
        """The conversation of a span: its own, its nearest ancestor's, else the root's, else an inference's."""
        if self._named is None:
            self._named = any(map(may_name_conversation, self.nodes))
        if not self._named:
            return None  # as in most traces: nobody need walk up to their roots
        found = self._conversation_above(node)
        if found is None and node.inner:
            for view in node.views()[1:]:
                if found is None and view.dialect is not None:
                    found = conversation_of(view.span, view.dialect)
        return found if found is not None else self.once("conversation", self._common_conversation)

    def _conversation_above(self, node: Node) -> str | None:
        known = self._conversations
        if id(node) in known:
            return known[id(node)]
        path: list[int] = []
        above: Node | None = node
        found: str | None = None
        while above is not None:
            key = id(above)
            if key in known:
                found = known[key]
                break
            known[key] = None  # ends a parent cycle, too
            path.append(key)
            if above.dialect is not None:
                found = conversation_of(above.span, above.dialect)
                if found is not None:
                    break
            above = above.parent
        for key in path:
            known[key] = found
        return found

    def _common_conversation(self) -> str | None:
        """The first root's that has one, inferences before others; else the first inference's."""
        roots = [node for node in self.nodes if node.parent is None]
        inferences = self.turns()
        if inferences:
            roots.sort(key=lambda node: node.operation is not _INFERENCE)  # stable: in their order otherwise
            inferences = [node for node in sorted(inferences, key=lambda node: node.order) if node.parent is not None]
        for node in (*roots, *inferences):
            if node.dialect is not None:
                found = conversation_of(node.span, node.dialect)
                if found is not None:
                    return found
        return None

    def is_cut(self, value: str) -> bool:
        """Whether telemetry shortened a text: it is as long as the limit, known or guessed.

        Offline the limit is unknown; then the longest length counts as one if at least two values have it.
        """
        length = len(value)
        if self.length_limit is not None:
            return 0 < self.length_limit <= length
        if length < self._longest:
            return False
        if self._lengths is None:
            self._lengths = self._string_lengths()
        for found in self._lengths:  # goes on where it stopped: most texts are not the longest, and are soon found out
            if found > self._longest:
                self._longest, self._second = found, -1
                if found > length:
                    return False
            elif found == self._longest:
                self._second = found
        return 0 < self._longest == self._second <= length

    def is_cut_id(self, call_id: str) -> bool:
        """Whether telemetry shortened an id. Ids of one kind are of one length by nature: theirs betrays no limit."""
        if not self.is_cut(call_id):
            return False
        return self.length_limit is not None or len(call_id) in self.once("lengths of others", self._lengths_but_of_ids)

    def _lengths_but_of_ids(self) -> frozenset[int]:
        return frozenset(
            len(value)
            for node in self.nodes
            for mapping in (node.span.attributes, *[event.attributes for event in node.span.events])
            for key, value in mapping.items()
            if isinstance(value, str) and not key.lower().endswith("id")
        )

    def records_any(self, keys: tuple[str, ...]) -> bool:
        """Whether some span has one of the keys; True for no keys."""
        return not keys or self.once(keys, lambda: any(key in node.span.attributes for node in self.nodes for key in keys))

    def longest_value(self) -> int:
        """The length of the longest string value on any span."""
        return self.once("longest", lambda: max(self._string_lengths(), default=0))

    def server_lists(self) -> set[str]:
        """The tools that an MCP server on this trace said it serves."""
        return self.once("served", self._server_lists)

    def _server_lists(self) -> set[str]:
        names: set[str] = set()
        for node in self.nodes:
            if node.operation is Operation.MCP and node.dialect is not None and "tools/list" in node.span.name:
                offered = tools_on_offer(node.span, node.dialect, self.is_cut)
                names.update(offered.schemas if offered is not None else ())
        return names

    def _string_lengths(self) -> Iterator[int]:
        for node in self.nodes:
            span = node.span
            for mapping in (span.attributes, *[event.attributes for event in span.events]):
                for value in mapping.values():
                    if isinstance(value, str):
                        yield len(value)
                    elif isinstance(value, (list, tuple)):
                        yield from [len(item) for item in value if isinstance(item, str)]


_T = TypeVar("_T")
_TOOL, _INFERENCE = Operation.TOOL, Operation.INFERENCE  # reading a member of an enum class costs more than reading a global
_MAX_DEPTH = 1_000


def _when(node: Node) -> tuple[int, int]:
    return (node.span.start_ns or 0, node.order)
