# SPDX-License-Identifier: Apache-2.0
"""`is_safe_to_retry`: one line in front of a retry."""

from __future__ import annotations

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.retry.raised import chain, ended_calls
from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.verdict import Effect, Reason, RetryVerdict


def is_safe_to_retry(error: BaseException, *, same_call_id: bool = False) -> bool:
    """Whether the run that an exception ended may be run again without doing anything twice.

    Asks the verdicts that the processor gave in this process. The exception itself, or one that it was raised `from`, must
    have ended a tool call (of a group, every member). Then *every* call of that trace counts, because whoever runs the agent
    again runs all of them again: a call of a tool that is not read-only and that succeeded, paused, is still open, or may
    have committed, makes the answer False.

    Only calls of the same trace are seen, and only those in this process. A tool span without any span above it is alone in
    its trace, so the rest of its run is unknown and the answer False: let a span stand around each run, as most agent
    frameworks do.

    LangChain ends a tool's span before it raises, so of its tools an exception is known only where
    `GenAIProcessorInstrumentor().instrument()`, or the entry point, has set the processor up; elsewhere the answer is False.

    Args:
        error: What was caught.
        same_call_id: The retry keeps the calls' ids, so that idempotent tools recognise them.

    Returns:
        False unless it is known to be safe. An exception that no known call ended is unknown. Never raises.
    """
    try:
        if isinstance(error, ToolSpanCommitmentError):
            return False
        verdicts = RecentRuns.of_process().verdicts(chain(error)) if ended_calls(error) else None
    except Exception:  # noqa: BLE001 - the caller is handling an error, and must not get another instead of an answer
        return False
    if not verdicts:
        return False
    allowed = {RetryVerdict.RETRYABLE_PRE_EXECUTION, RetryVerdict.RETRYABLE_READ_ONLY}
    if same_call_id:
        allowed.add(RetryVerdict.RETRYABLE_SAME_CALL_ID)
    return all(
        verdict.verdict in allowed or (verdict.reason is Reason.PAUSED and verdict.effect is Effect.READ_ONLY)
        for verdict in verdicts
    )
