# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai 1 and 2: its instrumentation is told messages and response of each request just before the span ends.

It is told so with content capture off, too, and for streams.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from genai_processor.replay.hooks.pydantic_ai import messages_of
from genai_processor.replay.recording.installing import Hook, Target, failed
from genai_processor.replay.recording.requests import Request, list_of, shows, system_of


def _handle_messages(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = wrapped(*args, **kwargs)
    try:
        _look_at(wrapped, instance, args, kwargs)
    except Exception:  # noqa: BLE001 - the application must get its answer
        failed("pydantic-ai")
    return found


def _look_at(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    from pydantic_ai.models import instrumented

    given = inspect.signature(wrapped).bind(*args, **kwargs).arguments  # where the span stands, differs by version
    span = given["span"]
    context = span.get_span_context()
    if not context.trace_flags.sampled or (instance.include_content and _holds_all(span)):
        return
    messages = given["input_messages"]
    instructions_of = getattr(instrumented, "get_instructions", None)
    instructions = instructions_of(messages, given.get("parameters")) if instructions_of is not None else None
    request = Request(list_of(messages_of(messages)), system=system_of(instructions))
    request.output = list_of(messages_of([given["response"]]))
    shows(context.span_id, request)


def _holds_all(span: Any) -> bool:
    """Whether a span holds what it was just told, and not only its beginning."""
    attributes = getattr(span, "_attributes", None)
    return getattr(attributes, "max_value_len", 0) is None and "gen_ai.output.messages" in (attributes or ())


HOOK = Hook(
    "pydantic-ai",
    (
        Target(
            "pydantic_ai.models.instrumented",
            "InstrumentationSettings.handle_messages",
            ("input_messages", "response", "span", "parameters"),
            _handle_messages,
        ),
    ),
)
