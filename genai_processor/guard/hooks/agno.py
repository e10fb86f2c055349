# SPDX-License-Identifier: Apache-2.0
"""agno 2 and 3: agents and teams.

A tool's failure is a status there, not an exception, so a call is claimed around what makes that status, and whoever failed
before the body began (a tool hook, bad arguments) is told apart by a mark that the body carries. A generator as a tool runs
after that, when its items are taken, and is claimed when the first one is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.guard.calls import Call
from genai_processor.guard.generators import asteps_of_call, steps_of_call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.agno_bodies import is_generator, marking, marks_its_start
from genai_processor.guard.hooks.base import Hook, Target, argument, same_calls
from genai_processor.guard.hooks.stopping import error_class
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, run, running
from genai_processor.guard.runs import Run
from genai_processor.guard.streams import run_of_asteps, run_of_steps

_FUNCTION: Final = "agno.tools.function"
_MODEL: Final = "agno.models.base"

# -- calls -----------------------------------------------------------------------------------------------------------


def _execute(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    body = partial(wrapped, *args, **kwargs)
    if is_generator(instance.function):
        return _later(guard, instance, body())
    return run(guard, _wish(instance), body, _manners(instance))


async def _aexecute(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    body = partial(wrapped, *args, **kwargs)
    if is_generator(instance.function):
        return _later(guard, instance, await body())
    return await arun(guard, _wish(instance), body, _manners(instance))


def _wish(call: Any) -> Call:
    function = call.function
    context = getattr(function, "_run_context", None)
    message = _proposing(getattr(context, "messages", None) or (), call)
    return Call(
        function.name,
        call.call_id,
        call.arguments or {},
        getattr(context, "session_id", None),
        None if message is None else message.id,
        1 if message is None else _twins(message.tool_calls, call),
        framework="agno",
    )


def _proposing(messages: Any, call: Any) -> Any:
    """The model's message that proposed a call; None of a call that code makes, inside a tool that runs code, say."""
    for message in reversed(messages):
        for proposed in getattr(message, "tool_calls", None) or ():
            own = proposed.get("id") == call.call_id and _name_and_arguments(proposed)[0] == call.function.name
            if message.role == "assistant" and own:
                return message
    return None


def _twins(proposed: list[dict[str, Any]], call: Any) -> int:
    all_calls = [_name_and_arguments(one) for one in proposed]
    own = next(_name_and_arguments(one) for one in proposed if one.get("id") == call.call_id)
    return same_calls(own, all_calls)


def _name_and_arguments(proposed: dict[str, Any]) -> tuple[str, Any]:
    function = proposed.get("function") or {}
    return function.get("name", ""), function.get("arguments")


# -- manners ---------------------------------------------------------------------------------------------------------


def _manners(call: Any) -> Manners:
    return Manners(
        refuse=partial(_refuse, call),
        stop=_stop,
        failure=_failure,
        keep=_result,
        hand_back=partial(_hand_back, call),
        awaits_start=marks_its_start(call.function.entrypoint),
    )


def _refuse(call: Any, refused: Refused) -> Any:
    call.error = refused.text
    return import_module(_FUNCTION).FunctionExecutionResult(status="failure", error=refused.text)


def _stop(refused: Refused) -> Any:
    """Raise the one kind of exception after which agno does not run the agent again, however many `retries` it has."""
    exceptions = import_module("agno.exceptions")
    kind: Any = error_class(exceptions.OutputCheckError)
    error = kind.__new__(kind)  # whose bases are made in ways of their own
    exceptions.OutputCheckError.__init__(error, refused.text, exceptions.CheckTrigger.OUTPUT_NOT_ALLOWED)
    vars(error).update(vars(refused.error()))
    raise error from refused.cause


def _failure(result: Any) -> str | None:
    return None if getattr(result, "status", None) != "failure" else "failure"


def _result(result: Any) -> Any:
    return result.result


def _hand_back(call: Any, value: Any) -> Any:
    call.result = value
    return import_module(_FUNCTION).FunctionExecutionResult(status="success", result=value)


# -- generators ------------------------------------------------------------------------------------------------------


def _later(guard: Guard, call: Any, result: Any) -> Any:
    """Guard the items of a generator, which nobody has taken so far: the call begins with the first."""
    inner = result.result

    def begin() -> Any:
        return guard.begin(_wish(call))

    if isinstance(inner, AsyncIterator):
        awaits_start = marks_its_start(call.function.entrypoint)
        items: Any = asteps_of_call(guard.threads, begin, lambda: inner, awaits_start=awaits_start)
    elif isinstance(inner, Iterator):
        items = steps_of_call(begin, lambda: inner)
    else:
        return result
    result.result = call.result = items
    return result


# -- bodies ---------------------------------------------------------------------------------------------------------------


def _validate(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    function = argument("func", 0, args, kwargs)
    if getattr(function, "_wrapped_for_validation", False) or marks_its_start(function):
        return wrapped(*args, **kwargs)
    return wrapped(marking(function))


# -- runs ------------------------------------------------------------------------------------------------------------


def _respond(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with guard.running(Run.within()):
        return wrapped(*args, **kwargs)


async def _arespond(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    async with running(guard):
        return await wrapped(*args, **kwargs)


def _stream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run_of_steps(guard, wrapped(*args, **kwargs), Run.within())


def _astream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run_of_asteps(guard, wrapped(*args, **kwargs))


HOOK = Hook(
    "agno",
    (
        Target(_FUNCTION, "FunctionCall._execute|FunctionCall.execute", ("self",), _execute),
        Target(_FUNCTION, "FunctionCall._aexecute|FunctionCall.aexecute", ("self",), _aexecute),
        Target(_FUNCTION, "Function._validate_callable|Function._wrap_callable", ("func",), _validate),
        Target(_MODEL, "Model.response", ("messages",), _respond),
        Target(_MODEL, "Model.aresponse", ("messages",), _arespond),
        Target(_MODEL, "Model.response_stream", ("messages",), _stream),
        Target(_MODEL, "Model.aresponse_stream", ("messages",), _astream),
    ),
)
