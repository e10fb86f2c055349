# SPDX-License-Identifier: Apache-2.0
"""The spans of one trace as a tree, and what each passes up to its parent: evidence that a tool's body ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from genai_processor.spans.definitions import ToolList
from genai_processor.spans.read import CONVERSATION_KEYS, operation_of, read_tool, tools_on_offer
from genai_processor.spans.records import (
    Inference,
    Operation,
    Proposal,
    Result,
    Span,
    SpanKind,
    StatusCode,
    ToolCall,
    View,
)
from genai_processor.spans.said import consumed, proposals


class Below:
    """What stands below a span, as bits (plain numbers: this is added up on every span that ends).

    Anything but nothing voids a proof that the tool never started.
    """

    NOTHING: Final = 0
    OTHER: Final = 1
    """Some span: it proves nothing, but the tool may have made it."""
    OUTSIDE: Final = 2
    """A CLIENT or PRODUCER span outside GenAI and MCP transport: the body reached the outside."""
    MODEL: Final = 4
    """An inference or an agent: the body delegated."""
    NESTED: Final = 8
    """A tool call that came back, of which nothing more is kept (live only)."""


BODY_RAN: Final = Below.OUTSIDE | Below.MODEL | Below.NESTED
_TRANSPORT = frozenset({"tools/list", "server/discover", "initialize", "ping"})


_NONE: list[Node] = []  # stands for "none yet", and is never appended to


class Nested(NamedTuple):
    """A tool span below another span.

    Attributes:
        node: The tool span.
        crossed: An agent or inference stands between: it cannot be a view of the same call.
    """

    node: Node
    crossed: bool


class Node:
    """One span in its trace. Messages are parsed once, when somebody asks."""

    # Slots, because a default on the class is slower to read than it is to write here.
    __slots__ = (
        "_consumed",
        "_offered",
        "_offered_read",
        "_proposals",
        "below",
        "call",
        "children",
        "dialect",
        "inner",
        "latest",
        "lost",
        "operation",
        "order",
        "outer",
        "parent",
        "parent_ended",
        "size",
        "span",
        "tools",
    )

    def __init__(self, span: Span, order: int = 0) -> None:
        operation, dialect = operation_of(span)
        self.span = span
        self.order = order
        self.operation = operation
        self.dialect = dialect
        self.call: ToolCall | None = read_tool(span, dialect) if operation is _TOOL and dialect is not None else None
        self.parent: Node | None = None
        self.parent_ended: int | None = None
        self.lost = False
        self.size = 0
        self.children = _NONE
        self.below = 0  # Below.NOTHING
        self.latest = 0
        self.tools: tuple[Nested, ...] = ()
        self.inner = _NONE
        self.outer: Node | None = None
        self._offered: ToolList | None = None
        self._offered_read = False
        self._proposals: tuple[Proposal, ...] | None = None
        self._consumed: tuple[tuple[Proposal, ...], tuple[Result, ...]] | None = None

    def add_child(self, child: Node) -> None:
        """Put a span below this one."""
        child.parent = self
        if self.children is _NONE:
            self.children = []
        self.children.append(child)

    def add_view(self, view: Node) -> None:
        """Note that a span shows the same call."""
        view.outer = self
        if self.inner is _NONE:
            self.inner = []
        self.inner.append(view)

    @property
    def when(self) -> tuple[int, int]:
        """Start time, then order of arrival."""
        return (self.span.start_ns or 0, self.order)

    @property
    def failed(self) -> bool:
        """Whether the span itself says that it failed (control flow excepted)."""
        if self.call is not None:
            return bool(self.call.failure) and self.call.paused is None
        span = self.span
        return span.status == _ERROR or "error.type" in span.attributes

    def proposals(self) -> tuple[Proposal, ...]:
        """The calls that this inference proposed."""
        if self._proposals is None:
            self._proposals = proposals(self._inference()) if self.operation is _INFERENCE else ()
        return self._proposals

    def consumed(self) -> tuple[tuple[Proposal, ...], tuple[Result, ...]]:
        """The proposals and results that this inference read."""
        if self._consumed is None:
            self._consumed = consumed(self._inference()) if self.operation is _INFERENCE else ((), ())
        return self._consumed

    def reads_nothing_of_note(self) -> None:
        """Spare the parsing of what this inference read, where a look at the text has shown that it tells nothing."""
        self._consumed = ((), ())

    def offered(self, is_cut: Callable[[str], bool]) -> ToolList | None:
        """The tools that this span says were on offer, or None if it records none."""
        if not self._offered_read:
            self._offered_read = True
            if self.dialect is not None:
                self._offered = tools_on_offer(self.span, self.dialect, is_cut)
        return self._offered

    def mentions(self, tool: str) -> bool:
        """Whether a recorded tool list has the name in it, read as plain text: then it need not be parsed."""
        attributes = self.span.attributes
        quoted = f'"{tool}"'
        return self.dialect is not None and any(
            quoted in value for key in self.dialect.definitions if isinstance(value := attributes.get(key), str)
        )

    def _inference(self) -> Inference:
        assert self.dialect is not None
        return Inference(self.span, self.dialect)

    def ancestors(self) -> Iterator[Node]:
        """From the parent up to the root; ends where a cycle closes."""
        node = self.parent
        if node is None:
            return
        seen = {id(self)}
        while node is not None and id(node) not in seen:
            seen.add(id(node))
            yield node
            node = node.parent

    def tool(self) -> str | None:
        """The tool's name, as the outermost view has it that has one."""
        for view in self.views():
            if view.call is not None and view.call.tool:
                return view.call.tool
        return None

    def depth(self) -> int:
        """How many spans stand above it."""
        return sum([1 for _ in self.ancestors()])

    def views(self) -> list[Node]:
        """This node and every inner span that shows the same call, outermost first."""
        if self.inner is _NONE:
            return [self]
        found, index = [self], 0
        while index < len(found):
            found.extend(found[index].inner)
            index += 1
        return found


def may_name_conversation(node: Node) -> bool:
    """Whether a span has an attribute in which some dialect names conversations."""
    return not CONVERSATION_KEYS.isdisjoint(node.span.attributes)


def gather(node: Node, children: Iterable[Node]) -> None:
    """Take over what ended below a node."""
    below, latest = 0, 0
    tools: list[Nested] = []
    for child in children:
        passed, until, nested = passes_up(child)
        below |= passed
        if until > latest:
            latest = until
        if nested:
            tools.extend(nested)
    node.below = below
    node.latest = latest
    if tools or node.tools:
        node.tools = tuple(tools)


_OPEN = 2**63
# Reading a member of an enum class costs more than reading a global, and these are compared with on every span.
_TOOL, _INFERENCE, _AGENT, _MCP = Operation.TOOL, Operation.INFERENCE, Operation.AGENT, Operation.MCP
_MCP_CLIENT = View.MCP_CLIENT
_ERROR = int(StatusCode.ERROR)
_OUTWARD = frozenset({int(SpanKind.CLIENT), int(SpanKind.PRODUCER)})


def passes_up(node: Node) -> tuple[int, int, tuple[Nested, ...]]:
    """What one span tells its parent: what stands there, until when, and which tool spans."""
    span, operation = node.span, node.operation
    if operation is _TOOL:
        return Below.NOTHING, 0, (Nested(node, False),)
    if operation is _MCP and is_transport(span.attributes):
        return Below.NOTHING, 0, node.tools
    until = max(span.end_ns if span.end_ns is not None else _OPEN, node.latest)
    if operation is _INFERENCE or operation is _AGENT:
        crossed = tuple([Nested(tool, True) for tool, _ in node.tools]) if node.tools else ()
        return node.below | Below.MODEL, until, crossed
    if span.kind in _OUTWARD and operation is not _MCP:
        return node.below | Below.OUTSIDE, until, node.tools
    return node.below | Below.OTHER, until, node.tools


def is_transport(attributes: Mapping[str, Any]) -> bool:
    """Whether an MCP request does no more than set up or look around; others may do something, and ask people or models."""
    return str(attributes.get("mcp.method.name", "tools/list")) in _TRANSPORT


def body_evidence(node: Node) -> tuple[int, int]:
    """What a tool span's own body did. Below an MCP client's span stands transport, which is none of it."""
    if node.call is not None and node.call.view is _MCP_CLIENT:
        return Below.NOTHING, 0
    return node.below, node.latest
