# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai 1 and 2: the model of every run, and of every direct request, is one that answers from the record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any, Final

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.handed_back import exception_of
from genai_processor.replay.hooks.base import Hook, Target, acompared, arguments_text, as_ever, handed
from genai_processor.replay.live import Message, Prompt, parts_of
from genai_processor.replay.parts import PartKind
from genai_processor.replay.records import Ending
from genai_processor.replay.session import Session

MODULES: Final = ("pydantic_ai.exceptions",)


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
        override = getattr(agent, "_override_model", None)
        if override is None:
            session.stop(ReplayRefusedError("pydantic-ai does not tell the model that an agent is overridden with"))
        overridden = override.get()
        given = overridden.value if overridden is not None else kwargs.get("model") or agent.model
        model = _model(session, given, agent)
        with agent.override(model=model):  # stronger than the argument, and than a model that tests have set
            run = await stack.enter_async_context(wrapped(*args, **{**kwargs, "model": model}))
        yield run


def _direct(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.check()
    if args:
        return wrapped(_model(session, args[0]), *args[1:], **kwargs)
    return wrapped(**{**kwargs, "model": _model(session, kwargs["model"])})


def _model(session: Session, given: Any, agent: Any = None) -> Any:
    from pydantic_ai.models import infer_model
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.wrapper import WrapperModel

    original = None
    try:
        original = infer_model(given)
    except Exception:  # it has no key, say
        if not session.models:
            raise

    class ReplayModel(WrapperModel):
        """Answers from the record; in all else as the model that the agent has."""

        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
            node = session.asked(_prompt(messages, model_request_parameters, agent))
            if session.models:
                return _response(session, node)
            with session.live.asking(node):
                response = await super().request(messages, model_settings, model_request_parameters)
            session.answered_live(node, parts_of(messages_of([response])))
            return response

        @asynccontextmanager
        async def request_stream(
            self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
        ) -> AsyncIterator[Any]:
            node = session.asked(_prompt(messages, model_request_parameters, agent))
            if session.models:
                async with _streamed(_response(session, node), messages, model_request_parameters) as stream:
                    yield stream
                return
            live = super().request_stream(messages, model_settings, model_request_parameters, run_context)
            async with AsyncExitStack() as stack:
                with session.live.asking(node):
                    stream = await stack.enter_async_context(live)
                _compare_at_end(session, node, stream)
                yield stream

        async def count_tokens(self, *args: Any, **kwargs: Any) -> Any:
            if not session.models:
                return await super().count_tokens(*args, **kwargs)
            from pydantic_ai.usage import RequestUsage

            return RequestUsage()  # the recorded request was within its limits, or it would not have been made

        async def compact_messages(self, *args: Any, **kwargs: Any) -> Any:
            return await self._unless_answered("compact_messages", *args, **kwargs)

        async def batch_create(self, *args: Any, **kwargs: Any) -> Any:
            return await self._unless_answered("batch_create", *args, **kwargs)

        async def _unless_answered(self, name: str, *args: Any, **kwargs: Any) -> Any:
            if session.models:
                session.stop(ReplayRefusedError(f"A model was asked for {name}, which no record holds"))
            return await getattr(self.wrapped, name)(*args, **kwargs)

    return ReplayModel(original if original is not None else FunctionModel(_never))


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


def _compare_at_end(session: Session, node: Any, stream: Any) -> None:
    """Have a live stream compared once it has been read, before anybody runs what it calls."""
    events = stream._get_event_iterator

    async def compared() -> AsyncIterator[Any]:
        async for event in acompared(session, node, events()):
            yield event
        session.answered_live(node, parts_of(messages_of([stream.get()])))

    stream._get_event_iterator = compared


def _never(messages: Any, info: Any) -> Any:
    raise AssertionError("a replay asks no model")


def _prompt(messages: Any, parameters: Any, agent: Any) -> Prompt:
    instructions = [text for text in (_instructions(messages),) if text]
    tools = frozenset(tool.name for tool in (*parameters.function_tools, *parameters.output_tools))
    return Prompt(parts_of(messages_of(messages)), tuple(instructions), getattr(agent, "name", None), tools)


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
        raise exception_of(outcome, MODULES)
    parts: list[Any] = []
    for slot, part in enumerate(outcome.parts):
        if part.kind is PartKind.CALL:
            parts.append(ToolCallPart(part.tool or "", handed(part.value), tool_call_id=session.call_id(node, slot)))
        elif part.kind is PartKind.REASONING:
            parts.append(ThinkingPart(_reasoning(part.value)))
        else:
            parts.append(TextPart(part.value if isinstance(part.value, str) else str(part.value)))
    return ModelResponse(parts=parts, model_name=node.model)


def _reasoning(value: Any) -> str:
    content = value.get("content", value.get("text", "")) if isinstance(value, dict) else value
    return str(content)


def _embed(
    session: Session, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    session.stop(
        ReplayRefusedError("An embedding was asked for outside of the tools that are answered, and none is recorded")
    )


HOOK = Hook(
    "pydantic-ai",
    (
        Target("pydantic_ai.agent", "Agent.iter", ("user_prompt", "model"), _iter),
        Target("pydantic_ai.agent", "Agent.override", ("model",), as_ever),
        Target("pydantic_ai.models", "StreamedResponse._get_event_iterator", (), as_ever),
        Target("pydantic_ai.models", "StreamedResponse.get", (), as_ever),
        Target("pydantic_ai.direct", "_prepare_model", ("model",), _direct),
    ),
    (Target("pydantic_ai.embeddings", "Embedder.embed", ("inputs",), _embed),),
)
