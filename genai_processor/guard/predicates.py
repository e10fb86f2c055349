# SPDX-License-Identifier: Apache-2.0
"""`is_safe_to_retry`: one line in front of a retry."""

from __future__ import annotations

from collections.abc import Iterator

from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.verdict import Reason, RetryVerdict

_MAX_CHAIN = 100


def is_safe_to_retry(error: BaseException, *, same_call_id: bool = False) -> bool:
    """Whether the run that an exception ended may be run again without doing anything twice.

    Asks the verdicts that the processor gave in this process. The exception, or one that it was raised from, must have
    ended a tool call; then *every* call of that trace counts, because whoever runs the agent again runs all of them again: a
    call of a tool that is not read-only and that succeeded, or that may have committed, makes the answer False.

    Args:
        error: What was caught.
        same_call_id: The retry keeps the calls' ids, so that idempotent tools recognise them.

    Returns:
        False unless it is known to be safe. An exception that no known call ended is unknown.
    """
    verdicts = RecentRuns.of_process().verdicts(_chain(error))
    if verdicts is None:
        return False
    allowed = {RetryVerdict.RETRYABLE_PRE_EXECUTION, RetryVerdict.RETRYABLE_READ_ONLY}
    if same_call_id:
        allowed.add(RetryVerdict.RETRYABLE_SAME_CALL_ID)
    return all(verdict.verdict in allowed or verdict.reason is Reason.PAUSED for verdict in verdicts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, what it was raised from, and what a group holds; each once."""
    stack, seen = [error], set[int]()
    while stack and len(seen) < _MAX_CHAIN:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        stack.extend(inner for inner in (current.__cause__, current.__context__) if inner is not None)
        if isinstance(current, BaseExceptionGroup):
            stack.extend(current.exceptions)
