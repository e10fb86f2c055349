# SPDX-License-Identifier: Apache-2.0
"""What the guard knows of a call whose span ends, which is more than the span says."""

from __future__ import annotations

from typing import Final, Protocol

from genai_processor.retry.judgement import Judgement
from genai_processor.retry.verdict import (
    CallFacts,
    CallIdSource,
    Effect,
    Execution,
    Reason,
    RetryVerdict,
    Verdict,
)
from genai_processor.spans.arguments import ArgumentsState

_NOT_RECORDED: Final = frozenset({ArgumentsState.WITHHELD, ArgumentsState.CUT})


class Guarded(Protocol):
    """A guarded call.

    Attributes:
        tool: Name of the tool.
        call_id: Its call id, if usable.
        digest: Digest of what makes it the action that it is; None if its arguments are not known whole.
        scope: Where these are unique.
        reason: Why it was refused.
        ran: Its body was let run.
        handed_back: It was answered with the recorded result of the very same call.
        never_began: Positive proof that its body never began, though it might have.
        started: Positive proof that it did.
    """

    tool: str
    call_id: str | None
    digest: str | None
    scope: str
    reason: str | None
    started: bool

    @property
    def ran(self) -> bool:
        """See the class."""
        ...

    @property
    def handed_back(self) -> bool:
        """See the class."""
        ...

    @property
    def never_began(self) -> bool:
        """See the class."""
        ...


def not_run(call: Guarded, trace_id: int, span_id: int, name: str, has_id: bool, effect: Effect) -> Judgement:
    """The judgement of a call that the guard did not let run.

    A refused one did nothing itself, and must not be tried again all the same: what stands in its way may have committed.
    """
    if call.handed_back:
        verdict, reason, evidence = RetryVerdict.NO_RETRY_NEEDED, Reason.SUCCEEDED, ("the guard handed its result back",)
    else:
        verdict, reason = RetryVerdict.QUARANTINED, Reason.REFUSED_BY_GUARD
        evidence = (f"the guard refused it: {call.reason}",)
    source = CallIdSource.NONE if call.call_id is None else CallIdSource.SPAN if has_id else CallIdSource.GUARD
    found = Verdict(
        verdict,
        reason,
        evidence,
        call.tool,
        call.call_id,
        source,
        ArgumentsState.WITHHELD if call.digest is None else ArgumentsState.COMPLETE,
        Execution.NOT_STARTED,
        effect,
    )
    return Judgement(trace_id, span_id, name, has_id, found, call.scope)


def with_guard(facts: CallFacts, call: Guarded) -> CallFacts:
    """Add what the guard knows to what was read from spans. Proof of a start beats proof of none."""
    if facts.call_id is None and call.call_id is not None:
        facts = facts._replace(
            call_id=call.call_id, call_id_source=CallIdSource.GUARD, call_id_exact=True, call_id_unstable=False
        )
    if call.digest is not None and facts.arguments_state in _NOT_RECORDED:
        facts = facts._replace(arguments_state=ArgumentsState.COMPLETE)
    if facts.execution is Execution.STARTED:
        return facts
    if call.never_began:
        said = (*facts.evidence, "the guard: its body never began")
        return facts._replace(execution=Execution.NOT_STARTED, evidence=said)
    if call.started:
        return facts._replace(execution=Execution.STARTED, evidence=(*facts.evidence, "the guard: its body began"))
    return facts
