# SPDX-License-Identifier: Apache-2.0
"""What a judgement says to a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genai_processor.ledger.entries import State
from genai_processor.ledger.requests import Returned, Sighting
from genai_processor.retry.verdict import Execution, Reason

if TYPE_CHECKING:
    from genai_processor.retry.came_back import CameBack
    from genai_processor.retry.judgement import Judgement

_UNNAMED: Final = "(unnamed)"
_SUCCEEDED: Final = Reason.SUCCEEDED.value

_STATES: Final = {
    Reason.SUCCEEDED: State.COMPLETED,
    Reason.PAUSED: State.PAUSED,
    Reason.REJECTED_BEFORE_EXECUTION: State.NOT_STARTED,
    Reason.MALFORMED_ARGUMENTS: State.NOT_STARTED,
    Reason.UNKNOWN_TOOL: State.NOT_STARTED,
}
"""What each reason means to a ledger; every other one quarantines."""


def sighting_of(judgement: Judgement, entry_id: str | None = None) -> Sighting:
    """Say to a ledger what a judgement says.

    A failed call that may be tried again under its call id is quarantined too: under any other id it may not.

    Args:
        judgement: What was found.
        entry_id: The entry that an inner span of the same call, or an earlier judgement of it, made.
    """
    verdict = judgement.verdict
    return Sighting(
        judgement.scope,
        verdict.tool or judgement.name or _UNNAMED,
        _STATES.get(verdict.reason, State.QUARANTINED),
        verdict.call_id if judgement.id_usable else None,
        judgement.action,
        None,
        entry_id,
        verdict.effect._value_,
        verdict.reason._value_,
        verdict.execution is Execution.STARTED,
        f"{judgement.trace_id:032x}" if judgement.trace_id else None,
        f"{judgement.span_id:016x}" if judgement.span_id else None,
    )


def returned(call: CameBack) -> Returned:
    """Say to a ledger that a call came back which was compared with no other."""
    return Returned(
        call.scope,
        call.tool or _UNNAMED,
        call.call_id,
        call.effect._value_,
        _SUCCEEDED,
        call.trace_number,
        call.span_number,
    )
