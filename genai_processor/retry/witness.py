# SPDX-License-Identifier: Apache-2.0
"""Judging live: what the spans of this process have shown so far, and a verdict on each tool span that ends.

Children end before their parents, so what a tool's body did is known when its span ends; what stands above it is not, and
a scan of the recorded trace may be stricter. Nothing is parsed before a failed call needs it.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from genai_processor.retry.assess import AssessedCall, Assessor
from genai_processor.retry.duplicates import Repetition, repetition
from genai_processor.retry.evidence import Evidence
from genai_processor.retry.history import Execution, History
from genai_processor.retry.joins import Turns
from genai_processor.retry.locks import guard_with_lock
from genai_processor.retry.nodes import Node
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
from genai_processor.spans.arguments import Arguments, ArgumentsState, read_arguments
from genai_processor.spans.live import from_readable
from genai_processor.spans.read import MARKER_KEYS, conversation_of
from genai_processor.spans.records import Operation, ToolCall

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
        call: The call, as that span shows it.
        verdict: The verdict.
        scope: Where its ids and its action are unique.
        action: Digest of the canonical arguments if it had to be computed, else None.
        duplicate_of: Span id of the earlier execution that it repeats, or None.
        attempt: Which execution of that effect this is, or None.
        suspected: The repetition may as well be meant.
        late: This is about a call whose span has ended before: the span in hand is only evidence.
        views: Span ids of inner spans that show the same call and were judged before.
        rebilled_tokens: Input tokens of the turn that proposed a certain duplicate again.
    """

    call: ToolCall
    verdict: Verdict
    scope: str
    action: str | None = None
    duplicate_of: str | None = None
    attempt: int | None = None
    suspected: bool = False
    late: bool = False
    views: tuple[str, ...] = ()
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


class _OpenTrace:
    """The turns and agents of one trace that ended so far, most recent last."""

    __slots__ = ("bytes", "conversation", "spans", "touched", "well")

    def __init__(self) -> None:
        self.spans: deque[Any] = deque(maxlen=_MAX_TURNS)  # `ReadableSpan`s, replaced by nodes when a verdict needs them
        self.conversation: str | None = None
        self.well: set[str] = set()
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
        if self._evidence.concerns(span):
            with self._lock:
                self._evidence.started(span)

    def on_end(self, span: ReadableSpan) -> Judgement | None:
        """Judge an ended span.

        Returns:
            The judgement of the call that the span shows; with `late`, of a call that ended before. None if the span
            shows no call and changes none.
        """
        attributes: Any = span._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", attributes) or {}
        if MARKER_KEYS.isdisjoint(values) and not getattr(attributes, "dropped", 0):
            return self._pass_by(span)
        operation = values.get("gen_ai.operation.name")
        if operation.__class__ is str and operation in _INFERENCES and "openinference.span.kind" not in values:
            self._keep(span, values)
            return self._pass_by(span, model=True)
        return self._read(span, values)

    # -- spans that are no tool call -------------------------------------------------------------------------------

    def _pass_by(self, span: ReadableSpan, *, model: bool = False, silent: bool = False) -> Judgement | None:
        with self._lock:
            above = self._evidence.ended(span, model=model, silent=silent)
            if not self._undecided:
                return None
            before = next(filter(None, (self._undecided.pop(tool, None) for tool in above)), None)
        return _belied(before) if before is not None else None

    def _keep(self, span: Any, values: Mapping[str, Any]) -> None:
        """Keep a reference to an inference, agent or step; parse nothing."""
        size = 500
        for key in _HEAVY_KEYS:
            value = values.get(key)
            if value.__class__ is str:
                size += len(value)
        with self._lock:
            trace = self._trace(span.context.trace_id if span.context is not None else 0)
            trace.spans.append(span)
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
            if node.operation is Operation.OTHER:
                return self._pass_by(readable)
            if node.operation is not Operation.MCP:
                self._keep(readable, values)
            model = node.operation in (Operation.INFERENCE, Operation.AGENT)
            return self._pass_by(readable, model=model, silent=node.operation is Operation.MCP)
        context: Any = readable.context
        with self._lock:
            partial = self._evidence.take(readable, node)
            trace = self._traces.get(context.trace_id) if context is not None else None
        if node.tools:
            adopt(node)
        if _plainly_well(node):
            judgement = self._well(node, node.call, trace)
            self._recent.note(node, judgement.verdict, None)
            return judgement
        judgement = self._failed(node, node.call, trace or _OpenTrace(), partial)
        verdict = judgement.verdict
        if context is not None and (verdict.retryable or verdict.reason is Reason.PAUSED):
            with self._lock:
                self._undecided[context.span_id] = judgement
                if len(self._undecided) > _MAX_UNDECIDED:
                    self._undecided.popitem(last=False)
        self._recent.note(node, verdict, sys.exc_info()[1] if node.call.failure else None)
        return judgement

    def _failed(self, node: Node, call: ToolCall, trace: _OpenTrace, partial: bool) -> Judgement:
        """A call that did not plainly come back: everything that bears on it is looked into."""
        nodes = self._nodes(trace)
        assessor = Assessor(
            Trace.of([*nodes, node], length_limit=self._length_limit, partial=partial),
            self._policy,
            enclosing=False,
            scope=_scope_of(node, trace),
            declared=self._history.schemas,
            means_otherwise=self._history.means_otherwise,
            exist=trace.well,
        )
        assessed = assessor.assess(node)
        found = self._repeated(assessed)
        return Judgement(
            call=call,
            verdict=assessed.verdict,
            scope=assessed.scope,
            action=assessed.digest,
            duplicate_of=found.first if found is not None and not found.suspected else None,
            attempt=found.attempt if found is not None else None,
            suspected=found is not None and found.suspected,
            views=tuple(view.span.span_id for view in node.views()[1:]),
            rebilled_tokens=assessed.turn_tokens if found is not None and not found.suspected else 0,
        )

    def _well(self, node: Node, call: ToolCall, trace: _OpenTrace | None) -> Judgement:
        """A call that came back: neither its arguments nor its turn is looked into, unless it repeats another."""
        dialect, span, tool = call.dialect, call.span, call.tool
        scope = _scope_of(node, trace)
        effect = self._policy.effect(tool)
        source = CallIdSource.SPAN if call.call_id is not None else CallIdSource.NONE
        verdict = Verdict(_NO_RETRY_NEEDED, _SUCCEEDED, (), tool, call.call_id, source, _WITHHELD, _UNKNOWN, effect)
        if trace is not None and tool is not None and len(trace.well) < _MAX_WELL:
            trace.well.add(tool)
        views = tuple(view.span.span_id for view in node.views()[1:]) if node.inner else ()
        if tool in dialect.framework_tools or span.attributes.get("crewai.tool.from_cache") is True:
            return Judgement(call, verdict, scope, views=views)
        execution = _LiveExecution(node, call, trace, self)
        with self._lock:
            if effect is Effect.READ_ONLY or self._history.is_first(scope, execution):
                return Judgement(call, verdict, scope, views=views)
            found = repetition(execution, effect, self._history.scope(scope))
        if found is None:
            return Judgement(call, verdict, scope, execution.known_digest, views=views)
        first = None if found.suspected else found.first
        return Judgement(
            call, verdict, scope, execution.known_digest, first, found.attempt, found.suspected, False, views
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

    def arguments_of(self, node: Node) -> Arguments:
        """The recorded arguments of a call that came back."""
        limit = self._length_limit
        for view in node.views():
            if view.call is not None and view.call.arguments is not None:
                return read_arguments(
                    view.call.arguments,
                    rendered=view.call.arguments_rendered,
                    is_cut=lambda text: 0 < limit <= len(text),
                )
        return read_arguments(None)

    def turn_of(self, node: Node, trace: _OpenTrace) -> tuple[Hashable | None, int]:
        """What proposed a call that came back, and how many like it."""
        nodes = [*self._nodes(trace), node]
        turns = Turns(Trace.of(nodes, length_limit=self._length_limit, partial=False))
        joined = turns.join(node)
        if joined is None or joined.turn is None:
            return None, 1
        return joined.turn.span.span_id, turns.proposed_with(joined)


class _LiveExecution(Execution):
    """The execution of a call that came back: its arguments and its turn are looked up when somebody asks."""

    __slots__ = ()

    def __init__(self, node: Node, call: ToolCall, trace: _OpenTrace | None, witness: Witness) -> None:
        span = call.span
        self.span_id = span.span_id
        self.trace_id = span.trace_id
        self.tool = call.tool
        self.call_id = call.call_id
        self.start_ns = span.start_ns or 0
        self.end_ns = span.end_ns or 0
        self.ended = _ENDED_WELL
        self.uncertain = False
        self._digest = None
        self._arguments = functools.partial(witness.arguments_of, node)
        self._turn = functools.partial(witness.turn_of, node, trace) if trace is not None else None
        self._proposed = 1


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
