# SPDX-License-Identifier: Apache-2.0
"""A run over recorded traces: every call judged, and what only shows across calls and traces."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from genai_processor.retry.assess import Assessor
from genai_processor.retry.assessed import AssessedCall
from genai_processor.retry.duplicates import DuplicateKey, Repetition, repetition, retry_of
from genai_processor.retry.findings import DuplicateGroup, Finding, Findings, UnobservedCall
from genai_processor.retry.history import History
from genai_processor.retry.links import Links
from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import Policy
from genai_processor.retry.seen import SeenNames
from genai_processor.retry.trace import Trace
from genai_processor.retry.usage import Usage, usage_of
from genai_processor.retry.verdict import Ended, Reason, RetryVerdict
from genai_processor.spans.message_glance import glance_at
from genai_processor.spans.read import tools_on_offer
from genai_processor.spans.records import Operation, View


class SurveyedCall(NamedTuple):
    """One call of a recorded trace.

    Attributes:
        call: The call with its verdict.
        repetition: The earlier execution that it repeats, or None.
    """

    call: AssessedCall
    repetition: Repetition | None


class LateSpan(NamedTuple):
    """A span that was read after the call above it had been judged as one that never started, or only paused."""

    trace_id: str
    span_id: str
    call_span_id: str


_STEP, _WELL = Operation.STEP, Ended.WELL  # reading a member of an enum class costs more than reading a global
_MAX_UNSTARTED = 50_000
_SHORT = 512


class Survey:
    """Judges trace after trace and remembers, within bounds, what links them.

    Args:
        policy: What the user declared of tools.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._history = History(executions=60_000, evicted=SeenNames())
        self._links = Links()
        self._findings = Findings()
        self._unstarted: OrderedDict[tuple[str, str], str] = OrderedDict()

    def judge(self, trace: Trace, file_of: Callable[[str], str] | None = None) -> tuple[list[SurveyedCall], Usage]:
        """Judge the calls of one trace.

        Args:
            trace: The trace with all of its spans, or marked as partial.
            file_of: From which file a span of it was read, if findings should tell.
        """
        self._learn_schemas(trace)
        turns = trace.turns()
        if not turns and not trace.calls():
            return [], Usage(trace.trace_id, 0, 0, 0)
        scope = self._linked_scope(trace, turns)
        default = scope or trace.trace_id
        if trace.partial:
            self._history.scope(default).forgot = True
        assessor = Assessor(
            trace,
            self._policy,
            scope=scope,
            declared=self._history.schemas,
            means_otherwise=self._history.means_otherwise,
        )
        calls = assessor.calls()
        scopes = {call.scope: False for call in calls}
        self._note_failures(trace, scopes)
        surveyed = [SurveyedCall(call, self._repetition(call, file_of)) for call in calls]
        self._note_unobserved(assessor, default, file_of)
        self._mark_scopes(trace, calls, scopes)
        return surveyed, usage_of(trace, _proposed_again(surveyed))

    def settled(self) -> Iterator[Finding]:
        """The duplicates and unobserved calls that no later trace can change, each once."""
        return self._findings.settled()

    def rest(self) -> Iterator[Finding]:
        """All other duplicates and unobserved calls; afterwards, none is left."""
        return self._findings.rest()

    def belied(self, trace: Trace) -> Iterator[LateSpan]:
        """The spans of a late part of a trace that speak against a verdict on an earlier part."""
        if trace.partial and self._unstarted:
            for node in trace.nodes:
                span = node.span
                if node.parent is None and span.parent_span_id is not None:
                    call = self._unstarted.get((span.trace_id, span.parent_span_id))
                    if call is not None:
                        yield LateSpan(span.trace_id, span.span_id, call)

    # -- scope -----------------------------------------------------------------------------------------------------

    def _learn_schemas(self, trace: Trace) -> None:
        for node in trace.nodes:
            if node.operation is _STEP and node.span.attributes.get("gen_ai.operation.name") == "create_agent":
                assert node.dialect is not None
                offered = tools_on_offer(node.span, node.dialect, trace.is_cut)
                if offered is not None:
                    self._history.offer(offered.schemas)

    def _linked_scope(self, trace: Trace, turns: list[Node]) -> str | None:
        """The scope of another trace whose proposal this trace's input repeats (a resumed run shares nothing else)."""
        if not turns:
            return None
        own = {proposal.call_id for turn in turns for proposal in turn.proposals()}
        found: str | None = None
        for turn in turns:
            if self._reads_of_others(turn, own) and found is None:
                for echo in turn.consumed()[0]:
                    if found is None and echo.call_id not in own:
                        found = self._links.scope_of(echo)
        if own:
            for turn in turns:
                proposals = turn.proposals()
                if proposals:
                    scope = trace.conversation(turn) or found or trace.trace_id
                    for proposal in proposals:
                        self._links.add(proposal, scope)
        return found

    def _reads_of_others(self, turn: Node, own: set[str | None]) -> bool:
        """Whether what a turn read may name a call of another trace.

        Most messages name none and tell of no failure. They are never parsed.
        """
        assert turn.dialect is not None
        glance = glance_at(turn.span.attributes, turn.dialect.inputs, turn.span.events)
        if glance is None:
            return True
        if self._links.escaped or (glance.ids and self._links.knows_any(glance.ids.difference(own))):
            return True
        if not glance.failure:
            turn.reads_nothing_of_note()
        return False

    def _note_failures(self, trace: Trace, scopes: Iterable[str]) -> None:
        ends = [
            node.span.end_ns
            for node in trace.nodes
            if node.call is None and node.dialect is not None and node.failed and node.span.end_ns is not None
        ]
        if ends:
            for scope in scopes:
                for end in ends:
                    self._history.scope(scope).failed_at(end)

    def _mark_scopes(self, trace: Trace, calls: list[AssessedCall], scopes: dict[str, bool]) -> None:
        if not calls:
            return
        for call in calls:
            if call.facts.ended is not _WELL:
                scopes[call.scope] = True
        start = min([node.span.start_ns or 0 for node in trace.nodes])
        end = max([node.span.end_ns or 0 for node in trace.nodes])
        for scope, failed in scopes.items():
            self._history.scope(scope).mark(trace.trace_id, start, end, failed)
            self._history.weigh(scope)

    # -- duplicates ------------------------------------------------------------------------------------------------

    def _repetition(self, call: AssessedCall, file_of: Callable[[str], str] | None) -> Repetition | None:
        facts, span = call.facts, call.node.span
        origin = file_of(span.span_id) if file_of is not None else ""
        self._findings.executed(call.scope, facts.call_id, span.span_id, origin)
        self._note_unstarted(call)
        if call.node.inner:
            self._sends(call, origin)
        if not call.may_repeat:
            return None
        execution = call.execution()
        if len(call.arguments.text or "") > _SHORT:
            _ = execution.digest  # computed at once, so that the text need not be kept
        scope = self._history.scope(call.scope)
        found = repetition(execution, facts.effect, scope) or _linked(call)
        if found is None or found.first == span.span_id:
            return None  # nothing, or this very span, read twice
        self._findings.repeated(call.scope, found, span.span_id, origin)
        return found

    def _note_unstarted(self, call: AssessedCall) -> None:
        verdict = call.verdict
        if verdict.verdict is RetryVerdict.RETRYABLE_PRE_EXECUTION or verdict.reason is Reason.PAUSED:
            for view in call.node.views():
                self._unstarted[view.span.trace_id, view.span.span_id] = call.node.span.span_id
            while len(self._unstarted) > _MAX_UNSTARTED:
                self._unstarted.popitem(last=False)

    def _sends(self, call: AssessedCall, origin: str) -> None:
        """Several client requests under one call: the session may have sent it twice."""
        clients = [view for view in call.node.views() if _is_request(view) and not _is_request(view.outer)]
        if len(clients) > 1:
            group = DuplicateGroup(clients[0].span.span_id, DuplicateKey.SENDS, call.facts.tool or "", True, origin)
            group.add(*(view.span.span_id for view in clients))
            self._findings.group(group)

    # -- what no span shows ----------------------------------------------------------------------------------------

    def _note_unobserved(self, assessor: Assessor, default: str, file_of: Callable[[str], str] | None) -> None:
        for turn, proposal in assessor.turns.unused():
            span = turn.span
            self._findings.unobserved(
                assessor.trace.conversation(turn) or default,
                UnobservedCall(
                    span.trace_id,
                    span.span_id,
                    proposal.tool,
                    proposal.call_id,
                    file_of(span.span_id) if file_of is not None else "",
                ),
            )


def _proposed_again(calls: list[SurveyedCall]) -> Iterable[Node]:
    """The inferences that proposed a certain duplicate, each once."""
    found: dict[int, Node] = {}
    for surveyed in calls:
        joined, repetition = surveyed.call.joined, surveyed.repetition
        if repetition is not None and not repetition.suspected and joined is not None and joined.turn is not None:
            found[id(joined.turn)] = joined.turn
    return found.values()


def _linked(call: AssessedCall) -> Repetition | None:
    for link in call.node.span.links:
        if retry_of(link.attributes):
            return Repetition(link.span_id, DuplicateKey.LINK, call.facts.tool or "", False, 2)
    return None


def _is_request(view: Node | None) -> bool:
    return view is not None and view.call is not None and view.call.view is View.MCP_CLIENT
