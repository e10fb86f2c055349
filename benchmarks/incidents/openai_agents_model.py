# SPDX-License-Identifier: Apache-2.0
"""A model of the OpenAI Agents SDK that says what a story wants."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from benchmarks.incidents.scripts import next_turn

_numbers = itertools.count(os.getpid() * 10_000)  # ids of no other process


class Script(Model):
    """Says one line after another, whatever it is told; an exception among them is raised."""

    def __init__(self, *lines: Any) -> None:
        self.lines = list(lines)
        self.told: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=self._next(input), usage=Usage(), response_id=f"resp_{next(_numbers):04d}x")

    async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        response = Response(
            id=f"resp_{next(_numbers):04d}x",
            created_at=0,
            model="script",
            object="response",
            output=self._next(input),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)

    def _next(self, told: Any) -> list[Any]:
        self.told = list(told) if isinstance(told, list) else [told]
        line: Any = next_turn(self.lines)
        return line if isinstance(line, list) else [line]

    def read(self) -> list[str]:
        """The texts of the tool results in what it was told last."""
        return [str(item["output"]) for item in self.told if isinstance(item, dict) and "output" in item]


def call(tool: str = "refund", arguments: str = '{"order": "o1"}', call_id: str | None = None) -> ResponseFunctionToolCall:
    """A proposal, under a new id unless one is given."""
    return ResponseFunctionToolCall(
        type="function_call", name=tool, arguments=arguments, call_id=call_id or f"call_{next(_numbers):04d}kqz"
    )


def text(words: str) -> ResponseOutputMessage:
    """The last word of a run."""
    part = ResponseOutputText(type="output_text", text=words, annotations=[])
    return ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[part])
