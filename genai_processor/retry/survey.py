# SPDX-License-Identifier: Apache-2.0
"""A run over recorded traces: every call judged, and what only shows across calls and traces."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from genai_processor.retry.assess import AssessedCall, Assessor
from genai_processor.retry.duplicates import DuplicateGroup, DuplicateKey, Repetition, repetition, retry_of
from genai_processor.retry.history import Execution, History, Scope
from genai_processor.retry.nodes import Node
from genai_processor.retry.policy import Policy
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import Ended, Execution as Executed
from genai_processor.spans.arguments import read_arguments, same_form
from genai_processor.spans.canonical import digest
from genai_processor.spans.read import tools_on_offer
from genai_processor.spans.records import Operation, Proposal, View


@dataclass(frozen=True, slots=True)
class SurveyedCall:
    """One call of a recorded trace.

    Attributes:
        call: The call with its verdict.
        repetition: The earlier execution that it repeats, or None.
    """

    call: AssessedCall
    repetition: Repetition | None


@dataclass(frozen=True, slots=True)
class UnobservedCall:
    """A proposed call that no span shows to have run. It may have run all the same."""

    trace_id: str
    proposed_by: str
    tool: str | None
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one trace, over its leaf inferences.

    Attributes:
        trace_id: The trace.
        input_tokens: All input tokens.
        output_tokens: All output tokens.
        rebilled_tokens: Input tokens of the inferences that proposed a certain duplicate again.
    """

    trace_id: str
    input_tokens: int
    output_tokens: int
    rebilled_tokens: int


_INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.promptTokens")
_OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "ai.usage.completionTokens",
)


class Survey:
    """Judges trace after trace and remembers, within bounds, what links them.

    Args:
        policy: What the user declared of tools.
        history: What was seen before; a new one if not given.
    """

    def __init__(self, policy: Policy, history: History | None = None) -> None:
        self._policy = policy
        self._history = history or History()
        self._groups: dict[Hashable, DuplicateGroup] = {}
        self._unobserved: list[tuple[str, UnobservedCall]] = []
        self._seen_ids: dict[tuple[str, str], None] = {}

    def judge(self, trace: Trace) -> tuple[list[SurveyedCall], Usage]:
        """Judge the calls of one trace, all of whose spans are there."""
        self._learn_schemas(trace)
        scope = self._linked_scope(trace)
        assessor = Assessor(
            trace,
            self._policy,
            scope=scope,
            declared=self._history.schemas,
            means_otherwise=self._history.means_otherwise,
        )
        calls = assessor.calls()
        default = scope or trace.trace_id
        self._note_failures(assessor, calls, default)
        surveyed = [SurveyedCall(call, self._repetition(call, trace)) for call in calls]
        self._note_unobserved(assessor, default)
        self._mark_scopes(calls, trace)
        if scope is None and all(call.scope != default for call in calls):
            self._history.forget(default)
        return surveyed, self._usage(trace, surveyed)

    def duplicates(self) -> Iterator[DuplicateGroup]:
        """The groups of repeated effects found so far."""
        yield from self._groups.values()

    def unobserved(self) -> Iterator[UnobservedCall]:
        """The proposed calls that no trace of their scope shows."""
        for scope, call in self._unobserved:
            if call.call_id is None or (scope, call.call_id) not in self._seen_ids:
                yield call

    # -- scope -----------------------------------------------------------------------------------------------------

    def _learn_schemas(self, trace: Trace) -> None:
        for node in trace.nodes:
            if node.dialect is not None and node.span.attributes.get("gen_ai.operation.name") == "create_agent":
                offered = tools_on_offer(node.span, node.dialect, trace.is_cut)
                if offered is not None:
                    self._history.offer(offered.schemas)

    def _linked_scope(self, trace: Trace) -> str | None:
        """The scope of another trace whose proposal this trace's input repeats (a resumed run shares nothing else)."""
        own: set[str | None] = set()
        found: str | None = None
        turns = trace.turns()
        for turn in turns:
            own.update(proposal.call_id for proposal in turn.proposals())
        for turn in turns:
            for echo in turn.consumed()[0]:
                if found is None and echo.call_id not in own:
                    found = self._history.proposing_scope(_proposal_key(echo))
        default = found or trace.trace_id
        for turn in turns:
            scope = trace.conversation(turn) or default
            for proposal in turn.proposals():
                self._history.proposed(_proposal_key(proposal), scope)
        return found

    def _note_failures(self, assessor: Assessor, calls: list[AssessedCall], default: str) -> None:
        if not calls:
            return
        scopes = {call.scope for call in calls} or {default}
        for node in assessor.trace.nodes:
            if node.call is None and node.dialect is not None and node.failed and node.span.end_ns is not None:
                for scope in scopes:
                    self._history.scope(scope).failed_at(node.span.end_ns)

    def _mark_scopes(self, calls: list[AssessedCall], trace: Trace) -> None:
        spans = [node.span for node in trace.nodes]
        start = min((span.start_ns or 0 for span in spans), default=0)
        end = max((span.end_ns or 0 for span in spans), default=0)
        for scope in {call.scope for call in calls}:
            failed = any(c.facts.ended is not Ended.WELL for c in calls if c.scope == scope)
            self._history.scope(scope).mark(trace.trace_id, start, end, failed)

    # -- duplicates ------------------------------------------------------------------------------------------------

    def _repetition(self, call: AssessedCall, trace: Trace) -> Repetition | None:
        facts, span, record = call.facts, call.node.span, call.node.call
        if facts.call_id is not None:
            self._seen_ids[call.scope, facts.call_id] = None
        assert record is not None
        self._sends(call)
        if facts.execution is Executed.NOT_STARTED or _no_effect(call) or facts.tool in record.dialect.framework_tools:
            return None
        execution = Execution(
            span_id=span.span_id,
            trace_id=span.trace_id,
            tool=facts.tool,
            call_id=None if facts.call_id_unstable else facts.call_id,
            start_ns=span.start_ns or 0,
            end_ns=span.end_ns or span.start_ns or 0,
            ended=facts.ended,
            uncertain=facts.ended in (Ended.FAILED, Ended.UNKNOWN) or call.verdict.quarantined,
            arguments=call.arguments,
            turn=call.joined.turn.span.span_id if call.joined is not None and call.joined.turn is not None else None,
            proposed=call.proposed,
        )
        scope = self._history.scope(call.scope)
        found = repetition(execution, facts.effect, scope) or self._linked(call, trace, scope)
        if found is not None:
            group = self._group(call.scope, found)
            group.add(*found.members, span.span_id)
        return found

    def _linked(self, call: AssessedCall, trace: Trace, scope: Scope) -> Repetition | None:
        for link in call.node.span.links:
            if retry_of(link.attributes) or any(key.upper() == "RETRY_OF" for key in link.attributes):
                return Repetition(link.span_id, DuplicateKey.LINK, call.facts.tool or "", False, 2)
        return None

    def _group(self, scope: str, found: Repetition) -> DuplicateGroup:
        key = (scope, found.first, found.suspected)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = DuplicateGroup(found.first, found.key, found.value, found.suspected)
        return group

    def _sends(self, call: AssessedCall) -> None:
        """Several client requests under one call: the session may have sent it twice."""
        clients = [
            view
            for view in call.node.views()
            if view.call is not None
            and view.call.view is View.MCP_CLIENT
            and not (view.outer is not None and view.outer.call is not None and view.outer.call.view is View.MCP_CLIENT)
        ]
        if len(clients) > 1:
            first = clients[0].span.span_id
            group = DuplicateGroup(first, DuplicateKey.SENDS, call.facts.tool or "", True)
            group.add(*(view.span.span_id for view in clients))
            self._groups[call.scope, first, DuplicateKey.SENDS] = group

    # -- what no span shows ----------------------------------------------------------------------------------------

    def _note_unobserved(self, assessor: Assessor, default: str) -> None:
        seen: set[Hashable] = set()
        for turn, proposal in assessor.turns.unused():
            key: Hashable = proposal.call_id or (id(turn), id(proposal))
            if key in seen:
                continue
            seen.add(key)
            scope = assessor.trace.conversation(turn) or default
            self._unobserved.append(
                (scope, UnobservedCall(turn.span.trace_id, turn.span.span_id, proposal.tool, proposal.call_id))
            )

    def _usage(self, trace: Trace, calls: list[SurveyedCall]) -> Usage:
        inferences = [node for node in trace.nodes if node.operation is Operation.INFERENCE]
        inner = {id(above) for node in inferences for above in node.ancestors()}
        leaves = [node for node in inferences if id(node) not in inner]
        again = {
            id(call.call.joined.turn): call.call.joined.turn
            for call in calls
            if call.repetition is not None and not call.repetition.suspected
            if call.call.joined is not None and call.call.joined.turn is not None
        }
        return Usage(
            trace.trace_id,
            sum(_tokens(node, _INPUT_TOKENS) for node in leaves),
            sum(_tokens(node, _OUTPUT_TOKENS) for node in leaves),
            sum(_tokens(node, _INPUT_TOKENS) for node in again.values()),
        )


def _no_effect(call: AssessedCall) -> bool:
    """A cache hit is no second effect."""
    attributes = call.node.span.attributes
    return attributes.get("crewai.tool.from_cache") is True or attributes.get("gen_ai.tool.from_cache") is True


def _proposal_key(proposal: Proposal) -> Hashable:
    form = same_form(read_arguments(proposal.arguments))
    return proposal.call_id, proposal.tool, digest(form) if form is not None else None


def _tokens(node: Node, keys: tuple[str, ...]) -> int:
    for key in keys:
        value: Any = node.span.attributes.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


