# SPDX-License-Identifier: Apache-2.0
"""What a call of a tool returns in LangChain: results, refusals, failures; how LangGraph ends what waits for somebody."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import Any

from genai_processor.guard.hooks.stopping import stop
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners


def manners(tool: Any, call_id: str | None) -> Manners:
    """Return how a call of a tool wants to be answered; one without an id by whoever made it, which is no model."""
    return Manners(
        refuse=_stop if call_id is None else partial(_refuse, tool, call_id),
        stop=_stop,
        failure=_failure,
        hand_back=partial(_hand_back, call_id),
        paused=pauses(),
        by_the_body=True,
    )


def _refuse(tool: Any, call_id: str, refused: Refused) -> Any:
    """An error message, where the body's result would be. Nobody but a model reads these: no id, no model."""
    message = _tool_message()(refused.text, tool_call_id=call_id, name=tool.name, status="error")
    return (message, None) if tool.response_format == "content_and_artifact" else message


def _stop(refused: Refused) -> Any:
    errors = sys.modules.get("langgraph.errors")
    stop(refused, *([] if errors is None else [errors.GraphBubbleUp]))  # which LangGraph neither swallows nor tries again


def pauses() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which LangGraph ends what waits for somebody."""
    errors = sys.modules.get("langgraph.errors")
    kinds = (getattr(errors, name, None) for name in ("GraphInterrupt", "GraphDrained"))
    return tuple(kind for kind in kinds if kind is not None)


def _failure(value: Any) -> str | None:
    """A body that returns an error message has failed."""
    content = value[0] if isinstance(value, tuple) and value else value
    return "error_message" if _is_tool_message(content) and content.status == "error" else None


def _is_tool_message(value: Any) -> bool:
    return isinstance(value, _tool_message())


def _tool_message() -> Any:
    return import_module("langchain_core.messages").ToolMessage


def _hand_back(call_id: str | None, value: Any) -> Any:
    """What the body returned; where that is a message to the model, it answers this call, and is a new one."""
    if call_id is None:
        return value
    if _is_tool_message(value):
        return value.model_copy(update={"tool_call_id": call_id, "id": None})
    if isinstance(value, tuple) and len(value) == 2 and _is_tool_message(value[0]):
        return _hand_back(call_id, value[0]), value[1]
    update = getattr(value, "update", None)  # of a Command of LangGraph
    if type(value).__name__ == "Command" and isinstance(update, dict):
        changed = {key: _answering(call_id, item) for key, item in update.items()}
        return type(value)(graph=value.graph, update=changed, resume=value.resume, goto=value.goto)
    return value


def _answering(call_id: str, item: Any) -> Any:
    if not isinstance(item, list) or sum(map(_is_tool_message, item)) != 1:
        return item
    return [_hand_back(call_id, one) if _is_tool_message(one) else one for one in item]
