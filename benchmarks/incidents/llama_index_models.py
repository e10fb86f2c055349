# SPDX-License-Identifier: Apache-2.0
"""Models of LlamaIndex that say what a story wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata, MessageRole
from llama_index.core.llms import CompletionResponse, CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import ToolSelection

from benchmarks.incidents.scripts import next_turn


class Scripted(FunctionCallingLLM):
    """A model that does what it is told to, turn by turn, and keeps what it was sent."""

    turns: list[Any]
    seen: list[list[ChatMessage]] = []

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, model_name="script")

    def _next(self, messages: Sequence[ChatMessage]) -> ChatResponse:
        self.seen.append(list(messages))
        turn = next_turn(self.turns)
        calls = [] if isinstance(turn, str) else turn
        text = turn if isinstance(turn, str) else ""
        message = ChatMessage(role=MessageRole.ASSISTANT, content=text, additional_kwargs={"tool_calls": calls})
        return ChatResponse(message=message, delta=text, raw={})

    def _prepare_chat_with_tools(self, tools: Any, chat_history: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"messages": list(chat_history or [])}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        calls = response.message.additional_kwargs.get("tool_calls", [])
        return [ToolSelection(tool_id=call_id, tool_name=name, tool_kwargs=given) for call_id, name, given in calls]

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self._next(messages)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        async def stream() -> Any:
            yield self._next(messages)

        return stream()

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self._next(messages)

    def stream_chat(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    complete = stream_complete = acomplete = astream_complete = stream_chat


class Writer(CustomLLM):
    """A model that writes texts, for agents that read their calls from text."""

    texts: list[str]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="writer")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return CompletionResponse(text=self.texts.pop(0))

    def stream_complete(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError
