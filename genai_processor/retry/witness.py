# SPDX-License-Identifier: Apache-2.0
"""Judging live: what the spans of this process have shown so far, and a verdict on each tool span that ends.

Children end before their parents, so what a tool's body did is known when its span ends; what stands above it is not, and
a scan of the recorded trace may be stricter. Nothing is parsed before a failed call needs it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from genai_processor.retry.assess import Assessor
from genai_processor.retry.assessed import AssessedCall
from genai_processor.retry.came_back import CameBack, Rendered
from genai_processor.retry.duplicates import Repetition, repetition
from genai_processor.retry.evidence import Evidence, begins_tool_span
from genai_processor.retry.glance import glance
from genai_processor.retry.history import Execution as Recorded
from genai_processor.retry.history import History
from genai_processor.retry.holding import HeldArguments, ServedCalls
from genai_processor.retry.judgement import Judgement, belied, may_be_belied
from genai_processor.retry.locks import guard_with_lock
from genai_processor.retry.nodes import Below, Node
from genai_processor.retry.open_traces import DEFAULT_LIMITS, Limits, OpenTrace, OpenTraces
from genai_processor.retry.policy import Policy
from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.seen import SeenNames
from genai_processor.retry.trace import Trace, adopt
from genai_processor.retry.verdict import CallIdSource, Effect, Ended, Execution, Reason, RetryVerdict, Verdict
from genai_processor.spans.arguments import ArgumentsState
from genai_processor.spans.live import from_readable
from genai_processor.spans.read import MARKER_KEYS, conversation_of
from genai_processor.spans.records import Operation, View

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace import Span as SDKSpan

__all__ = ["Judgement", "Limits", "Witness"]

_NO_VALUES: Final[Mapping[str, Any]] = {}
_MAX_UNDECIDED: Final = 1_000
_LARGE: Final = 1_024  # characters of arguments from which on a reference to them is counted
_INFERENCES: Final = frozenset({"chat", "generate_content", "text_completion"})
_BELOW: Final = {
    Operation.INFERENCE: Below.MODEL,
    Operation.AGENT: Below.MODEL,
    Operation.MCP: Below.NOTHING,
}
# Reading a member of an enum class costs more than reading a global, and this happens on every call that comes back.
_NO_RETRY_NEEDED: Final = RetryVerdict.NO_RETRY_NEEDED
_SUCCEEDED: Final = Reason.SUCCEEDED
_WITHHELD: Final = ArgumentsState.WITHHELD
_UNKNOWN: Final = Execution.UNKNOWN
_READ_ONLY: Final = Effect.READ_ONLY
_NO_ID: Final = CallIdSource.NONE
_SPAN_ID: Final = CallIdSource.SPAN


class Witness:
    """Judges ended spans. In memory, bounded, thread-safe, and free of I/O.

    Args:
        policy: What the user declared of tools.
        limits: How much is kept.
        length_limit: The SDK's attribute value length limit where a span does not carry its own, or None.
        clock: Monotonic seconds.
        recent: Where `is_safe_to_retry` looks; the process' own if not given.
    """

    _lock: threading.RLock

    def __init__(
        self,
        *,
        policy: Policy,
        limits: Limits = DEFAULT_LIMITS,
        length_limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        recent: RecentRuns | None = None,
    ) -> None:
        self._policy = policy
        self._length_limit = length_limit or 0
        guard_with_lock(self)
        self._evidence = Evidence()
        self._traces = OpenTraces(limits, clock)
        # A scope that was forgotten and comes back makes its ids unstable, which matters for idempotent tools only.
        evicted = SeenNames() if policy.idempotent else None
        self._history = History(scopes=limits.max_calls, executions=limits.max_calls, evicted=evicted)
        self._held = HeldArguments(limits.max_bytes // 2)
        self._served = ServedCalls()
        self._recent = recent if recent is not None else RecentRuns.of_process()
        self._undecided: OrderedDict[int, Judgement] = OrderedDict()

    def on_start(self, span: SDKSpan, parent_context: Context | None = None) -> None:
        """Note what begins below an open tool span: what is still open when the tool ends proves that its body ran."""
        attributes: Any = span._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", _NO_VALUES)
        operation = values.get("gen_ai.operation.name")
        tool = operation == "execute_tool" or span._name[:13] == "execute_tool "
        if operation is None and not tool:
            tool = not MARKER_KEYS.isdisjoint(values) and begins_tool_span(values)
        if tool or self._evidence.watched:
            self._evidence.started(span, tool)

    def on_end(self, span: ReadableSpan) -> Judgement | None:
        """Judge an ended span.

        Returns:
            The judgement of the call that the span shows; with `late`, of a call that ended before. None if the span
            shows no call and changes none.
        """
        attributes: Any = span._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", attributes) or {}
        if MARKER_KEYS.isdisjoint(values) and not getattr(attributes, "dropped", 0):
            late = self._evidence.ended(span)
            return self._passed(span, late) if span._parent is None or self._undecided else None
        operation = values.get("gen_ai.operation.name")
        if operation == "execute_tool":
            torn = _torn_by()
            return (self._glance(span, attributes, values) if torn is None else None) or self._read(span, values)
        if operation.__class__ is str and operation in _INFERENCES and "openinference.span.kind" not in values:
            return self._pass_up(span, values, Below.MODEL)
        return self._read(span, values)

    # -- spans that are no tool call -------------------------------------------------------------------------------

    def _pass_up(self, span: Any, values: Mapping[str, Any], flags: int, *, keep: bool = True) -> Judgement | None:
        """Keep a span that may bear on calls, tell its parent of it. A root has nobody left to bear on."""
        if keep and span._parent is not None and span._context is not None:
            self._traces.keep(span, values)
        late = self._evidence.ended(span, flags)
        return self._passed(span, late) if span._parent is None or self._undecided else None

    def _passed(self, span: Any, late: tuple[int, ...]) -> Judgement | None:
        """Close a trace whose root has ended; find the call that a late span belies."""
        if span._parent is None and span._context is not None:
            self._traces.close(span._context.trace_id)
        if not self._undecided:
            return None
        above = (*late, span._parent.span_id) if span._parent is not None else late
        with self._lock:
            before = next(filter(None, (self._undecided.pop(tool, None) for tool in above)), None)
        if before is None:
            return None
        judgement = belied(before)
        self._recent.revise(judgement.trace_id, judgement.span_id, judgement.verdict)
        return judgement

    # -- calls that came back --------------------------------------------------------------------------------------

    def _glance(self, span: Any, attributes: Any, values: Mapping[str, Any]) -> Judgement | None:
        seen = glance(span, attributes, values)
        context = span._context
        if seen is None or context is None:
            return None
        if not self._evidence.glanced(context.span_id, span._parent, span):
            return None
        trace = self._traces.get(context.trace_id)
        trace_id = f"{context.trace_id:032x}"
        execution = CameBack(
            context.span_id,
            trace_id,
            seen.tool,
            seen.call_id,
            span._start_time,
            span._end_time,
            seen.arguments,
            trace,
            self._traces,
            self._limit_of(attributes),
        )
        scope = seen.conversation or (trace is not None and trace.conversation) or trace_id
        return self._came_back(execution, context, span._name, scope, seen.from_cache, ())

    def _well(self, node: Node, readable: Any, trace: OpenTrace | None) -> Judgement:
        """Judge a call all of whose views came back, after a full reading."""
        assert node.call is not None
        call, context = node.call, readable._context
        recorded = next((v.call for v in node.views() if v.call is not None and v.call.arguments is not None), call)
        raw = recorded.arguments
        execution = CameBack(
            context.span_id if context is not None else 0,
            call.span.trace_id,
            call.tool,
            call.call_id,
            call.span.start_ns,
            call.span.end_ns,
            Rendered(raw) if recorded.arguments_rendered and isinstance(raw, str) else raw,
            trace,
            self._traces,
            self._limit_of(readable._attributes),
        )
        no_effect = call.tool in call.dialect.framework_tools or call.span.attributes.get("crewai.tool.from_cache") is True
        judgement = self._came_back(execution, context, call.span.name, _scope_of(node, trace), no_effect, _inner(node))
        return judgement._replace(inner=call.view is not View.FRAMEWORK or self._evidence.is_nested(readable))

    def _came_back(
        self, execution: CameBack, context: Any, name: str, scope: str, no_effect: bool, views: tuple[int, ...]
    ) -> Judgement:
        """The verdict on a call that came back, and whether it repeats another."""
        tool, call_id = execution.tool, execution.call_id
        effect = self._policy.effect(tool)
        source = _NO_ID if call_id is None else _SPAN_ID
        verdict = Verdict(_NO_RETRY_NEEDED, _SUCCEEDED, (), tool, call_id, source, _WITHHELD, _UNKNOWN, effect)
        trace_id, span_id = (context.trace_id, context.span_id) if context is not None else (0, 0)
        found = None
        if execution.trace is not None and tool is not None:
            execution.trace.came_back(tool)
        alone = no_effect or effect is _READ_ONLY or (not views and self._history.is_first(scope, execution))
        if not alone:
            with self._lock:
                found = self._repetition(execution, effect, scope, views)
        if execution.held > _LARGE:
            with self._lock:
                self._held.add(execution)
        self._recent.succeeded(trace_id, effect)
        judgement = Judgement(trace_id, span_id, name, call_id is not None, verdict, scope, True)
        if alone and not views:
            return judgement
        return _with_repetition(judgement, found)._replace(action=execution.known_digest, views=views)

    # -- calls that did not ----------------------------------------------------------------------------------------

    def _read(self, readable: Any, values: Mapping[str, Any]) -> Judgement | None:
        """Read a span in full: one of another dialect, or a call that may have failed."""
        node = Node(from_readable(readable))
        torn = _torn_by()
        if torn is not None and node.call is not None and node.call.paused is None:
            evidence = (*node.call.failure, f"ended by {torn}")
            node.call = node.call._replace(failure=evidence, error_types=(*node.call.error_types, torn))
        if node.call is None:
            keep = node.operation not in (Operation.MCP, Operation.OTHER)
            return self._pass_up(readable, values, _BELOW.get(node.operation, -1), keep=keep)
        context = readable._context
        partial = self._evidence.take(readable, node)
        trace = self._traces.get(context.trace_id) if context is not None else None
        if node.tools:
            adopt(node)
        if node.call.view is not View.FRAMEWORK:
            with self._lock:
                self._served.match(node)
        if _plainly_well(node):
            return self._well(node, readable, trace)
        judgement = self._failed(node, readable, trace or OpenTrace(), partial)
        if may_be_belied(judgement.verdict):
            with self._lock:
                self._undecided[judgement.span_id] = judgement
                if len(self._undecided) > _MAX_UNDECIDED:
                    self._undecided.popitem(last=False)
        handled = sys.exc_info()[1] if node.call.failure else None
        self._recent.note(node, judgement.trace_id, judgement.span_id, judgement.verdict, handled)
        return judgement

    def _failed(self, node: Node, readable: Any, trace: OpenTrace, partial: bool) -> Judgement:
        """Judge a call that did not plainly come back: everything that bears on it is looked into."""
        assert node.call is not None
        nodes = [*self._traces.nodes(trace), node]
        assessor = Assessor(
            Trace.of(nodes, length_limit=self._limit_of(readable._attributes), partial=partial),
            self._policy,
            enclosing=False,
            scope=_scope_of(node, trace),
            declared=self._history.schemas,
            means_otherwise=self._history.means_otherwise,
            exist=trace.well or (),
        )
        assessed = assessor.assess(node)
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

    def _repeated(self, assessed: AssessedCall) -> Repetition | None:
        facts, record = assessed.facts, assessed.node.call
        if facts.execution is Execution.NOT_STARTED or record is None or facts.tool in record.dialect.framework_tools:
            return None
        uncertain = facts.ended in (Ended.FAILED, Ended.UNKNOWN) or assessed.verdict.quarantined
        execution = assessed.execution(uncertain)
        with self._lock:
            return self._repetition(execution, facts.effect, assessed.scope, _inner(assessed.node))

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


def _torn_by() -> str | None:
    """What tears the current thread out of a tool: a cancellation or an interrupt, of which the API records nothing."""
    error = sys.exc_info()[1]
    return None if error is None or isinstance(error, Exception) else type(error).__name__


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


def _plainly_well(node: Node) -> bool:
    """Whether every view of a call came back as its dialect shows it."""
    for view in node.views() if node.inner else (node,):
        call = view.call
        assert call is not None
        if call.failure or call.paused is not None or call.ended is False or call.span.end_ns is None:
            return False
    return True
