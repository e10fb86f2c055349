# SPDX-License-Identifier: Apache-2.0
"""Google ADK 1 and 2.

Claims where the tool itself is called: inside its span and inside all callbacks and plugins, after what asks a person for
confirmation. A call that waits for confirmation or credentials reports so beside its result, not by an exception.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.machinery import PathFinder
from typing import Any, Final

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard import bindings
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, started
from genai_processor.guard.streams import run_of_asteps
from genai_processor.retry.verdict import Effect

_STEERING: Final = frozenset(
    {
        "google.adk.tools.exit_loop_tool",
        "google.adk.tools.load_artifacts_tool",
        "google.adk.tools.load_memory_tool",
        "google.adk.tools.preload_memory_tool",
        "google.adk.tools.set_model_response_tool",
        "google.adk.tools.transfer_to_agent_tool",
        "google.adk.agents.llm.task._finish_task_tool",
    }
)
"""Modules of tools which steer the run and change nothing outside of it."""


class _Says(Exception):
    """A call has returned without having done what it was asked. Carries what it returned; never leaves this module."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Waits(_Says):
    """It waits for a person."""


class _NotBegun(_Says):
    """Its body has not begun: the arguments are bad, or a person has said no."""


def _refuse(refused: Refused) -> dict[str, str]:
    return {"status": "refused", "error": refused.text}


def _call_tool(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    tool = argument("tool", 0, args, kwargs)
    context = argument("tool_context", 2, args, kwargs)
    if is_replayed() or _streams_live(tool, context):
        return wrapped(*args, **kwargs)
    turn, proposed = _turn(context)
    wish = Call(
        tool.name,
        context.function_call_id,
        argument("args", 1, args, kwargs),
        context.session.id,
        turn,
        proposed,
        Effect.READ_ONLY if _steers(tool) else None,
        framework="google-adk",
    )
    return _guarded(guard, wish, tool, context, partial(wrapped, *args, **kwargs))


async def _guarded(guard: Guard, wish: Call, tool: Any, context: Any, run: Callable[[], Awaitable[Any]]) -> Any:
    marks_start = _marks_start(tool)

    async def body() -> Any:
        value = await run()
        bound = bindings.current()
        if _is_waiting(context):
            raise _Waits(value)
        if marks_start and bound is not None and not bound.started:
            raise _NotBegun(value)
        return value

    manners = Manners(
        refuse=_refuse,
        failure=partial(_failure, tool),
        paused=(_Waits, _interruption()),
        awaits_start=marks_start,
    )
    try:
        return await arun(guard, wish, body, manners)
    except _Says as says:
        return says.value


def _failure(tool: Any, value: Any) -> str | None:
    """What some tools say of their own results: those of MCP servers, say."""
    detect = getattr(tool, "_detect_error_in_response", None)
    if callable(detect):
        found = detect(value)
        return found if isinstance(found, str) else None
    return "is_error" if isinstance(value, dict) and value.get("isError") is True else None  # MCP in ADK 1


def _is_waiting(context: Any) -> bool:
    """Whether the call has asked for a confirmation, or for credentials."""
    actions, call_id = context.actions, context.function_call_id
    return call_id in (getattr(actions, "requested_tool_confirmations", None) or ()) or call_id in (
        getattr(actions, "requested_auth_configs", None) or ()
    )


def _interruption() -> type[BaseException]:
    """What ends a tool in whose body a workflow waits for a person; nothing of that kind is in ADK 1."""
    errors = sys.modules.get("google.adk.workflow._errors")
    return getattr(errors, "NodeInterruptedError", _Waits)


def _turn(context: Any) -> tuple[str | None, int]:
    """The event of the model's response, which the session keeps, and how many calls like this one it proposed."""
    for event in reversed(context.session.events or ()):
        calls = event.get_function_calls()
        for call in calls:
            if call.id == context.function_call_id:
                return event.id, same_calls((call.name, call.args), [(one.name, one.args) for one in calls])
    return None, 1


def _marks_start(tool: Any) -> bool:
    """Whether the body of a tool begins where `_invoke` sees it."""
    plain_tool = sys.modules["google.adk.tools.function_tool"].FunctionTool
    own = [inspect.getattr_static(type(tool), name, None) for name in ("run_async", "_invoke_callable")]
    plain = own == [inspect.getattr_static(plain_tool, name) for name in ("run_async", "_invoke_callable")]
    return plain and not (inspect.isgeneratorfunction(tool.func) or inspect.isasyncgenfunction(tool.func))


def _invoke(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if argument("target", 0, args, kwargs) is instance.func:  # and not what decides whether to ask a person
        started()
    return wrapped(*args, **kwargs)


def _streams_live(tool: Any, context: Any) -> bool:
    """Whether the call is a stream of a live session, which is not over when it returns."""
    around = getattr(context, "_invocation_context", None)
    return getattr(around, "live_request_queue", None) is not None and inspect.isasyncgenfunction(
        getattr(tool, "func", None)
    )


def _steers(tool: Any) -> bool:
    places = type(tool).__module__, getattr(getattr(tool, "func", None), "__module__", None)
    return any(place in _STEERING for place in places)


def _handle_error(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if isinstance(kwargs.get("error"), ToolSpanCommitmentError):
        return _nothing()  # plugins answer errors, and ask the model to try again
    return wrapped(*args, **kwargs)


async def _nothing() -> None:
    return None


# Of a runner, and of each agent in it: of two that run in parallel, one that goes on says nothing of the other's results.
def _run(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    stream: AsyncIterator[Any] = wrapped(*args, **kwargs)
    return stream if is_replayed() else run_of_asteps(guard, stream)


def _where() -> tuple[str, str]:
    """Where tools are called from, in the version that is installed; finds out without importing it."""
    root = getattr(sys.modules.get("google.adk"), "__path__", None)
    for module in (".flows.llm_flows.tools._caller", ".flows.llm_flows._tool_caller"):
        if root is None or _exists(module, root):
            return f"google.adk{module}", "_call_tool_async"
    return "google.adk.flows.llm_flows.functions", "__call_tool_async"


def _exists(module: str, path: Any) -> bool:
    for name in module.split(".")[1:]:
        spec = None if path is None else PathFinder.find_spec(name, list(path))
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


HOOK = Hook(
    "google-adk",
    (
        Target(*_where(), ("tool", "args", "tool_context"), _call_tool),
        Target("google.adk.tools.function_tool", "FunctionTool._invoke_callable", ("target", "args_to_call"), _invoke),
        Target("google.adk.plugins.plugin_manager", "PluginManager.run_on_tool_error_callback", ("error",), _handle_error),
        Target("google.adk.agents.base_agent", "BaseAgent.run_async", ("parent_context",), _run),
        Target("google.adk.runners", "Runner.run_async", ("session_id",), _run),
        Target("google.adk.runners", "Runner.run_live", ("session_id",), _run),
    ),
)
