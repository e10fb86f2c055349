# SPDX-License-Identifier: Apache-2.0
"""Who called whom: the span tree of one trace, with every operation once, however many spans show it.

No time is looked at, and nothing recurses. Where spans are each other's parents the circle is cut above the smallest id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from genai_processor.replay.records import Operation
from genai_processor.replay.shown import Link, Shown, Stands
from genai_processor.retry.policy import same_tool
from genai_processor.spans.records import View

_NODE, _AGENT, _STEP = Stands.NODE, Stands.AGENT, Stands.STEP
_TOOL, _INFERENCE = Operation.TOOL, Operation.INFERENCE
_SERVER = View.MCP_SERVER


class Draft:
    """A node or a container while the graph is built.

    Attributes:
        shown: What its outermost span says.
        key: Its key.
        witnesses: What the other spans say that show it, sorted by span id.
        scope: The agent or composite tool in which its ids are looked up, or None for the trace.
        above: The container or composite tool directly around it, or None.
        agent_name: The name of the innermost named agent around it.
        composite: An agent or an inference is inside of it.
        conflicting: Copies of one of its spans differ.
        conversation: The conversation that it is in, or None.
    """

    __slots__ = (
        "above",
        "agent_name",
        "composite",
        "conflicting",
        "conversation",
        "key",
        "parent",
        "scope",
        "shown",
        "witnesses",
    )

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.key = shown.key
        self.witnesses: list[Shown] = []
        self.parent: Draft | None = None
        self.scope: Draft | None = None
        self.above: Draft | None = None
        self.agent_name: str | None = None
        self.composite = False
        self.conflicting = False
        self.conversation: str | None = None


class Tree:
    """The nodes and containers of one trace.

    Attributes:
        trace_id: The trace.
        nodes: Its nodes.
        holders: Its containers and composite tools, outer ones before inner ones.
        by_span: The node or container of every span that shows one.
        conversation: The one conversation that its spans name, or None.
    """

    __slots__ = ("by_span", "conversation", "holders", "nodes", "trace_id")

    def __init__(self, trace_id: str, spans: Sequence[Shown], conflicting: Iterable[str] = ()) -> None:
        self.trace_id = trace_id
        self.nodes: list[Draft] = []
        self.holders: list[Draft] = []
        self.by_span: dict[str, Draft] = {}
        drafts: dict[str, Draft] = {shown.span_id: Draft(shown) for shown in spans}
        children: dict[str, list[Draft]] = {}
        roots: list[Draft] = []
        for draft in drafts.values():
            parent_id = draft.shown.parent_id
            if parent_id is not None and parent_id in drafts and parent_id != draft.shown.span_id:
                children.setdefault(parent_id, []).append(draft)
            else:
                roots.append(draft)
        bad = set(conflicting)
        order: list[Draft] = []
        if not children:
            order = roots
        else:
            self._walk(roots, children, order)
            if len(order) < len(drafts):
                seen = set(map(id, order))
                for span_id in sorted(drafts):
                    if id(drafts[span_id]) not in seen:
                        before = len(order)
                        self._walk([drafts[span_id]], children, order, seen)
                        seen.update(map(id, order[before:]))
        merged = self._merge(order) if len(order) > 1 else {}
        for draft in order:
            if draft.shown.span_id in bad:
                merged.get(id(draft), draft).conflicting = True
        self._place(order, merged, children)
        names = {shown.conversation for shown in spans if shown.conversation is not None}
        self.conversation = next(iter(names)) if len(names) == 1 else None
        self._name_conversations(bool(names))

    @staticmethod
    def _walk(
        roots: list[Draft], children: dict[str, list[Draft]], order: list[Draft], seen: set[int] | None = None
    ) -> None:
        """Parents before children."""
        stack = list(roots)
        mine = set(map(id, roots)) if seen is not None else None
        while stack:
            draft = stack.pop()
            order.append(draft)
            below = children.get(draft.shown.span_id)
            if below is not None:
                for child in below:
                    if mine is not None:
                        assert seen is not None
                        if id(child) in mine or id(child) in seen:
                            continue
                        mine.add(id(child))
                    child.parent = draft
                    stack.append(child)

    @staticmethod
    def _merge(order: list[Draft]) -> dict[int, Draft]:
        """Find which spans show the operation of another span; maps them to it."""
        pairs = _nested_views(order, frozenset())
        frames: dict[int, int] = {}
        for inner, outer in pairs:
            if inner.shown.view is View.FRAMEWORK:
                frames[id(outer)] = frames.get(id(outer), 0) + 1
        # A framework's own spans show a call once: of two below a third, which is the same call nobody can tell.
        several = frozenset([outer for outer, count in frames.items() if count > 1])
        if several:
            pairs = _nested_views(order, several)
        merged = {id(inner): outer for inner, outer in pairs}
        pairs.extend(_served(order, merged, {id(outer) for inner, outer in pairs if inner.shown.view is _SERVER}))
        for inner, outer in pairs:
            merged[id(inner)] = outer
            outer.witnesses.append(inner.shown)
        return merged

    def _place(self, order: list[Draft], merged: dict[int, Draft], children: Mapping[str, list[Draft]]) -> None:
        """Find what stands around each node, and which tools have agents or inferences inside."""
        passed: set[int] = set()
        for draft in order:
            shown = draft.shown
            if shown.stands is _AGENT or shown.operation is _INFERENCE:
                above = draft.parent
                while above is not None and id(above) not in passed:
                    passed.add(id(above))
                    if above.shown.operation is _TOOL:
                        merged.get(id(above), above).composite = True
                    above = above.parent
        around: dict[int, tuple[Draft | None, Draft | None, str | None]] = {}
        none: tuple[Draft | None, Draft | None, str | None] = (None, None, None)
        for draft in order:
            shown = draft.shown
            scope, above, name = around.get(id(draft.parent), none) if draft.parent is not None else none
            outer = merged.get(id(draft))
            if outer is not None:
                self.by_span[shown.span_id] = outer
                around[id(draft)] = (
                    around.get(id(outer), (scope, above, name)) if outer is not draft else (scope, above, name)
                )
                continue
            draft.scope, draft.above, draft.agent_name = scope, above, shown.agent_name or name
            stands = shown.stands
            if stands is _NODE:
                self.nodes.append(draft)
                self.by_span[shown.span_id] = draft
                if draft.composite:
                    scope = above = draft
                    self.holders.append(draft)
            elif stands is _AGENT or stands is _STEP:
                self.holders.append(draft)
                self.by_span[shown.span_id] = draft
                above = draft
                if stands is _AGENT:
                    scope, name = draft, shown.agent_name or name
            if shown.span_id in children or draft.witnesses:
                around[id(draft)] = (scope, above, name)
        for draft in self.nodes:
            if draft.witnesses:
                draft.witnesses.sort(key=lambda shown: shown.span_id)

    def _name_conversations(self, named: bool) -> None:
        """Give each node the conversation of its trace, or the one that it or the innermost container around it names."""
        if self.conversation is not None or not named:
            for draft in self.nodes:
                draft.conversation = self.conversation
            return
        for draft in (*self.holders, *self.nodes):
            around = draft.above.conversation if draft.above is not None else None
            draft.conversation = draft.shown.conversation or around


def _nested_views(order: list[Draft], several: frozenset[int]) -> list[tuple[Draft, Draft]]:
    """Spans inside of another one that shows the same operation, each with that one.

    Args:
        order: The spans, parents first.
        several: Tool spans below which several others may each be a call of its own.
    """
    pairs: list[tuple[Draft, Draft]] = []
    above: dict[int, Draft] = {}  # the tool or inference around, with no other operation or agent in between
    for draft in order:
        shown = draft.shown
        parent = draft.parent
        around = above.get(id(parent)) if parent is not None else None
        operation = shown.operation
        if operation is not None:
            if around is not None and around.shown.operation is operation and operation in _NESTED:
                same = operation is _INFERENCE or (
                    _same_call(around, draft) and not (id(around) in several and shown.view is View.FRAMEWORK)
                )
                if same:
                    pairs.append((draft, around))
                else:
                    around = draft
            else:
                around = draft
        elif shown.stands is _AGENT:
            around = None
        if around is not None:
            above[id(draft)] = around
    return pairs


_NESTED = frozenset({_TOOL, _INFERENCE})


def _served(order: list[Draft], merged: dict[int, Draft], served: set[int]) -> list[tuple[Draft, Draft]]:
    """A server's span beside the client's span of the same call, each the only one that fits the other."""
    servers: dict[str, list[Draft]] = {}
    for draft in order:
        shown = draft.shown
        if shown.view is _SERVER and shown.operation is _TOOL and id(draft) not in merged:
            servers.setdefault(shown.tool or "", []).append(draft)
    if not servers:
        return []
    clients: dict[str, list[Draft]] = {}
    for draft in order:
        shown = draft.shown
        if shown.operation is _TOOL and shown.view is not _SERVER and not (id(draft) in merged or id(draft) in served):
            clients.setdefault(shown.tool or "", []).append(draft)
    pairs = []
    for tool, mine in servers.items():
        theirs = clients.get(tool, [])
        if len(mine) == 1 and len(theirs) == 1:
            pairs.append((mine[0], theirs[0]))
    return pairs


def _same_call(outer: Draft, inner: Draft) -> bool:
    one, other = outer.shown.tool, inner.shown.tool
    if inner.shown.view is not View.FRAMEWORK:
        return other is None or same_tool(one, other)
    # `shop-refund` is `refund` of a plugin; `check_refund` may be another tool, which calls `refund`.
    return same_tool(one, other) and (one == other or not (one or "").removesuffix(other or "").endswith("_"))


def composite_around(scope: Draft | None, known: dict[int, Draft | None]) -> Draft | None:
    """The innermost composite tool that a scope is, or is inside of.

    Args:
        scope: The scope.
        known: What was found so far, to be given again.
    """
    path: list[Draft] = []
    while scope is not None and not scope.composite:
        if id(scope) in known:
            scope = known[id(scope)]
            break
        path.append(scope)
        scope = scope.scope
    for passed in path:
        known[id(passed)] = scope
    return scope


def link_target(trees: Mapping[str, Tree], link: Link) -> Draft | None:
    """What a link points at, or None if its span is not there or stands for nothing."""
    tree = trees.get(link.trace_id)
    return tree.by_span.get(link.span_id) if tree is not None else None
