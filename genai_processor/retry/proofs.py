# SPDX-License-Identifier: Apache-2.0
"""Positive proof that a body began, or that it never did (VERDICT, section 2). Everything else is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from genai_processor.retry.joins import Joined
from genai_processor.retry.nodes import BODY_RAN, Below, Node, body_evidence
from genai_processor.retry.policy import Policy, same_tool
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import Ended, Execution, Reason
from genai_processor.spans.arguments import Arguments, ArgumentsState, Violation, violations
from genai_processor.spans.definitions import ToolList
from genai_processor.spans.read import own_schema, tools_on_offer
from genai_processor.spans.records import Operation, SpanKind, View


class Proof(NamedTuple):
    """What is proven of a call's execution.

    Attributes:
        execution: Started, not started, or unknown.
        rejection: Why it did not start, for `NOT_STARTED`.
        outside: Something below reached the outside.
        evidence: What it rests on.
    """

    execution: Execution
    rejection: Reason | None = None
    outside: bool = False
    evidence: tuple[str, ...] = ()


def started(call: Node, execution_of: Callable[[Node], Execution], paused: Callable[[Node], bool]) -> Proof:
    """What the spans below a call prove, over all its views.

    Args:
        call: The outermost span of the call.
        execution_of: What is proven of a nested call.
        paused: Whether a nested call is one that paused before anything.
    """
    views = call.views()
    shown = set(map(id, views))
    evidence: list[str] = []
    began = outside = other = False
    for view in views:
        below, latest = body_evidence(view)
        if below & Below.OUTSIDE:
            outside = began = True
            evidence.append("a CLIENT or PRODUCER span below it")
        if below & Below.MODEL:
            began = True
            evidence.append("an inference or agent below it")
        end = view.span.end_ns
        if below and end is not None and latest > end:
            began = True
            evidence.append("a span below it ended later or is open")
        other = other or bool(below & ~BODY_RAN)
        for nested, crossed in view.tools:
            if id(nested) in shown:
                continue
            other = True
            if execution_of(nested) is not Execution.NOT_STARTED and not (not crossed and paused(nested)):
                began = True
                evidence.append("a nested tool call")
                outside = outside or not paused(nested)
    if began:
        return Proof(Execution.STARTED, outside=outside, evidence=tuple(dict.fromkeys(evidence)))
    return Proof(Execution.UNKNOWN, evidence=("some span below it",) if other else ())


class Context(NamedTuple):
    """What a proof of "never started" may look at.

    Attributes:
        trace: The trace.
        policy: What the user declared.
        joined: The proposal behind the call, asked for only when needed.
        arguments: The call's arguments, wherever they were found.
        ended_well: The tools of which some call on this trace ended well: those exist.
        declared: The schemas with which agents, in other traces, were given a tool of some name.
    """

    trace: Trace
    policy: Policy
    joined: Callable[[], Joined | None]
    arguments: Arguments
    ended_well: Callable[[], Iterable[str]]
    declared: Callable[[str], list[Any]]


def never_started(call: Node, ended: Ended, context: Context) -> Proof | None:
    """Proof that the body never began, or None. Only asked where nothing below voids it."""
    views = call.views()
    for view in views:
        if view.call is not None and view.call.not_started is not None:
            reason, evidence = view.call.not_started
            return Proof(Execution.NOT_STARTED, Reason(reason), evidence=(evidence,))
    if ended is not Ended.FAILED or context.trace.partial or any(view.span.dropped_attributes for view in views):
        return None
    return _rejected_arguments(call, context) or _no_such_tool(call, context)


# -- arguments that this runtime rejects ---------------------------------------------------------------------------


def wrong_with(call: Node, context: Context) -> frozenset[Violation]:
    """What is wrong with the arguments, by themselves or by the tool's recorded schema."""
    arguments = context.arguments
    if arguments.state is ArgumentsState.MALFORMED:
        return arguments.violations
    if arguments.state is not ArgumentsState.COMPLETE:
        return frozenset()
    schema = schema_of(call, context)
    if schema is not None:
        return violations(arguments.value, schema)
    tool = call.call.tool if call.call is not None else None
    declared = [violations(arguments.value, schema) for schema in (context.declared(tool) if tool else ())]
    return frozenset.intersection(*declared) if declared else frozenset()


def schema_of(call: Node, context: Context) -> Any:
    """The tool's JSON schema: on its own spans, in the turn's definitions, in the agent's, in a server's list."""
    for view in call.views():
        if view.call is not None:
            schema = own_schema(view.call)
            if schema is not None:
                return schema
    tool = call.call.tool if call.call is not None else None
    for offered in _offers(call, context):
        for name, schema in offered.schemas.items():
            if schema is not None and same_tool(name, tool):
                return schema
    return None


def _rejected_arguments(call: Node, context: Context) -> Proof | None:
    for view, kinds in _checkers(call, context):
        assert view.call is not None
        shown = {name.rpartition(".")[2] for name in view.call.error_types} or {""}
        for violation in kinds:
            shows = view.call.dialect.runtime.rejects.get(violation)
            if shows is not None and shown <= shows and _sound(violation, call, context):
                if violation in wrong_with(call, context):
                    evidence = f"{view.call.dialect.name} rejects arguments with a {violation} violation before it calls"
                    return Proof(Execution.NOT_STARTED, Reason.MALFORMED_ARGUMENTS, evidence=(evidence,))
    return None


def _checkers(call: Node, context: Context) -> Iterable[tuple[Node, tuple[Violation, ...]]]:
    """Which views check which violations: a framework its own tools, an MCP server the types of what it serves."""
    views = call.views()
    servers = [view for view in views if view.call is not None and view.call.view is View.MCP_SERVER]
    served = any(view.call is not None and view.call.view is not View.FRAMEWORK for view in views)
    if not served and call.call is not None and call.call.tool is not None:
        served = any(same_tool(call.call.tool, name) for name in context.trace.server_lists())
    for view in views:
        if view.call is not None and view.call.view is View.FRAMEWORK:
            yield view, (Violation.JSON,) if served else tuple(Violation)
    for view in servers:
        yield view, (Violation.REQUIRED, Violation.TYPES)
    if not servers:
        # One client-side span that the instrumentation writes from the server's answer (OpenLLMetry, logfire).
        for view in views:
            if view.call is not None and view.call.view is View.MCP_CLIENT and view.call.arguments is not None:
                yield view, (Violation.REQUIRED, Violation.TYPES)


def _sound(violation: Violation, call: Node, context: Context) -> bool:
    """Text that does not parse is the model's only if telemetry cannot have cut it.

    The limit may be unknown. A text that is the longest value of its trace may be the one value that reached it.
    """
    if violation is not Violation.JSON or context.trace.length_limit is not None:
        return True
    raw = next((view.call.arguments for view in call.views() if view.call and isinstance(view.call.arguments, str)), None)
    return raw is None or len(raw) < context.trace.longest_value()


# -- a tool that does not exist ------------------------------------------------------------------------------------


def _no_such_tool(call: Node, context: Context) -> Proof | None:
    tool = call.call.tool if call.call is not None else None
    if tool is None or context.trace.is_cut(tool):
        return None
    if context.policy.exists(tool) is False and not any(_declared(context.policy, name) for name in _suffixes(tool)):
        return Proof(Execution.NOT_STARTED, Reason.UNKNOWN_TOOL, evidence=("not among the declared tools",))
    offers = list(_offers(call, context))
    if any(view.call is not None and view.call.view is not View.FRAMEWORK for view in call.views()):
        if call.call is None or call.call.view is View.FRAMEWORK:
            return None  # whatever the framework dispatched to a server was on its list
        offers = list(_served(call, context.trace))
    if not offers or not all(offered.whole for offered in offers):
        return None
    if any(same_tool(name, tool) for offered in offers for name in offered.schemas):
        return None
    if any(same_tool(name, tool) for name in context.ended_well()):
        return None
    return Proof(Execution.NOT_STARTED, Reason.UNKNOWN_TOOL, evidence=("not among the tools that the model was given",))


def _declared(policy: Policy, name: str) -> bool:
    return policy.exists(name) is True


def _suffixes(tool: str) -> Iterable[str]:
    return (tool[index + 1 :] for index, char in enumerate(tool) if not char.isalnum() and index + 1 < len(tool))


def _offers(call: Node, context: Context) -> Iterable[ToolList]:
    """The tool lists that bear on a call: its turn's, else its nearest agent's with that agent's inferences."""
    trace = context.trace
    joined = context.joined()
    if joined is not None and joined.turn is not None:
        found = _offered(joined.turn, trace)
        if found is not None:
            yield found
            return
    agent = next((node for node in call.ancestors() if node.operation is Operation.AGENT), None)
    if agent is not None:
        found = _offered(agent, trace)
        if found is not None:
            yield found
        near = [node for node in _own(agent) if node.operation is Operation.INFERENCE]
    else:
        near = [turn for turn in trace.turns() if turn.parent is call.parent or turn.span.parent_span_id == call.span.parent_span_id]
    for turn in near:
        found = _offered(turn, trace)
        if found is not None:
            yield found
    if call.call is not None and call.call.view is not View.FRAMEWORK:
        yield from _lists(trace)


def _lists(trace: Trace) -> Iterable[ToolList]:
    for node in trace.nodes:
        if node.operation is Operation.MCP and "tools/list" in node.span.name:
            found = _offered(node, trace)
            if found is not None:
                yield found


def _served(call: Node, trace: Trace) -> Iterable[ToolList]:
    """The server's own list, where the trace shows one session only: another server's list proves nothing."""
    sessions = [
        node
        for node in trace.nodes
        if node.operation is Operation.MCP
        and (node.parent is None or node.parent.operation is not Operation.MCP)
        and ("initialize" in node.span.name or "server/discover" in node.span.name)
        and node.span.kind != SpanKind.SERVER
    ]
    if len(sessions) == 1 and sessions[0].span.parent_span_id == call.span.parent_span_id:
        yield from _lists(trace)


def _own(agent: Node) -> Iterable[Node]:
    """What stands below an agent and not below another agent or tool."""
    stack = list(agent.children)
    while stack:
        node = stack.pop()
        yield node
        if node.operation not in (Operation.AGENT, Operation.TOOL):
            stack.extend(node.children)


def _offered(node: Node, trace: Trace) -> ToolList | None:
    return tools_on_offer(node.span, node.dialect, trace.is_cut) if node.dialect is not None else None
