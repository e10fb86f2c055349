# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai 1 and 2.

Claims inside the tool's span, after validation and inside the capabilities of the user, so that whatever raises there never
was a call. The framework's own retry (`ModelRetry`) comes under a new call id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target, argument, is_replayed, same_calls
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun, running


def _refuse(refused: Refused) -> Any:
    from pydantic_ai import exceptions

    failed = getattr(exceptions, "ToolFailed", None)  # from 2 on: an error that the model is not asked to repair
    raise failed(refused.text) if failed is not None else exceptions.SkipToolExecution(refused.text)


def _manners() -> Manners:
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred

    return Manners(refuse=_refuse, paused=(ApprovalRequired, CallDeferred), by_the_body=True)


def _execute(guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    validated = argument("validated", 0, args, kwargs)
    if validated.tool.tool_def.kind == "output" or is_replayed():
        return wrapped(*args, **kwargs)
    call, context = validated.call, validated.ctx
    wish = Call(
        call.tool_name,
        call.tool_call_id,
        validated.validated_args,
        context.conversation_id if _conversation.get() else None,
        f"{context.run_id}:{context.run_step}",
        same_calls((call.tool_name, call.args), _proposed(context.messages)),
        framework="pydantic-ai",
    )
    return arun(guard, wish, partial(wrapped, *args, **kwargs), _manners())


def _proposed(messages: Any) -> list[tuple[str, Any]]:
    """The tool calls of the latest response."""
    for message in reversed(messages or ()):
        if getattr(message, "kind", None) == "response":
            return [(part.tool_name, part.args) for part in message.parts if part.part_kind == "tool-call"]
    return []


_conversation: Final[ContextVar[bool]] = ContextVar("genai_processor_pydantic_ai_conversation", default=False)
"""Whether the conversation's id is one that another run can have: without one, pydantic-ai makes one up for each run."""


def _iter(
    guard: Guard, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AbstractAsyncContextManager[Any]:
    lasting = bool(kwargs.get("conversation_id") or kwargs.get("message_history"))
    return _run(guard, wrapped(*args, **kwargs), lasting)


@asynccontextmanager
async def _run(guard: Guard, run: AbstractAsyncContextManager[Any], lasting: bool) -> AsyncIterator[Any]:
    token = _conversation.set(lasting)
    try:
        async with running(guard), run as agent_run:
            yield agent_run
    finally:
        with suppress(ValueError):  # closed in another context, which has none of it
            _conversation.reset(token)


HOOK = Hook(
    "pydantic-ai",
    (
        Target("pydantic_ai.tool_manager", "ToolManager._raw_execute", ("validated",), _execute),
        Target("pydantic_ai.agent", "Agent.iter", ("user_prompt",), _iter),
    ),
)
