# SPDX-License-Identifier: Apache-2.0
"""Running a body under a guard: what every hook and decorator does, whatever the framework."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from genai_processor.guard import bindings
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.calls import Call
from genai_processor.guard.modes import RefusalMode
from genai_processor.guard.refused import Refused
from genai_processor.guard.runs import Run, in_run
from genai_processor.guard.threads import Threads, ask, soon, tell
from genai_processor.ledger.requests import Outcome

if TYPE_CHECKING:
    from genai_processor.guard.guard import Guard


def _no_failure(value: Any) -> str | BaseException | None:
    return None


def _goes_on(value: Any) -> bool:
    return False


def _as_it_is(value: Any) -> Any:
    return value


def _raise(refused: Refused) -> Any:
    raise refused.error() from refused.cause


class Ended(Protocol):
    """An `Attempt` that has ended, or what stands in for one."""

    def not_delivered(self) -> None:
        """See `Attempt`."""
        ...


@dataclass(frozen=True, slots=True)
class Manners:
    """How a framework behaves where a call is guarded.

    Attributes:
        refuse: Returns what the framework takes for "this was not run" (or raises it), for `tell`.
        stop: Raises what nothing in the framework swallows or tries again, for `raise`.
        failure: Names the failure that a returned value reports, or returns the exception that it was made of, or None if it
            reports none.
        keep: Turns a returned value into what is kept of it.
        hand_back: Turns what was kept into what the framework takes for the result.
        paused: Exceptions by which it says that a call waits for somebody.
        pauses: Whether a returned value says so.
        awaits_start: `started` is called whenever a body begins, so a failure without that never ran.
        by_the_body: What is guarded is the body itself, so that its good end is the body's own.
    """

    refuse: Callable[[Refused], Any] = _raise
    stop: Callable[[Refused], Any] = _raise
    failure: Callable[[Any], str | BaseException | None] = _no_failure
    keep: Callable[[Any], Any] = _as_it_is
    hand_back: Callable[[Any], Any] = _as_it_is
    paused: tuple[type[BaseException], ...] = ()
    pauses: Callable[[Any], bool] = _goes_on
    awaits_start: bool = False
    by_the_body: bool = False


def run(guard: Guard, call: Call, body: Callable[[], Any], manners: Manners, begin: Callable[..., Any] | None = None) -> Any:
    """Run a body if it may run; else answer as the framework wants to be answered.

    Args:
        guard: The guard.
        call: The call.
        body: Runs the tool.
        manners: The framework's.
        begin: Claims the call, if not `Guard.begin` does.

    Returns:
        What the body returns, or the answer.

    Raises:
        BaseException: Whatever the body raises, or by which the framework is told that it was not run.
    """
    begun = (begin or guard.begin)(call)
    if isinstance(begun, Refused):
        hand_out(begun)
        return answer(guard, begun, manners)
    with begun.inside():
        if manners.by_the_body:
            begun.start()
        try:
            value = body()
        except BaseException as error:
            _raised(begun, error, manners)
            raise
    _returned(begun, value, manners)
    return value


async def arun(
    guard: Guard,
    call: Call,
    body: Callable[[], Awaitable[Any]],
    manners: Manners,
    begin: Callable[..., Any] | None = None,
) -> Any:
    """As `run`, without keeping the event loop waiting for the ledger."""
    begun = await claim(guard, call, begin)
    if isinstance(begun, Refused):
        hand_out(begun, guard.threads)
        return answer(guard, begun, manners)
    with begun.inside():
        if manners.by_the_body:
            begun.start()
        try:
            value = await body()
        except BaseException as error:
            await tell(guard.threads, partial(_raised, begun, error, manners))
            raise
    await tell_end(guard.threads, begun, partial(_returned, begun, value, manners))
    return value


async def tell_end(threads: Threads | None, begun: Ended, end: Callable[[], object]) -> None:
    """Tell how a call has ended whose result is at hand. Nobody gets it if this is cancelled or closed meanwhile."""
    try:
        await tell(threads, end)
    except (asyncio.CancelledError, GeneratorExit):
        await tell(threads, begun.not_delivered)
        raise


async def claim(guard: Guard, call: Call, begin: Callable[..., Any] | None = None) -> Attempt | Refused:
    """Claim a call; if this is cancelled meanwhile, its body never began."""
    begun: Attempt | Refused = await ask(guard.threads, partial(begin or guard.begin, call), never_began)
    return begun


def never_began(begun: object) -> None:
    """End an attempt that was granted to nobody."""
    if isinstance(begun, Attempt):
        begun.end(Outcome.REJECTED, "cancelled_before_start")


def hand_out(refused: Refused, threads: Threads | None = None) -> None:
    """Note that whoever called is given a recorded result right now: with nothing in between that could be cancelled.

    Args:
        refused: The call.
        threads: Where to tell the ledger; None tells it right here.
    """
    if refused.handed_out is not None:
        refused.handed_out()
    if refused.delivers is not None:
        soon(threads, refused.delivers)


def answer(guard: Guard, refused: Refused, manners: Manners) -> Any:
    """Answer a call that is not run: with its recorded result, the framework's own error result, or an exception."""
    if refused.recorded is not None:
        return manners.hand_back(refused.recorded.value)
    return manners.stop(refused) if guard.on_refusal is RefusalMode.RAISE else manners.refuse(refused)


def started() -> None:
    """Say that the body of the current call begins."""
    bound = bindings.current()
    if bound is not None:
        bound.begins()


def _raised(attempt: Attempt, error: BaseException, manners: Manners) -> None:
    attempt.raised(error, paused=manners.paused, awaits_start=manners.awaits_start)


def _returned(attempt: Attempt, value: Any, manners: Manners) -> None:
    try:
        pauses, failure = manners.pauses(value), manners.failure(value)
    except Exception:  # noqa: BLE001 - a result of any class, whose own code is run here
        pauses, failure = False, "unreadable_result"
    if pauses:
        attempt.end(Outcome.PAUSED)
    elif isinstance(failure, BaseException):
        _raised(attempt, failure, manners)
    elif failure is not None:
        attempt.failed(failure, awaits_start=manners.awaits_start)
    else:
        attempt.returned(manners.keep(value), by_the_body=manners.by_the_body)


@asynccontextmanager
async def running(guard: Guard, hint: str | None = None, paused: tuple[type[BaseException], ...] = ()) -> AsyncIterator[Run]:
    """One run of an agent, of which the hook of its framework tells. As `Guard.run`, without keeping the event loop waiting.

    What is inside must not yield to anybody to whom the run is none: see `genai_processor.guard.streams`.

    Args:
        guard: The guard.
        hint: The scope that the framework knows of, if it does at this place only.
        paused: Exceptions that end a run without killing it.
    """
    run = Run.within(hint)
    async with ends_of(guard, run, paused):
        with in_run(run):
            yield run


@asynccontextmanager
async def ends_of(guard: Guard, run: Run, paused: tuple[type[BaseException], ...] = ()) -> AsyncIterator[None]:
    """Tell how a run ends, as `Guard.ended`, without keeping the event loop waiting. The run is not made the current one."""
    try:
        yield
    except GeneratorExit as error:
        guard.ended(run, error)  # right here: its event loop may have ended
        raise
    except BaseException as error:
        await tell(guard.threads, partial(guard.ended, run, error, paused))
        raise
    ended_well(guard, run)


def ended_well(guard: Guard, run: Run) -> None:
    """Tell that a run has ended, and a model has seen all results. Nobody waits for that, as for `delivered`."""
    guard.soon_delivered(run.ended())


def delivered(guard: Guard, run: Run) -> None:
    """Tell that a model has seen all results of a run, which may go on.

    Nobody waits for that: a wait could be cancelled, and would then keep from whoever started the run what came of it.
    """
    guard.soon_delivered(run.delivered())
