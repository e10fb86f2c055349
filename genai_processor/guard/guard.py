# SPDX-License-Identifier: Apache-2.0
"""The guard: a call is claimed in the ledger before its tool runs, so that one call is executed once.

    guard = Guard(ledger="sqlite:///ledger.db", mode="enforce")

    @guard.tool()
    def refund(order: str, cents: int) -> str:
        return payments.refund(order, cents, idempotency_key=idempotency_key())

The hooks of `genai_processor.guard.hooks` call it for the tools of agent frameworks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from opentelemetry import trace

from genai_processor.errors import LedgerError, UnknownEntryError
from genai_processor.guard import bindings, decorated, runs
from genai_processor.guard.attempt import NOT_KEPT, Attempt
from genai_processor.guard.bindings import Bound, GuardOutcome
from genai_processor.guard.calls import Call, Key, by_glob, claim_of
from genai_processor.guard.leases import Leases
from genai_processor.guard.modes import GuardMode, RefusalMode
from genai_processor.guard.notes import Notes
from genai_processor.guard.refused import Refused, refused, unavailable
from genai_processor.guard.results import Results, ResultStore
from genai_processor.guard.threads import Threads
from genai_processor.ledger import MemoryLedger, open_ledger
from genai_processor.ledger.entries import Entry
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import Claim, Granted, Outcome, Refusal, RefusalReason
from genai_processor.retry.policy import Policy
from genai_processor.retry.verdict import Effect

_log = logging.getLogger(__name__)

_F = TypeVar("_F", bound=Callable[..., Any])
_PAUSE_SECONDS: Final = 5.0
_PROCESS_SCOPE: Final = f"process-{random_id()}"  # of calls in no trace; a forked child goes on with it


class Guard:
    """Claims calls before they run, and tells the ledger how they ended. Thread-safe; for sync and async code.

    Attributes:
        mode: What it does with a call that must not run.
        on_refusal: Whether such a call is answered with a text for the model, or an exception.
        ledger: Where the claims are.
        policy: What the user declared of tools.
        results: What calls returned, to be handed back.
    """

    def __init__(
        self,
        ledger: Ledger | str | None = None,
        *,
        mode: GuardMode | str = GuardMode.ENFORCE,
        on_refusal: RefusalMode | str = RefusalMode.TELL,
        policy: Policy | None = None,
        scope: str | None = None,
        keys: Mapping[str, Key] | None = None,
        not_started_on: Mapping[str, tuple[type[BaseException], ...]] | None = None,
        results: ResultStore | None = None,
        lease_seconds: float = 60,
        trusted_mcp_servers: tuple[str, ...] = (),
        notes: Notes | None = None,
    ) -> None:
        """Make a guard. Opens nothing and starts nothing.

        Args:
            ledger: Where to claim, or the URL of that; by default the memory of this process.
            mode: `off`, `observe` (nothing is refused, what would have been is said), or `enforce`.
            on_refusal: In frameworks, `tell` gives the model an error result with our text, so that other calls of the
                turn finish; `raise` raises `ToolSpanCommitmentError`, or what lets a framework stop. Decorated functions
                and `call` always raise.
            policy: What the user declares about tools; a read-only tool is never claimed.
            scope: Scope of all calls for which the application sets none, such as the id of this job.
            keys: By globs over tool names: a function that takes a call's arguments, and returns what makes it the same
                action as another, for tools whose arguments differ from one attempt to the next.
            not_started_on: By globs over tool names: exceptions by which a tool says that it did nothing.
            results: Where to keep what calls returned, so that another process can hand it back, and so that a repeated
                call id gets its result in later turns, too.
            lease_seconds: How long a claim of a ledger that others share holds without being renewed, which is done from
                a thread for as long as the tool runs. After that the call is quarantined.
            trusted_mcp_servers: Globs over names of MCP servers whose tool annotations are believed.
            notes: Where to count; by default nowhere.

        Raises:
            LedgerURLError: The ledger is given as a URL that names none.
            ValueError: A mode is none, or the lease is not longer than nothing.
        """
        self.mode = GuardMode(mode)
        self.on_refusal = RefusalMode(on_refusal)
        if not lease_seconds > 0:
            raise ValueError(f"lease_seconds must be above 0, but is {lease_seconds!r}")
        self.ledger: Ledger = (
            MemoryLedger() if ledger is None else open_ledger(ledger) if isinstance(ledger, str) else ledger
        )
        self.policy = Policy() if policy is None else policy
        self.results = Results(results)
        self.trusted_mcp_servers = trusted_mcp_servers
        self._scope = scope
        self._keys = dict(keys or {})
        self._not_started_on = dict(not_started_on or {})
        self._notes = Notes() if notes is None else notes
        shared = not isinstance(self.ledger, MemoryLedger)  # what is in memory dies with its claims
        self._leases = Leases(self.ledger, int(lease_seconds * 1e9)) if shared else None
        self.threads = Threads() if shared else None
        self._told: set[str] = set()
        self._down_until = 0.0

    # -- what an application uses ------------------------------------------------------------------------------------

    @contextmanager
    def call(
        self,
        tool: str,
        call_id: str | None = None,
        arguments: Any = None,
        *,
        scope: str | None = None,
        turn: str | None = None,
        proposed: int = 1,
    ) -> Iterator[Attempt]:
        """Claim a call, and run what is inside as its body.

        Give `Attempt.returned` the result to have it kept. Without, the call has ended well when the block ends.

        Args:
            tool: Name of the tool.
            call_id: The id that the model's response gave the call, if any.
            arguments: Its arguments, as a mapping or JSON text; None for not known.
            scope: Where id and arguments are unique, such as a conversation or an order; see `run` for more than one call.
            turn: Id of the model response that proposed it, unique in the world.
            proposed: How many identical calls that response proposed.

        Yields:
            The attempt.

        Raises:
            ToolSpanCommitmentError: It must not run (`enforce` only). `recorded` holds the recorded result, if this very
                call is done and its result is known.
        """
        wish = Call(tool, call_id, arguments, None, turn, proposed)
        begun = self.begin(wish, scope=scope)
        if isinstance(begun, Refused):
            raise begun.error() from begun.cause
        with begun.inside():
            begun.start()
            try:
                yield begun
            except BaseException as error:
                begun.raised(error)
                raise
        begun.returned()

    def tool(
        self,
        name: str | None = None,
        *,
        effect: Effect | str | None = None,
        key: Key | None = None,
        call_id: Callable[[Mapping[str, Any]], str | None] | None = None,
        not_started_on: tuple[type[BaseException], ...] = (),
    ) -> Callable[[_F], _F]:
        """Decorate a function whose calls are to be claimed: sync, async, a generator, or an async generator.

        A call whose result is known is answered with it; any other that must not run raises `ToolSpanCommitmentError`.
        Inside a tool that a hook guards already under the same name, it marks that tool's body and claims nothing.

        Args:
            name: Name of the tool; by default the function's.
            effect: What is known of its effect, unless the policy says otherwise.
            key: Takes the arguments by name, and returns what makes a call the same action as another.
            call_id: Takes the arguments by name, and returns the call's id.
            not_started_on: Exceptions by which it says that it did nothing.
        """
        return decorated.tool(
            self,
            name,
            effect=None if effect is None else Effect(effect),
            key=key,
            call_id=call_id,
            not_started_on=not_started_on,
        )

    @contextmanager
    def run(self, scope: str | None = None) -> Iterator[None]:
        """One run of an agent: where it dies, its latest results count as undelivered, and are not bought again.

        Args:
            scope: Where call ids and arguments are unique, such as a conversation or an order. Calls inside inherit it.
        """
        outer = runs.current_run()
        with self.running(runs.Run(scope if scope is not None or outer is None else outer.scope)):
            yield

    def report_to(self, notes: Notes) -> None:
        """Count with a processor, and have its recorder tell the ledger what cannot be told right now."""
        self._notes = notes

    # -- what hooks use ----------------------------------------------------------------------------------------------

    @contextmanager
    def running(self, run: runs.Run, paused: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """As `run`, for a run that is made already; types of `paused` end it without killing it. Blocks for the ledger."""
        token = runs.enter_run(run)
        try:
            yield
        except BaseException as error:
            runs.leave_run(token)
            if not isinstance(error, paused):
                self.died(run)
            raise
        else:
            runs.leave_run(token)
            self.delivered(run.delivered())

    def died(self, run: runs.Run) -> None:
        """Note that a run has ended before a model saw its latest results."""
        for entry in run.died():
            self._write(partial(_undeliver, entry=entry), entry)

    def delivered(self, entries: tuple[Entry, ...]) -> None:
        """Note that results which were handed back have been delivered."""
        for entry in entries:
            self._write(partial(_deliver, entry=entry), entry)

    def begin(
        self,
        call: Call,
        *,
        scope: str | None = None,
        key: Key | None = None,
        not_started_on: tuple[type[BaseException], ...] = (),
    ) -> Attempt | Refused:
        """Claim a call. Raises nothing for odd input, nor for a ledger that cannot be asked.

        Args:
            call: The call.
            scope: The scope that the application sets for it.
            key: A key function for it, unless the guard has one for its tool.
            not_started_on: More exceptions by which its tool says that it did nothing.

        Returns:
            The attempt, whose end must be told; or that it must not run.
        """
        parent, run = bindings.current(), runs.current_run()
        effect = self._effect(call)
        not_started_on += by_glob(self._not_started_on, call.tool) or ()
        if parent is not None:
            parent.outside = True
        if effect is Effect.READ_ONLY or self.mode is GuardMode.OFF:
            return self._unclaimed(call, parent, run, GuardOutcome.GRANTED, not_started_on)
        claim = claim_of(
            call,
            effect=effect,
            key=by_glob(self._keys, call.tool) or key,
            scope=self._scope_of(call, scope, parent, run),
            parent=parent,
            lease_ns=None if self._leases is None else self._leases.lease_ns,
        )
        if self._is_down():
            return self._unclaimed(call, parent, run, GuardOutcome.UNGUARDED, not_started_on)
        lost = self._notes.has_lost(claim.scope, claim.tool)
        if lost and self.mode is GuardMode.ENFORCE and effect is not Effect.IDEMPOTENT:
            return self._refused(refused(call.tool, claim.call_id, Refusal(RefusalReason.LEDGER_UNKNOWN, None)), claim)
        try:
            answer = self.ledger.claim(claim, observe=self.mode is GuardMode.OBSERVE)
        except Exception as error:  # noqa: BLE001 - whatever a ledger raises, what follows from it is the same
            return self._without_ledger(call, claim, error, parent, run, not_started_on)
        if run is not None:
            self.delivered(run.turn_began(claim.turn))
        if isinstance(answer, Refusal):
            return self._not_granted(claim, answer, run)
        return self._granted(claim, answer, run, not_started_on)

    def refuses(self, effect: Effect | None, tool: str) -> bool:
        """Whether a call of a tool may be refused at all."""
        return self.mode is GuardMode.ENFORCE and self._effect(Call(tool, effect=effect)) is Effect.NON_IDEMPOTENT

    def refuse(self, within: Bound, reason: RefusalReason) -> Refused:
        """Refuse a repetition inside one call, which the ledger knows as that call."""
        text = refused(within.tool, within.call_id, Refusal(reason, None)).text
        self._notes.decided(self.mode, GuardOutcome.REFUSED)
        return Refused(within.tool, within.call_id, reason.value, text, within.entry_id)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _granted(
        self, claim: Claim, answer: Granted, run: runs.Run | None, not_started_on: tuple[type[BaseException], ...]
    ) -> Attempt:
        outcome, reason = GuardOutcome.GRANTED, None
        if answer.overruled is not None:
            outcome, reason = GuardOutcome.WOULD_REFUSE, answer.overruled.reason.value
            told = refused(claim.tool, claim.call_id, answer.overruled)
            _log.warning("The guard only observes. In mode enforce: %s", told.text)
        bound = self._bound(claim, outcome, reason, answer.entry)
        if self._leases is not None:
            self._leases.hold(answer.entry)
        return Attempt(bound, answer.entry, self._finish, run=run, not_started_on=not_started_on)

    def _not_granted(self, claim: Claim, refusal: Refusal, run: runs.Run | None) -> Refused:
        answer = refused(claim.tool, claim.call_id, refusal)
        recorded = None
        if refusal.entry is not None and self._may_hand_back(claim, refusal):
            try:
                recorded = self.results.load(refusal.entry.entry_id)
            except Exception as error:  # noqa: BLE001 - the user's store
                self._notes.fault("A result could not be read from the user's store; the call is refused", error)
        if recorded is not None and refusal.entry is not None and run is not None:
            run.handed_back(refusal.entry)
        return self._refused(answer, claim, recorded)

    def _may_hand_back(self, claim: Claim, refusal: Refusal) -> bool:
        """Whether a recorded result answers this very call: as the ledger says; in any turn if the user keeps results."""
        entry = refusal.entry
        if refusal.hand_back or entry is None:
            return refusal.hand_back
        return (
            self.results.lasting
            and refusal.reason is RefusalReason.CALL_REPEATED
            and entry.state.value == "completed"
            and entry.tool == claim.tool
            and claim.digest is not None
            and entry.digest == claim.digest
        )

    def _refused(self, answer: Refused, claim: Claim, recorded: Any = None) -> Refused:
        outcome = GuardOutcome.REFUSED if recorded is None else GuardOutcome.HANDED_BACK
        bound = self._bound(claim, outcome, answer.reason, None, answer.entry_id)
        bound.over = True
        if recorded is None:
            _log.warning("%s", answer.text)
        return Refused(
            answer.tool, answer.call_id, answer.reason, answer.text, answer.entry_id, recorded, answer.cause, bound
        )

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
        if self.mode is GuardMode.ENFORCE and claim.effect != Effect.IDEMPOTENT.value:
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
        scope = self._known_scope(call, None, parent, run) or ""
        entry_id = None if parent is None else parent.entry_id
        bound = Bound(call.tool, self.mode.value, outcome, scope=scope, entry_id=entry_id)
        self._bind(bound)
        self._notes.decided(self.mode, outcome)
        return Attempt(bound, None, self._finish, run=run, not_started_on=not_started_on)

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
            self.mode.value,
            outcome,
            scope=claim.scope,
            call_id=claim.call_id,
            digest=claim.digest,
            entry_id=entry_id if entry is None else entry.entry_id,
            key=None if entry is None else entry.intent,
            reason=reason,
        )
        self._bind(bound)
        self._notes.decided(self.mode, outcome)
        return bound

    def _bind(self, bound: Bound) -> None:
        """Bind the current span if it shows the call; else the first matching one that starts under it will be."""
        span = trace.get_current_span()
        if span.is_recording():
            bindings.tool_span_is_current(bound, span)

    # -- ends --------------------------------------------------------------------------------------------------------

    def _finish(self, attempt: Attempt, outcome: Outcome, reason: str | None, value: Any) -> None:
        entry = attempt.entry
        if entry is None:
            return
        if outcome is Outcome.RETURNED and value is not NOT_KEPT:
            try:
                self.results.save(entry.entry_id, value)
            except Exception as error:  # noqa: BLE001 - the user's store
                self._notes.fault("A result could not be kept in the user's store", error)
        self._write(lambda ledger: ledger.finish(entry, outcome, reason=reason), entry)
        if outcome is Outcome.RETURNED and attempt.run is not None and not attempt.run.returned(entry):
            self._write(partial(_undeliver, entry=entry), entry)
        if self._leases is not None:
            self._leases.let_go(entry)

    def _write(self, change: Callable[[Ledger], object], entry: Entry) -> None:
        """Tell the ledger, now or when it is back. What was evicted there is unknown there, which is all there is to do."""
        try:
            change(self.ledger)
        except UnknownEntryError as error:
            _log.debug("%s", error)
        except LedgerError as error:
            self._notes.later(change, entry, error)
        except Exception as error:  # noqa: BLE001 - a ledger of somebody else's
            self._notes.fault("The end of a call could not be told to the ledger", error)

    def _is_down(self) -> bool:
        """Whether to leave a ledger alone that did not answer just now. Who only observes must not keep tools waiting."""
        return self.mode is GuardMode.OBSERVE and time.monotonic() < self._down_until

    # -- what is known of a call -------------------------------------------------------------------------------------

    def _effect(self, call: Call) -> Effect:
        declared = self.policy.effect(call.tool)
        return declared if declared is not Effect.NON_IDEMPOTENT else call.effect or declared

    def _scope_of(self, call: Call, scope: str | None, parent: Bound | None, run: runs.Run | None) -> str:
        """The application's scope, else the enclosing call's, else the framework's, else the trace's."""
        found = self._known_scope(call, scope, parent, run)
        if found:
            return found
        span = trace.get_current_span().get_span_context()
        self._tell_of_missing_scope(call.framework)
        return f"{span.trace_id:032x}" if span.is_valid else _PROCESS_SCOPE

    def _known_scope(self, call: Call, scope: str | None, parent: Bound | None, run: runs.Run | None) -> str | None:
        found = scope or (run.scope if run is not None else None) or (parent.scope if parent is not None else None)
        return found or self._scope or call.scope or (run.hint if run is not None else None)

    def _tell_of_missing_scope(self, framework: str | None) -> None:
        name = framework or "this application"
        if name not in self._told:
            self._told.add(name)
            _log.warning(
                "The calls of %s have no conversation to tell them apart by, so a repetition in another trace is not "
                "recognised. Stand `guard.run(scope=...)` around each run, or set GENAI_PROCESSOR_SCOPE.",
                name,
            )


def _undeliver(ledger: Ledger, entry: Entry) -> None:
    ledger.undeliver(entry)


def _deliver(ledger: Ledger, entry: Entry) -> None:
    ledger.deliver(entry)
