# SPDX-License-Identifier: Apache-2.0
"""Threads that a replay starts, and what it hands to a pool of them, are part of it: plain ones begin with an empty context.

Only what says so is taken along; all else that a context holds stays as it would be without a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

from genai_processor.replay.hooks.base import Hook, Target
from genai_processor.replay.session import Session

_PREFIX = "genai_processor_replay_"


def _start(session: Session, wrapped: Callable[..., Any], thread: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # A pool's own threads outlive what they do, and do it for everybody: it is told with what is handed to them.
    if getattr(getattr(thread, "_target", None), "__module__", None) == "concurrent.futures.thread":
        return wrapped(*args, **kwargs)
    going_on = ExitStack()
    going_on.enter_context(session.running())
    thread.run = partial(_running, thread, vars(thread).get("run"), _replay_only(), going_on)
    try:
        return wrapped(*args, **kwargs)
    except BaseException:  # there can be no more threads
        going_on.close()
        raise


def _running(thread: Any, own: Callable[[], None] | None, context: Context, going_on: ExitStack) -> None:
    if own is None:
        del thread.run
    else:
        thread.run = own
    with going_on:
        context.run(thread.run)


def _submit(session: Session, wrapped: Callable[..., Any], pool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args:
        return wrapped(*args, **kwargs)
    with ExitStack() as going_on:
        going_on.enter_context(session.running())
        future = wrapped(partial(_replay_only().run, args[0]), *args[1:], **kwargs)
        kept = going_on.pop_all()
        future.add_done_callback(lambda _: kept.close())
    return future


def _replay_only() -> Context:
    """A context that holds of this one only that it is in a replay, and where."""
    context = Context()
    for variable, value in copy_context().items():
        if variable.name.startswith(_PREFIX):
            context.run(_set, variable, value)
    return context


def _set(variable: ContextVar[Any], value: Any) -> None:
    variable.set(value)


HOOK = Hook(
    "threading",
    (
        Target("threading", "Thread.start", (), _start),
        Target("concurrent.futures.thread", "ThreadPoolExecutor.submit", ("fn",), _submit),
    ),
)
