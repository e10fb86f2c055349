# SPDX-License-Identifier: Apache-2.0
"""Runs and calls that are async generators: a context variable is set around each step, never across a yield."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

from genai_processor.guard.guard import Guard
from genai_processor.guard.runs import Run, current_run, enter_run, leave_run
from genai_processor.guard.threads import tell


async def run_stream(
    guard: Guard,
    stream: AsyncIterator[Any],
    hint: str | None = None,
    paused: tuple[type[BaseException], ...] = (),
) -> AsyncGenerator[Any, None]:
    """One run of an agent that yields what happens; as `genai_processor.guard.running.running` for one that does not.

    A consumer that loses interest does not kill a run: it may have seen the final answer. A run around it decides then.

    Args:
        guard: The guard.
        stream: The run.
        hint: The scope that the framework knows of, if it does at this place only.
        paused: Exceptions that end a run without killing it.

    Yields:
        What the run yields.
    """
    outer = current_run()
    run = Run(None if outer is None else outer.scope, hint or (None if outer is None else outer.hint))
    try:
        while True:
            token = enter_run(run)
            try:
                item = await anext(stream)
            except StopAsyncIteration:
                break
            finally:
                leave_run(token)
            yield item
    except GeneratorExit:
        if isinstance(stream, AsyncGenerator):
            token = enter_run(run)
            try:
                await stream.aclose()
            finally:
                leave_run(token)
        if outer is not None:
            outer.take_over(run)
        raise
    except BaseException as error:
        if not isinstance(error, paused):
            await tell(guard.threads, partial(guard.died, run))
        raise
    await tell(guard.threads, partial(guard.delivered, run.delivered()))
