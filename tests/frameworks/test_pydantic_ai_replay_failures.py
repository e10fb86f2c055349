# SPDX-License-Identifier: Apache-2.0
"""A live model of pydantic-ai that fails, or no longer does: that is compared, whatever the application makes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from support.live_failures import OTHER, SAME, check, check_left


def run(error: Exception | None) -> None:
    def model(messages: Any, info: Any) -> ModelResponse:
        if error is not None:
            raise error
        return ModelResponse(parts=[TextPart("hello")])

    Agent(FunctionModel(model)).run_sync("u")


def stream(error: Exception | None, pieces: int) -> None:
    async def model(messages: Any, info: Any) -> Any:
        for piece in ("hel", "lo")[: pieces if error is not None else 2]:
            yield piece
        if error is not None:
            raise error

    async def main() -> None:
        async with Agent(FunctionModel(stream_function=model)).run_stream("u") as found:
            await found.get_output()

    asyncio.run(main())


def stream_that_never_began(error: Exception | None) -> None:
    stream(error, 0)


def stream_that_broke(error: Exception | None) -> None:
    stream(error, 1)


@pytest.mark.parametrize("ask", [run, stream_that_never_began, stream_that_broke])
@pytest.mark.parametrize(("recorded", "error", "is_other"), [(*one, one in OTHER) for one in OTHER + SAME])
def test_a_live_failure_is_compared(ask: Any, recorded: Any, error: Any, is_other: bool) -> None:
    check(ask, recorded, error, is_other=is_other)


def test_what_an_application_raises_while_it_reads_is_no_failure_of_the_model() -> None:
    async def model(messages: Any, info: Any) -> Any:
        yield "hello"

    async def main() -> None:
        async with Agent(FunctionModel(stream_function=model)).run_stream("u") as found:
            await found.get_output()
            raise LookupError

    check(lambda _: asyncio.run(main()), SAME[0][0], None, is_other=False)


def test_a_live_stream_that_is_left_could_not_be_compared() -> None:
    async def model(messages: Any, info: Any) -> Any:
        yield "hel"
        yield "p"

    async def main() -> None:
        async with Agent(FunctionModel(stream_function=model)).run_stream("u") as found:
            async for _ in found.stream_text(delta=True, debounce_by=None):
                break

    check_left(lambda: asyncio.run(main()))
