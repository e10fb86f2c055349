# SPDX-License-Identifier: Apache-2.0
"""agno 2 and 3: agents and teams.

A tool's failure is a status there, not an exception, so a call is claimed around what makes that status, and whoever failed
before the body began (a tool hook, bad arguments) is told apart by a mark that the body carries. A generator as a tool runs
after that, when its items are taken, and is claimed when the first one is.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from typing import Any, Final

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard import bindings
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks import installing
from genai_processor.guard.hooks.base import Hook, Target, argument, same_calls
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, claim, run, running, started
from genai_processor.guard.streams import asteps, run_of_asteps, run_of_steps, run_within, steps
from genai_processor.guard.threads import tell
from genai_processor.ledger.requests import RefusalReason

_FUNCTION: Final = "agno.tools.function"
_MODEL: Final = "agno.models.base"
_MARK: Final = "_genai_processor_marks_its_start"

# -- calls -----------------------------------------------------------------------------------------------------------


def _execute(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    body = partial(wrapped, *args, **kwargs)
    if _is_generator(instance.function):
        return _later(guard, instance, body())
    return run(guard, _wish(instance), body, _manners(instance))


async def _aexecute(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    body = partial(wrapped, *args, **kwargs)
    if _is_generator(instance.function):
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
        awaits_start=_marks_its_start(call.function.entrypoint),
    )


def _refuse(call: Any, refused: Refused) -> Any:
    call.error = refused.text
    return import_module(_FUNCTION).FunctionExecutionResult(status="failure", error=refused.text)


def _stop(refused: Refused) -> Any:
    """Raise the one kind of exception after which agno does not run the agent again, however many `retries` it has."""
    exceptions = import_module("agno.exceptions")
    kind: Any = type("ToolCallRefusedError", (ToolSpanCommitmentError, exceptions.OutputCheckError), {})
    error = kind.__new__(kind)
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
    """Guard the items of a generator, which nobody has taken so far."""
    inner = result.result
    if isinstance(inner, AsyncIterator):
        result.result = call.result = _aitems(guard, call, inner)
    elif isinstance(inner, Iterator):
        result.result = call.result = _items(guard, call, inner)
    return result


def _items(guard: Guard, call: Any, inner: Iterator[Any]) -> Iterator[Any]:
    begun = guard.begin(_wish(call))
    if isinstance(begun, Refused):
        yield from _handed_back(begun)
        return
    kept = []
    begun.start()
    try:
        for item in steps(inner, begun.inside):
            kept.append(item)
            yield item
    except BaseException as error:
        begun.raised(error)
        raise
    begun.returned(kept)


async def _aitems(guard: Guard, call: Any, inner: AsyncIterator[Any]) -> AsyncIterator[Any]:
    begun = await claim(guard, _wish(call))
    if isinstance(begun, Refused):
        for item in _handed_back(begun):
            yield item
        return
    kept = []
    awaits_start = _marks_its_start(call.function.entrypoint)
    try:
        async for item in asteps(inner, begun.inside):
            kept.append(item)
            yield item
    except GeneratorExit as error:
        begun.raised(error, awaits_start=awaits_start)  # right here: its event loop may have ended
        raise
    except BaseException as error:
        await tell(guard.threads, partial(begun.raised, error, awaits_start=awaits_start))
        raise
    await tell(guard.threads, partial(begun.returned, kept))


def _handed_back(refused: Refused) -> Any:
    """The items, or an exception: its text is what the model gets from a generator."""
    if refused.recorded is None:
        raise refused.error() from refused.cause
    return refused.recorded.value


def _is_generator(function: Any) -> bool:
    entrypoint = inspect.unwrap(function.entrypoint) if callable(function.entrypoint) else None
    return inspect.isgeneratorfunction(entrypoint) or inspect.isasyncgenfunction(entrypoint)


# -- the mark --------------------------------------------------------------------------------------------------------


def _validate(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    function = argument("func", 0, args, kwargs)
    if getattr(function, "_wrapped_for_validation", False) or _marks_its_start(function):
        return wrapped(*args, **kwargs)
    return wrapped(_marking(function))


def _marking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool's function that says when its body begins, as the innermost of what agno wraps around it."""
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def items(*args: Any, **kwargs: Any) -> Any:
            started()
            async for item in function(*args, **kwargs):
                yield item

        return _with_mark(items)
    if inspect.isgeneratorfunction(function):
        return function
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with _body():
                return await function(*args, **kwargs)

        return _with_mark(coroutine)

    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with _body():
            return function(*args, **kwargs)

    return _with_mark(plain)


def _with_mark(function: Callable[..., Any]) -> Callable[..., Any]:
    setattr(function, _MARK, True)
    return function


@contextmanager
def _body() -> Iterator[None]:
    """A body begins, and not for the second time within one call after a first that may have committed: hooks do that."""
    bound, guard = bindings.current(), installing.active()
    if bound is None or guard is None:
        yield
        return
    if bound.body_failed and guard.refuses(None, bound.tool):
        raise guard.refuse(bound, RefusalReason.NESTED_UNCERTAIN).error()
    started()
    try:
        yield
    except BaseException:
        bound.body_failed = not bound.rejected
        raise


def _marks_its_start(function: Any) -> bool:
    while function is not None:
        if getattr(function, _MARK, False):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


# -- runs ------------------------------------------------------------------------------------------------------------


def _respond(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with guard.running(run_within()):
        return wrapped(*args, **kwargs)


async def _arespond(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    async with running(guard):
        return await wrapped(*args, **kwargs)


def _stream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run_of_steps(guard, wrapped(*args, **kwargs), run_within())


def _astream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run_of_asteps(guard, wrapped(*args, **kwargs), run_within())


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
