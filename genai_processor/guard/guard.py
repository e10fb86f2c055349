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
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from genai_processor.guard import decorated, runs
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.bindings import Bound
from genai_processor.guard.calls import Call, Key, exceptions_of
from genai_processor.guard.desk import Desk
from genai_processor.guard.leases import Leases
from genai_processor.guard.modes import GuardMode, RefusalMode, one_of
from genai_processor.guard.notes import Notes
from genai_processor.guard.refused import Refused
from genai_processor.guard.results import Results, ResultStore
from genai_processor.guard.threads import Threads, soon
from genai_processor.ledger import MemoryLedger, open_ledger
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import RefusalReason
from genai_processor.retry.policy import Policy
from genai_processor.retry.verdict import Effect
from genai_processor.settings import PREFIX, Settings

_log = logging.getLogger(__name__)

_F = TypeVar("_F", bound=Callable[..., Any])
_SHORTEST_LEASE: Final = 0.001
"""Whoever renews a shorter one does nothing else, and is late all the same."""


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
        mode: GuardMode | str | None = None,
        on_refusal: RefusalMode | str | None = None,
        policy: Policy | None = None,
        scope: str | None = None,
        keys: Mapping[str, Key] | None = None,
        not_started_on: Mapping[str, tuple[type[BaseException], ...]] | None = None,
        results: ResultStore | None = None,
        lease_seconds: float | None = None,
        trusted_mcp_servers: tuple[str, ...] | None = None,
        notes: Notes | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Make a guard. Opens nothing and starts nothing. What is not given is what the settings say.

        Args:
            ledger: Where to claim, or the URL of that.
            mode: `off`, `observe` (nothing is refused, what would have been is said), or `enforce`: also if neither this
                nor GENAI_PROCESSOR_GUARD says anything.
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
            settings: By default those of the environment. Their mode counts only where GENAI_PROCESSOR_GUARD is set.

        Raises:
            LedgerURLError: The ledger is given as a URL that names none.
            TypeError: `not_started_on` names something that is no exception.
            ValueError: `mode` or `on_refusal` is none, or the lease is shorter than a thousandth of a second.
        """
        settings = Settings.from_environ() if settings is None else settings
        said = os.environ.get(PREFIX + "GUARD", "").strip()  # an empty variable says nothing
        mode = mode if mode is not None else settings.guard if said else GuardMode.ENFORCE
        self.mode = one_of(GuardMode, mode, "mode")
        self.on_refusal = one_of(RefusalMode, settings.guard_refusal if on_refusal is None else on_refusal, "on_refusal")
        lease_seconds = settings.lease if lease_seconds is None else lease_seconds
        if not lease_seconds >= _SHORTEST_LEASE:
            raise ValueError(f"lease_seconds must be at least {_SHORTEST_LEASE}, but is {lease_seconds!r}")
        ledger = settings.ledger if ledger is None else ledger
        self.ledger: Ledger = open_ledger(ledger) if isinstance(ledger, str) else ledger
        self.policy = settings.policy() if policy is None else policy
        self.results = Results(results)
        self.trusted_mcp_servers = settings.trusted_mcp_servers if trusted_mcp_servers is None else trusted_mcp_servers
        shared = not isinstance(self.ledger, MemoryLedger)  # what is in memory dies with its claims
        self.threads = Threads() if shared or results is not None else None
        self._desk = Desk(
            self.ledger,
            self.mode,
            self.policy,
            self.results,
            scope=settings.scope if scope is None else scope,
            keys=dict(keys or {}),
            not_started_on={
                glob: exceptions_of(kinds, f"not_started_on[{glob!r}]") for glob, kinds in (not_started_on or {}).items()
            },
            leases=Leases(self.ledger, lease_seconds) if shared else None,
            notes=Notes() if notes is None else notes,
        )

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
            if begun.handed_out is not None:  # outside of a run, nobody knows what whoever catches the error does with it
                begun.handed_out()
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
        """Decorate a function whose calls are to be claimed: sync, async, a generator, or one that returns any of these.

        A call whose result is known is answered with it; any other that must not run raises `ToolSpanCommitmentError`.
        Inside a tool that a hook guards already under the same name, it marks that tool's body and claims nothing. What it
        returns before its body has run comes back as something that tells the end: a future or a generator as one, a `map`
        and its like as a generator, and whatever else can be awaited as a coroutine, which can do nothing beside that.

        Args:
            name: Name of the tool; by default the function's.
            effect: What is known of its effect, unless the policy says otherwise.
            key: Takes the arguments by name, and returns what makes a call the same action as another.
            call_id: Takes the arguments by name, and returns the call's id.
            not_started_on: Exceptions by which it says that it did nothing.

        Raises:
            TypeError: `name` is no text, as where the parentheses of `@guard.tool()` are missing, or `not_started_on` names
                something that is no exception.
            ValueError: `effect` is none.
        """
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a tool is a text, but is {name!r}; a decorator without one is @guard.tool()")
        return decorated.tool(
            self,
            name,
            effect=None if effect is None else one_of(Effect, effect, "effect"),
            key=key,
            call_id=call_id,
            not_started_on=exceptions_of(not_started_on, "not_started_on"),
        )

    @contextmanager
    def run(self, scope: str | None = None) -> Iterator[None]:
        """One run of an agent: where it dies, its latest results count as undelivered, and are not bought again.

        Args:
            scope: Where call ids and arguments are unique, such as a conversation or an order. Calls inside inherit it.
        """
        run = runs.Run.within()
        if scope is not None:
            run.scope = scope
        with self.running(run):
            yield

    def report_to(self, notes: Notes) -> None:
        """Count with a processor, and have its recorder tell the ledger what cannot be told right now."""
        self._desk.report_to(notes)

    # -- what hooks use ----------------------------------------------------------------------------------------------

    @contextmanager
    def running(self, run: runs.Run, paused: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        """As `run`, for a run that is made already; types of `paused` end it without killing it. Blocks for the ledger."""
        try:
            with runs.in_run(run):
                yield
        except BaseException as error:
            if isinstance(error, paused):
                self.delivered(run.waits())
            else:
                self.died(run)
            raise
        self.delivered(run.ended())

    def ended(self, run: runs.Run, error: BaseException | None = None, paused: tuple[type[BaseException], ...] = ()) -> None:
        """Note how a run has ended that tells of itself step by step. Whoever stops listening does not kill it.

        Args:
            run: The run.
            error: What it ended with; None if it ended well.
            paused: Exceptions that end it without killing it.
        """
        if error is None:
            self.delivered(run.ended())
        elif isinstance(error, GeneratorExit):
            seen, lost = run.given_up()
            self.soon_delivered(seen)
            for result in lost:
                soon(self.threads, result.undelivered)
        elif isinstance(error, paused):
            self.delivered(run.waits())
        else:
            self.died(run)

    def died(self, run: runs.Run) -> None:
        """Note that a run has ended before a model saw its latest results."""
        for result in run.died():
            if run.has_saved(result.entry):
                result.delivered()
            else:
                result.undelivered()
        run.wait_for_ends()

    def lost(self, run: runs.Run) -> None:
        """Note that a run goes on, but without the results of its current turn."""
        for result in run.lost():
            result.undelivered()
        run.wait_for_ends()

    def delivered(self, results: tuple[runs.Result, ...]) -> None:
        """Tell the ledger that a model has seen some results."""
        runs.tell_delivered(results)

    def soon_delivered(self, results: tuple[runs.Result, ...]) -> None:
        """As `delivered`, but nobody waits for that: a wait could be cancelled. Calls that come later find it told."""
        if results:
            for result in results:
                result.teller.will_tell((result.entry,))
            soon(self.threads, partial(runs.tell_delivered, results))

    def begin(
        self,
        call: Call,
        *,
        scope: str | None = None,
        key: Key | None = None,
        not_started_on: tuple[type[BaseException], ...] = (),
    ) -> Attempt | Refused:
        """Claim a call. Raises nothing for odd input but the error below, nor for a ledger that cannot be asked.

        Args:
            call: The call.
            scope: The scope that the application sets for it.
            key: A key function for it, unless the guard has one for its tool.
            not_started_on: More exceptions by which its tool says that it did nothing.

        Returns:
            The attempt, whose end must be told; or that it must not run.

        Raises:
            TypeError: Its tool, id, scope or turn is an object whose `str()` fails (`enforce` only; else there is none).
        """
        return self._desk.begin(call, scope=scope, key=key, not_started_on=not_started_on)

    def refuses(self, effect: Effect | None, tool: str) -> bool:
        """Whether a call of a tool may be refused at all."""
        return self._desk.refuses(effect, tool)

    def refuse(self, within: Bound, reason: RefusalReason) -> Refused:
        """Refuse a repetition inside one call, which the ledger knows as that call."""
        return self._desk.refuse(within, reason)
