# SPDX-License-Identifier: Apache-2.0
"""LangChain: every tool that is a `BaseTool`, whoever calls it.

What is known of a call stands in `BaseTool.run` and `arun`; it is claimed where these let the body run, which is after
validation, inside the tool's span, and before anything turns an exception into a message. The model response that proposed a
call is found in the state of the graph, if LangGraph runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from genai_processor.guard import bindings
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.hooks.langchain_results import manners
from genai_processor.guard.running import Manners, arun, run
from genai_processor.guard.variables import held, holding

tool_node_messages: Final[ContextVar[Any]] = ContextVar("genai_processor_tool_node_messages", default=None)
"""The messages that a `ToolNode` was given, while one of its calls is made."""

_Arguments = tuple[Any, ...]
_BASE: Final = "langchain_core.tools.base"


class _Held:
    """A call, on its way from `run` to its body."""

    __slots__ = ("asynchronous", "call", "manners", "taken")

    def __init__(self, call: Call, manners: Manners, *, asynchronous: bool) -> None:
        self.call = call
        self.manners = manners
        self.asynchronous = asynchronous
        self.taken = False


_held: Final[ContextVar[_Held | None]] = ContextVar("genai_processor_langchain_call", default=None)


# -- what is known of a call ---------------------------------------------------------------------------------------------


def _run(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    with holding(_held, _hold(instance, args, kwargs, asynchronous=False)):
        return wrapped(*args, **kwargs)


def _arun(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    if is_replayed():
        return wrapped(*args, **kwargs)
    return held(_held, _hold(instance, args, kwargs, asynchronous=True), partial(wrapped, *args, **kwargs))


def _hold(tool: Any, args: _Arguments, kwargs: dict[str, Any], *, asynchronous: bool) -> _Held:
    config = import_module("langchain_core.runnables.config").ensure_config(kwargs.get("config"))
    call_id = kwargs.get("tool_call_id")
    thread = config.get("configurable", {}).get("thread_id")
    proposal = _proposal(config, call_id)
    call = Call(
        tool.name,
        call_id,
        _given(tool, argument("tool_input", 0, args, kwargs)),
        None if thread is None else str(thread),
        proposal.turn,
        proposal.proposed,
        framework="LangChain",
    )
    return _Held(call, manners(tool, call_id), asynchronous=asynchronous)


def _given(tool: Any, tool_input: Any) -> Any:
    """The arguments that the model gave, without what a framework injects."""
    if not isinstance(tool_input, Mapping):
        return tool_input
    filtered = getattr(tool, "_filter_injected_args", None)  # from 1.0 on
    if filtered is not None:
        return filtered(dict(tool_input))
    injected = set() if isinstance(tool.args_schema, dict) else _injected(tool)
    return {name: value for name, value in tool_input.items() if name not in injected}


def _injected(tool: Any) -> set[str]:
    base = import_module(_BASE)
    annotations = base.get_all_basemodel_annotations(tool.get_input_schema())
    return {name for name, kind in annotations.items() if base._is_injected_arg_type(kind)}


class _Proposal(NamedTuple):
    turn: str | None
    proposed: int


_UNKNOWN: Final = _Proposal(None, 1)


def _proposal(config: Mapping[str, Any], call_id: str | None) -> _Proposal:
    """Find the model response that proposed a call."""
    if call_id is None:
        return _UNKNOWN
    configurable = config.get("configurable", {})
    for message in reversed(_messages(configurable)):
        calls = _calls(message)
        own = next((call for call in calls if call.get("id") == call_id), None)
        if own is not None:
            # A graph gives its messages ids. One that does not: of the state from which this step of it began.
            steps = tuple((configurable.get("checkpoint_map") or {}).values())
            turn = getattr(message, "id", None) or (steps[-1] if steps else None)
            return _Proposal(turn, same_calls(_named(own), map(_named, calls)))
    return _UNKNOWN


def _messages(configurable: Mapping[str, Any]) -> list[Any]:
    messages = tool_node_messages.get()
    read = configurable.get("__pregel_read")
    if messages is None and read is not None:
        try:
            messages = read("messages")
        except Exception:  # noqa: BLE001 - a graph with another state
            return []
    return list(messages) if isinstance(messages, Iterable) else []


def _calls(message: Any) -> list[Mapping[str, Any]]:
    """The calls of a message; none if it is one of somebody else's, which a graph may hold, too."""
    calls = getattr(message, "tool_calls", None)
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, (list, tuple)) else []


def _named(call: Mapping[str, Any]) -> tuple[str, Any]:
    return call.get("name", ""), call.get("args")


# -- where the body runs -------------------------------------------------------------------------------------------------


def _context(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    """Of a synchronous tool: `BaseTool.run` calls the body by `run` of the context that it asks for here."""
    held = _held.get()
    if held is None or held.taken or held.asynchronous:
        return wrapped(*args, **kwargs)
    held.taken = True
    return _guarded(guard, held, wrapped(*args, **kwargs))


@contextmanager
def _guarded(guard: Guard, held: _Held, manager: AbstractContextManager[Context]) -> Generator[Any, None, None]:
    with manager as context:
        yield _GuardedContext(guard, held, context)


class _GuardedContext:
    """A context in which nothing runs but what the guard lets run."""

    def __init__(self, guard: Guard, held: _Held, context: Context) -> None:
        self._guard = guard
        self._held = held
        self._context = context

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def body() -> Any:
            self._context.run(bindings.enter, bindings.current())
            return self._context.run(function, *args, **kwargs)

        return run(self._guard, self._held.call, body, self._held.manners)


def _coroutine(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: _Arguments, kwargs: dict[str, Any]) -> Any:
    """Of an asynchronous tool: `BaseTool.arun` awaits the body's coroutine here."""
    held = _held.get()
    if held is None or held.taken or not held.asynchronous:
        return wrapped(*args, **kwargs)
    held.taken = True
    return _guarded_coroutine(guard, held, wrapped, args, kwargs)


async def _guarded_coroutine(
    guard: Guard, held: _Held, wrapped: Callable[..., Any], args: _Arguments, kwargs: dict[str, Any]
) -> Any:
    coroutine: Coroutine[Any, Any, Any] = argument("coro", 0, args, kwargs)
    context: Context = argument("context", 1, args, kwargs)
    begun = False

    async def body() -> Any:
        nonlocal begun
        begun = True
        context.run(bindings.enter, bindings.current())
        return await wrapped(*args, **kwargs)

    try:
        return await arun(guard, held.call, body, held.manners)
    finally:
        if not begun:
            coroutine.close()


HOOK = Hook(
    "LangChain",
    (
        Target(_BASE, "BaseTool.run", ("tool_input", "config", "tool_call_id"), _run),
        Target(_BASE, "BaseTool.arun", ("tool_input", "config", "tool_call_id"), _arun),
        Target(_BASE, "set_config_context", ("config",), _context, here_only=True),
        Target(_BASE, "coro_with_context", ("coro", "context"), _coroutine, here_only=True),
    ),
)
