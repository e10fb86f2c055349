# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai's tools and output functions are answered from the record, after validation.

The framework's own spans, its counting of retries and its wording of failures stay as they are: only what a function would
return or raise comes from the record.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.hooks.base import Hook, Target, bound_to, value_of
from genai_processor.replay.hooks.pydantic_ai import MODULES
from genai_processor.replay.session import Session

_output_call: Final[ContextVar[Any]] = ContextVar("genai_processor_replay_output_call", default=None)
"""The call of an output tool that is being executed, as the model made it."""


def _execute(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.check()
    return _answered(session, wrapped, instance, args[0] if args else kwargs["validated"], args, kwargs)


async def _answered(
    session: Session,
    wrapped: Callable[..., Any],
    instance: Any,
    validated: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    call, approved = validated.call, bool(getattr(validated.ctx, "tool_call_approved", False))
    answer = session.called(call.tool_name, call.tool_call_id, call.args, again=approved)
    if answer.node is not None and session.enters(answer.node):
        with session.frame(answer.node.key):
            return await wrapped(*args, **kwargs)

    async def call_tool(*_: Any, **__: Any) -> Any:
        return await value_of(session, answer, MODULES, _makers())

    manager = copy(instance)
    manager.toolset = SimpleNamespace(call_tool=call_tool)
    return await bound_to(wrapped, manager)(*args, **kwargs)


def _makers() -> dict[str, Callable[[str], BaseException]]:
    from pydantic_ai import exceptions

    makers: dict[str, Callable[[str], BaseException]] = {"ToolRetryError": exceptions.ModelRetry}
    if hasattr(exceptions, "ToolFailed"):
        makers["ToolFailedError"] = exceptions.ToolFailed
    for name in ("ApprovalRequired", "CallDeferred"):
        kind = getattr(exceptions, name, None)
        if kind is not None:
            makers[name] = lambda message, kind=kind: kind()  # type: ignore[misc]
    return makers


# -- output functions ----------------------------------------------------------------------------------------------------


def _execute_output(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _executed_output(wrapped, args[0] if args else kwargs["validated"], args, kwargs)


async def _executed_output(wrapped: Callable[..., Any], validated: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    token = _output_call.set(validated.call)
    try:
        return await wrapped(*args, **kwargs)
    finally:
        _output_call.reset(token)


def _run_output_function(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    schema = args[0] if args else kwargs["function_schema"]
    return _ran_output_function(
        session, wrapped, schema, {name: kwargs[name] for name in kwargs if name != "function_schema"}
    )


async def _ran_output_function(session: Session, wrapped: Callable[..., Any], schema: Any, kwargs: dict[str, Any]) -> Any:
    from pydantic_ai.exceptions import ModelRetry

    session.check()
    if getattr(kwargs["run_context"], "partial_output", False):
        raise ModelRetry("a replay has the whole output only")  # which those who stream pass over
    call, given = _output_call.get(), kwargs["args"]
    if call is not None:
        answer = session.called(call.tool_name, call.tool_call_id, call.args)
    else:  # it takes the text of a response; which is recorded as what that is, not under the parameter's name
        given = next(iter(given.values())) if isinstance(given, dict) and len(given) == 1 else given
        answer = session.called(getattr(schema.function, "__name__", "output_function"), None, given)

    async def call_function(*_: Any, **__: Any) -> Any:
        return _typed(schema.function, await value_of(session, answer, MODULES, _makers()))

    return await wrapped(SimpleNamespace(call=call_function), **kwargs)


def _typed(function: Any, value: Any) -> Any:
    """A recorded result as the type that a function says it returns; as it was recorded if that cannot be had."""
    from pydantic import TypeAdapter

    try:
        adapter = TypeAdapter(get_type_hints(function)["return"])
        return (
            adapter.validate_json(value)
            if isinstance(value, str) and value[:1] in ("{", "[")
            else adapter.validate_python(value)
        )
    except Exception:  # noqa: BLE001 - it says nothing, or the type is none that can be read back
        return value


def _choose(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.stop(ReplayRefusedError("The action of an output choice is recorded by nobody"))


HOOK = Hook(
    "pydantic-ai",
    (
        Target("pydantic_ai.tool_manager", "ToolManager._raw_execute", ("validated",), _execute),
        Target("pydantic_ai.tool_manager", "ToolManager.execute_output_tool_call", ("validated",), _execute_output),
        Target(
            "pydantic_ai._output",
            "execute_output_function",
            ("function_schema", "run_context", "args"),
            _run_output_function,
        ),
    ),
    (Target("pydantic_ai._output", "execute_choice_action", (), _choose),),
)
