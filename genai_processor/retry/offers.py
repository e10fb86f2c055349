# SPDX-License-Identifier: Apache-2.0
"""Which tools were on offer where a call was proposed, and with which schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from genai_processor.retry.joins import Joined
from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import same_tool
from genai_processor.retry.trace import Trace
from genai_processor.spans.definitions import ToolList
from genai_processor.spans.read import own_schema
from genai_processor.spans.records import Operation, SpanKind, View

_UNREAD: Final = object()
_AGENT: Final = Operation.AGENT  # reading a member of an enum class costs more than reading a global
_OFFERING: Final = (Operation.INFERENCE, Operation.AGENT)  # a set would hash members, in Python


_SOMETHING: Final = ToolList({}, False)
"""What a turn had on offer that does not record it."""


class Offers:
    """The tool lists that bear on one call. Each is read once, and only if somebody asks.

    Args:
        call: The outermost span of the call.
        trace: Its trace.
        joined: The proposal behind the call.
        declared: The schemas with which agents, in other traces, were given a tool of some name.
    """

    def __init__(
        self,
        call: Node,
        trace: Trace,
        joined: Callable[[Node], Joined | None],
        declared: Callable[[str], list[Any]],
    ) -> None:
        self._call = call
        self._trace = trace
        self._joined = joined
        self._declared = declared
        self._lists: list[ToolList] | None = None
        self._schema: Any = _UNREAD

    @property
    def _tool(self) -> str | None:
        return self._call.call.tool if self._call.call is not None else None

    @property
    def lists(self) -> list[ToolList]:
        """The lists that the model had: its turn's, else its nearest agent's with that agent's inferences."""
        if self._lists is None:
            self._lists = list(self._find()) if len(self._trace.nodes) > 1 else []
        return self._lists

    @property
    def schema(self) -> Any:
        """The tool's JSON schema, from its own spans or from a list, or None."""
        if self._schema is _UNREAD:
            self._schema = self._find_schema()
        return self._schema

    def _find_schema(self) -> Any:
        for view in self._call.views():
            schema = own_schema(view.call) if view.call is not None else None
            if schema is not None:
                return schema
        tool = self._tool
        lists = self.lists if tool is not None else []
        if tool is None or not lists:
            return None
        exact = [offered.schemas[tool] for offered in lists if tool in offered.schemas]
        if exact:
            return _only(exact)
        return _only([schema for offered in lists for name, schema in offered.schemas.items() if same_tool(name, tool)])

    @property
    def declared(self) -> list[Any]:
        """The schemas with which agents, in other traces, were given this tool."""
        return self._declared(self._tool) if self._tool is not None else []

    @property
    def served(self) -> list[ToolList]:
        """The server's own list, where the trace shows one session only: another server's list proves nothing."""
        sessions = self._trace.once("sessions", self._sessions)
        if len(sessions) == 1 and sessions[0].span.parent_span_id == self._call.span.parent_span_id:
            return list(self._listed())
        return []

    def _sessions(self) -> list[Node]:
        return [
            node
            for node in self._trace.nodes
            if node.operation is Operation.MCP
            and (node.parent is None or node.parent.operation is not Operation.MCP)
            and ("initialize" in node.span.name or "server/discover" in node.span.name)
            and node.span.kind != SpanKind.SERVER
        ]

    def mention(self, tool: str) -> bool:
        """Whether any list of the trace has the name in it, as plain text. Cheaper than reading the list."""
        return self._trace.once(
            ("mentions", tool),
            lambda: any(node.mentions(tool) for node in self._trace.nodes if node.operation in _OFFERING),
        )

    def _find(self) -> Iterator[ToolList]:
        joined = self._joined(self._call)
        if joined is not None and joined.turn is not None:
            found = self._offered(joined.turn)
            if found is not None:
                yield found
                return
        agent = _agent_above(self._call)
        key = ("offered near", id(agent), self._call.span.parent_span_id if agent is None else None)
        for when, offered in self._trace.once(key, lambda: self._distinct((agent, *self._near(agent)))):
            if when <= self._call.when:  # a later turn proposed nothing that ran before
                yield offered
        if (agent is None or self._offered(agent) is None) and self._has_gap(agent, joined):
            yield _SOMETHING
        if self._call.call is not None and self._call.call.view is not View.FRAMEWORK:
            yield from self._listed()

    def _has_gap(self, agent: Node | None, joined: Joined | None) -> bool:
        """Whether a turn that may have proposed the call records no list: then the others' lists are not all."""
        if joined is not None and joined.turn is not None:
            return True
        key = ("unlisted near", id(agent), self._call.span.parent_span_id if agent is None else None)
        first = self._trace.once(key, lambda: self._first_without_list(agent))
        return first is not None and first <= self._call.when

    def _first_without_list(self, agent: Node | None) -> tuple[int, int] | None:
        return min((turn.when for turn in self._near(agent) if self._offered(turn) is None), default=None)

    def _distinct(self, nodes: Iterable[Node | None]) -> list[tuple[tuple[int, int], ToolList]]:
        """What the spans say was on offer and since when, each list once: an agent's inferences mostly repeat one."""
        since: dict[int, tuple[tuple[int, int], ToolList]] = {}
        for node in nodes:
            found = self._offered(node) if node is not None else None
            if node is not None and found is not None:
                known = since.get(id(found))
                since[id(found)] = (min(node.when, known[0]) if known is not None else node.when, found)
        return list(since.values())

    def _near(self, agent: Node | None) -> Iterator[Node]:
        """The inferences of an agent; while it is still open, those beside the call."""
        if agent is None:
            own = self._call.span.parent_span_id
            yield from (turn for turn in self._trace.turns() if turn.span.parent_span_id == own)
            return
        stack = list(agent.children)
        while stack:
            node = stack.pop()
            if node.operation is Operation.INFERENCE:
                yield node
            if node.operation not in (Operation.AGENT, Operation.TOOL):
                stack.extend(node.children)

    def _listed(self) -> list[ToolList]:
        return self._trace.once("listed", lambda: list(self._find_listed()))

    def _find_listed(self) -> Iterator[ToolList]:
        for node in self._trace.nodes:
            if node.operation is Operation.MCP and "tools/list" in node.span.name:
                found = self._offered(node)
                if found is not None:
                    yield found

    def _offered(self, node: Node) -> ToolList | None:
        return node.offered(self._trace.is_cut)


def _agent_above(call: Node) -> Node | None:
    for node in call.ancestors():
        if node.operation is _AGENT:
            return node
    return None


def _only(schemas: list[Any]) -> Any:
    """The one schema, unless there are several: which one was called, nobody can tell."""
    for schema in schemas[1:]:
        if schema != schemas[0]:
            return None
    return schemas[0] if schemas else None
