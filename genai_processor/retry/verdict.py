# SPDX-License-Identifier: Apache-2.0
"""The decision: from what is known of one call to the answer. Pure, total, first row that fits (docs/verdict.md)."""

from __future__ import annotations

import enum
from typing import NamedTuple

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.spans.arguments import ArgumentsState


class Ended(enum.StrEnum):
    """How a call ended, as far as its spans betray it."""

    WELL = "well"
    FAILED = "failed"
    UNKNOWN = "unknown"
    PAUSED = "paused"


class Execution(enum.StrEnum):
    """Whether the tool's body began. Only positive proof leaves `UNKNOWN`."""

    NOT_STARTED = "not_started"
    STARTED = "started"
    UNKNOWN = "unknown"


class Effect(enum.StrEnum):
    """What the user declared of a tool."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    NON_IDEMPOTENT = "non_idempotent"


class CallIdSource(enum.StrEnum):
    """Where the call id comes from."""

    SPAN = "span"
    GUARD = "guard"
    PROPOSAL = "proposal"
    NONE = "none"


class RetryVerdict(enum.StrEnum):
    """The values of `genai.retry.verdict`."""

    NO_RETRY_NEEDED = "no_retry_needed"
    RETRYABLE_PRE_EXECUTION = "retryable_pre_execution"
    RETRYABLE_READ_ONLY = "retryable_read_only"
    RETRYABLE_SAME_CALL_ID = "retryable_same_call_id"
    QUARANTINED = "quarantined"
    QUARANTINED_UNKNOWN = "quarantined_unknown"


class Reason(enum.StrEnum):
    """The values of `genai.retry.reason`."""

    SUCCEEDED = "succeeded"
    PAUSED = "paused"
    REJECTED_BEFORE_EXECUTION = "rejected_before_execution"
    MALFORMED_ARGUMENTS = "malformed_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    READ_ONLY_TOOL = "read_only_tool"
    IDEMPOTENT_TOOL = "idempotent_tool"
    EFFECT_BEFORE_PAUSE = "effect_before_pause"
    NO_END_RECORDED = "no_end_recorded"
    COMMITMENT_MARKER = "commitment_marker"
    EXECUTION_STARTED = "execution_started"
    ARGUMENTS_CUT = "arguments_cut"
    ARGUMENTS_WITHHELD = "arguments_withheld"
    CALL_ID_MISSING = "call_id_missing"
    CALL_ID_UNSTABLE = "call_id_unstable"
    ARGUMENTS_MALFORMED = "arguments_malformed"
    REFUSED_BY_GUARD = "refused_by_guard"


class CallFacts(NamedTuple):
    """Everything that the decision rests on, for one call with all its views.

    Attributes:
        tool: The tool's name, for messages.
        ended: How it ended.
        execution: Whether the body began.
        rejection: Why it never began, for `NOT_STARTED`.
        effect: What the user declared of the tool.
        arguments_state: How whole the arguments are, wherever they were found.
        call_id: The call id, if any was found, usable or not.
        call_id_source: Where it comes from.
        call_id_unstable: It is bound to two argument sets in its scope, or telemetry cut it.
        call_id_exact: It is the span's or the guard's, or exactly one proposal fits.
        reached_outside: Something below the call reached the outside (a CLIENT or PRODUCER span, a nested call).
        end_recorded: The span has an end time.
        failure_marked: Something marks the call as failed.
        evidence: Short strings, for people: what the facts were read from.
    """

    tool: str | None = None
    ended: Ended = Ended.UNKNOWN
    execution: Execution = Execution.UNKNOWN
    rejection: Reason | None = None
    effect: Effect = Effect.NON_IDEMPOTENT
    arguments_state: ArgumentsState = ArgumentsState.WITHHELD
    call_id: str | None = None
    call_id_source: CallIdSource = CallIdSource.NONE
    call_id_unstable: bool = False
    call_id_exact: bool = True
    reached_outside: bool = False
    end_recorded: bool = True
    failure_marked: bool = False
    evidence: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """The answer to "may this call be tried again?".

    Attributes:
        verdict: The answer.
        reason: The row of the table that gave it.
        evidence: What it was read from, for people.
        tool: The tool's name, if known.
        call_id: The call id, if one was found.
        call_id_source: Where the call id comes from.
        arguments_state: How whole the arguments are.
        execution: Whether the body began, as far as proven.
        effect: What the user declared of the tool.
    """

    verdict: RetryVerdict
    reason: Reason
    evidence: tuple[str, ...] = ()
    tool: str | None = None
    call_id: str | None = None
    call_id_source: CallIdSource = CallIdSource.NONE
    arguments_state: ArgumentsState = ArgumentsState.WITHHELD
    execution: Execution = Execution.UNKNOWN
    effect: Effect = Effect.NON_IDEMPOTENT

    @property
    def quarantined(self) -> bool:
        """Whether the call may have committed, so that only a person or its provider can settle it."""
        return self.verdict in (RetryVerdict.QUARANTINED, RetryVerdict.QUARANTINED_UNKNOWN)

    @property
    def retryable(self) -> bool:
        """Whether the call may be tried again (for `retryable_same_call_id`: under its id)."""
        return self.verdict.startswith("retryable_")

    def raise_if_quarantined(self) -> None:
        """Raise unless the call is known to be safe.

        Raises:
            ToolSpanCommitmentError: The call may have committed.
        """
        if self.quarantined:
            raise ToolSpanCommitmentError(
                f"tool {self.tool or '(unnamed)'!r}, call id {self.call_id!r}: the call may have committed "
                f"({self.verdict}, {self.reason}). Do not try it again; settle it in the queue first.",
                tool=self.tool,
                call_id=self.call_id,
                reason=self.reason.value,
            )


def classify(call: CallFacts) -> Verdict:
    """Decide whether a call may be tried again.

    Args:
        call: What is known of it.

    Returns:
        The verdict of the first row of the table that fits. Unknown is never safe: a call that no row allows is
        quarantined.
    """
    verdict, reason = _decide(call)
    return Verdict(
        verdict,
        reason,
        call.evidence,
        call.tool,
        call.call_id,
        call.call_id_source,
        call.arguments_state,
        call.execution,
        call.effect,
    )


def _decide(call: CallFacts) -> tuple[RetryVerdict, Reason]:
    id_usable = call.call_id is not None and not call.call_id_unstable
    if call.ended is Ended.WELL:
        return RetryVerdict.NO_RETRY_NEEDED, Reason.SUCCEEDED
    if call.ended is Ended.PAUSED and not call.reached_outside:
        return RetryVerdict.NO_RETRY_NEEDED, Reason.PAUSED
    if call.execution is Execution.NOT_STARTED:
        if call.rejection is Reason.REFUSED_BY_GUARD:  # it did nothing itself; what stood in its way may have
            return RetryVerdict.QUARANTINED, Reason.REFUSED_BY_GUARD
        return RetryVerdict.RETRYABLE_PRE_EXECUTION, call.rejection or Reason.REJECTED_BEFORE_EXECUTION
    if call.effect is Effect.READ_ONLY:
        return RetryVerdict.RETRYABLE_READ_ONLY, Reason.READ_ONLY_TOOL
    if call.effect is Effect.IDEMPOTENT and id_usable and call.call_id_exact:
        return RetryVerdict.RETRYABLE_SAME_CALL_ID, Reason.IDEMPOTENT_TOOL
    if call.ended is Ended.PAUSED:
        return RetryVerdict.QUARANTINED, Reason.EFFECT_BEFORE_PAUSE
    if not call.end_recorded and not call.failure_marked:
        return RetryVerdict.QUARANTINED_UNKNOWN, Reason.NO_END_RECORDED
    if call.arguments_state is ArgumentsState.COMPLETE and id_usable:
        return RetryVerdict.QUARANTINED, Reason.COMMITMENT_MARKER
    if call.execution is Execution.STARTED:
        return RetryVerdict.QUARANTINED, Reason.EXECUTION_STARTED
    return RetryVerdict.QUARANTINED_UNKNOWN, _what_is_missing(call)


def _what_is_missing(call: CallFacts) -> Reason:
    if call.ended is Ended.UNKNOWN:
        return Reason.NO_END_RECORDED
    if call.arguments_state is ArgumentsState.CUT:
        return Reason.ARGUMENTS_CUT
    if call.arguments_state is ArgumentsState.WITHHELD:
        return Reason.ARGUMENTS_WITHHELD
    if call.call_id is None:
        return Reason.CALL_ID_MISSING
    if call.call_id_unstable:
        return Reason.CALL_ID_UNSTABLE
    return Reason.ARGUMENTS_MALFORMED
