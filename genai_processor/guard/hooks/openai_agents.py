# SPDX-License-Identifier: Apache-2.0
"""The OpenAI Agents SDK.

Claims inside the tool's span, after approvals and guardrails. The SDK turns what a tool raises into a text for the model
before anything outside sees it, so its own formatter of failures is where a failure is noticed: see `openai_agents_results`.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from genai_processor.guard.bindings import current
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.hooks.openai_agents_results import Failures, current_failures, format_failure, manners, watched
from genai_processor.guard.hooks.openai_agents_servers import effect_of, never_sends
from genai_processor.guard.hooks.turns import turn_of
from genai_processor.guard.running import arun, ended_well, running, started
from genai_processor.guard.runs import Run, in_run
from genai_processor.guard.variables import held
from genai_processor.ledger.ids import random_id
from genai_processor.spans.values import index_like, usable_id

_NAME: Final = "openai-agents"


class _Turn(NamedTuple):
    """A response of a model, and the calls that it proposes."""

    turn_id: str
    proposed: tuple[tuple[str, Any], ...]


_turn: Final[ContextVar[_Turn | None]] = ContextVar("genai_processor_openai_agents_turn", default=None)


# -- the turn ------------------------------------------------------------------------------------------------------------


def _take_turn(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return held(_turn, _turn_of(kwargs["new_response"]), partial(wrapped, *args, **kwargs))


def _turn_of(response: Any) -> _Turn:
    """The response's own id and the ids of its calls, which a `RunState` keeps; where none names anything, a new one."""
    calls = [item for item in response.output if getattr(item, "type", None) == "function_call"]
    ids = [call.call_id for call in calls if usable_id(call.call_id, call.name) is not None]
    if response.response_id or any(not index_like(call_id) for call_id in ids):
        turn_id = turn_of(response.response_id, ids)
    else:
        turn_id = random_id()
    return _Turn(f"{_NAME}-{turn_id}", tuple((_qualified(call), call.arguments) for call in calls))


def _qualified(call: Any) -> str:
    namespace = getattr(call, "namespace", None)
    return f"{namespace}.{call.name}" if namespace and namespace != call.name else str(call.name)


# -- the call ------------------------------------------------------------------------------------------------------------


def _invoke(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return _guarded(
        guard, partial(wrapped, *args, **kwargs), kwargs["function_tool"], kwargs["context"], kwargs["arguments"]
    )


async def _guarded(guard: Guard, invoke: Callable[..., Any], tool: Any, context: Any, arguments: str) -> Any:
    name, turn, failures = context.qualified_tool_name, _turn.get(), Failures()
    wish = Call(
        name,
        context.tool_call_id,
        arguments,
        turn=None if turn is None else turn.turn_id,
        proposed=1 if turn is None else same_calls((name, arguments), turn.proposed),
        effect=effect_of(guard, tool),
        framework=_NAME,
        trace=_trace_id(),
    )
    body = partial(_body, partial(invoke, function_tool=watched(tool, failures)), failures, never_sends(tool, arguments))
    return await arun(guard, wish, body, manners(tool, context, failures))


async def _body(invoke: Callable[[], Any], failures: Failures, sends_nothing: bool) -> Any:
    bound = current()
    if bound is not None and sends_nothing:
        bound.rejected = True
    return await held(current_failures, failures, invoke)


def _started(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    started()
    return wrapped(*args, **kwargs)


# -- the run -------------------------------------------------------------------------------------------------------------


def _run(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    started()  # of a tool that is an agent
    return _run_in(guard, _conversation(args, kwargs), partial(wrapped, *args, **kwargs))


async def _run_in(guard: Guard, hint: str | None, run: Callable[[], Any]) -> Any:
    async with running(guard, hint):
        return await run()


def _run_streamed(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    started()
    run = Run.within(_conversation(args, kwargs))
    with in_run(run):
        result = wrapped(*args, **kwargs)
    result.run_loop_task.add_done_callback(partial(_ended, guard, run, result))
    return result


def _ended(guard: Guard, run: Run, result: Any, task: Task[Any]) -> None:
    """The loop of a streamed run has ended. Whoever consumes it goes on only after this.

    Only where results were lost, which the next run has to find written, the event loop waits for the ledger.
    """
    if task.cancelled() or task.exception() is not None or result._stored_exception is not None:
        guard.died(run)
    else:
        ended_well(guard, run)


def _conversation(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The conversation's id, else the session's, else the group of traces that the user named."""
    state = argument("input", 1, args, kwargs)
    config = kwargs.get("run_config")
    group = config.get("group_id") if isinstance(config, dict) else getattr(config, "group_id", None)
    found: Iterable[Any] = (
        kwargs.get("conversation_id"),
        getattr(state, "_conversation_id", None),
        getattr(kwargs.get("session"), "session_id", None),
        group,
    )
    return next((one for one in found if isinstance(one, str) and one), None)


def _trace_id() -> str | None:
    """The SDK's trace, which a `RunState` takes with it."""
    trace_id = getattr(import_module("agents.tracing").get_current_trace(), "trace_id", None)
    return trace_id if isinstance(trace_id, str) and trace_id.startswith("trace_") else None


HOOK = Hook(
    _NAME,
    (
        Target("agents.tool", "_invoke_function_tool_with_metadata", ("function_tool", "context", "arguments"), _invoke),
        Target(
            "agents.tool", "maybe_invoke_function_tool_failure_error_function", ("function_tool", "error"), format_failure
        ),
        Target("agents.tool", "_log_function_tool_invocation", (), _started),
        Target("agents.run_internal.turn_resolution", "execute_tools_and_side_effects", ("new_response",), _take_turn),
        Target("agents.run_internal.turn_resolution", "resolve_interrupted_turn", ("new_response",), _take_turn),
        Target("agents.run", "AgentRunner.run", ("starting_agent", "input"), _run),
        Target("agents.run", "AgentRunner.run_streamed", ("starting_agent", "input"), _run_streamed),
    ),
)
