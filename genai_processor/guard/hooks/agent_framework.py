# SPDX-License-Identifier: Apache-2.0
"""Microsoft Agent Framework.

Claims where a tool's function is called: inside its span, after validation, inside all middleware, and after a person has
approved. What the framework knows of a call, and of the response that proposed it, is handed down to there.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.hooks.stopping import stop
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, running
from genai_processor.guard.streams import run_of_asteps
from genai_processor.guard.variables import held, holding
from genai_processor.ledger.ids import random_id


@dataclass(frozen=True, slots=True)
class _Batch:
    """The calls of one response."""

    turn: str
    calls: tuple[Any, ...]
    session: str | None


_batch: Final[ContextVar[_Batch | None]] = ContextVar("genai_processor_agent_framework_batch", default=None)
_call_id: Final[ContextVar[str | None]] = ContextVar("genai_processor_agent_framework_call_id", default=None)


class _NotRun(Exception):
    """A call is refused. Passes the parser of its results, and never leaves this module."""


def _refuse(refused: Refused) -> Any:
    raise _NotRun(refused.text)


def _stop(refused: Refused) -> Any:
    lets_out = getattr(sys.modules.get("agent_framework._middleware"), "MiddlewareFailure", None)
    stop(refused, *([] if lets_out is None else [lets_out]))


def _manners() -> Manners:
    waits = getattr(sys.modules.get("agent_framework.exceptions"), "UserInputRequiredException", None)
    return Manners(refuse=_refuse, stop=_stop, paused=() if waits is None else (waits,), by_the_body=True)


def _execute_calls(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Awaitable[Any]:
    calls = tuple(getattr(one, "function_call", None) or one for one in kwargs["function_calls"])
    known = kwargs.get("approval_session_is_authoritative", True)  # and not made for this run only
    session = kwargs.get("invocation_session") if known else None
    batch = _Batch(_turn(calls), calls, getattr(session, "session_id", None))
    return held(_batch, batch, partial(wrapped, *args, **kwargs))


def _turn(calls: Sequence[Any]) -> str:
    """An id that the framework has given to the first of the calls and keeps with it; else a new one."""
    first = getattr(calls[0], "id", None) if calls else None
    return first if isinstance(first, str) and first.startswith("af-call-") else f"af-turn-{random_id()}"


async def _invoke(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    try:
        with holding(_call_id, kwargs.get("tool_call_id")):
            return await wrapped(*args, **kwargs)
    except _NotRun as refused:
        if kwargs.get("skip_parsing"):
            return str(refused)
        return [sys.modules["agent_framework"].Content.from_text(str(refused))]


def _invoke_function(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Awaitable[Any]:
    body: Callable[[], Awaitable[Any]] = partial(wrapped, *args, **kwargs)
    if is_replayed() or _is_used_up(instance):
        return body()
    context = getattr(instance, "_context_parameter_name", None)
    given = argument("call_kwargs", 0, args, kwargs)
    batch, call_id = _batch.get(), _call_id.get()
    own = next((one for one in batch.calls if one.call_id == call_id), None) if batch and call_id else None
    wish = Call(
        instance.name,
        call_id,
        {name: value for name, value in given.items() if name != context},
        None if batch is None else batch.session,
        None if batch is None or own is None else batch.turn,
        1 if batch is None or own is None else _proposed(own, batch),
        framework="agent-framework",
    )
    # What the body calls by itself was not proposed by this response.
    return arun(guard, wish, partial(held, _batch, None, body), _manners())


def _proposed(own: Any, batch: _Batch) -> int:
    return same_calls((own.name, own.arguments), [(one.name, one.arguments) for one in batch.calls])


def _is_used_up(tool: Any) -> bool:
    """Whether the tool will decline, as it has been called, or has failed, as often as it may."""
    limits = (
        (getattr(tool, "max_invocations", None), getattr(tool, "invocation_count", 0)),
        (getattr(tool, "max_invocation_exceptions", None), getattr(tool, "invocation_exception_count", 0)),
    )
    return any(most is not None and count >= most for most, count in limits)


async def _run(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if is_replayed():
        return await wrapped(*args, **kwargs)
    async with running(guard):
        return await wrapped(*args, **kwargs)


def _run_streamed(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    stream: AsyncIterator[Any] = wrapped(*args, **kwargs)
    return stream if is_replayed() else run_of_asteps(guard, stream)


_TOOLS: Final = "agent_framework._tools"

HOOK = Hook(
    "agent-framework",
    (
        Target(_TOOLS, "_execute_function_calls", ("function_calls", "invocation_session"), _execute_calls),
        Target(_TOOLS, "FunctionTool.invoke", ("arguments", "tool_call_id", "skip_parsing"), _invoke),
        Target(_TOOLS, "FunctionTool._invoke_function", ("call_kwargs",), _invoke_function),
        Target(_TOOLS, "FunctionInvocationLayer._get_response_with_function_invocation", ("messages",), _run),
        Target(_TOOLS, "FunctionInvocationLayer._stream_response_with_function_invocation", ("messages",), _run_streamed),
    ),
)
