# SPDX-License-Identifier: Apache-2.0
"""smolagents: tools that a `ToolCallingAgent` calls, and tools in the code that a `CodeAgent` runs in this process.

Nobody can say how many identical calls a piece of code proposes: there, an action may be run once more after each success,
and never after anything else. A step that ends with an error throws away what its other calls returned, so these count as
undelivered.
"""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final

from genai_processor.guard import bindings
from genai_processor.guard.actions import action_digest
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, fits, holding, is_replayed
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, run, started
from genai_processor.guard.runs import Run, current_run
from genai_processor.guard.streams import run_of_steps, steps
from genai_processor.ledger.ids import random_id

_Action = tuple[str, str | None]


class _Response:
    """What one response of a model proposed.

    Args:
        calls: Id and action of each call; None for a piece of code.
    """

    def __init__(self, calls: list[tuple[str, _Action]] | None) -> None:
        self.turn = random_id()
        self.is_code = calls is None
        self.within = bindings.current()
        self.outer = _response.get()
        self.used = False
        self.stopped: list[Refused] = []
        self._proposed = Counter(action for _, action in calls or ())
        self._ids = list(calls or ())
        self._lock = threading.Lock()

    def take(self, action: _Action) -> tuple[str | None, int]:
        """Return the id of a call of this action, which nobody else gets, and how many such calls were proposed."""
        with self._lock:
            for index, (call_id, other) in enumerate(self._ids):
                if other == action:
                    del self._ids[index]
                    return call_id, self._proposed[action]
        return None, 1

    def proposed(self, action: _Action) -> int:
        """How many calls of this action may be made."""
        return self._proposed[action] + self.is_code

    def succeeded(self, action: _Action) -> None:
        """Note that a piece of code got what it wanted, and may want it once more."""
        if self.is_code:
            with self._lock:
                self._proposed[action] += 1

    def stop(self, refused: Refused) -> None:
        """Note a refusal that is to stop the run, and the runs around it: agents that manage others turn all into a text."""
        self.stopped.append(refused)
        if self.outer is not None:
            self.outer.stop(refused)


_response: Final[ContextVar[_Response | None]] = ContextVar("genai_processor_smolagents", default=None)
_taken: Final[ContextVar[tuple[str | None, int] | None]] = ContextVar("genai_processor_smolagents_call", default=None)


# -- tools -----------------------------------------------------------------------------------------------------------------


def _call(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if is_replayed() or type(instance).__name__ == "FinalAnswerTool":
        return wrapped(*args, **kwargs)
    given = _given(instance, args, kwargs)
    action = instance.name, action_digest(given)
    response = _response.get()
    if response is not None and response.within is not bindings.current():
        response = None  # a tool that is called by a tool
    if response is None:
        wish = Call(instance.name, None, given, framework="smolagents")
    else:
        response.used = True
        call_id, proposed = _taken.get() or (None, response.proposed(action))
        wish = Call(instance.name, call_id, given, None, response.turn, proposed, framework="smolagents")
    manners = Manners(refuse=partial(_refuse, response), stop=partial(_stop, response), awaits_start=True)
    return run(guard, wish, partial(_body, instance, response, action, wrapped, args, kwargs), manners)


def _body(
    tool: Any,
    response: _Response | None,
    action: _Action,
    wrapped: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    if _can_begin(tool, args, kwargs):
        started()
    value = wrapped(*args, **kwargs)
    if response is not None:
        response.succeeded(action)
    return value


def _given(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, as the tool itself will take them."""
    args, kwargs = _unfolded(tool, args, kwargs)
    return {**dict(zip([*tool.inputs, *range(len(args))], args, strict=False)), **kwargs}


def _unfolded(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    named = {name: value for name, value in kwargs.items() if name != "sanitize_inputs_outputs"}
    if len(args) == 1 and not named and isinstance(args[0], dict) and all(name in tool.inputs for name in args[0]):
        return (), args[0]
    return args, named


def _can_begin(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the arguments fit the tool's function: if not, calling it raises."""
    args, kwargs = _unfolded(tool, args, kwargs)
    try:
        parameters = inspect.signature(tool.forward).parameters
    except (TypeError, ValueError):  # no signature
        return True
    if next(iter(parameters), None) == "self":  # of a decorated function, which is called without
        args = (tool, *args)
    return fits(tool.forward, args, kwargs)


def _refuse(response: _Response | None, refused: Refused) -> Any:
    if response is None or response.is_code:
        raise refused.error() from refused.cause  # code goes on with what it is given: it must not take this for a result
    return refused.text


def _stop(response: _Response | None, refused: Refused) -> Any:
    if response is not None:
        response.stop(refused)
    raise refused.error() from refused.cause


# -- what a model proposed -------------------------------------------------------------------------------------------------


def _calls(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    message = argument("chat_message", 0, args, kwargs)
    calls = [
        (call.id, (call.function.name, action_digest(call.function.arguments or {}))) for call in message.tool_calls or ()
    ]
    return _responded(guard, calls, wrapped(*args, **kwargs))


def _code(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _responded(guard, None, wrapped(*args, **kwargs))


def _responded(
    guard: Guard, calls: list[tuple[str, _Action]] | None, step: Generator[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    response = _Response(calls)
    try:
        value = yield from steps(step, partial(_within, response))
    except BaseException as error:
        run_of_it = current_run()
        if response.used and run_of_it is not None:
            guard.lost(run_of_it)  # the run goes on
        if response.stopped and not isinstance(error, GeneratorExit):
            raise response.stopped[0].error() from error
        raise
    if response.stopped:
        raise response.stopped[0].error()
    return value


@contextmanager
def _within(response: _Response) -> Iterator[None]:
    with holding(_response, response), holding(_taken, None):
        yield


def _execute(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    response = _response.get()
    tool, given = argument("tool_name", 0, args, kwargs), argument("arguments", 1, args, kwargs)
    # What a call refers to of the agent's state is put into its arguments only after this.
    with holding(_taken, None if response is None else response.take((tool, action_digest(given)))):
        return wrapped(*args, **kwargs)


# -- runs ------------------------------------------------------------------------------------------------------------------


def _run(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run_of_steps(guard, wrapped(*args, **kwargs), Run.within())


class _WithContext(ThreadPoolExecutor):
    """Runs what it is given in a copy of the context of whoever gives it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(copy_context().run, fn, *args, **kwargs)


def _pool(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _WithContext(*args, **kwargs)  # the framework's own loses the context, in which the call's key is


HOOK = Hook(
    "smolagents",
    (
        Target("smolagents.tools", "Tool.__call__", ("args", "kwargs"), _call),
        Target("smolagents.tools", "PipelineTool.__call__", ("args", "kwargs"), _call),
        Target("smolagents.agents", "ToolCallingAgent.process_tool_calls", ("chat_message",), _calls),
        Target("smolagents.agents", "ToolCallingAgent.execute_tool_call", ("tool_name", "arguments"), _execute),
        Target("smolagents.agents", "CodeAgent._step_stream", ("memory_step",), _code),
        Target("smolagents.agents", "MultiStepAgent._run_stream", ("task",), _run),
    ),
    # Of parallel calls, and of code, which had all the time in the world before 1.24, and ran where it was.
    (
        Target("smolagents.agents", "ThreadPoolExecutor", ("max_workers",), _pool),
        Target("smolagents.local_python_executor", "ThreadPoolExecutor", ("max_workers",), _pool),
    ),
)
