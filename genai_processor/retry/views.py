# SPDX-License-Identifier: Apache-2.0
"""Which spans show one and the same call: a framework's, its client's and its server's (docs/verdict.md)."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import same_tool
from genai_processor.spans.arguments import fingerprint, read_arguments
from genai_processor.spans.records import View
from genai_processor.spans.values import same

_MAX_CLIENTS = 1_000


def merge_views(tools: list[Node]) -> None:
    """Give every span that shows the same call as a span above or beside it to that span (docs/verdict.md)."""
    for node in tools:
        if node.tools:
            adopt(node)
    if len(tools) < 2:
        return
    _join_servers(tools)
    _join_instrumentations(tools)


def _join_servers(tools: list[Node]) -> None:
    servers = [node for node in tools if node.outer is None and _is_view(node, View.MCP_SERVER)]
    if not servers:
        return
    clients = [
        node
        for node in tools
        if node.outer is None
        and _is_view(node, View.MCP_CLIENT, View.FRAMEWORK)
        and not any(_is_view(view, View.MCP_SERVER) for view in node.views())
    ]
    claims: list[tuple[Node, Node]] = []
    for server in servers:
        fitting = list(islice((node for node in clients[:_MAX_CLIENTS] if serves(server, node)), 2))
        if len(fitting) == 1:
            claims.append((server, fitting[0]))
    claimed = Counter(id(client) for _, client in claims)
    for server, client in claims:
        if claimed[id(client)] == 1:
            client.add_view(server)


def _join_instrumentations(tools: list[Node]) -> None:
    """Give what one instrumentation wrote of a call to what another one wrote beside it.

    One instrumentation writes one span of each execution, so that two of its own are never taken for one.
    """
    beside: dict[str | None, list[Node]] = {}
    for node in tools:
        if node.outer is None and _is_view(node, View.FRAMEWORK) and node.span.end_ns is not None:
            beside.setdefault(node.span.parent_span_id, []).append(node)
    for nodes in beside.values():
        if len({node.span.scope for node in nodes}) < 2:
            continue
        nodes = sorted(nodes, key=lambda node: (node.span.start_ns or 0, -(node.span.end_ns or 0)))
        for index, outer in enumerate(nodes):
            written = {outer.span.scope}
            for inner in nodes[index + 1 :] if outer.outer is None else ():
                if (inner.span.start_ns or 0) > (outer.span.end_ns or 0):
                    break
                if inner.outer is None and inner.span.scope not in written and _written_twice(outer, inner):
                    written.add(inner.span.scope)
                    outer.add_view(inner)


def _written_twice(outer: Node, inner: Node) -> bool:
    """Whether a span within the time of another tells of the same call: by its id, or without one by its arguments."""
    one, other = outer.call, inner.call
    assert one is not None
    assert other is not None
    if (inner.span.end_ns or 0) > (outer.span.end_ns or 0) or not same_tool(one.tool, other.tool):
        return False
    if one.call_id is not None and other.call_id is not None:
        return one.call_id == other.call_id
    if outer.span.parent_span_id is None:
        return False
    digests = [fingerprint(read_arguments(call.arguments, rendered=call.arguments_rendered)) for call in (one, other)]
    return digests[0] is not None and digests[0] == digests[1]


def adopt(node: Node) -> None:
    """Take over the tool spans below that show the same call.

    A framework's own spans show it once: of two below a third, at least one is a call of its own, and which nobody can tell.
    """
    found = [nested for nested, crossed in node.tools if not crossed and nested.outer is None and _same_call(node, nested)]
    inner = [nested for nested in found if _is_view(nested, View.FRAMEWORK)]
    for nested in found:
        if len(inner) < 2 or nested not in inner:
            node.add_view(nested)


def _is_view(node: Node, *views: View) -> bool:
    return node.call is not None and node.call.view in views


def _same_call(outer: Node, inner: Node) -> bool:
    assert outer.call is not None
    assert inner.call is not None
    one, other = outer.call.tool, inner.call.tool
    if inner.call.view is not View.FRAMEWORK:
        return other is None or same_tool(one, other)
    # `shop-refund` is `refund` of a plugin; `check_refund` may be another tool, which calls `refund`.
    return same_tool(one, other) and (one == other or not (one or "").removesuffix(other or "").endswith("_"))


def serves(server: Node, client: Node) -> bool:
    """Whether a SERVER span shows a call that a span beside it shows from the client's side."""
    one, two = server.call, client.call
    assert one is not None
    assert two is not None
    if not same_tool(one.tool, two.tool) or _contradict(one.arguments, two.arguments):
        return False
    started, begin, end = server.span.start_ns or 0, client.span.start_ns or 0, client.span.end_ns
    return begin <= started and (end is None or started <= end)


def _contradict(one: Any, other: Any) -> bool:
    return one is not None and other is not None and not same(one, other)
