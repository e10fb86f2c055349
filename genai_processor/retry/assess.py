# SPDX-License-Identifier: Apache-2.0
"""Put together what a trace says of each of its calls, and decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from genai_processor.retry.assessed import AssessedCall
from genai_processor.retry.ending import ended_of
from genai_processor.retry.joins import Turns
from genai_processor.retry.nodes import Node
from genai_processor.retry.offers import Offers
from genai_processor.retry.policy import Policy, same_tool
from genai_processor.retry.proof_of_start import NOTHING_PROVEN, REFUSED, Proof, started
from genai_processor.retry.proofs import Context, grounds_of, never_started, wrong_with
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import (
    CallFacts,
    CallIdSource,
    Ended,
    Execution,
    classify,
)
from genai_processor.spans.arguments import (
    CUT,
    WITHHELD,
    Arguments,
    ArgumentsState,
    fingerprint,
    needs_nothing,
    read_arguments,
)
from genai_processor.spans.read import refused_by_guard

# Reading a member of an enum class costs more than reading a global, and these are asked for on every call.
_WELL, _FAILED, _COMPLETE, _SPAN_ID = Ended.WELL, Ended.FAILED, ArgumentsState.COMPLETE, CallIdSource.SPAN


class Assessor:
    """Judges the calls of one trace.

    Args:
        trace: The trace.
        policy: What the user declared of tools.
        enclosing: Whether the spans above the calls are known (offline), so that they can say something.
        scope: The scope of calls without a conversation; the trace's id if not given.
        declared: The schemas with which agents, in other traces, were given a tool of some name.
        means_otherwise: Whether a call id was seen before, in this scope, for another tool or other arguments.
        exist: Tools known to exist, because a call of them ended well.
    """

    def __init__(
        self,
        trace: Trace,
        policy: Policy,
        *,
        enclosing: bool = True,
        scope: str | None = None,
        declared: Callable[[str], list[Any]] = lambda tool: [],
        means_otherwise: Callable[[str, str, str | None, Arguments], bool] = lambda scope, call_id, tool, arguments: False,
        exist: Iterable[str] = (),
    ) -> None:
        self.trace = trace
        self.policy = policy
        self._default_scope = scope or trace.trace_id
        self._declared = declared
        self._means_otherwise = means_otherwise
        self._exist = exist
        self.turns = Turns(trace)
        self._enclosing = enclosing
        self._proofs: dict[int, Proof] = {}
        self._arguments: dict[int, tuple[Arguments, str]] = {}
        self._offers: dict[int, Offers] = {}
        self._ended: dict[int, tuple[Ended, tuple[str, ...]]] = {}

    def calls(self) -> list[AssessedCall]:
        """Every call of the trace, by start, with its verdict."""
        calls = self.trace.calls()
        if len(calls) == 1:  # as in most traces: nothing to put in order, and no other call to share an id with
            return [self.assess(calls[0])]
        for call in calls:  # proposals are handed out in order of start, those that an id names first
            if call.call is not None and call.call.call_id is not None:
                self.turns.join(call)
        for call in calls:
            self.turns.join(call)
        for call in sorted(calls, key=lambda node: -node.depth()):
            self._execution(call)
        unstable = self._ids_with_two_meanings(calls)
        return [self.assess(call, unstable) for call in calls]

    def assess(self, call: Node, unstable_ids: Iterable[tuple[str, str]] = ()) -> AssessedCall:
        """One call with its verdict."""
        arguments, source = self.arguments_of(call)
        ended, how = self._ending(call)
        proof = self._proof(call)
        if proof.execution is not Execution.STARTED and any(refused_by_guard(v.span.attributes) for v in call.views()):
            ended, proof = _FAILED, REFUSED
        if ended is not _WELL and arguments.state is _COMPLETE and wrong_with(arguments, self._offers_of(call)):
            arguments = arguments._replace(state=ArgumentsState.MALFORMED)
        scope = self.scope_of(call)
        call_id, id_source, exact = self._call_id(call)
        tool = call.tool()
        cut_id = call_id is not None and self.trace.is_cut_id(call_id)
        facts = CallFacts(
            tool,  # by position, as far as types tell the fields apart: names cost more
            ended,
            proof.execution,
            proof.rejection,
            self.policy.effect(tool),
            arguments.state,
            call_id,
            id_source,
            call_id_unstable=cut_id
            or (scope, call_id or "") in unstable_ids
            or (call_id is not None and self._means_otherwise(scope, call_id, tool, arguments))
            or (call_id is not None and ended is not _WELL and self.turns.propose_differently(call_id)),
            call_id_exact=exact,
            reached_outside=proof.outside,
            end_recorded=call.span.end_ns is not None,
            failure_marked=ended is _FAILED,
            evidence=how + proof.evidence,
        )
        joined = self.turns.join(call)
        proposed = self.turns.proposed_with(joined) if joined is not None else 1
        return AssessedCall(call, facts, classify(facts), scope, arguments, source, joined, proposed)

    def scope_of(self, call: Node) -> str:
        """Where the call's ids and its action are unique: conversation, session, else the trace."""
        if not self._enclosing:
            return self._default_scope
        return self.trace.conversation(call) or self._default_scope

    # -- arguments and id ------------------------------------------------------------------------------------------

    def arguments_of(self, call: Node) -> tuple[Arguments, str]:
        """The arguments of a call: its own spans', else its proposal's."""
        found = self._arguments.get(id(call))
        if found is None:
            found = self._arguments[id(call)] = self._find_arguments(call)
        return found

    def _find_arguments(self, call: Node) -> tuple[Arguments, str]:
        best = WITHHELD
        for view in call.views():
            if view.call is None:
                continue
            found = read_arguments(view.call.arguments, rendered=view.call.arguments_rendered, is_cut=self.trace.is_cut)
            if found.state is _COMPLETE:
                return found, "span"
            if found.state is not ArgumentsState.WITHHELD:
                best = found
            elif view.span.dropped_attributes and best is WITHHELD:
                best = CUT
        if best.state is ArgumentsState.MALFORMED:
            return best, "span"
        joined = self.turns.join(call)
        if joined is not None and joined.proposal.arguments is not None and joined.exact:
            proposed = read_arguments(joined.proposal.arguments, is_cut=self.trace.is_cut)
            if proposed.state is not ArgumentsState.WITHHELD:
                return proposed, "proposal"
        if best is WITHHELD and self._records_empty(call) and needs_nothing(self._offers_of(call).schema):
            return Arguments(ArgumentsState.COMPLETE, {}), "span"
        return best, "span" if best is not WITHHELD else "none"

    def _records_empty(self, call: Node) -> bool:
        """Absent arguments with a schema that needs none are complete, unless the span lost attributes."""
        return not any(view.span.dropped_attributes for view in call.views())

    def _call_id(self, call: Node) -> tuple[str | None, CallIdSource, bool]:
        for view in call.views():
            if view.call is not None and view.call.call_id is not None:
                return view.call.call_id, _SPAN_ID, True
        joined = self.turns.join(call)
        if joined is not None and joined.proposal.call_id is not None:
            return joined.proposal.call_id, CallIdSource.PROPOSAL, joined.exact
        return None, CallIdSource.NONE, True

    def _ids_with_two_meanings(self, calls: list[Node]) -> set[tuple[str, str]]:
        """The ids that stand for two argument sets, or two tools, in one scope: they are no token for either."""
        tools: dict[tuple[str, str], set[str | None]] = {}
        forms: dict[tuple[str, str], set[str]] = {}
        for call in calls:
            call_id = self._call_id(call)[0]
            if call_id is None or call.call is None:
                continue
            key = (self.scope_of(call), call_id)
            tools.setdefault(key, set()).add(call.call.tool)
            form = fingerprint(self.arguments_of(call)[0])
            if form is not None:
                forms.setdefault(key, set()).add(form)
        return {key for table in (tools, forms) for key, found in table.items() if len(found) > 1}

    # -- ending and execution --------------------------------------------------------------------------------------

    def _ending(self, call: Node) -> tuple[Ended, tuple[str, ...]]:
        found = self._ended.get(id(call))
        if found is None:
            found = ended_of(call, self.trace, self._reported_failed, enclosing=self._enclosing)
            if found[0] is not _FAILED and any(view.span.dropped_events for view in call.views()):
                found = Ended.UNKNOWN, ("events were dropped, which may have told of a failure",)
            self._ended[id(call)] = found
        return found

    def _reported_failed(self, call_id: str) -> bool:
        return self._enclosing and call_id in self.trace.once("failed results", self._failed_results)

    def _failed_results(self) -> frozenset[str]:
        """The ids of calls that a later message reports as failed."""
        return frozenset(
            result.call_id
            for turn in self.trace.turns()
            for result in turn.consumed()[1]
            if result.failed and result.call_id is not None
        )

    def _ended_well(self) -> frozenset[str]:
        return frozenset(
            call.call.tool
            for call in self.trace.calls()
            if call.call is not None and call.call.tool is not None and self._ending(call)[0] is Ended.WELL
        ).union(self._exist)

    def _execution(self, call: Node) -> Execution:
        return self._proof(call).execution

    def _proof(self, call: Node) -> Proof:
        found = self._proofs.get(id(call))
        if found is None:
            for nested in reversed(self._not_proven(call)):  # so that however deep calls are nested, nothing recurses
                self._proofs[id(nested)] = NOTHING_PROVEN  # asked for in a cycle
                found = self._proofs[id(nested)] = self._prove(nested)
            found = self._proofs[id(call)]
        return found

    def _not_proven(self, call: Node) -> list[Node]:
        """A call and the calls nested in it of which nothing has been proven yet, outer ones first."""
        if not call.inner and not call.tools:
            return [call]
        found, index = {id(call): call}, 0
        order = [call]
        while index < len(order):
            for view in order[index].views():
                for nested, _ in view.tools:
                    outermost = _outermost(nested)
                    if id(outermost) not in self._proofs and id(outermost) not in found:
                        found[id(outermost)] = outermost
                        order.append(outermost)
            index += 1
        return order

    def _prove(self, call: Node) -> Proof:
        ended = self._ending(call)[0]
        proof = started(call, lambda nested: self._execution(_outermost(nested)), self._paused)
        if ended is _WELL or proof.evidence or proof.execution is Execution.STARTED:
            return proof
        grounds = grounds_of(call, self.policy)
        if not grounds:
            return proof
        arguments = self.arguments_of(call)[0]
        return never_started(call, ended, self._context(call, arguments), grounds) or proof

    def _paused(self, nested: Node) -> bool:
        nested = _outermost(nested)
        return self._ending(nested)[0] is Ended.PAUSED and not self._proof(nested).outside

    def _context(self, call: Node, arguments: Arguments) -> Context:
        return Context(self.trace, self.policy, arguments, self._offers_of(call), self._exists)

    def _offers_of(self, call: Node) -> Offers:
        found = self._offers.get(id(call))
        if found is None:
            found = self._offers[id(call)] = Offers(call, self.trace, self.turns.join, self._declared)
        return found

    def _exists(self, tool: str) -> bool:
        return any(same_tool(name, tool) for name in self.trace.once("ended well", self._ended_well))


def _outermost(node: Node) -> Node:
    while node.outer is not None:
        node = node.outer
    return node
