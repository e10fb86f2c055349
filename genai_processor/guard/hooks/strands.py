# SPDX-License-Identifier: Apache-2.0
"""Strands Agents.

Claims where a tool is streamed: inside its span, inside all hooks and middleware, for calls in the foreground, in the
background and direct ones (`agent.tool.refund()`). Strands turns whatever a tool raises into an error result, so a run is
stopped by its own stream, after the calls of the turn have finished.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from genai_processor.guard.attempt import Attempt
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, answer, claim, hand_out, started, tell_end
from genai_processor.guard.streams import Steps, run_of_asteps, stepwise
from genai_processor.guard.threads import tell
from genai_processor.guard.variables import holding
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.requests import Outcome
from genai_processor.retry.verdict import Effect

_STEERING: Final = (
    "strands._context_manager.",
    "strands.multiagent.swarm",
    "strands.tools._tool_helpers",
    "strands.tools.structured_output.",
    "strands.vended_tools.handoff_to_user.",
    "strands.vended_tools.stop.",
)
"""Where tools are made which steer the run and change nothing outside of it."""


_conversations: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()
"""Agents of versions that give them no id."""


class _Stop:
    """Whether a run is to be stopped, and those around it."""

    def __init__(self, outer: _Stop | None) -> None:
        self.error: BaseException | None = None
        self._outer = outer

    def because_of(self, error: BaseException) -> None:
        run: _Stop | None = self
        while run is not None:
            run.error = run.error or error
            run = run._outer


_stop: Final[ContextVar[_Stop | None]] = ContextVar("genai_processor_strands_stop", default=None)


def _run_tool(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if wrapped.__name__ == "_run_tool":
        return _stream(guard, wrapped(*args, **kwargs), argument("ctx", 0, args, kwargs))
    terminal = wrapped(*args, **kwargs)  # until 1.60 it runs the tool itself, unless it has its result already
    if argument("preset_result", 1, args, kwargs) is not None:
        return terminal
    return lambda context: _stream(guard, terminal(context), context)


def _stream(guard: Guard, stream: AsyncGenerator[Any, None], context: Any) -> AsyncIterator[Any]:
    if context.tool is None or is_replayed():  # an unknown tool is answered with an error
        return stream
    use = context.tool_use
    turn, proposed = _turn(context)
    wish = Call(
        use["name"],
        use.get("toolUseId"),
        use.get("input"),
        _scope(context.agent),
        turn,
        proposed,
        Effect.READ_ONLY if _steers(context.tool) else None,
        framework="strands-agents",
    )
    return _guarded(guard, wish, stream, _manners(context))


@stepwise
@asynccontextmanager
async def _guarded(guard: Guard, wish: Call, stream: AsyncGenerator[Any, None], manners: Manners) -> AsyncIterator[Steps]:
    begun = await claim(guard, wish)
    if isinstance(begun, Refused):
        hand_out(begun, guard.threads)
        yield Steps(_only(answer(guard, begun, manners)), nullcontext)
        return
    try:
        yield Steps(_telling(guard, begun, stream, manners), begun.inside)
    except GeneratorExit as error:
        begun.raised(error, awaits_start=manners.awaits_start)  # right here: its event loop may have ended
        raise
    except BaseException as error:
        raised = partial(begun.raised, error, paused=manners.paused, awaits_start=manners.awaits_start)
        await tell(guard.threads, raised)
        raise
    await tell(guard.threads, partial(begun.failed, "no_result", awaits_start=manners.awaits_start))


async def _only(event: Any) -> AsyncIterator[Any]:
    yield event


async def _telling(
    guard: Guard, attempt: Attempt, stream: AsyncGenerator[Any, None], manners: Manners
) -> AsyncIterator[Any]:
    """Tell how the call ended before anybody gets to see its result."""
    async with aclosing(stream):
        async for event in stream:
            if _ends(event):
                await tell_end(guard.threads, attempt, partial(_ended, attempt, event, manners))
            yield event


def _manners(context: Any) -> Manners:
    executor, decorator = sys.modules["strands.tools.executors._executor"], sys.modules["strands.tools.decorator"]
    result_event = executor.ToolResultEvent
    call_id = str(context.tool_use.get("toolUseId"))

    def refuse(refused: Refused) -> Any:
        return result_event({"toolUseId": call_id, "status": "error", "content": [{"text": refused.text}]})

    def stop(refused: Refused) -> Any:
        run = _stop.get()
        if run is not None:
            error = refused.error()
            error.__cause__ = refused.cause
            run.because_of(error)
        return refuse(refused)

    return Manners(
        refuse=refuse,
        stop=stop,
        hand_back=lambda result: result_event({**result, "toolUseId": call_id}),
        paused=(executor.InterruptException,),
        awaits_start=isinstance(context.tool, decorator.DecoratedFunctionTool),
    )


def _ends(event: Any) -> bool:
    return _is_interrupt(event) or hasattr(event, "tool_result")


def _is_interrupt(event: Any) -> bool:
    return isinstance(event, dict) and "tool_interrupt_event" in event


def _ended(attempt: Attempt, event: Any, manners: Manners) -> None:
    if _is_interrupt(event):
        outside = attempt.bound.outside
        attempt.end(Outcome.FAILED if outside else Outcome.PAUSED, "effect_before_pause" if outside else None)
        return
    result, error = event.tool_result, getattr(event, "exception", None)
    if isinstance(error, Exception):
        attempt.raised(error, awaits_start=manners.awaits_start)
    elif result.get("status") == "error":
        attempt.failed("error_result", awaits_start=manners.awaits_start)
    else:
        attempt.returned(dict(result), by_the_body=False)


def _turn(context: Any) -> tuple[str | None, int]:
    """The message that proposed the call, which a session keeps, and how many calls like this one it proposed."""
    call_id = context.tool_use.get("toolUseId")
    cycle = context.invocation_state.get("event_loop_cycle_id")
    for message in reversed(context.agent.messages or ()):
        if message.get("role") != "assistant":
            continue
        uses = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        for use in uses:
            if use.get("toolUseId") == call_id:
                turn = message.get("tracking_id") or cycle
                proposed = same_calls((use["name"], use["input"]), [(one["name"], one["input"]) for one in uses])
                return None if turn is None else str(turn), proposed
    return None if cycle is None else str(cycle), 1


def _scope(agent: Any) -> str | None:
    """The session that is kept, else this agent, which has one conversation."""
    known = getattr(getattr(agent, "_session_manager", None), "session_id", None) or getattr(agent, "session_id", None)
    if known:
        return str(known)
    try:
        return _conversations.setdefault(agent, f"agent-{random_id()}")
    except TypeError:  # an agent that can be no key
        return None


def _steers(tool: Any) -> bool:
    places = type(tool).__module__, getattr(getattr(tool, "_tool_func", None), "__module__", None) or ""
    return any(place.startswith(_STEERING) for place in places)


def _validated(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    valid = wrapped(*args, **kwargs)
    started()
    return valid


def _run(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    stream: AsyncGenerator[Any, None] = wrapped(*args, **kwargs)
    return stream if is_replayed() else run_of_asteps(guard, _stoppable(stream))


@stepwise
@asynccontextmanager
async def _stoppable(stream: AsyncGenerator[Any, None]) -> AsyncIterator[Steps]:
    """A run that ends with an error when one of its calls says so, and all calls of that turn have their result."""
    stop = _Stop(_stop.get())
    yield Steps(_until_stopped(stream, stop), partial(holding, _stop, stop))
    if stop.error is not None:
        raise stop.error


async def _until_stopped(stream: AsyncGenerator[Any, None], stop: _Stop) -> AsyncIterator[Any]:
    async with aclosing(stream):
        async for event in stream:
            if stop.error is not None and _holds_results(event):
                return
            yield event


def _holds_results(event: Any) -> bool:
    message = event.get("message") if isinstance(event, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    return any("toolResult" in block for block in content or ())


HOOK = Hook(
    "strands-agents",
    (
        Target("strands.tools.executors._executor", "_run_tool|_make_execute_tool_terminal", ("extra_kwargs",), _run_tool),
        Target("strands.tools.decorator", "FunctionToolMetadata.validate_input", ("input_data",), _validated),
        Target("strands.agent.agent", "Agent.stream_async", ("prompt",), _run),
    ),
)
