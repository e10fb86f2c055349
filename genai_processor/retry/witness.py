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
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from genai_processor.retry.assess import AssessedCall, Assessor
from genai_processor.retry.duplicates import Repetition, repetition
from genai_processor.retry.evidence import Evidence, begins_tool_span
from genai_processor.retry.history import Execution, History
from genai_processor.retry.joins import Turns
from genai_processor.retry.locks import guard_with_lock
from genai_processor.retry.nodes import Below, Node
from genai_processor.retry.policy import Policy
from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.trace import Trace, adopt
from genai_processor.retry.verdict import (
    CallIdSource,
    Effect,
    Ended,
    Execution as Executed,
    Reason,
    RetryVerdict,
    Verdict,
)
from genai_processor.spans.arguments import Arguments, ArgumentsState, read_arguments, same_form
from genai_processor.spans.canonical import digest
from genai_processor.spans.dialects import CONVENTIONS, dialect_of
from genai_processor.spans.dialects.base import looks_failed, result_if_arguments
from genai_processor.spans.live import from_readable
from genai_processor.spans.read import MARKER_KEYS, conversation_of
from genai_processor.spans.records import Operation, ToolCall
from genai_processor.spans.values import usable_id

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace import Span as SDKSpan


class Limits(NamedTuple):
    """How much of the past is kept in memory.

    Attributes:
        max_calls: Tool calls, over all scopes.
        max_bytes: Estimated bytes of messages and arguments that are referred to.
        max_age: Seconds for which an open trace's inferences are kept.
    """

    max_calls: int = 10_000
    max_bytes: int = 64 * 1024 * 1024
    max_age: int = 3600


class Judgement(NamedTuple):
    """What was found of one ended span that shows a tool call.

    Attributes:
        trace_id: The trace of that span.
        span_id: That span.
        name: The span's name, for calls whose tool is not known.
        has_id: The span itself records a usable call id.
        verdict: The verdict.
        scope: Where ids and actions are unique.
        id_usable: The verdict's call id may serve as a token: it is not bound to two argument sets, nor cut.
        action: Digest of the canonical arguments if it had to be computed, else None.
        duplicate_of: Span id (hex) of the earlier execution that it certainly repeats, or None.
        attempt: Which execution of that effect this is, or None.
        suspected: It may repeat an earlier one, or may be meant.
        late: This is about a call whose span has ended before: the span in hand is only evidence.
        views: Inner spans that show the same call and were judged before.
        rebilled_tokens: Input tokens of the turn that proposed a certain duplicate again.
    """

    trace_id: int
    span_id: int
    name: str
    has_id: bool
    verdict: Verdict
    scope: str
    id_usable: bool = True
    action: str | None = None
    duplicate_of: str | None = None
    attempt: int | None = None
    suspected: bool = False
    late: bool = False
    views: tuple[int, ...] = ()
    rebilled_tokens: int = 0


_MAX_TURNS: Final = 64
_MAX_UNDECIDED: Final = 1_000
_MAX_WELL: Final = 1_000
_MAX_TRACES: Final = 10_000
_INFERENCES: Final = frozenset({"chat", "generate_content", "text_completion"})
_HEAVY_KEYS: Final = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "input.value",
    "output.value",
)


# Reading a member of an enum class costs more than reading a global, and this happens on every call that comes back.
_NO_RETRY_NEEDED: Final = RetryVerdict.NO_RETRY_NEEDED
_SUCCEEDED: Final = Reason.SUCCEEDED
_WITHHELD: Final = ArgumentsState.WITHHELD
_UNKNOWN: Final = Executed.UNKNOWN
_ENDED_WELL: Final = Ended.WELL
_NO_ID: Final = CallIdSource.NONE
_SPAN_ID: Final = CallIdSource.SPAN
_ERROR: Final = 2
_BELOW: Final = {
    Operation.INFERENCE: Below.MODEL,
    Operation.AGENT: Below.MODEL,
    Operation.MCP: Below.NOTHING,
}
_STOPS: Final = frozenset(
    {
        "error.type",
        "mcp.method.name",
        "openinference.span.kind",
        "traceloop.span.kind",
        "langsmith.span.kind",
        "logfire.span_type",
        "pydantic_ai.tool.deferral.name",
    }
)
"""Attributes that ask for more than a glance."""


class _OpenTrace:
    """The turns and agents of one trace that ended so far, most recent last."""

    __slots__ = ("bytes", "conversation", "spans", "touched", "well")

    def __init__(self) -> None:
        self.spans: list[Any] = []  # `ReadableSpan`s, replaced by nodes when a verdict needs them
        self.conversation: str | None = None
        self.well: set[str] | None = None
        self.bytes = 0
        self.touched = 0.0


class Witness:
    """Judges ended spans. In memory, bounded, thread-safe, and free of I/O.

    Args:
        policy: What the user declared of tools.
        limits: How much is kept.
        length_limit: The SDK's attribute value length limit, or None if it has none.
        clock: Monotonic seconds.
        recent: Where `is_safe_to_retry` looks; the process' own if not given.
    """

    _lock: threading.RLock

    def __init__(
        self,
        *,
        policy: Policy,
        limits: Limits = Limits(),
        length_limit: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        recent: RecentRuns | None = None,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._length_limit = length_limit or 0
        self._clock = clock
        guard_with_lock(self)
        self._evidence = Evidence()
        self._traces: OrderedDict[int, _OpenTrace] = OrderedDict()
        self._bytes = 0
        self._history = History(scopes=limits.max_calls, executions=limits.max_calls)
        self._recent = recent if recent is not None else RecentRuns.of_process()
        self._undecided: OrderedDict[int, Judgement] = OrderedDict()

    def on_start(self, span: SDKSpan, parent_context: Context | None = None) -> None:
        """Note what begins below an open tool span: what is still open when the tool ends proves that its body ran."""
        attributes: Any = span._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", ())
        marked = not MARKER_KEYS.isdisjoint(values)
        if marked or self._evidence.watched or span._name[:13] == "execute_tool ":
            with self._lock:
                self._evidence.started(span, span._name[:13] == "execute_tool " or (marked and begins_tool_span(values)))

    def on_end(self, span: ReadableSpan) -> Judgement | None:
        """Judge an ended span.

        Returns:
            The judgement of the call that the span shows; with `late`, of a call that ended before. None if the span
            shows no call and changes none.
        """
        attributes: Any = span._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", attributes) or {}
        if MARKER_KEYS.isdisjoint(values) and not getattr(attributes, "dropped", 0):
            with self._lock:
                above = self._evidence.ended(span)
                if span._parent is None or self._undecided:
                    return self._passed(span, above)
            return None
        operation = values.get("gen_ai.operation.name")
        if operation == "execute_tool":
            judgement = self._glance(span, attributes, values)
            if judgement is not None:
                return judgement
        elif operation.__class__ is str and operation in _INFERENCES and "openinference.span.kind" not in values:
            self._keep(span, values)
            with self._lock:
                above = self._evidence.ended(span, Below.MODEL)
                if span._parent is None or self._undecided:
                    return self._passed(span, above)
            return None
        return self._read(span, values)

    # -- spans that are no tool call -------------------------------------------------------------------------------

    def _passed(self, span: Any, above: tuple[int, ...]) -> Judgement | None:
        """Forget the turns of a trace whose root has ended; find the call that a late span belies."""
        if span._parent is None and self._traces and span._context is not None:
            done = self._traces.pop(span._context.trace_id, None)
            if done is not None:
                self._bytes -= done.bytes
        if not self._undecided:
            return None
        before = next(filter(None, (self._undecided.pop(tool, None) for tool in above)), None)
        return _belied(before) if before is not None else None

    def _keep(self, span: Any, values: Mapping[str, Any]) -> None:
        """Keep a reference to an inference, agent or step; parse nothing. A root has nobody left to bear on."""
        if span._parent is None or span._context is None:
            return
        size = 500
        for key in _HEAVY_KEYS:
            value = values.get(key)
            if value.__class__ is str:
                size += len(value)
        with self._lock:
            trace = self._trace(span._context.trace_id)
            trace.spans.append(span)
            if len(trace.spans) > 2 * _MAX_TURNS:
                del trace.spans[:_MAX_TURNS]
            trace.bytes += size
            self._bytes += size
            conversation = values.get("gen_ai.conversation.id")
            if conversation.__class__ is str and conversation:
                trace.conversation = conversation
            if self._bytes > self._limits.max_bytes or len(self._traces) > _MAX_TRACES:
                self._shrink()

    def _trace(self, trace_id: int) -> _OpenTrace:
        trace = self._traces.get(trace_id)
        if trace is None:
            trace = self._traces[trace_id] = _OpenTrace()
            trace.touched = self._clock()
        else:
            self._traces.move_to_end(trace_id)
        return trace

    def _shrink(self) -> None:
        """Forget the turns of the least recently used traces: their calls then prove less."""
        now = self._clock()
        while len(self._traces) > 1:
            oldest = next(iter(self._traces.values()))
            within = self._bytes <= self._limits.max_bytes and len(self._traces) <= _MAX_TRACES
            if within and now - oldest.touched <= self._limits.max_age:
                return
            self._traces.popitem(last=False)
            self._bytes -= oldest.bytes

    # -- tool calls ------------------------------------------------------------------------------------------------

    def _read(self, readable: ReadableSpan, values: Mapping[str, Any]) -> Judgement | None:
        span = from_readable(readable)
        node = Node(span)
        if node.call is None:
            if node.operation not in (Operation.MCP, Operation.OTHER):
                self._keep(readable, values)
            with self._lock:
                above = self._evidence.ended(readable, _BELOW.get(node.operation, -1))
                return self._passed(readable, above)
        context: Any = readable.context
        with self._lock:
            partial = self._evidence.take(readable, node)
            trace = self._traces.get(context.trace_id) if context is not None else None
        if node.tools:
            adopt(node)
        if _plainly_well(node):
            return self._well(node, node.call, trace, context)
        judgement = self._failed(node, trace or _OpenTrace(), partial, readable)
        verdict = judgement.verdict
        if verdict.verdict is RetryVerdict.RETRYABLE_PRE_EXECUTION or verdict.reason is Reason.PAUSED:
            with self._lock:
                self._undecided[judgement.span_id] = judgement
                if len(self._undecided) > _MAX_UNDECIDED:
                    self._undecided.popitem(last=False)
        handled = sys.exc_info()[1] if node.call.failure else None
        self._recent.note(node, judgement.trace_id, judgement.span_id, verdict, handled)
        return judgement

    def _failed(self, node: Node, trace: _OpenTrace, partial: bool, readable: Any) -> Judgement:
        """Judge a call that did not plainly come back: everything that bears on it is looked into."""
        nodes = self._nodes(trace)
        limit = getattr(readable._attributes, "max_value_len", None) or self._length_limit
        assessor = Assessor(
            Trace.of([*nodes, node], length_limit=limit, partial=partial),
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
        return Judgement(
            trace_id=context.trace_id if context is not None else 0,
            span_id=context.span_id if context is not None else 0,
            name=node.span.name,
            has_id=node.call is not None and node.call.call_id is not None,
            verdict=assessed.verdict,
            scope=assessed.scope,
            id_usable=not assessed.facts.call_id_unstable,
            action=assessed.digest,
            duplicate_of=found.first if found is not None and not found.suspected else None,
            attempt=found.attempt if found is not None else None,
            suspected=found is not None and found.suspected,
            views=tuple(int(view.span.span_id, 16) for view in node.views()[1:]),
            rebilled_tokens=assessed.turn_tokens if found is not None and not found.suspected else 0,
        )

    def _glance(self, span: Any, attributes: Any, values: Mapping[str, Any]) -> Judgement | None:
        """Judge a call that plainly came back from the few attributes that show it; None if it takes more.

        This is what happens on nearly every tool span, so it reads the SDK's fields and makes no record of the span.
        """
        if span._status._status_code._value_ == _ERROR or span._events or getattr(attributes, "dropped", 1):
            return None
        context, scope, tool = span._context, span._instrumentation_scope, values.get("gen_ai.tool.name")
        if context is None or span._end_time is None or tool.__class__ is not str or not _STOPS.isdisjoint(values):
            return None
        dialect = dialect_of(scope.name if scope is not None else "", values)
        if dialect.tool_name is not CONVENTIONS.tool_name or dialect.failures is not None or tool.isspace() or not tool:
            return None
        arguments, result = values.get("gen_ai.tool.call.arguments"), values.get("gen_ai.tool.call.result")
        if dialect.has_end_mark is not None and (
            dialect.has_end_mark is not result_if_arguments or (result is None and arguments is not None)
        ):
            return None
        if (result is not None and looks_failed(result) is not None) or ".cancellation." in "\n".join(values):
            return None
        with self._lock:
            if not self._evidence.glanced(context.span_id, span._parent):
                return None
            trace = self._traces.get(context.trace_id)
        conversation = values.get("gen_ai.conversation.id") or values.get("session.id")
        if conversation.__class__ is not str:
            conversation = trace.conversation if trace is not None else None
        call_id = usable_id(values.get("gen_ai.tool.call.id"), tool)
        trace_id = f"{context.trace_id:032x}"
        execution = _LiveExecution(
            context.span_id, trace_id, tool, call_id, span._start_time, span._end_time, arguments, trace, self
        )
        return self._came_back(
            execution, context, span._name, conversation or trace_id, "crewai.tool.from_cache" in values, ()
        )

    def _well(self, node: Node, call: ToolCall, trace: _OpenTrace | None, context: Any) -> Judgement:
        """Judge a call all of whose views came back."""
        span = call.span
        recorded = next((v.call for v in node.views() if v.call is not None and v.call.arguments is not None), call)
        execution = _LiveExecution(
            context.span_id if context is not None else 0,
            span.trace_id,
            call.tool,
            call.call_id,
            span.start_ns,
            span.end_ns,
            (recorded.arguments, True) if recorded.arguments_rendered else recorded.arguments,
            trace,
            self,
        )
        no_effect = call.tool in call.dialect.framework_tools or span.attributes.get("crewai.tool.from_cache") is True
        views = tuple(int(view.span.span_id, 16) for view in node.views()[1:]) if node.inner else ()
        return self._came_back(execution, context, span.name, _scope_of(node, trace), no_effect, views)

    def _came_back(
        self,
        execution: _LiveExecution,
        context: Any,
        name: str,
        scope: str,
        no_effect: bool,
        views: tuple[int, ...],
    ) -> Judgement:
        """The verdict on a call that came back. Its arguments and turn are looked into only if it repeats another."""
        tool, call_id = execution.tool, execution.call_id
        effect = self._policy.effect(tool)
        source = _NO_ID if call_id is None else _SPAN_ID
        verdict = Verdict(_NO_RETRY_NEEDED, _SUCCEEDED, (), tool, call_id, source, _WITHHELD, _UNKNOWN, effect)
        trace_id, span_id = (context.trace_id, context.span_id) if context is not None else (0, 0)
        found = None
        with self._lock:
            trace = execution.trace
            if trace is not None and tool is not None:
                if trace.well is None:
                    trace.well = set()
                if len(trace.well) < _MAX_WELL:
                    trace.well.add(tool)
            first = no_effect or effect is Effect.READ_ONLY or self._history.is_first(scope, execution)
            if not first:
                found = repetition(execution, effect, self._history.scope(scope))
        self._recent.succeeded(trace_id, effect)
        if found is None:
            action = None if first else execution.known_digest
            return Judgement(trace_id, span_id, name, call_id is not None, verdict, scope, True, action, views=views)
        return Judgement(
            trace_id,
            span_id,
            name,
            call_id is not None,
            verdict,
            scope,
            True,
            execution.known_digest,
            None if found.suspected else found.first,
            found.attempt,
            found.suspected,
            False,
            views,
        )

    def _repeated(self, assessed: AssessedCall) -> Repetition | None:
        facts, node = assessed.facts, assessed.node
        assert node.call is not None
        if facts.execution is Executed.NOT_STARTED or facts.tool in node.call.dialect.framework_tools:
            return None
        uncertain = facts.ended in (Ended.FAILED, Ended.UNKNOWN) or assessed.verdict.quarantined
        execution = assessed.execution(uncertain)
        with self._lock:
            return repetition(execution, facts.effect, self._history.scope(assessed.scope))

    def _nodes(self, trace: _OpenTrace) -> list[Node]:
        """The turns of a trace as nodes, each read once."""
        with self._lock:
            spans = list(trace.spans)
        nodes = []
        for index, span in enumerate(spans):
            if not isinstance(span, Node):
                node = Node(from_readable(span), index)
                with self._lock:
                    if index < len(trace.spans) and trace.spans[index] is span:
                        trace.spans[index] = node
                span = node
            nodes.append(span)
        return nodes

    def read_arguments(self, raw: Any) -> Arguments:
        """Recorded arguments of a call that came back; a tuple marks a rendering for people."""
        raw, rendered = raw if raw.__class__ is tuple else (raw, False)
        limit = self._length_limit
        return read_arguments(raw, rendered=rendered, is_cut=lambda text: 0 < limit <= len(text))

    def turn_of(self, execution: _LiveExecution) -> tuple[Hashable | None, int]:
        """What proposed a call that came back, and how many like it."""
        if execution.trace is None:
            return None, 1
        turns = Turns(Trace.of(self._nodes(execution.trace), length_limit=self._length_limit, partial=False))
        joined = turns.proposing(execution.tool, execution.call_id, execution.start_ns, execution.digest)
        if joined is None or joined.turn is None:
            return None, 1
        return joined.turn.span.span_id, turns.proposed_with(joined)


class _LiveExecution(Execution):
    """The execution of a call that came back: its arguments and its turn are looked up when somebody asks."""

    __slots__ = ("_number", "_witness", "trace")

    def __init__(
        self,
        span_id: int,
        trace_id: str,
        tool: str | None,
        call_id: str | None,
        start_ns: int | None,
        end_ns: int | None,
        arguments: Any,
        trace: _OpenTrace | None,
        witness: Witness,
    ) -> None:
        self._number = span_id
        self.trace_id = trace_id
        self.tool = tool
        self.call_id = call_id
        self.start_ns = start_ns or 0
        self.end_ns = end_ns or 0
        self.ended = _ENDED_WELL
        self.uncertain = False
        self.trace = trace
        self._witness = witness
        self._arguments = arguments
        self._digest = None
        self._turn = None
        self._proposed = 0

    @property
    def span_id(self) -> str:
        """Its outermost span, in hex."""
        return f"{self._number:016x}"

    @property
    def digest(self) -> str | None:
        """SHA-256 of the canonical arguments, or None where they are not whole."""
        if self._arguments is not None:
            form = same_form(self._witness.read_arguments(self._arguments))
            self._digest = digest(form) if form is not None else None
            self._arguments = None
        return self._digest

    @property
    def turn(self) -> Hashable | None:
        """What proposed it, or None if unknown."""
        if not self._proposed:
            self._turn, self._proposed = self._witness.turn_of(self)
        return self._turn


def _scope_of(node: Node, trace: _OpenTrace | None) -> str:
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


def _belied(before: Judgement) -> Judgement:
    """The judgement of a call that seemed safe, now that something of it ended after it did."""
    verdict = Verdict(
        RetryVerdict.QUARANTINED,
        Reason.EXECUTION_STARTED,
        (*before.verdict.evidence, "a span below it ended later"),
        before.verdict.tool,
        before.verdict.call_id,
        before.verdict.call_id_source,
        before.verdict.arguments_state,
        Executed.STARTED,
        before.verdict.effect,
    )
    return before._replace(verdict=verdict, late=True)
