# SPDX-License-Identifier: Apache-2.0
"""Which spans show one and the same call: a framework's, its client's and its server's (docs/verdict.md)."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any

from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import same_tool
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
