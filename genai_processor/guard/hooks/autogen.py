# SPDX-License-Identifier: Apache-2.0
"""AutoGen's agentchat.

Claims inside the tool's span, after validation, whatever kind of tool it is. An exception that is raised there becomes text
for the model, and one that nobody catches hangs the agent's stream for ever: where a refusal is to stop the run, it is told
as text first, and raised when the results of the turn are in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from typing import Any, Final

import wrapt

from genai_processor.guard.calls import Call
from genai_processor.guard.generators import asteps_of_call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, same_calls
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, answer, arun, delivered
from genai_processor.guard.runs import Run
from genai_processor.guard.streams import Steps, run_of_asteps, stepwise
from genai_processor.guard.variables import holding
from genai_processor.ledger.ids import random_id


class _Turns:
    """What the agent around a tool knows: the latest response of its model, and what was refused of it."""

    def __init__(self, agent: Any, handoffs: Any) -> None:
        self.agent = agent
        self.handoffs = handoffs or ()
        self.turn: str | None = None
        self.proposed: list[Any] = []
        self.refused: Refused | None = None


_turns: Final[ContextVar[_Turns | None]] = ContextVar("genai_processor_autogen_turns", default=None)

# -- calls -----------------------------------------------------------------------------------------------------------


def _run_json(guard: Guard, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    turns = _turns.get()
    if turns is not None and any(instance is handoff for handoff in turns.handoffs):
        return wrapped(*args, **kwargs)  # who speaks next; and what it raises hangs the agent
    guarded = _Guarded(instance, guard, _wish(instance, turns, args, kwargs), turns)
    return wrapped.__func__(guarded, *args, **kwargs)


def _wish(instance: Any, turns: _Turns | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    call_id = argument("call_id", 2, args, kwargs)
    arguments = argument("args", 0, args, kwargs)
    calls = [(call.name, call.arguments) for call in turns.proposed] if turns is not None else []
    own = [(call.name, call.arguments) for call in turns.proposed if call.id == call_id] if turns is not None else []
    return Call(
        instance.name,
        call_id,
        arguments,
        turn=turns.turn if turns is not None and own else None,
        proposed=same_calls(own[0], calls) if own else 1,
        framework="AutoGen",
    )


class _Guarded(wrapt.ObjectProxy):  # type: ignore[type-arg, unused-ignore]
    """A tool whose body is claimed before it runs: stands in for the tool in what validates and traces around the body."""

    def __init__(self, tool: Any, guard: Guard, wish: Call, turns: _Turns | None) -> None:
        super().__init__(tool)
        self._self_guard = guard
        self._self_wish = wish
        self._self_manners = Manners(stop=partial(_stop, turns), by_the_body=True)

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        body = partial(self.__wrapped__.run, *args, **kwargs)
        return await arun(self._self_guard, self._self_wish, body, self._self_manners)

    def run_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        guard = self._self_guard
        begin = partial(guard.begin, self._self_wish)
        make = partial(self.__wrapped__.run_stream, *args, **kwargs)
        return asteps_of_call(guard.threads, begin, make, partial(answer, guard, manners=self._self_manners))


def _stop(turns: _Turns | None, refused: Refused) -> Any:
    if turns is not None:
        turns.refused = refused
    raise refused.error() from refused.cause


# -- bodies ----------------------------------------------------------------------------------------------------------


def _run_function(guard: Guard, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return wrapped.__func__(_InContext(instance), *args, **kwargs)


class _InContext(wrapt.ObjectProxy):  # type: ignore[type-arg, unused-ignore]
    """A function tool that takes the context with it into the thread where a synchronous function runs."""

    @property
    def _func(self) -> Any:
        function = self.__wrapped__._func
        if asyncio.iscoroutinefunction(function):
            return function
        context = copy_context()

        @wraps(function)
        def in_context(*args: Any, **kwargs: Any) -> Any:
            return context.run(function, *args, **kwargs)

        return in_context


# -- agents ----------------------------------------------------------------------------------------------------------


async def _process(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    turns = _Turns(kwargs.get("agent_name"), kwargs.get("handoff_tools"))
    run = Run.within()
    events = run_of_asteps(guard, _noted(_in_turns(turns, wrapped(*args, **kwargs)), turns), run)
    try:
        async for event in events:
            if hasattr(event, "chat_message"):  # a response: whoever gets it may not listen any longer
                delivered(guard, run)
            yield event
    finally:
        await events.aclose()


async def _noted(events: AsyncIterator[Any], turns: _Turns) -> AsyncIterator[Any]:
    """Note the calls of each turn before they run; and stop, if need be, when their results are in."""
    async for event in events:
        own = getattr(event, "source", None) == turns.agent  # those of agents that are tools pass here, too
        kind = getattr(event, "type", None) if own else None
        if kind == "ToolCallRequestEvent":
            turns.turn, turns.proposed = getattr(event, "id", None) or random_id(), event.content
        yield event
        if kind == "ToolCallExecutionEvent" and turns.refused is not None:
            raise turns.refused.error() from turns.refused.cause


@stepwise
@asynccontextmanager
async def _in_turns(turns: _Turns, events: AsyncIterator[Any]) -> AsyncIterator[Steps]:
    yield Steps(events, partial(holding, _turns, turns))


_TOOLS: Final = "autogen_core.tools._base"

HOOK = Hook(
    "AutoGen",
    (
        Target(_TOOLS, "BaseTool.run_json", ("args", "cancellation_token", "call_id"), _run_json),
        Target(_TOOLS, "BaseStreamTool.run_json_stream", ("args", "cancellation_token", "call_id"), _run_json),
        Target("autogen_core.tools._function_tool", "FunctionTool.run", ("args", "cancellation_token"), _run_function),
        Target(
            "autogen_agentchat.agents._assistant_agent",
            "AssistantAgent._process_model_result",
            ("model_result", "agent_name", "handoff_tools"),
            _process,
        ),
    ),
)
