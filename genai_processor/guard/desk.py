# SPDX-License-Identifier: Apache-2.0
"""Claiming calls in the ledger, and what a claim is answered with: the inside of a guard."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from opentelemetry import trace

from genai_processor.errors import LedgerUnavailableError, ReplayRefusedError
from genai_processor.guard import bindings, runs
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.bindings import Bound, GuardOutcome
from genai_processor.guard.calls import Call, Key, as_text, by_glob, claim_of
from genai_processor.guard.ends import Ends
from genai_processor.guard.leases import Leases
from genai_processor.guard.modes import GuardMode
from genai_processor.guard.notes import Notes
from genai_processor.guard.refused import Recorded, Refused, refused, unavailable
from genai_processor.guard.results import Results
from genai_processor.guard.scopes import Scopes
from genai_processor.ledger.entries import Entry, State
from genai_processor.ledger.keys import idempotency_key_of
from genai_processor.ledger.memory import MemoryLedger
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import Claim, Granted, Refusal, RefusalReason
from genai_processor.replays import REPLAYS
from genai_processor.retry.policy import Policy
from genai_processor.retry.verdict import Effect

_log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 5.0


class Desk:
    """Where calls are claimed. What its arguments mean, `Guard` says."""

    def __init__(
        self,
        ledger: Ledger,
        mode: GuardMode,
        policy: Policy,
        results: Results,
        *,
        scope: str | None,
        keys: Mapping[str, Key],
        not_started_on: Mapping[str, tuple[type[BaseException], ...]],
        leases: Leases | None,
        notes: Notes,
    ) -> None:
        self._ledger = ledger
        self._mode = mode
        self._policy = policy
        self._results = results
        self._strict = mode is GuardMode.ENFORCE
        self._scopes = Scopes(scope, strict=self._strict)
        self._keys = keys
        self._not_started_on = not_started_on
        self._leases = leases
        self._notes = notes
        self._ends = Ends(ledger, results, leases, notes)
        self._down_until = 0.0

    def report_to(self, notes: Notes) -> None:
        """Count elsewhere, and have what cannot be told now told from there."""
        self._notes = self._ends.notes = notes

    def begin(
        self,
        call: Call,
        *,
        scope: str | None = None,
        key: Key | None = None,
        not_started_on: tuple[type[BaseException], ...] = (),
    ) -> Attempt | Refused:
        """See `Guard.begin`."""
        if not isinstance(call.tool, str):
            name = as_text(call.tool, "tool", strict=self._strict)
            call = replace(call, tool=type(call.tool).__name__ if name is None else name)
        parent, run = bindings.current(), runs.current_run()
        effect = self._effect(call)
        not_started_on += by_glob(self._not_started_on, call.tool) or ()
        if parent is not None:
            parent.outside = True
            parent.acts()
        if effect is Effect.READ_ONLY or self._mode is GuardMode.OFF:
            return self._unclaimed(call, parent, run, GuardOutcome.GRANTED, not_started_on)
        if REPLAYS.ever and REPLAYS.here():
            raise ReplayRefusedError(
                f"{call.tool} is called in a replay, may have an effect, and is not answered from the record; "
                "it is not run. Declare it read-only if it is"
            )
        if self._is_down():
            return self._unclaimed(call, parent, run, GuardOutcome.UNGUARDED, not_started_on)
        claim = claim_of(
            call,
            effect=effect,
            key=by_glob(self._keys, call.tool) or key,
            scope=self._scopes.of(call, scope, parent, run),
            parent=parent if parent is not None and self._knows(parent) else None,
            lease_ns=None if self._leases is None else self._leases.lease_ns,
            strict=self._strict,
        )
        if run is not None:  # first: what the model has seen does not stand in the way of what it asks for after that
            runs.tell_delivered(run.turn_began(claim.turn, claim.parent))
        self._ends.tell_of(claim.scope, claim.tool)
        if self._mode is GuardMode.ENFORCE and effect is not Effect.IDEMPOTENT:
            if not self._notes.catch_up(claim.scope, claim.tool):
                return self._refused(unavailable(call.tool, claim.call_id, _untold(claim)), claim)
            if self._ends.is_lost(claim):
                return self._refused(refused(call.tool, claim.call_id, Refusal(RefusalReason.LEDGER_UNKNOWN, None)), claim)
        try:
            answer = self._ledger.claim(claim, observe=self._mode is GuardMode.OBSERVE)
        except Exception as error:  # noqa: BLE001 - whatever a ledger raises, what follows from it is the same
            return self._without_ledger(call, claim, error, parent, run, not_started_on)
        if isinstance(answer, Refusal):
            return self._not_granted(claim, answer, run)
        return self._granted(claim, answer, run, not_started_on)

    def _knows(self, outer: Bound) -> bool:
        """Whether the entry of a call is in this ledger. What is in memory is known to nobody else."""
        own, other = self._ledger, outer.ledger
        if own is other or isinstance(own, MemoryLedger) or isinstance(other, MemoryLedger):
            return own is other
        try:  # two objects may stand for one file or server
            return outer.entry_id is not None and own.get(outer.entry_id) is not None
        except Exception:  # noqa: BLE001 - the claim, which comes next, will say so
            return True

    def refuses(self, effect: Effect | None, tool: str) -> bool:
        """Whether a call of a tool may be refused at all."""
        return self._mode is GuardMode.ENFORCE and self._effect(Call(tool, effect=effect)) is Effect.NON_IDEMPOTENT

    def refuse(self, within: Bound, reason: RefusalReason) -> Refused:
        """Refuse a repetition inside one call, which the ledger knows as that call."""
        text = refused(within.tool, within.call_id, Refusal(reason, None)).text
        self._notes.decided(self._mode, GuardOutcome.REFUSED)
        return Refused(within.tool, within.call_id, reason.value, text, within.entry_id)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _granted(
        self, claim: Claim, answer: Granted, run: runs.Run | None, not_started_on: tuple[type[BaseException], ...]
    ) -> Attempt:
        outcome, reason = GuardOutcome.GRANTED, None
        if answer.overruled is not None:
            outcome, reason = GuardOutcome.WOULD_REFUSE, answer.overruled.reason.value
            told = refused(claim.tool, claim.call_id, answer.overruled)
            _log.warning("The guard only observes, so this call runs. In mode enforce: %s", told.text)
        bound = self._bound(claim, outcome, reason, answer.entry)
        if claim.parent is None:
            bound.around = bindings.current()
            bound.runs_unseen()
        attempt = Attempt(
            bound,
            answer.entry,
            self._ends.finish,
            run=run,
            not_started_on=not_started_on,
            abandon=self._ends.abandoned,
            lose=partial(self._ends.not_delivered, run),
        )
        if self._leases is not None:
            self._leases.hold(answer.entry)
        return attempt

    def _not_granted(self, claim: Claim, refusal: Refusal, run: runs.Run | None) -> Refused:
        answer = refused(claim.tool, claim.call_id, refusal)
        recorded = None
        if refusal.entry is not None and self._may_hand_back(claim, refusal):
            try:
                recorded = self._results.load(refusal.entry.entry_id)
            except Exception as error:  # noqa: BLE001 - the user's store
                self._notes.fault("A result could not be read from the user's store; the call is refused", error)
        if recorded is None or refusal.entry is None:
            return self._refused(answer, claim)
        if run is not None:
            result = runs.Result(refusal.entry, self._ends)
            answer = replace(answer, handed_out=partial(run.handed_back, result, claim.parent))
        elif claim.turn is None:  # no model has asked: it is delivered where whoever calls gets it, as from the body
            answer = replace(answer, delivers=partial(self._ends.delivered, (refusal.entry,)))
        return self._refused(answer, claim, recorded)

    def _may_hand_back(self, claim: Claim, refusal: Refusal) -> bool:
        """Whether a recorded result answers this very call: as the ledger says; in any turn if the user keeps results."""
        entry = refusal.entry
        if refusal.hand_back or entry is None:
            return refusal.hand_back
        return (
            self._results.lasting
            and refusal.reason is RefusalReason.CALL_REPEATED
            and entry.state is State.COMPLETED
            and entry.tool == claim.tool
            and claim.digest is not None
            and entry.digest == claim.digest
        )

    def _refused(self, answer: Refused, claim: Claim, recorded: Recorded | None = None) -> Refused:
        outcome = GuardOutcome.REFUSED if recorded is None else GuardOutcome.HANDED_BACK
        bound = self._bound(claim, outcome, answer.reason, None, answer.entry_id)
        bound.over = True
        if recorded is None:
            _log.warning("%s", answer.text)
        return replace(answer, recorded=recorded, bound=bound)

    def _without_ledger(
        self,
        call: Call,
        claim: Claim,
        error: Exception,
        parent: Bound | None,
        run: runs.Run | None,
        not_started_on: tuple[type[BaseException], ...],
    ) -> Attempt | Refused:
        self._notes.fault("The ledger could not be asked for a claim", error)
        self._down_until = time.monotonic() + _PAUSE_SECONDS
        if self._mode is GuardMode.ENFORCE and claim.effect != Effect.IDEMPOTENT.value:
            return self._refused(unavailable(call.tool, claim.call_id, error), claim)
        return self._unclaimed(call, parent, run, GuardOutcome.UNGUARDED, not_started_on)

    def _unclaimed(
        self,
        call: Call,
        parent: Bound | None,
        run: runs.Run | None,
        outcome: GuardOutcome,
        not_started_on: tuple[type[BaseException], ...],
    ) -> Attempt:
        """An attempt of which the ledger knows nothing. Calls inside belong to the call around it."""
        scope = self._scopes.known(call, None, parent, run) or ""
        entry_id = None if parent is None else parent.entry_id
        ledger = None if parent is None else parent.ledger
        bound = Bound(call.tool, self._mode.value, outcome, scope=scope, entry_id=entry_id, ledger=ledger)
        bound.around = parent
        if outcome is GuardOutcome.UNGUARDED:
            bound.runs_unseen()
        self._bind(bound)
        self._notes.decided(self._mode, outcome)
        return Attempt(bound, None, self._ends.finish, run=run, not_started_on=not_started_on)

    def _bound(
        self,
        claim: Claim,
        outcome: GuardOutcome,
        reason: str | None,
        entry: Entry | None,
        entry_id: str | None = None,
    ) -> Bound:
        bound = Bound(
            claim.tool,
            self._mode.value,
            outcome,
            scope=claim.scope,
            call_id=claim.call_id,
            digest=claim.digest,
            entry_id=entry_id if entry is None else entry.entry_id,
            key=None if entry is None else idempotency_key_of(entry),
            reason=reason,
            ledger=self._ledger,
        )
        self._bind(bound)
        self._notes.decided(self._mode, outcome)
        return bound

    def _bind(self, bound: Bound) -> None:
        """Bind the current span if it shows the call; else the first matching one that starts under it will be."""
        span = trace.get_current_span()
        if span.is_recording():
            bindings.tool_span_is_current(bound, span)

    def _is_down(self) -> bool:
        """Whether to leave a ledger alone that did not answer just now. Who only observes must not keep tools waiting."""
        return self._mode is GuardMode.OBSERVE and time.monotonic() < self._down_until

    def _effect(self, call: Call) -> Effect:
        declared = self._policy.effect(call.tool)
        return declared if declared is not Effect.NON_IDEMPOTENT else call.effect or declared


def _untold(claim: Claim) -> LedgerUnavailableError:
    return LedgerUnavailableError(f"the ledger has yet to be told how an earlier call of {claim.tool} ended")
