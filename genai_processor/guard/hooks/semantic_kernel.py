# SPDX-License-Identifier: Apache-2.0
"""Semantic Kernel.

Claims inside the function's span and inside all filters, so that a filter which tries again comes as the same call. What is
raised there becomes a text that says "An error occurred", so a refusal is a result instead.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, held, holding, is_replayed, same_calls
from genai_processor.guard.hooks.turns import Turns, turn_of
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, running, started
from genai_processor.guard.streams import run_of_asteps
from genai_processor.spans.values import index_like, usable_id


class _Proposed:
    """A call as a model proposed it."""

    def __init__(self, call: Any, turn: str | None, twins: int) -> None:
        self.call = call
        self.turn = turn
        self.twins = twins
        self.refused: Refused | None = None


_proposed: Final[ContextVar[_Proposed | None]] = ContextVar("genai_processor_semantic_kernel_call", default=None)

# -- what the model proposed -----------------------------------------------------------------------------------------


async def _invoke_function_call(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    call = argument("function_call", 0, args, kwargs)
    proposed = _of(call, argument("chat_history", 1, args, kwargs))
    with holding(_proposed, proposed):
        value = await wrapped(*args, **kwargs)
    if proposed.refused is not None:  # nothing that is raised further in gets out
        raise proposed.refused.error() from proposed.refused.cause
    return value


def _of(call: Any, history: Any) -> _Proposed:
    for message in reversed(getattr(history, "messages", None) or ()):
        calls = [item for item in message.items if getattr(item, "content_type", None) == "function_call"]
        if any(item is call or (item.id is not None and item.id == call.id and item.name == call.name) for item in calls):
            return _Proposed(call, _turn(message, calls), same_calls(_wanted(call), map(_wanted, calls)))
    return _Proposed(call, None, 1)


def _wanted(call: Any) -> tuple[str, Any]:
    return call.name or "", call.arguments


_turns: Final = Turns()


def _turn(message: Any, calls: list[Any]) -> str:
    """The messages have no ids, but the ids of their calls are as good, and are kept with the chat history.

    Where a service gives ids that mean nothing outside of the message, the message is known by its identity.
    """
    if all(usable_id(call.id, call.name) and not index_like(call.id, call.name) for call in calls):
        return turn_of((getattr(message, "metadata", None) or {}).get("id"), [call.id for call in calls])
    return _turns.of(message)


# -- calls -----------------------------------------------------------------------------------------------------------


async def _invoke(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    context = argument("context", 0, args, kwargs)
    if is_replayed():
        await wrapped(*args, **kwargs)
        return
    proposed = _proposed.get()
    name = instance.fully_qualified_name
    if proposed is not None and proposed.call.name != name:
        proposed = None  # a function that a filter, or another function, calls
    given = {one.name: context.arguments[one.name] for one in instance.parameters if one.name in context.arguments}
    wish = Call(
        name,
        None if proposed is None else proposed.call.id,
        given,
        turn=None if proposed is None else proposed.turn,
        proposed=1 if proposed is None else proposed.twins,
        framework="Semantic Kernel",
    )
    manners = Manners(
        refuse=partial(_refuse, context),
        stop=partial(_stop, context, proposed),
        keep=lambda _: None if context.result is None else context.result.value,
        hand_back=partial(_answer, context),
        awaits_start=True,
    )
    # What the body calls by itself was not proposed.
    await arun(guard, wish, partial(held, _proposed, None, partial(wrapped, *args, **kwargs)), manners)


def _answer(context: Any, value: Any) -> None:
    results = import_module("semantic_kernel.functions.function_result")
    context.result = results.FunctionResult(function=context.function.metadata, value=value)


def _refuse(context: Any, refused: Refused) -> None:
    _answer(context, refused.text)


def _stop(context: Any, proposed: _Proposed | None, refused: Refused) -> None:
    if proposed is None:
        raise refused.error() from refused.cause
    _answer(context, refused.text)
    proposed.refused = refused


def _gather(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gathered = wrapped(*args, **kwargs)
    started()
    return gathered


# -- runs ------------------------------------------------------------------------------------------------------------


async def _respond(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    async with running(guard):
        return await wrapped(*args, **kwargs)


def _stream(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return run_of_asteps(guard, wrapped(*args, **kwargs))


_METHOD: Final = "semantic_kernel.functions.kernel_function_from_method"
_CHAT: Final = "semantic_kernel.connectors.ai.chat_completion_client_base"

HOOK = Hook(
    "Semantic Kernel",
    (
        Target(_METHOD, "KernelFunctionFromMethod._invoke_internal", ("context",), _invoke),
        Target(_METHOD, "KernelFunctionFromMethod.gather_function_parameters", ("context",), _gather),
        Target(
            "semantic_kernel.kernel", "Kernel.invoke_function_call", ("function_call", "chat_history"), _invoke_function_call
        ),
        Target(_CHAT, "ChatCompletionClientBase.get_chat_message_contents", ("chat_history",), _respond),
        Target(_CHAT, "ChatCompletionClientBase.get_streaming_chat_message_contents", ("chat_history",), _stream),
    ),
)
