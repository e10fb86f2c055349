# SPDX-License-Identifier: Apache-2.0
"""Calls that are not run, and what the model, or the application, is told instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.bindings import Bound
from genai_processor.ledger.entries import State
from genai_processor.ledger.requests import Refusal, RefusalReason


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of a call that ran before.

    Attributes:
        value: As the tool returned it.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that the guard does not let run.

    Attributes:
        tool: Name of the tool.
        call_id: Its call id, if usable.
        reason: A value of `RefusalReason`, or ``ledger_unavailable``.
        text: What to tell a model: plain, and nothing that asks it to try again.
        entry_id: The entry that stands in the way, if there is one.
        recorded: The recorded result that answers this very call, if it is at hand: then nothing was refused, it is done.
        cause: What kept the ledger from answering.
        bound: The call, as its spans see it.
        handed_out: To be called when whoever called is given the recorded result, if its run has to know.
        delivers: To be called then, too, if the ledger has to know.
    """

    tool: str
    call_id: str | None
    reason: str
    text: str
    entry_id: str | None = None
    recorded: Recorded | None = None
    cause: BaseException | None = None
    bound: Bound | None = None
    handed_out: Callable[[], None] | None = None
    delivers: Callable[[], None] | None = None

    def error(self) -> ToolSpanCommitmentError:
        """Return the exception that says so; raise it `from` `cause`."""
        return ToolSpanCommitmentError(
            self.text,
            tool=self.tool,
            call_id=self.call_id,
            reason=self.reason,
            entry_id=self.entry_id,
            recorded=self.recorded,
        )


LEDGER_UNAVAILABLE: Final = "ledger_unavailable"

_WHY: Final = {
    RefusalReason.CALL_REPEATED: "this very call was made before",
    RefusalReason.ACTION_IN_FLIGHT: "the same action is still running",
    RefusalReason.ACTION_QUARANTINED: "an earlier attempt at the same action may have committed",
    RefusalReason.ACTION_UNDELIVERED: "the same action was done before, in a run that ended before its result was used",
    RefusalReason.ACTION_COMMITTED: "the same action was done before, as somebody has found out who settled it",
    RefusalReason.TURN_EXCEEDED: "the action has been run as often as it was asked for",
    RefusalReason.NESTED_UNCERTAIN: "an earlier attempt within this call may have committed",
    RefusalReason.LEDGER_UNKNOWN: "it is not known any more whether it was done before",
}

_REPEATED: Final = {
    State.CLAIMED: "this very call was made before, and has not ended",
    State.QUARANTINED: "this very call was made before, and may have committed",
    State.RETURNED: "this very call was made before, and succeeded",
    State.COMPLETED: "this very call was made before, and succeeded",
    State.UNDELIVERED: "this very call was made before, and succeeded",
    State.SETTLED: "this very call was made before, and has been settled",
}


def refused(tool: str, call_id: str | None, refusal: Refusal) -> Refused:
    """Return what a ledger's refusal means for a call.

    Args:
        tool: The tool.
        call_id: The call's id, if usable.
        refusal: The ledger's answer.
    """
    entry = refusal.entry
    why = _WHY[refusal.reason]
    if refusal.reason is RefusalReason.CALL_REPEATED and entry is not None:
        why = _REPEATED.get(entry.state, why)
    elif entry is not None and entry.state is State.RETURNED:
        why = "the same action has just been done, in a run that has yet to use its result"
    waits = "" if entry is None or not entry.pending else f" A person has to settle entry {entry.entry_id} first."
    text = f"{tool} was not run: {why}. Do not call it again with these arguments; report this instead.{waits}"
    return Refused(tool, call_id, refusal.reason.value, text, None if entry is None else entry.entry_id)


def unavailable(tool: str, call_id: str | None, cause: BaseException) -> Refused:
    """Return what it means for a call that the ledger could not be asked."""
    text = (
        f"{tool} was not run: the ledger that prevents double execution cannot be asked, so nobody knows whether it was "
        "done before. Do not call it again; report this instead. To the operator: bring the ledger back, or declare the "
        "tool idempotent or read-only if it is."
    )
    return Refused(tool, call_id, LEDGER_UNAVAILABLE, text, cause=cause)
