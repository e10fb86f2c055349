# SPDX-License-Identifier: Apache-2.0
"""The calls that a process has seen, and the verdict on one more: whether it came back, and whether it repeats another."""

from __future__ import annotations

import threading
from typing import Any, Final

from genai_processor.forks import guard_with_lock
from genai_processor.retry.assess import Assessor
from genai_processor.retry.assessed import AssessedCall
from genai_processor.retry.came_back import CameBack, Rendered
from genai_processor.retry.duplicates import Repetition, repetition
from genai_processor.retry.execution import Execution as Recorded
from genai_processor.retry.glance import Glance
from genai_processor.retry.guarded import Guarded, with_guard
from genai_processor.retry.history import History
from genai_processor.retry.holding import HeldArguments
from genai_processor.retry.judgement import Judgement, judgement_of
from genai_processor.retry.nodes import Node
from genai_processor.retry.open_traces import Limits, OpenTrace, OpenTraces
from genai_processor.retry.policy import Policy
from genai_processor.retry.seen import SeenNames
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import Effect, classify
from genai_processor.spans.arguments import Arguments
from genai_processor.spans.read import conversation_of, from_cache

_LARGE: Final = 1_024  # characters of arguments from which on a reference to them is counted
_READ_ONLY: Final = Effect.READ_ONLY


class LiveCalls:
    """Judges calls, and remembers them for the next. In memory, bounded, thread-safe.

    Args:
        policy: What the user declared of tools.
        limits: How much is kept.
        length_limit: The SDK's attribute value length limit where a span does not carry its own; 0 for none.
        traces: The turns of the traces that are still running.
    """

    _lock: threading.RLock

    def __init__(self, policy: Policy, limits: Limits, length_limit: int, traces: OpenTraces) -> None:
        guard_with_lock(self)
        self._policy = policy
        self._length_limit = length_limit
        self._traces = traces
        # A scope that was forgotten and comes back makes its ids unstable, which matters for idempotent tools only.
        evicted = SeenNames() if policy.idempotent else None
        self._history = History(scopes=limits.max_calls, executions=limits.max_calls, evicted=evicted)
        self._held = HeldArguments(limits.max_bytes // 2)

    # -- calls that came back --------------------------------------------------------------------------------------

    def glanced(self, seen: Glance, span: Any, attributes: Any) -> CameBack | Judgement:
        """Judge a call that a glance has shown to have come back; one that is compared with no other is returned itself."""
        trace_id = span._context[0]
        trace = self._traces.get(trace_id)
        tool, call_id, scope, arguments, cached = seen
        if trace is not None:
            trace.came_back(tool)
            scope = scope or trace.conversation
        effect = self._policy.effect(tool)
        call = CameBack(
            trace_id,
            span._context[1],
            tool,
            call_id,
            effect,
            scope or f"{trace_id:032x}",
            span._start_time,
            span._end_time,
            arguments,
            trace,
            self._traces,
            getattr(attributes, "max_value_len", None) or self._length_limit,
        )
        alone = cached or effect is _READ_ONLY or self._history.is_first(call.scope, call)
        judgement = call if alone else self._compared(call, span._name, ())
        if arguments.__class__ is str and len(arguments) > _LARGE:
            self._hold(call)
        return judgement

    def well(self, node: Node, readable: Any, trace: OpenTrace | None) -> Judgement:
        """Judge a call all of whose views came back, after a full reading."""
        assert node.call is not None
        call, context = node.call, readable._context
        recorded = next((v.call for v in node.views() if v.call is not None and v.call.arguments is not None), call)
        raw = recorded.arguments
        if trace is not None and call.tool is not None:
            trace.came_back(call.tool)
        execution = CameBack(
            context.trace_id if context is not None else 0,
            context.span_id if context is not None else 0,
            call.tool,
            call.call_id,
            self._policy.effect(call.tool),
            _scope_of(node, trace),
            call.span.start_ns,
            call.span.end_ns,
            Rendered(raw) if recorded.arguments_rendered and isinstance(raw, str) else raw,
            trace,
            self._traces,
            self._limit_of(readable._attributes),
        )
        no_effect = call.tool in call.dialect.framework_tools or from_cache(call.span.attributes)
        views = _inner(node)
        alone = no_effect or execution.effect is _READ_ONLY
        if not alone and not views:
            alone = self._history.is_first(execution.scope, execution)
        if alone:
            judgement = judgement_of(execution, call.span.name)._replace(views=views)
        else:
            judgement = self._compared(execution, call.span.name, views)
        self._hold(execution)
        return judgement

    def _hold(self, call: CameBack) -> None:
        """Count what a call still refers to: of one that was compared, its digest is enough."""
        if call.held > _LARGE:
            with self._lock:
                self._held.add(call)

    def _compared(self, call: CameBack, name: str, views: tuple[int, ...]) -> Judgement:
        """The judgement of a call that may repeat another."""
        if self._history.knows(call.scope, call.tool):
            _ = call.digest  # which is going to be compared: parsed here, not while others wait for the lock
        with self._lock:
            found = self._repetition(call, call.effect, call.scope, views)
        judgement = judgement_of(call, name)._replace(action=call.known_digest, views=views)
        return _with_repetition(judgement, found)

    # -- calls that did not ----------------------------------------------------------------------------------------

    def failed(self, node: Node, readable: Any, trace: OpenTrace, lost: bool, guarded: Guarded | None = None) -> Judgement:
        """Judge a call that did not plainly come back: everything that bears on it is looked into.

        Args:
            node: The call.
            readable: Its span.
            trace: What is kept of its trace.
            lost: What stood below it may have been forgotten.
            guarded: What the guard knows of it, if it stood in front of it.
        """
        assert node.call is not None
        nodes = [*self._traces.nodes(trace), node]
        assessor = Assessor(
            Trace.of(nodes, length_limit=self._limit_of(readable._attributes), partial=trace.partial, damaged=lost),
            self._policy,
            enclosing=False,
            scope=_scope_of(node, trace),
            declared=self._history.schemas,
            means_otherwise=self._means_otherwise,
            exist=trace.well or (),
        )
        assessed = assessor.assess(node)
        if guarded is not None:
            facts = with_guard(assessed.facts, guarded)
            assessed = assessed._replace(facts=facts, verdict=classify(facts))
        found = self._repeated(assessed)
        context = readable._context
        judgement = Judgement(
            context.trace_id if context is not None else 0,
            context.span_id if context is not None else 0,
            node.span.name,
            node.call.call_id is not None,
            assessed.verdict,
            assessed.scope,
            not assessed.facts.call_id_unstable,
            assessed.digest,
            views=_inner(node),
            inner=True,
        )
        if found is not None and not found.suspected:
            judgement = judgement._replace(rebilled_tokens=assessed.turn_tokens)
        return _with_repetition(judgement, found)

    def _means_otherwise(self, scope: str, call_id: str, tool: str | None, arguments: Arguments) -> bool:
        with self._lock:
            return self._history.means_otherwise(scope, call_id, tool, arguments)

    def _repeated(self, assessed: AssessedCall) -> Repetition | None:
        effect = assessed.facts.effect
        if effect is _READ_ONLY or not assessed.may_repeat:
            return None
        execution, views = assessed.execution(), _inner(assessed.node)
        if not views and self._history.is_first(assessed.scope, execution):
            return None
        with self._lock:
            return self._repetition(execution, effect, assessed.scope, views)

    def _repetition(self, execution: Recorded, effect: Effect, name: str, views: tuple[int, ...]) -> Repetition | None:
        """Whether an execution repeats another; what inner spans of the same call told of it does not count."""
        scope = self._history.scope(name)
        if views:
            scope.withdraw(execution, {f"{view:016x}" for view in views})
        found = repetition(execution, effect, scope)
        self._history.weigh(name)
        return found

    def _limit_of(self, attributes: Any) -> int:
        """The length limit that a span was recorded under; 0 if it had none."""
        return getattr(attributes, "max_value_len", None) or self._length_limit


def _with_repetition(judgement: Judgement, found: Repetition | None) -> Judgement:
    if found is None:
        return judgement
    first = None if found.suspected else found.first
    return judgement._replace(duplicate_of=first, attempt=found.attempt, suspected=found.suspected)


def _inner(node: Node) -> tuple[int, ...]:
    return tuple(int(view.span.span_id, 16) for view in node.views()[1:]) if node.inner else ()


def _scope_of(node: Node, trace: OpenTrace | None) -> str:
    """The conversation that the call names, else its trace's turns, else the trace."""
    for view in node.views():
        found = conversation_of(view.span, view.dialect) if view.dialect is not None else None
        if found is not None:
            return found
    return (trace is not None and trace.conversation) or node.span.trace_id
