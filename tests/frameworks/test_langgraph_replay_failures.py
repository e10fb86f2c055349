# SPDX-License-Identifier: Apache-2.0
"""A live chat model of LangChain that fails, or no longer does: that is compared, whatever the application makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_core", minversion="1.0")  # a replay refuses those before

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from support.live_failures import OTHER, SAME, check, check_left


class Live(BaseChatModel):
    """Says hello, in pieces if it is streamed, or fails."""

    error: Any = None

    @property
    def _llm_type(self) -> str:
        return "live"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        if self.error is not None:
            raise self.error
        return ChatResult(generations=[ChatGeneration(message=AIMessage("hello"))])


class Streaming(Live):
    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(content="hel"))
        if self.error is not None:
            raise self.error
        yield ChatGenerationChunk(message=AIMessageChunk(content="lo"))


def invoked(error: Exception | None) -> None:
    Live(error=error).invoke("u")


def ainvoked(error: Exception | None) -> None:
    asyncio.run(Live(error=error).ainvoke("u"))


def streamed(error: Exception | None) -> None:
    list(Streaming(error=error).stream("u"))


def astreamed(error: Exception | None) -> None:
    async def main() -> None:
        async for _ in Streaming(error=error).astream("u"):
            pass

    asyncio.run(main())


def with_a_fallback(error: Exception | None) -> None:
    Live(error=error).with_fallbacks([RunnableLambda(lambda _: AIMessage("sorry"))]).invoke("u")


def by_event(error: Exception | None) -> None:
    model: Any = Streaming(error=error)
    list(model.stream_events("u", version="v3").text)


EVERY = [invoked, ainvoked, streamed, astreamed, with_a_fallback]
if hasattr(BaseChatModel, "_iter_v2_events"):
    EVERY.append(by_event)


@pytest.mark.filterwarnings("ignore")  # the third version of events is a beta
@pytest.mark.parametrize("ask", EVERY)
@pytest.mark.parametrize(("recorded", "error", "is_other"), [(*one, one in OTHER) for one in OTHER + SAME])
def test_a_live_failure_is_compared(ask: Any, recorded: Any, error: Any, is_other: bool) -> None:
    check(ask, recorded, error, is_other=is_other)


def test_a_live_stream_that_is_left_could_not_be_compared() -> None:
    async def main() -> None:
        async for _ in Streaming().astream("u"):
            break

    check_left(lambda: next(iter(Streaming().stream("u"))))
    check_left(lambda: asyncio.run(main()))
