# SPDX-License-Identifier: Apache-2.0
"""LlamaIndex: `FunctionAgent`, `ReActAgent`, `CodeActAgent` (its code as one call) and `AgentWorkflow`.

Claims where an agent hands a call to its tool. The response that proposed a call is noted in the workflow's context, which
an application may persist. A tool's exception is a result there. Whether a run dies is seen at the steps of the agent, since
that is before whoever waits for the run gets to know.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.guard.actions import action_digest
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, fits, is_replayed
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, delivered, ended_well, started
from genai_processor.guard.runs import Run, current_run, in_run
from genai_processor.guard.threads import tell
from genai_processor.guard.variables import held
from genai_processor.ledger.ids import random_id

_NOTE: Final = "genai_processor_turn"


@dataclass(frozen=True, slots=True)
class _Proposal:
    """What the step knows of a call, and the place where it is claimed does not."""

    call_id: str | None = None
    scope: str | None = None
    turn: str | None = None
    proposed: tuple[tuple[str, str | None], ...] = ()


_proposal: Final[ContextVar[_Proposal | None]] = ContextVar("genai_processor_llama_index", default=None)


def _run(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with in_run(Run.within()):
        return wrapped(*args, **kwargs)  # starts the tasks of the steps, which inherit the run


def _step(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _watched(guard, partial(wrapped, *args, **kwargs))


async def _watched(guard: Guard, step: Callable[[], Awaitable[Any]]) -> Any:
    run = current_run()
    try:
        event = await step()
    except BaseException as error:
        if run is not None and not isinstance(error, _waiting()):
            await tell(guard.threads, partial(guard.died, run))
        raise
    if run is not None and event.__class__.__name__ == "StopEvent":
        ended_well(guard, run)
    return event


def _parse(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _responded(
        guard, argument("ctx", 0, args, kwargs), argument("ev", 1, args, kwargs), partial(wrapped, *args, **kwargs)
    )


async def _responded(guard: Guard, ctx: Any, output: Any, step: Callable[[], Awaitable[Any]]) -> Any:
    run = current_run()
    if run is not None:  # the model has answered, so it has seen all results
        delivered(guard, run)
    calls = [[call.tool_name, action_digest(call.tool_kwargs)] for call in output.tool_calls or ()]
    if calls:
        await ctx.store.set(_NOTE, {"turn": random_id(), "calls": calls})
    return await _watched(guard, step)


def _call_step(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _called(
        guard, argument("ctx", 0, args, kwargs), argument("ev", 1, args, kwargs), partial(wrapped, *args, **kwargs)
    )


async def _called(guard: Guard, ctx: Any, call: Any, step: Callable[[], Awaitable[Any]]) -> Any:
    note = await ctx.store.get(_NOTE, default=None) or {}
    memory = await ctx.store.get("memory", default=None)
    proposal = _Proposal(
        call.tool_id,
        getattr(memory, "session_id", None),
        note.get("turn"),
        tuple((tool, digest) for tool, digest in note.get("calls", ())),
    )
    return await held(_proposal, proposal, partial(_watched, guard, step))


def _call_tool(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    tool, given = argument("tool", 1, args, kwargs), argument("tool_input", 2, args, kwargs)
    name = tool.metadata.name
    if name == "handoff" or is_replayed():  # reserved: the workflow's own, which changes nothing outside of it
        return wrapped(*args, **kwargs)
    known = _proposal.get() or _Proposal()
    wish = Call(
        name,
        known.call_id,
        given,
        known.scope,
        known.turn,
        known.proposed.count((name, action_digest(given))),
        framework="LlamaIndex",
    )
    manners = Manners(refuse=partial(_refuse, given), failure=_failure, paused=_waiting(), awaits_start=True)
    return arun(guard, wish, partial(_body, tool, given, partial(wrapped, *args, **kwargs)), manners)


async def _body(tool: Any, given: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    if _can_begin(tool, given):
        started()
    return await call()


def _can_begin(tool: Any, given: Any) -> bool:
    """Whether the arguments fit the function that a plain tool calls: if not, calling it raises."""
    module = import_module("llama_index.core.tools.function_tool")
    acall = inspect.getattr_static(module.FunctionTool, "acall")
    if not isinstance(tool, module.FunctionTool) or inspect.getattr_static(tool, "acall", None) is not acall:
        return True
    function = tool.async_fn
    if getattr(function, "__code__", None) is module.sync_to_async(len).__code__:
        function = tool.real_fn  # it runs this in a thread, with whatever it gets
    everything = {**getattr(tool, "_field_defaults", {}), **getattr(tool, "partial_params", {}), **given}
    if tool.requires_context and tool.ctx_param_name is not None:
        everything[tool.ctx_param_name] = None
    return fits(function, (), everything)


def _failure(output: Any) -> str | BaseException | None:
    if not getattr(output, "is_error", False):
        return None
    error: BaseException | None = getattr(output, "exception", None)
    return "error_result" if error is None else error


def _refuse(given: Any, refused: Refused) -> Any:
    return import_module("llama_index.core.tools").ToolOutput(
        tool_name=refused.tool,
        content=refused.text,
        raw_input=given,
        raw_output=refused.text,
        is_error=True,
    )


def _waiting() -> tuple[type[BaseException], ...]:
    try:
        return (import_module("workflows.runtime.types.results").WaitingForEvent,)
    except (ImportError, AttributeError):  # before 2.9, a step that waits for somebody does just that
        return ()


def _targets(module: str, agent: str) -> tuple[Target, ...]:
    return (
        Target(module, f"{agent}._call_tool", ("ctx", "tool", "tool_input"), _call_tool),
        Target(module, f"{agent}.call_tool", ("ctx", "ev"), _call_step),
        Target(module, f"{agent}.parse_agent_output", ("ctx", "ev"), _parse),
        Target(module, f"{agent}.run_agent_step", ("ctx", "ev"), _step),
        Target(module, f"{agent}.aggregate_tool_results", ("ctx", "ev"), _step),
        Target(module, f"{agent}.run", (), _run),
    )


HOOK = Hook(
    "LlamaIndex",
    (
        *_targets("llama_index.core.agent.workflow.base_agent", "BaseWorkflowAgent"),
        *_targets("llama_index.core.agent.workflow.multi_agent_workflow", "AgentWorkflow"),
    ),
)
