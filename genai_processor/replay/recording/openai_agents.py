# SPDX-License-Identifier: Apache-2.0
"""The OpenAI Agents SDK: its models of the Responses and the Chat Completions API.

With `previous_response_id` a request says only what is new, and the provider has the rest. What that is, is known from the
request that got the response; if this process did not make that one, or the provider keeps a conversation, only that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from inspect import signature
from typing import Any, Final

from genai_processor.replay.hooks.openai_agents import messages_of
from genai_processor.replay.parts import PartList
from genai_processor.replay.recording.installing import Hook, Target, failed
from genai_processor.replay.recording.requests import Request, asked_here, asking, list_of, system_of
from genai_processor.replay.stamps import CONVERSATION, RESPONSE, whole_list

_MOST: Final = 1_024
_responses: Final[dict[str, PartList | None]] = {}
"""What was said up to a response, and in it, by the response's id; None for an id that stands for several."""


def _request(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request | None:
    try:
        from agents import OpenAIChatCompletionsModel

        given = signature(wrapped).bind(*args, **kwargs).arguments
        instructions = given["system_instructions"]
        system = system_of(instructions)
        said = given["input"]
        messages: list[Any] = (
            [{"role": "user", "parts": [{"type": "text", "content": said}]}] if isinstance(said, str) else messages_of(said)
        )
        if instructions and isinstance(instance, OpenAIChatCompletionsModel):  # that API has them among the messages
            messages = [{"role": "system", "parts": [{"type": "text", "content": instructions}]}, *messages]
            system = b""
        if given.get("conversation_id"):
            return Request(system=system, continues=CONVERSATION)
        previous = given.get("previous_response_id")
        if not previous:
            return Request(list_of(messages), system=system)
        before = _responses.get(previous)
        return Request(list_of(messages, before) if before is not None else None, system=system, continues=RESPONSE)
    except Exception:  # noqa: BLE001 - the application must get its answer
        failed("openai-agents")
        return None


def _take(answer: Any) -> None:
    """Take note of a response: one of the Responses API, or a chat completion."""
    request = asked_here()
    if request is None:
        return
    try:
        if hasattr(answer, "choices"):
            request.output = list_of([answer.choices[0].message.model_dump(exclude_none=True)]) if answer.choices else None
        elif hasattr(answer, "output"):
            request.output = list_of(messages_of([item.model_dump() for item in answer.output]))
            known = request.inputs, request.output
            _remember(answer.id, None if known[0] is None or known[1] is None else whole_list(known[0], known[1]))
    except Exception:  # noqa: BLE001
        failed("openai-agents")


def _remember(response_id: str | None, parts: PartList | None) -> None:
    if not response_id:
        return
    before = _responses.get(response_id, parts)
    _responses[response_id] = parts if before == parts else None
    try:
        while len(_responses) > _MOST:
            del _responses[next(iter(_responses))]
    except (KeyError, StopIteration, RuntimeError):  # another thread was faster
        return


async def _get_response(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with asking(_request(wrapped, instance, args, kwargs)):
        return await wrapped(*args, **kwargs)


async def _fetch_response(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    answer = await wrapped(*args, **kwargs)
    _take(answer)
    return answer


async def _stream_response(
    wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    request = _request(wrapped, instance, args, kwargs)
    events = wrapped(*args, **kwargs)
    try:
        while True:
            with asking(request):  # never while the application has its turn
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                if getattr(event, "type", None) == "response.completed":
                    _take(event.response)
            yield event
    finally:
        with asking(request):
            if hasattr(events, "aclose"):
                await events.aclose()


_MODELS: Final = (
    ("agents.models.openai_responses", "OpenAIResponsesModel"),
    ("agents.models.openai_chatcompletions", "OpenAIChatCompletionsModel"),
)

HOOK = Hook(
    "openai-agents",
    tuple(
        Target(module, f"{model}.{name}", ("system_instructions", "input"), wrapper)
        for module, model in _MODELS
        for name, wrapper in (("get_response", _get_response), ("stream_response", _stream_response))
    ),
    tuple(Target(module, f"{model}._fetch_response", (), _fetch_response) for module, model in _MODELS),
)
