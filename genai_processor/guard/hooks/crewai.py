# SPDX-License-Identifier: Apache-2.0
"""CrewAI: tools of agents that call functions, and of agents that write what they want to do (ReAct).

Three classes run tools, each by itself: `BaseTool`, `Tool` (of the decorator) and `CrewStructuredTool`, which ReAct uses,
and twice over where the first attempt raises. Whatever a tool raises becomes a text for the model, so `raise` needs a second
place, where the framework lets its own kind of abortion out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.guard import bindings
from genai_processor.guard.bindings import Bound
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.hooks.stopping import stop
from genai_processor.guard.hooks.turns import Turns
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, run, running, started
from genai_processor.guard.runs import Run, current_run
from genai_processor.guard.variables import holding
from genai_processor.ledger.ids import random_id

_turns: Final = Turns()


@dataclass(slots=True)
class _Proposal:
    """What the executor knows of a call, and the tool does not.

    Attributes:
        call_id: The call's id.
        turn: Id of the response.
        proposed: How many identical calls it proposed.
        within: The call in whose body it was proposed. Calls inside it are others.
        stopped: Refusals that are to stop the run.
    """

    call_id: str | None
    turn: str | None
    proposed: int = 1
    within: Bound | None = field(default_factory=bindings.current)
    stopped: list[Refused] = field(default_factory=list)


_proposal: Final[ContextVar[_Proposal | None]] = ContextVar("genai_processor_crewai", default=None)
_batch: Final[ContextVar[tuple[str, list[tuple[str, Any]]] | None]] = ContextVar(
    "genai_processor_crewai_batch", default=None
)


# -- what the model proposed -----------------------------------------------------------------------------------------------


@contextmanager
def _proposing(proposal: _Proposal) -> Iterator[None]:
    outer = _proposal.get()
    with holding(_proposal, proposal):
        yield
    if proposal.stopped:
        if outer is not None:  # a tool that asks another agent may turn even this into a text
            outer.stopped.extend(proposal.stopped)
        stop(proposal.stopped[0], *_abortions(), source="genai_processor")


def _native(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    own = _info(argument("tool_call", 0, args, kwargs))
    batch = _batch.get() or _response(getattr(getattr(instance, "state", None), "messages", None))
    proposal = _Proposal(
        None if own is None else own[0],
        None if batch is None else batch[0],
        1 if own is None or batch is None else same_calls((own[1], own[2]), batch[1]),
    )
    with _proposing(proposal):
        return wrapped(*args, **kwargs)


def _planned(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    calls = [_info(call) for call in argument("tool_calls", 0, args, kwargs)]
    with holding(_batch, (random_id(), [(call[1], call[2]) for call in calls if call is not None])):
        return wrapped(*args, **kwargs)


def written(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of a call that a ReAct agent writes: a text proposes one, and has no id."""
    with _proposing(_Proposal(None, random_id())):
        return wrapped(*args, **kwargs)


async def _awritten(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    with _proposing(_Proposal(None, random_id())):
        return await wrapped(*args, **kwargs)


def _info(tool_call: Any) -> tuple[str, str, Any] | None:
    found: tuple[str, str, Any] | None = import_module("crewai.utilities.agent_utils").extract_tool_call_info(tool_call)
    return found


def _response(messages: Any) -> tuple[str, list[tuple[str, Any]]] | None:
    """The latest message of the model that proposed calls: an id for it, and the calls."""
    for message in reversed(messages or ()):
        if isinstance(message, dict) and message.get("tool_calls"):
            calls = [_info(call) for call in message["tool_calls"]]
            return _turns.of(message), [(call[1], call[2]) for call in calls if call is not None]
    return None


# -- where tools run -------------------------------------------------------------------------------------------------------


def _run(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return run(guard, _call(instance, _given(instance, args, kwargs)), partial(wrapped, *args, **kwargs), _manners())


def _arun(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return arun(guard, _call(instance, _given(instance, args, kwargs)), partial(wrapped, *args, **kwargs), _manners())


def invoke(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of a `CrewStructuredTool`."""
    if is_replayed():
        return wrapped(*args, **kwargs)
    call = _call(instance, _parsed(instance._parse_args, argument("input", 0, args, kwargs)))
    return run(guard, call, partial(wrapped, *args, **kwargs), _manners())


def ainvoke(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of a `CrewStructuredTool`."""
    if is_replayed():
        return wrapped(*args, **kwargs)
    call = _call(instance, _parsed(instance._parse_args, argument("input", 0, args, kwargs)))
    return arun(guard, call, partial(wrapped, *args, **kwargs), _manners())


def run_unmarked(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    """As `_run`, where nothing shows whether the body has begun, so that it may have."""
    if is_replayed():
        return wrapped(*args, **kwargs)
    return run(guard, _call(instance, _given(instance, args, kwargs)), partial(wrapped, *args, **kwargs), _manners(False))


def begun(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where a tool counts its uses: what comes next is the body."""
    spent = wrapped(*args, **kwargs)
    if spent is None:  # `CrewStructuredTool` only counts there
        started()
    return spent


def _given(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return {"args": args, **kwargs} if args else _parsed(getattr(tool, "_validate_kwargs", dict), kwargs)


def _parsed(validate: Callable[[Any], Any], given: Any) -> Any:
    """The arguments as the body gets them: ReAct tries again with some that it had left out, and that change nothing."""
    try:
        return validate(given)
    except Exception:  # noqa: BLE001 - the tool will say so itself
        return given


def _call(tool: Any, arguments: Any) -> Call:
    known = _proposal.get()
    if known is None or known.within is not bindings.current():
        return Call(tool.name, None, arguments, framework="CrewAI")
    return Call(tool.name, known.call_id, arguments, None, known.turn, known.proposed, framework="CrewAI")


def _manners(awaits_start: bool = True) -> Manners:
    return Manners(refuse=_refuse, stop=_stop, failure=_failure, awaits_start=awaits_start)


def _failure(value: Any) -> str | None:
    if type(value).__name__ != "ToolFailure":
        return None
    reason = getattr(value, "reason", None)
    return str(getattr(reason, "value", reason))


class _Text(str):
    """A refusal."""


def _refuse(refused: Refused) -> Any:
    try:
        kind = import_module("crewai.tools.tool_failure").ToolFailure  # which is not cached, either
    except ImportError:  # it is new
        return _Text(refused.text)
    return kind(message=refused.text)


def cached(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Keep a refusal out of the cache of results."""
    if not isinstance(argument("output", 2, args, kwargs), _Text):
        return wrapped(*args, **kwargs)
    return None


def _stop(refused: Refused) -> Any:
    known = _proposal.get()
    if known is not None:
        known.stopped.append(refused)
    raise refused.error() from refused.cause


def _abortions() -> tuple[type[BaseException], ...]:
    """What the framework lets out of a run."""
    try:
        return (import_module("crewai.hooks.dispatch").HookAborted,)
    except ImportError:  # it is new; before, the agent begins anew a few times, and then gives up
        return ()


# -- runs ------------------------------------------------------------------------------------------------------------------


class _Execution(Run):
    """A run of one agent. Where its time is over, the framework lets it end, and throws away what came of it."""

    agent: Any = None


def executed(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    """A run of an agent, by its executor."""
    return _within(guard, instance.agent, partial(wrapped, *args, **kwargs))


def _timed(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: Any, kwargs: Any) -> Any:
    return _within(guard, instance, partial(wrapped, *args, **kwargs))


def _within(guard: Guard, agent: Any, execute: Callable[[], Any]) -> Any:
    outer = current_run()
    if isinstance(outer, _Execution) and outer.agent is agent:
        return execute()
    run_of_agent = _Execution.within()
    run_of_agent.agent = agent
    with guard.running(run_of_agent):
        return execute()


async def _aexecuted(guard: Guard, wrapped: Callable[..., Awaitable[Any]], instance: Any, args: Any, kwargs: Any) -> Any:
    async with running(guard):
        return await wrapped(*args, **kwargs)


_TOOLS: Final = "crewai.tools.base_tool"
_STRUCTURED: Final = "crewai.tools.structured_tool"
_EXECUTOR: Final = "crewai.agents.agent_executor"

HOOK = Hook(
    "CrewAI",
    (
        Target(_TOOLS, "BaseTool.run", ("args", "kwargs"), _run),
        Target(_TOOLS, "BaseTool.arun", ("args", "kwargs"), _arun),
        Target(_TOOLS, "BaseTool._claim_usage", (), begun),
        Target(_TOOLS, "Tool.run", ("args", "kwargs"), _run),
        Target(_TOOLS, "Tool.arun", ("args", "kwargs"), _arun),
        Target(_STRUCTURED, "CrewStructuredTool.invoke", ("input",), invoke),
        Target(_STRUCTURED, "CrewStructuredTool.ainvoke", ("input",), ainvoke),
        Target(_STRUCTURED, "CrewStructuredTool._increment_usage_count", (), begun),
        Target(_EXECUTOR, "AgentExecutor._execute_single_native_tool_call", ("tool_call",), _native),
        Target("crewai.agent.core", "Agent._execute_with_timeout", ("timeout",), _timed),
        Target(_EXECUTOR, "AgentExecutor.invoke", ("inputs",), executed),
        Target(_EXECUTOR, "AgentExecutor.invoke_async", ("inputs",), _aexecuted),
        Target("crewai.utilities.agent_utils", "execute_single_native_tool_call", ("tool_call",), _native),
        Target("crewai.utilities.tool_utils", "execute_tool_and_check_finality", ("agent_action",), written),
        Target("crewai.utilities.tool_utils", "aexecute_tool_and_check_finality", ("agent_action",), _awritten),
    ),
    # Imported when an agent first plans.
    (Target("crewai.agents.step_executor", "StepExecutor._execute_native_tool_calls", ("tool_calls",), _planned),),
)
