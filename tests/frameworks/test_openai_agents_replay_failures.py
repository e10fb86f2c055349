# SPDX-License-Identifier: Apache-2.0
"""A live model of the OpenAI Agents SDK that fails, or no longer does: that is compared, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, ModelResponse, Runner
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFailedEvent,
    ResponseOutputMessage,
    ResponseOutputText,
)
from support.live_failures import OTHER, SAME, check

pytestmark = pytest.mark.usefixtures("untraced")

HELLO = ResponseOutputMessage(
    id="m",
    content=[ResponseOutputText(annotations=[], text="hello", type="output_text")],
    role="assistant",
    status="completed",
    type="message",
)
WHOLE = Response(
    id="r",
    created_at=0,
    model="live",
    object="response",
    output=[HELLO],
    parallel_tool_calls=True,
    tool_choice="auto",
    tools=[],
)


class Live(Model):
    """Says hello, or fails; with an event, or an exception."""

    def __init__(self, error: Exception | None, *, tells: bool = False) -> None:
        self.error = error
        self.tells = tells

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        if self.error is not None:
            raise self.error
        return ModelResponse(output=[HELLO], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if self.error is None:
            yield ResponseCompletedEvent(response=WHOLE, sequence_number=0, type="response.completed")
        elif self.tells:
            yield ResponseFailedEvent(response=WHOLE, sequence_number=0, type="response.failed")
        else:
            raise self.error


def run(error: Exception | None) -> None:
    asyncio.run(Runner.run(Agent("a", model=Live(error)), "u"))


def stream(error: Exception | None, *, tells: bool = False) -> None:
    async def main() -> None:
        async for _ in Runner.run_streamed(Agent("a", model=Live(error, tells=tells)), "u").stream_events():
            pass

    asyncio.run(main())


@pytest.mark.parametrize("ask", [run, stream])
@pytest.mark.parametrize(("recorded", "error", "is_other"), [(*one, one in OTHER) for one in OTHER + SAME])
def test_a_live_failure_is_compared(ask: Any, recorded: Any, error: Any, is_other: bool) -> None:
    check(ask, recorded, error, is_other=is_other)


@pytest.mark.parametrize(("recorded", "error", "is_other"), [(*OTHER[1], True), (*SAME[1], False)])
def test_a_failure_that_is_told_with_an_event_is_one(recorded: Any, error: Any, is_other: bool) -> None:
    check(lambda error: stream(error, tells=True), recorded, error, is_other=is_other)
