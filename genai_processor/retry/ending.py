# SPDX-License-Identifier: Apache-2.0
"""How a call ended: well, failed, paused, or nobody can tell (docs/verdict.md, "How a call ended")."""

from __future__ import annotations

from collections.abc import Callable

from genai_processor.retry.nodes import Node
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import Ended
from genai_processor.spans.read import PAUSES
from genai_processor.spans.records import Operation, SpanKind, ToolCall, View


def ended_of(
    call: Node, trace: Trace, result_failed: Callable[[str], bool], *, enclosing: bool = True
) -> tuple[Ended, tuple[str, ...]]:
    """How a call ended, over all its views, with the evidence.

    Args:
        call: The outermost span of the call.
        trace: Its trace.
        result_failed: Tells whether a later message says of a call id that its call failed.
        enclosing: Whether the spans above have ended too, so that they can say something.
    """
    found: dict[Ended, list[str]] = {}
    for view in call.views():
        assert view.call is not None
        ended, evidence = _view_ended(view.call, trace)
        if ended is Ended.FAILED and not call.inner:  # nothing else can be found of it
            return ended, tuple(dict.fromkeys(evidence))
        found.setdefault(ended, []).extend(evidence)
    if Ended.FAILED not in found and call.call is not None and call.call.call_id and result_failed(call.call.call_id):
        found.setdefault(Ended.FAILED, []).append("a later message says that it failed")
    if Ended.FAILED not in found and Ended.PAUSED not in found:
        doubt = _outlived_parent(call)
        if doubt is None and enclosing:
            doubt = _fell_with_its_parent(call, trace) or _never_served(call, trace)
        if doubt:
            found.setdefault(Ended.UNKNOWN, []).append(doubt)
    for ended in (Ended.FAILED, Ended.PAUSED, Ended.UNKNOWN):
        if ended in found:
            return ended, tuple(dict.fromkeys(found[ended]))
    return Ended.WELL, ()


def _view_ended(call: ToolCall, trace: Trace) -> tuple[Ended, tuple[str, ...]]:
    if call.paused is not None:
        if all(name in PAUSES for name in call.error_types):
            return Ended.PAUSED, (call.paused,)
        return Ended.FAILED, call.failure or (call.paused,)
    if call.failure:
        return Ended.FAILED, call.failure
    if call.span.end_ns is None:
        return Ended.UNKNOWN, ("no end time",)
    if call.ended is False and trace.records_any(call.dialect.end_mark_needs):
        return Ended.UNKNOWN, ("the mark of a normal end is missing",)
    return Ended.WELL, ()


def _outlived_parent(call: Node) -> str | None:
    """A cancelled call's span may end after the span that ran it."""
    if call.call is None or call.call.view is not View.FRAMEWORK or not call.call.dialect.ends_inside_parent:
        return None
    end, parent_end = call.span.end_ns, call.parent.span.end_ns if call.parent is not None else call.parent_ended
    if end is None or parent_end is None or (call.span.start_ns or 0) >= parent_end:
        return None  # one that began when its parent had ended was never run by that
    return "ended after its parent" if end > parent_end else None


def _fell_with_its_parent(call: Node, trace: Trace) -> str | None:
    """An enclosing span failed, nothing else in it did, and no inference or tool follows: this call may be why."""
    for blamed in call.ancestors():
        if blamed.failed and not _suspended(blamed):
            break
    else:
        return None
    failed, followers = trace.once(("inside", id(blamed)), lambda: _inside(blamed))
    own = {id(call), *map(id, call.ancestors())}
    if any(id(node) not in own for node in failed):
        return None
    end = call.span.end_ns or 0
    for node in followers:
        if (node.span.start_ns or 0) < end:
            break
        if id(node) not in own:
            return None
    return "an enclosing span failed and nothing else in it did"


def _inside(above: Node) -> tuple[list[Node], list[Node]]:
    """What failed below a span, and the inferences and tools below it, those that began last first."""
    failed, followers = [], []
    seen = {id(above)}
    stack = list(above.children)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.extend(node.children)
        if node.outer is None:
            if node.failed:
                failed.append(node)
            if node.operation in (Operation.INFERENCE, Operation.TOOL):
                followers.append(node)
    followers.sort(key=lambda node: node.span.start_ns or 0, reverse=True)
    return failed, followers


def _never_served(call: Node, trace: Trace) -> str | None:
    """A client's request without its server's span, where every other request of the trace has one: the server died."""
    if not call.inner and call.call is not None and call.call.view is not View.MCP_CLIENT:
        return None
    views = [view for view in call.views() if view.call is not None]
    if any(view.call.view is View.MCP_SERVER for view in views if view.call):
        return None
    client = next((view for view in reversed(views) if view.call and view.call.view is View.MCP_CLIENT), None)
    if client is None or any(child.span.kind == SpanKind.SERVER for child in client.children):
        return None
    kind, scope = client.span.kind, client.span.scope
    requests, served = trace.once(("requests", kind, scope), lambda: _requests(trace, kind, scope))
    others = requests - _is_request(client)
    if others and served == others:
        return "no server span, where the trace's other requests have one"
    return None


def _requests(trace: Trace, kind: int, scope: str) -> tuple[int, int]:
    """How many requests of a kind a trace has, and how many of them with a server's span."""
    requests = [node for node in trace.nodes if node.span.kind == kind and node.span.scope == scope and _is_request(node)]
    return len(requests), sum(any(child.span.kind == SpanKind.SERVER for child in node.children) for node in requests)


def _is_request(node: Node) -> bool:
    method = node.span.attributes.get("mcp.method.name")
    return "mcp.method.name" in node.span.attributes and not str(method).startswith("notifications/")


def _suspended(node: Node) -> bool:
    """Whether a failed enclosing span only passed a pause on."""
    types = [str(event.attributes.get("exception.type")) for event in node.span.events if event.name == "exception"]
    error = node.span.attributes.get("error.type")
    if error is not None:
        types.append(str(error))
    return bool(types) and all(name in PAUSES for name in types)
