# SPDX-License-Identifier: Apache-2.0
"""Positive proof that a body never began (docs/verdict.md). Everything else is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from genai_processor.retry.nodes import Node
from genai_processor.retry.offers import Offers
from genai_processor.retry.policy import Policy, same_tool
from genai_processor.retry.proof_of_start import Proof
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import Ended, Execution, Reason
from genai_processor.spans.arguments import Arguments, ArgumentsState, Violation, violations
from genai_processor.spans.records import ToolCall, View
from genai_processor.spans.runtimes import UNSPECIFIC, UNTYPED, Runtime
from genai_processor.spans.values import has_marker, is_withheld


class Context(NamedTuple):
    """What a proof of "never started" may look at.

    Attributes:
        trace: The trace.
        policy: What the user declared.
        arguments: The call's arguments, wherever they were found.
        offers: The tools that were on offer where the call was proposed.
        exists: Whether some call of that tool ended well here: then there is such a tool.
    """

    trace: Trace
    policy: Policy
    arguments: Arguments
    offers: Offers
    exists: Callable[[str], bool]


class Ground(NamedTuple):
    """One ground on which a call is proven never to have started.

    Attributes:
        may_apply: Whether it can apply to a call with such a view. Cheap, because for most calls none can.
        prove: The proof, or None.
        failed_only: It needs the whole record of a call that failed.
    """

    may_apply: Callable[[ToolCall, Policy], bool]
    prove: Callable[[Node, Context], Proof | None]
    failed_only: bool = True


def grounds_of(call: Node, policy: Policy) -> list[Ground]:
    """The grounds that can apply; where there are none, nothing that a proof would look at need be found out."""
    records = [view.call for view in call.views() if view.call is not None]
    found = []
    for ground in GROUNDS:
        for record in records:
            if ground.may_apply(record, policy):
                found.append(ground)
                break
    return found


def never_started(call: Node, ended: Ended, context: Context, grounds: Iterable[Ground]) -> Proof | None:
    """Proof that the body never began, or None. Only asked where nothing below voids it.

    Args:
        call: The call.
        ended: How it ended.
        context: What a proof may look at.
        grounds: What `grounds_of` gives for it.
    """
    trace = context.trace
    if trace.damaged:
        return None
    whole = ended is Ended.FAILED and not trace.partial
    if whole:
        for view in call.views():
            whole = whole and not (view.span.dropped_attributes or view.span.dropped_events)
    for ground in grounds:
        if whole or not ground.failed_only:
            proof = ground.prove(call, context)
            if proof is not None:
                return proof
    return None


def _every_way(views: list[Node], proof_of: Callable[[Node], Proof | None]) -> Proof | None:
    """The proof that holds for every way which a call took, or None.

    A span below which the call is shown once more may leave it to that span to tell. Where it branches, because a session
    sent it twice, say, each branch has to tell: one request may have been refused, and the other carried out. What a
    framework says of a call is no proof where a request of it went out all the same. Of two instrumentations' spans beside
    each other, both have to tell.

    Args:
        views: All views of the call, outermost first.
        proof_of: What one view proves by itself.
    """
    if len(views) == 1:
        return proof_of(views[0])
    proven: dict[int, Proof | None] = {}
    for view in reversed(views):
        below = [proven[id(inner)] for inner in view.inner]
        found = below[0] if below and all(below) else None
        if any(_beside(view, inner) for inner in view.inner):
            found = found and proof_of(view)
        elif found is None and (not below or (len(below) == 1 and _same_side(view, view.inner[0]))):
            found = proof_of(view)
        proven[id(view)] = found
    return proven[id(views[0])]


def _beside(view: Node, inner: Node) -> bool:
    return _same_side(view, inner) and view.span.parent_span_id == inner.span.parent_span_id


def _same_side(view: Node, inner: Node) -> bool:
    return view.call is not None and inner.call is not None and view.call.view is inner.call.view


# -- a framework's own mark ----------------------------------------------------------------------------------------


def _has_mark(record: ToolCall, policy: Policy) -> bool:
    return record.not_started is not None


def _marked_everywhere(call: Node, context: Context) -> Proof | None:
    return _every_way(call.views(), lambda view: _marked(view, context))


def _marked(view: Node, context: Context) -> Proof | None:
    mark = view.call.not_started if view.call is not None else None
    if mark is None:
        return None
    if mark.if_nothing_below and (context.trace.partial or not wrong_with(context.arguments, context.offers)):
        return None  # a nested run that is not traced raises the same type
    return Proof(Execution.NOT_STARTED, Reason(mark.reason), evidence=(mark.evidence,))


# -- arguments that this runtime rejects ---------------------------------------------------------------------------


def wrong_with(arguments: Arguments, offers: Offers) -> frozenset[Violation]:
    """What is wrong with arguments, by themselves or by the tool's recorded schema."""
    if arguments.state is ArgumentsState.MALFORMED:
        return arguments.violations
    if arguments.state is not ArgumentsState.COMPLETE:
        return frozenset()
    schema = offers.schema
    if schema is not None:
        return violations(arguments.value, schema)
    declared = [violations(arguments.value, schema) for schema in offers.declared]
    return frozenset.intersection(*declared) if declared else frozenset()


def _rejects(record: ToolCall, policy: Policy) -> bool:
    return bool(record.dialect.runtime.rejects)


def _rejected_everywhere(call: Node, context: Context) -> Proof | None:
    return _every_way(call.views(), lambda view: _marked(view, context) or _rejected_arguments(view, call, context))


def _rejected_arguments(view: Node, call: Node, context: Context) -> Proof | None:
    assert view.call is not None
    runtime = view.call.dialect.runtime
    shown = set(view.call.error_types) or {UNTYPED}
    rejects = {kind for kind, shows in runtime.rejects.items() if shown <= shows}
    if not rejects:
        return None
    wrong = wrong_with(context.arguments, context.offers) & rejects & _checked_by(view, call, context)
    for violation in sorted(wrong):
        if _sound(violation, call, context) and (
            violation is Violation.JSON or not shown <= UNSPECIFIC or _validated(runtime, context.offers.schema)
        ):
            evidence = f"{view.call.dialect.name} rejects arguments with a {violation} violation before it calls"
            return Proof(Execution.NOT_STARTED, Reason.MALFORMED_ARGUMENTS, evidence=(evidence,))
    return None


def _validated(runtime: Runtime, schema: Any) -> bool:
    if not runtime.schema_title:
        return True
    title = schema.get("title") if isinstance(schema, Mapping) else None
    return isinstance(title, str) and title.endswith(runtime.schema_title)


_BY_SERVER = frozenset({Violation.REQUIRED, Violation.TYPES})
_BY_FRAMEWORK = frozenset(Violation)


def _checked_by(view: Node, call: Node, context: Context) -> frozenset[Violation]:
    """What one view's side checks: a framework its own tools, an MCP server the types of what it serves."""
    assert view.call is not None
    if view.call.view is View.MCP_SERVER:
        return _BY_SERVER
    others = [other.call for other in call.views() if other.call is not None]
    if view.call.view is View.MCP_CLIENT:
        # One client-side span that the instrumentation writes from the server's answer (OpenLLMetry, logfire).
        alone = not any(other.view is View.MCP_SERVER for other in others)
        return _BY_SERVER if alone and view.call.arguments is not None else frozenset()
    served = any(other.view is not View.FRAMEWORK for other in others)
    if not served and view.call.tool is not None:
        served = any(same_tool(view.call.tool, name) for name in context.trace.server_lists())
    return frozenset({Violation.JSON}) if served else _BY_FRAMEWORK


def _sound(violation: Violation, call: Node, context: Context) -> bool:
    """Text that does not parse is the model's only if telemetry cannot have cut it.

    The limit may be unknown. A text that is the longest value of its trace may be the one value that reached it; one that is
    not ASCII may have reached a limit counted in bytes or UTF-16 units, which is shorter than it looks.
    """
    if violation is not Violation.JSON or context.trace.length_limit is not None:
        return True
    raw = next((view.call.arguments for view in call.views() if view.call and isinstance(view.call.arguments, str)), None)
    return raw is None or (raw.isascii() and len(raw) < context.trace.longest_value())


# -- a tool that does not exist ------------------------------------------------------------------------------------


def _tells_of_no_such_tool(record: ToolCall, policy: Policy) -> bool:
    return bool(policy.known or record.dialect.runtime.unknown_tool)


def _no_such_tool(call: Node, context: Context) -> Proof | None:
    tool = call.call.tool if call.call is not None else None
    if tool is None:
        return None
    undeclared = context.policy.exists(tool) is False and not any(context.policy.exists(name) for name in _suffixes(tool))
    if not undeclared and not all(map(_would_show, call.views())):
        return None
    if is_withheld(tool) or has_marker(tool) or context.trace.is_cut(tool):
        return None
    if context.offers.mention(tool) or context.exists(tool):
        return None
    if undeclared:
        return Proof(Execution.NOT_STARTED, Reason.UNKNOWN_TOOL, evidence=("not among the declared tools",))
    offers = context.offers.lists
    if any(view.call is not None and view.call.view is not View.FRAMEWORK for view in call.views()):
        if call.call is None or call.call.view is View.FRAMEWORK:
            return None  # whatever the framework dispatched to a server was on its list
        offers = context.offers.served
    if not offers or not all(offered.whole for offered in offers):
        return None
    if any(is_withheld(name) or has_marker(name) for offered in offers for name in offered.schemas):
        return None
    if any(same_tool(name, tool) for offered in offers for name in offered.schemas):
        return None
    return Proof(Execution.NOT_STARTED, Reason.UNKNOWN_TOOL, evidence=("not among the tools that the model was given",))


def _would_show(view: Node) -> bool:
    """Whether a span may be what its runtime writes for a tool that does not exist. Most write none at all."""
    assert view.call is not None
    unknown_tool = view.call.dialect.runtime.unknown_tool
    return bool(unknown_tool) and (set(view.call.error_types) or {UNTYPED}) <= unknown_tool


def _suffixes(tool: str) -> Iterable[str]:
    return (tool[index + 1 :] for index, char in enumerate(tool) if not char.isalnum() and index + 1 < len(tool))


GROUNDS: tuple[Ground, ...] = (
    Ground(_has_mark, _marked_everywhere, failed_only=False),
    Ground(_rejects, _rejected_everywhere),
    Ground(_tells_of_no_such_tool, _no_such_tool),
)
"""Every ground, in the order in which they are tried. There is no proof beside them, so none is without its gate."""
