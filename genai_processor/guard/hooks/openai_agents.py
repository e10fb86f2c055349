# SPDX-License-Identifier: Apache-2.0
"""The OpenAI Agents SDK.

Claims inside the tool's span, after approvals and guardrails. The SDK turns what a tool raises into a text for the model
before anything outside sees it, so its own formatter of failures is where a failure is noticed.
"""

from __future__ import annotations

import hashlib
import json
from asyncio import Task
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from copy import copy
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.bindings import current
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.hooks.mcp import declared_effect
from genai_processor.guard.modes import RefusalMode
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, running, started
from genai_processor.guard.runs import Run, current_run, enter_run, leave_run
from genai_processor.ledger.ids import random_id
from genai_processor.retry.verdict import Effect
from genai_processor.spans.values import index_like, usable_id

_NAME: Final = "openai-agents"


class _Turn(NamedTuple):
    """A response of a model, and the calls that it proposes."""

    turn_id: str
    proposed: tuple[tuple[str, Any], ...]


class _Failures:
    """What the SDK has turned into a text while a call ran."""

    def __init__(self) -> None:
        self.first: str | None = None

    def of(self, result: Any) -> str | None:
        return self.first or ("sdk_error" if result.is_sdk_generated_error else None)

    def note(self, error: BaseException) -> None:
        self.first = self.first or type(error).__name__


_turn: Final[ContextVar[_Turn | None]] = ContextVar("genai_processor_openai_agents_turn", default=None)
_failures: Final[ContextVar[_Failures | None]] = ContextVar("genai_processor_openai_agents_failures", default=None)


# -- the turn ------------------------------------------------------------------------------------------------------------


def _take_turn(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _in_turn(_turn_of(kwargs["new_response"]), partial(wrapped, *args, **kwargs))


async def _in_turn(turn: _Turn, resolve: Callable[[], Any]) -> Any:
    token = _turn.set(turn)
    try:
        return await resolve()
    finally:
        _turn.reset(token)


def _turn_of(response: Any) -> _Turn:
    """The response's own id and the ids of its calls, which a `RunState` keeps; where none names anything, a new one."""
    calls = [item for item in response.output if getattr(item, "type", None) == "function_call"]
    ids = [call.call_id for call in calls if usable_id(call.call_id, call.name) is not None]
    if response.response_id or any(not index_like(call_id) for call_id in ids):
        named = json.dumps([response.response_id, ids])
        turn_id = hashlib.sha256(named.encode("utf-8", "replace")).hexdigest()[:32]
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
    name, turn, failures = context.qualified_tool_name, _turn.get(), _Failures()
    wish = Call(
        name,
        context.tool_call_id,
        arguments,
        turn=None if turn is None else turn.turn_id,
        proposed=1 if turn is None else same_calls((name, arguments), turn.proposed),
        effect=_effect(guard, tool),
        framework=_NAME,
        trace=_trace_id(),
    )
    body = partial(_body, partial(invoke, function_tool=_watched(tool, failures)), failures, _never_sends(tool, arguments))
    return await arun(guard, wish, body, _manners(tool, context, failures))


async def _body(invoke: Callable[[], Any], failures: _Failures, never_sends: bool) -> Any:
    bound = current()
    if bound is not None and never_sends:
        bound.rejected = True
    token = _failures.set(failures)
    try:
        return await invoke()
    finally:
        _failures.reset(token)


def _manners(tool: Any, context: Any, failures: _Failures) -> Manners:
    return Manners(
        refuse=_result,
        stop=_stop,
        failure=failures.of,
        keep=_output,
        hand_back=_handed_back,
        pauses=partial(_waits, tool, context),
        awaits_start=_says_when_it_starts(tool),
    )


def _tool_module() -> Any:
    return import_module("agents.tool")


def _result(refused: Refused) -> Any:
    return _tool_module()._FunctionToolInvocationResult(refused.text, is_sdk_generated_error=True)


def _output(result: Any) -> Any:
    return result.output


def _handed_back(output: Any) -> Any:
    return _tool_module()._FunctionToolInvocationResult(output)


def _stop(refused: Refused) -> NoReturn:
    raise _stopping(refused.error()) from refused.cause


def _stopping(error: ToolSpanCommitmentError) -> ToolSpanCommitmentError:
    stopping: ToolSpanCommitmentError = _error_type()(
        str(error),
        tool=error.tool,
        call_id=error.call_id,
        reason=error.reason,
        entry_id=error.entry_id,
        recorded=error.recorded,
    )
    return stopping


@cache
def _error_type() -> Any:
    """The SDK puts whatever else a tool raises into a `UserError`."""
    base = import_module("agents.exceptions").AgentsException
    return type("AgentsCommitmentError", (ToolSpanCommitmentError, base), {"run_data": None})


def _waits(tool: Any, context: Any, result: Any) -> bool:
    """Whether the agent inside a tool waits for an approval: its run goes on where it stopped, under the same call id."""
    if not getattr(tool, "_is_agent_tool", False) or context.tool_call is None:
        return False
    state = import_module("agents.agent_tool_state")
    pending = state.peek_agent_tool_run_result(context.tool_call, scope_id=state.get_agent_tool_state_scope(context))
    return bool(getattr(pending, "interruptions", None))


def _says_when_it_starts(tool: Any) -> bool:
    """Whether the SDK made the tool's invoker, so that its body begins with `_started` or with a run of an agent."""
    invoker = tool.on_invoke_tool
    if type(invoker) is not getattr(_tool_module(), "_FailureHandlingFunctionToolInvoker", None):
        return False
    return getattr(tool, "_is_agent_tool", False) or hasattr(
        invoker._invoke_tool_impl, "__agents_function_tool_wrapped_callable__"
    )


def _started(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    started()
    return wrapped(*args, **kwargs)


# -- failures ------------------------------------------------------------------------------------------------------------


def _format(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    error, failures = kwargs["error"], _failures.get()
    if failures is not None:
        failures.note(error)
    refusal = _refusal_in(error)
    if refusal is None or failures is None:
        return wrapped(*args, **kwargs)
    return _tell_refusal(guard, refusal, kwargs["function_tool"], partial(wrapped, *args, **kwargs))


async def _tell_refusal(guard: Guard, refusal: ToolSpanCommitmentError, tool: Any, say: Callable[[], Any]) -> Any:
    """A call that the tool's body made was refused: the SDK's own text would ask the model to try again."""
    if guard.on_refusal is RefusalMode.RAISE:
        raise _stopping(refusal) from refusal
    said = await say()
    return str(refusal) if said is not None and tool._use_default_failure_error_function else said


def _refusal_in(error: BaseException | None) -> ToolSpanCommitmentError | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, ToolSpanCommitmentError):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None


def _watched(tool: Any, failures: _Failures) -> Any:
    """The tool; if the user words its time-outs, a copy that tells us of them, for their result looks like any other."""
    say = tool.timeout_error_function
    if say is None:
        return tool
    watched = copy(tool)

    def timed_out(context: Any, error: Exception) -> Any:
        failures.note(error)
        return say(context, error)

    watched.timeout_error_function = timed_out
    return watched


# -- MCP tools -----------------------------------------------------------------------------------------------------------


def _mcp_origin(tool: Any) -> tuple[Any, Any] | None:
    """The SDK's server and the server's own tool that a tool stands for, or None."""
    implementation = getattr(tool.on_invoke_tool, "_invoke_tool_impl", None)
    if not isinstance(implementation, partial) or getattr(implementation.func, "__name__", None) != "invoke_mcp_tool":
        return None
    server, theirs = (*implementation.args, None, None)[:2]
    return None if theirs is None else (server, theirs)


def _effect(guard: Guard, tool: Any) -> Effect | None:
    server, theirs = _mcp_origin(tool) or (None, None)
    session, annotations = getattr(server, "session", None), getattr(theirs, "annotations", None)
    if session is None or annotations is None:
        return None
    return declared_effect(guard, session, getattr(theirs, "name", ""), annotations)


def _never_sends(tool: Any, arguments: str) -> bool:
    """Whether the arguments are none that the SDK would send to a server."""
    if _mcp_origin(tool) is None:
        return False
    try:
        return bool(arguments) and not isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return True


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
    outer, hint = current_run(), _conversation(args, kwargs)
    run = Run(None if outer is None else outer.scope, hint or (None if outer is None else outer.hint))
    token = enter_run(run)
    try:
        result = wrapped(*args, **kwargs)
    finally:
        leave_run(token)
    result.run_loop_task.add_done_callback(partial(_ended, guard, run, result))
    return result


def _ended(guard: Guard, run: Run, result: Any, task: Task[Any]) -> None:
    """The loop of a streamed run has ended. Whoever consumes it goes on only after this, so the next run finds it written.

    Nothing is written, so nobody waits, unless results were lost or handed back.
    """
    if task.cancelled() or task.exception() is not None or result._stored_exception is not None:
        guard.died(run)
    else:
        guard.delivered(run.delivered())


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
        Target("agents.tool", "maybe_invoke_function_tool_failure_error_function", ("function_tool", "error"), _format),
        Target("agents.tool", "_log_function_tool_invocation", (), _started),
        Target("agents.run_internal.turn_resolution", "execute_tools_and_side_effects", ("new_response",), _take_turn),
        Target("agents.run_internal.turn_resolution", "resolve_interrupted_turn", ("new_response",), _take_turn),
        Target("agents.run", "AgentRunner.run", ("starting_agent", "input"), _run),
        Target("agents.run", "AgentRunner.run_streamed", ("starting_agent", "input"), _run_streamed),
    ),
)
