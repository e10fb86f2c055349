# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai 1 and 2: the model of every run is one that answers from the record; tools are answered after validation.

The framework's own spans, its counting of retries and its wording of failures stay as they are: only what a toolset would
return or raise comes from the record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from copy import copy
from functools import cache
from types import SimpleNamespace
from typing import Any

from genai_processor.replay.hooks.base import Hook, Target, arguments_text, bound_to, value_of
from genai_processor.replay.live import Message, Prompt, parts_of
from genai_processor.replay.parts import PartKind
from genai_processor.replay.records import Ending, Outcome
from genai_processor.replay.session import Session

_MODULES = ("pydantic_ai.exceptions",)


# -- models --------------------------------------------------------------------------------------------------------------


def _iter(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AbstractAsyncContextManager[Any]:
    return _run(session, wrapped, instance, args, kwargs)


@asynccontextmanager
async def _run(
    session: Session, wrapped: Callable[..., Any], agent: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    session.check()
    async with AsyncExitStack() as stack:
        stack.enter_context(session.frame())
        model = _model(session, agent, kwargs.get("model"))
        with agent.override(model=model):  # stronger than the argument, and than a model that tests have set
            run = await stack.enter_async_context(wrapped(*args, **{**kwargs, "model": model}))
        yield run


def _model(session: Session, agent: Any, given: Any) -> Any:
    from pydantic_ai.models import infer_model
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.wrapper import WrapperModel

    original = None
    try:
        overridden = agent._override_model.get()
        original = infer_model(overridden.value if overridden is not None else given or agent.model)
    except Exception:
        if not session.models:
            raise

    class ReplayModel(WrapperModel):
        """Answers from the record; in all else as the model that the agent has."""

        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
            node = session.asked(_prompt(messages))
            if session.models:
                return _response(session, node)
            response = await super().request(messages, model_settings, model_request_parameters)
            session.answered_live(node, parts_of(messages_of([response])))
            return response

        @asynccontextmanager
        async def request_stream(
            self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
        ) -> AsyncIterator[Any]:
            response = await self.request(messages, model_settings, model_request_parameters)
            async with _streamed(response, messages, model_request_parameters) as stream:
                yield stream

    if original is None:
        original = FunctionModel(_never)
    return ReplayModel(original)


@asynccontextmanager
async def _streamed(response: Any, messages: Any, parameters: Any) -> AsyncIterator[Any]:
    """A response as a stream, each part in one piece: in which pieces it came is not recorded."""
    from pydantic_ai import models
    from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    completed = getattr(models, "CompletedStreamedResponse", None)
    if completed is not None:
        yield completed(response, model_request_parameters=parameters, replay_events=True)
        return

    async def pieces(*_: Any) -> AsyncIterator[Any]:  # in version 1
        for at, part in enumerate(response.parts):
            if part.part_kind == "text":
                yield part.content
            elif part.part_kind == "tool-call":
                yield {at: DeltaToolCall(part.tool_name, arguments_text(part.args), tool_call_id=part.tool_call_id)}

    async with FunctionModel(stream_function=pieces).request_stream(messages, None, parameters) as stream:
        yield stream


def _never(messages: Any, info: Any) -> Any:
    raise AssertionError("a replay asks no model")


def _prompt(messages: Any) -> Prompt:
    instructions = [text for text in (_instructions(messages),) if text]
    return Prompt(parts_of(messages_of(messages)), tuple(instructions))


def _instructions(messages: Any) -> str | None:
    for message in reversed(messages):
        if message.kind == "request" and message.instructions is not None:
            return str(message.instructions)
    return None


def messages_of(messages: Iterable[Any]) -> list[Message]:
    """Messages as the framework's own instrumentation writes them."""
    return [dict(message) for message in _settings().messages_to_otel_messages(list(messages))]


@cache
def _settings() -> Any:
    from pydantic_ai.models.instrumented import InstrumentationSettings

    return InstrumentationSettings(include_content=True)


def _response(session: Session, node: Any) -> Any:
    from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

    outcome = session.answers(node)
    if outcome.ending is not Ending.VALUE:
        raise _failure(outcome)
    parts: list[Any] = []
    for slot, part in enumerate(outcome.parts):
        if part.kind is PartKind.CALL:
            parts.append(ToolCallPart(part.tool or "", part.value, tool_call_id=session.call_id(node, slot)))
        elif part.kind is PartKind.REASONING:
            parts.append(ThinkingPart(_reasoning(part.value)))
        else:
            parts.append(TextPart(part.value if isinstance(part.value, str) else str(part.value)))
    return ModelResponse(parts=parts, model_name=node.model)


def _reasoning(value: Any) -> str:
    content = value.get("content", value.get("text", "")) if isinstance(value, dict) else value
    return str(content)


def _failure(outcome: Outcome) -> BaseException:
    from genai_processor.replay.handed_back import exception_of

    return exception_of(outcome, _MODULES)


# -- tools ---------------------------------------------------------------------------------------------------------------


def _execute(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    validated = args[0] if args else kwargs["validated"]
    if validated.tool.tool_def.kind == "output":
        return wrapped(*args, **kwargs)
    session.check()
    return _answered(session, wrapped, instance, validated.call, args, kwargs)


async def _answered(
    session: Session, wrapped: Callable[..., Any], instance: Any, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    node, outcome = session.called(call.tool_name, call.tool_call_id, call.args)
    if node is not None and session.enters(node):
        with session.frame(node.key):
            return await wrapped(*args, **kwargs)

    async def call_tool(*_: Any, **__: Any) -> Any:
        return await value_of(session, outcome, _MODULES, _makers())

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


HOOK = Hook(
    "pydantic-ai",
    (
        Target("pydantic_ai.tool_manager", "ToolManager._raw_execute", ("validated",), _execute),
        Target("pydantic_ai.agent", "Agent.iter", ("user_prompt", "model"), _iter),
    ),
)
