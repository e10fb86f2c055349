# SPDX-License-Identifier: Apache-2.0
"""One question to one reconciler, on a thread of its own, which is left behind if it takes too long."""

from __future__ import annotations

import inspect
import os.path
import threading
from collections.abc import Awaitable
from typing import Any, NamedTuple

from genai_processor.reconcile.records import Answer, Question, Reconciler


class Reply(NamedTuple):
    """What a reconciler said.

    Attributes:
        answer: Its answer; None if there was none that counts.
        failure: Then why.
        timed_out: Then whether it ran out of time.
        running: Then the thread, if it still runs.
    """

    answer: Answer | None
    failure: str | None = None
    timed_out: bool = False
    running: threading.Thread | None = None


def ask(reconciler: Reconciler, question: Question, timeout: float) -> Reply:
    """Ask. Never raises, and returns in time; an answer that comes later is not taken.

    Args:
        reconciler: A function or coroutine function.
        question: What to ask.
        timeout: Seconds.
    """
    replies: list[Reply] = []
    too_late = Reply(None, f"no answer within {timeout:g} s", timed_out=True)

    def run() -> None:
        try:
            said: Any = reconciler(question)
            if inspect.isawaitable(said):
                said = _awaited(said, timeout)
            replies.append(_read(said))
        except _OutOfTimeError:
            replies.append(too_late)
        except BaseException as error:  # noqa: BLE001 - SystemExit too: whatever it is, it is no answer
            replies.append(Reply(None, _where(error)))

    # A daemon, so that one that never comes back does not keep the process.
    thread = threading.Thread(target=run, name=f"reconciler of {question.tool}", daemon=True)
    thread.start()
    thread.join(timeout)
    return too_late._replace(running=thread) if thread.is_alive() else replies[0]


class _OutOfTimeError(Exception):
    """A coroutine was cancelled because its time was over."""


def _awaited(said: Awaitable[Any], timeout: float) -> Any:
    import asyncio

    async def within() -> Any:
        try:
            async with asyncio.timeout(timeout) as limit:
                return await said
        except TimeoutError:  # the coroutine may raise one, too
            if limit.expired():
                raise _OutOfTimeError from None
            raise

    return asyncio.run(within())


def _read(said: Any) -> Reply:
    for answer in Answer:
        if isinstance(said, str) and said == answer:
            return Reply(answer)
    return Reply(None, f"answered with {_type(type(said))}, which is none of {', '.join(Answer)}")


def _where(error: BaseException) -> str:
    """Name an error's type and where it arose, without its text, which may hold secrets."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
    return f"raised {_type(type(error))}{place}"


def _type(of: type) -> str:
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"
