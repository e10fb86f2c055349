# SPDX-License-Identifier: Apache-2.0
"""Judging live: what the spans of this process have shown so far, and a verdict on each tool span that ends.

Children end before their parents, so what a tool's body did is known when its span ends; what stands above it is not, and
a scan of the recorded trace may be stricter. Nothing is parsed before a failed call needs it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from genai_processor.forks import guard_with_lock
from genai_processor.retry.around import NOTHING_AROUND, Around, Surroundings
from genai_processor.retry.came_back import CameBack
from genai_processor.retry.evidence import MAX_OPEN, Evidence, begins_tool_span
from genai_processor.retry.glance import glance
from genai_processor.retry.guarded import Guarded, not_run
from genai_processor.retry.holding import ServedCalls
from genai_processor.retry.judgement import Judgement, judgement_of, may_be_belied
from genai_processor.retry.live_calls import LiveCalls
from genai_processor.retry.nodes import Below, Node, is_transport
from genai_processor.retry.open_calls import OpenCalls
from genai_processor.retry.open_traces import DEFAULT_LIMITS, Limits, OpenTrace, OpenTraces
from genai_processor.retry.policy import Policy
from genai_processor.retry.raised import ended_calls
from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.tool_runs import TOOL_RUNS, span_begun
from genai_processor.retry.trace import adopt
from genai_processor.retry.undecided import Undecided
from genai_processor.retry.verdict import CallFacts, Execution, classify
from genai_processor.spans.live import from_readable
from genai_processor.spans.read import MARKER_KEYS
from genai_processor.spans.records import Operation, View

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace import Span as SDKSpan

__all__ = ["Judgement", "Limits", "Witness"]

_NO_VALUES: Final[Mapping[str, Any]] = {}
_INFERENCES: Final = frozenset({"chat", "generate_content", "text_completion"})
_BELOW: Final = {
    Operation.INFERENCE: Below.MODEL,
    Operation.AGENT: Below.MODEL,
}
_MODEL: Final = Below.MODEL


class Witness:
    """Judges ended spans. In memory, bounded, thread-safe, and free of I/O.

    Args:
        policy: What the user declared of tools.
        limits: How much is kept.
        length_limit: The SDK's attribute value length limit where a span does not carry its own, or None.
        clock: Monotonic seconds.
        recent: Where `is_safe_to_retry` looks; the process' own if not given.
        judged: The attribute of a span that somebody has judged already; "" if there is none.
        guarded: The guarded calls by the span ids of spans that show them.
        began: Called with each tool span that begins, and the name of its tool if it tells.
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
        judged: str = "",
        guarded: Mapping[int, Guarded] | None = None,
        began: Callable[[SDKSpan, str | None], None] = lambda span, tool: None,
    ) -> None:
        self._guarded: Mapping[int, Guarded] = {} if guarded is None else guarded
        self._began = began
        self._judged_already = judged
        self._markers = MARKER_KEYS | {judged}
        self._policy = policy
        guard_with_lock(self)
        self._evidence = Evidence()
        self._traces = OpenTraces(limits, clock)
        self._calls = LiveCalls(policy, limits, length_limit or 0, self._traces)
        self._served = ServedCalls()
        self._recent = recent if recent is not None else RecentRuns.of_process()
        self._around = Surroundings()
        self._late = Undecided(self._evidence, self._recent)
        self._undecided = self._late.by_span
        self._open = OpenCalls(self._evidence, self._around, self._recent, policy)
        self._recent.watch(self._open.running)

    def on_start(self, span: SDKSpan, parent_context: Context | None = None) -> None:
        """Note what begins below an open tool span: what is still open when the tool ends proves that its body ran."""
        attributes: Any = span._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", _NO_VALUES)
        tool = span._name[:13] == "execute_tool "
        if not MARKER_KEYS.isdisjoint(values) and not tool:
            operation = values.get("gen_ai.operation.name")
            tool = operation == "execute_tool" or (operation is None and begins_tool_span(values))
            if not tool and ("gen_ai.conversation.id" in values or "session.id" in values) and span._context is not None:
                self._traces.began(span, values)
        if TOOL_RUNS:
            span_begun(span)
        evidence = self._evidence
        if tool or evidence.watched or evidence.open_tools:
            evidence.started(span, tool)
            if tool:
                self._began(span, values.get("gen_ai.tool.name"))
                self._around.began(span, parent_context)
                if len(evidence.open_tools) > MAX_OPEN:
                    self._open.give_up_oldest()
        parent = span._parent
        if parent is None:
            if span._context is not None:
                self._traces.begin(span._context[0])
            return
        if self._undecided:
            self._late.begun_below(parent[1], span)
        if parent[2] and span._context is not None:
            self._traces.enter(span._context[0])

    def on_end(self, span: ReadableSpan) -> CameBack | Judgement | None:
        """Judge an ended span.

        Returns:
            The judgement of the call that the span shows; with `late`, of a call that ended before. The call itself, if it
            came back and was compared with no other: then there is no more to say. None if the span shows no call and
            changes none, or carries a verdict already.
        """
        attributes: Any = span._attributes
        values: Mapping[str, Any] = getattr(attributes, "_dict", attributes) or {}
        if self._markers.isdisjoint(values) and not getattr(attributes, "dropped", 0):
            evidence = self._evidence
            late = evidence.ended(span)
            if evidence.open_tools:
                self._open.ended(span)
            parent = span._parent
            if self._undecided:
                return self._passed(span, late)
            if parent is None:  # as `_close`, of a span that begins a trace and seldom has anything kept of it
                if span._context is not None:
                    self._traces.end(span._context[0])
            elif parent[2]:
                self._close(span)
            return None
        if self._judged_already in values:
            self._passed_over(span)
            return None
        operation = values.get("gen_ai.operation.name")
        if operation == "execute_tool":
            around = self._around.ended(span)
            if self._guarded and (refused := self._not_run(span)) is not None:
                return refused
            seen = self._glance(span, attributes, values) if around is NOTHING_AROUND or around.harmless else None
            judgement = seen or self._read(span, values, around)
            if span._context is not None:
                self._evidence.open_tools.pop(span._context[1], None)  # last, as in `OpenCalls.ended`
            return judgement
        if operation.__class__ is str and operation in _INFERENCES and "openinference.span.kind" not in values:
            evidence = self._evidence  # as `_pass_up`, written out for what there are most of
            late = evidence.ended(span, _MODEL)
            if evidence.open_tools:
                self._open.ended(span)
            parent = span._parent
            if parent is not None and span._context is not None:
                self._traces.keep(span, values)
            return self._passed(span, late) if parent is None or parent[2] or self._undecided else None
        around = self._around.ended(span)
        if self._guarded and (refused := self._not_run(span)) is not None:
            return refused
        judgement = self._read(span, values, around)
        self._open.ended(span)
        return judgement

    def _not_run(self, span: Any) -> Judgement | None:
        """The judgement of a call that the guard did not let run; None if its span shows no such call."""
        context = span._context
        call = self._guarded.get(context[1]) if context is not None else None
        if call is None or call.ran:
            return None
        if call.handed_back and (not span._status.is_ok or span._events):  # it failed all the same
            return None
        self._evidence.ended(span, Below.NESTED if call.handed_back else Below.NOTHING)
        self._open.ended(span)
        has_id = "gen_ai.tool.call.id" in (span._attributes or ())
        effect = self._policy.effect(call.tool)
        self._recent.succeeded(context[0], effect)  # whatever stands in its way makes the run unsafe to be run again
        return self._judged(span, not_run(call, context[0], context[1], span._name, has_id, effect), ())

    def _passed_over(self, span: ReadableSpan) -> None:
        """Take note of an ended span that somebody else has judged."""
        self._around.ended(span)
        self._evidence.ended(span, Below.NESTED)
        self._open.ended(span)

    def lost(self, span: ReadableSpan) -> Judgement | None:
        """Take note of a span that `on_end` could not judge: what it showed is unknown.

        Returns:
            The judgement of the call that it seems to show, quarantined; None if it seems to show none.
        """
        context, attributes = span._context, span._attributes
        self._evidence.lost(span)
        if context is None:
            return None
        self._recent.lost(context.trace_id)
        self._open.ended(span)
        values = attributes or {}
        if not (begins_tool_span(values) or span.name.startswith("execute_tool ")):
            return None
        tool = values.get("gen_ai.tool.name")
        tool = tool if isinstance(tool, str) else None
        facts = CallFacts(tool=tool, effect=self._policy.effect(tool), evidence=("the span could not be read",))
        return Judgement(context.trace_id, context.span_id, span.name, False, classify(facts), f"{context.trace_id:032x}")

    # -- spans that are no tool call -------------------------------------------------------------------------------

    def _pass_up(self, span: Any, values: Mapping[str, Any], flags: int, *, keep: bool = True) -> Judgement | None:
        """Keep a span that may bear on calls, tell its parent of it. A root has nobody left to bear on."""
        late = self._evidence.ended(span, flags)
        if self._evidence.open_tools:
            self._open.ended(span)
        parent = span._parent
        if keep and parent is not None and span._context is not None:
            self._traces.keep(span, values)
        return self._passed(span, late) if parent is None or parent[2] or self._undecided else None

    def _passed(self, span: Any, late: tuple[int, ...]) -> Judgement | None:
        """Close a trace whose root has ended; find the call that a late span belies."""
        parent = span._parent
        if parent is None or parent[2]:
            self._close(span)
        return self._late.belie(late if parent is None else (*late, parent.span_id)) if self._undecided else None

    def _close(self, span: Any) -> None:
        if span._context is None:
            return
        if span._parent is None:
            self._traces.end(span._context.trace_id)
        else:
            self._traces.leave(span._context.trace_id)

    # -- calls that came back --------------------------------------------------------------------------------------

    def _glance(self, span: Any, attributes: Any, values: Mapping[str, Any]) -> CameBack | Judgement | None:
        seen = glance(span, attributes, values)
        context, parent = span._context, span._parent
        if seen is None or context is None:
            return None
        if not self._evidence.glanced(context[1], parent, span):
            return None
        call = self._calls.glanced(seen, span, attributes)
        if not isinstance(call, CameBack):
            self._recent.succeeded(context[0], call.verdict.effect)
            return self._judged(span, call, ())
        self._recent.succeeded(context[0], call.effect)
        if self._undecided:
            return self._judged(span, judgement_of(call, span._name), ())
        if parent is None or parent[2]:
            self._close(span)
        return call

    def _judged(self, span: Any, judgement: Judgement, late: tuple[int, ...]) -> Judgement:
        """Do for a tool span what is done for every other."""
        parent = span._parent
        if parent is None or parent[2]:
            self._close(span)
        if self._undecided and parent is not None and judgement.verdict.execution is not Execution.NOT_STARTED:
            return judgement._replace(belies=self._late.belie((*late, parent.span_id)))
        return judgement

    # -- calls that did not ----------------------------------------------------------------------------------------

    def _read(self, readable: Any, values: Mapping[str, Any], around: Around) -> Judgement | None:
        """Read a span in full: one of another dialect, or a call that may have failed.

        Args:
            readable: The span.
            values: Its attributes.
            around: What is going on around it.
        """
        node = Node(from_readable(readable))
        node.parent_ended = around.parent_ended
        torn = None if around.raised is None or isinstance(around.raised, Exception) else type(around.raised).__name__
        if torn is not None and node.call is not None and node.call.paused is None:
            evidence = (*node.call.failure, f"ended by {torn}")
            node.call = node.call._replace(failure=evidence, error_types=(*node.call.error_types, torn))
        if node.call is None:
            keep = node.operation is not Operation.OTHER
            flags = _BELOW.get(node.operation, -1)
            if node.operation is Operation.MCP:
                flags = Below.NOTHING if is_transport(values) else Below.OTHER
            return self._pass_up(readable, values, flags, keep=keep)
        context = readable._context
        above = self._evidence.watched.get(context.span_id, ()) if context is not None else ()
        node.lost, late = self._evidence.take(readable, node)
        trace = self._traces.get(context.trace_id) if context is not None else None
        if node.tools:
            adopt(node)
        if node.call.view is not View.FRAMEWORK:
            with self._lock:
                self._served.match(node, lambda: self._open.is_alone(node, above))
        if _plainly_well(node):
            judgement = self._calls.well(node, readable, trace)
            self._recent.succeeded(judgement.trace_id, judgement.verdict.effect)
            inner = node.call.view is not View.FRAMEWORK or self._evidence.is_nested(readable)
            return self._judged(readable, judgement._replace(inner=inner), late)
        if trace is None:
            trace = OpenTrace()
            trace.partial = self._traces.has_lost(context.trace_id) if context is not None else False
        for view in node.views()[1:]:  # of what came below an inner span after it was judged
            if self._evidence.told(int(view.span.span_id, 16)):
                view.below |= Below.OTHER
        guarded = self._guarded.get(context.span_id) if self._guarded and context is not None else None
        judgement = self._calls.failed(node, readable, trace, any(view.lost for view in node.views()), guarded)
        handled = around.raised if node.call.failure else None
        if handled is None and around.handled is not None and ended_calls(around.handled):
            handled = around.handled  # it ended an earlier call, and may have been raised again in this one
        self._recent.note(node, judgement.trace_id, judgement.span_id, judgement.verdict, handled)
        if may_be_belied(judgement.verdict):
            judgement = self._late.add(node, judgement)
        return self._judged(readable, judgement, late)


def _plainly_well(node: Node) -> bool:
    """Whether every view of a call came back as its dialect shows it."""
    if node.parent_ended is not None:
        return False
    for view in node.views() if node.inner else (node,):
        call = view.call
        assert call is not None
        if call.failure or call.paused is not None or call.ended is False or call.span.end_ns is None:
            return False
    return True
