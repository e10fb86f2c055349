# SPDX-License-Identifier: Apache-2.0
"""Wrapping what hooks need for as long as anybody may be replaying, in frameworks that are imported, or will be until then.

A task or thread may outlive the block that it was begun in, and hold a recorded response whose calls it is about to run. So
the wrappers stay for as long as such a one may be left, and refuse whatever it asks for.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from genai_processor.errors import ReplayRefusedError
from genai_processor.hooks import Installation
from genai_processor.places import UnknownPlaceError
from genai_processor.replay.hooks.base import Hook, Target
from genai_processor.replay.session import Session

HOOKS: Final = {
    "agents": ("genai_processor.replay.hooks.openai_agents",),
    "langchain_core": ("genai_processor.replay.hooks.langchain", "genai_processor.replay.hooks.langchain_tools"),
    "langgraph": ("genai_processor.replay.hooks.langgraph",),
    "mcp": ("genai_processor.replay.hooks.mcp",),
    "pydantic_ai": ("genai_processor.replay.hooks.pydantic_ai", "genai_processor.replay.hooks.pydantic_ai_tools"),
    "threading": ("genai_processor.replay.hooks.threads",),
}
"""Top-level package of a framework -> the modules whose `HOOK` stands in front of it."""


class Presence:
    """What a context holds of a replay, and each copy of it: without one, nothing of it can go on."""

    __slots__ = ("__weakref__", "_before", "_begun", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self._before = _tasks()
        self._begun: list[asyncio.Task[Any]] = []

    def end(self) -> None:
        """The block is over."""
        self._begun = list(_tasks() - self._before)
        self._before = set()

    def is_left(self) -> bool:
        """Whether something goes on of it, or may: runs, threads, recorded calls that wait to be made, tasks."""
        return self.session.is_left() or not all(task.done() for task in self._begun)


def _tasks() -> set[asyncio.Task[Any]]:
    """The tasks beside this one."""
    try:
        return asyncio.all_tasks() - {asyncio.current_task()}
    except RuntimeError:  # there is no loop here
        return set()


_here: Final[ContextVar[Presence | None]] = ContextVar("genai_processor_replay_session", default=None)


class _Installation(Installation[Hook]):
    """The wrappers of this process, for as long as anything is left of a replay."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[Session] = []
        self._present: list[weakref.ref[Presence]] = []
        self.left_over = False
        """No block is left, but something that was begun in one may go on."""

    def come(self, presence: Presence) -> None:
        with self._lock:
            self.left_over = False
            self._blocks.append(presence.session)
            self._present.append(weakref.ref(presence))
        self._begin(HOOKS)

    def leave(self, session: Session) -> None:
        with self._lock:
            self._blocks.remove(session)
            self.left_over = not self._blocks
        self.sweep()

    def sweep(self) -> None:
        """Put back what was there if nothing is left of any replay."""
        with self._lock:
            self._present = [one for one in self._present if (found := one()) is not None and found.is_left()]
            if self._blocks or self._present:
                return
            self.left_over = False
            self._end()

    def _is_wanted(self) -> bool:
        return bool(self._blocks)

    def _cannot_load(self, module: str, error: Exception) -> None:
        self._refuse(f"{module} could not be set up ({error!r})", error)

    def _is_unknown(self, hook: Hook, target: Target, error: UnknownPlaceError) -> None:
        if target not in hook.optional:
            self._refuse(f"{hook.framework} {hook.version} is not laid out as this version knows it ({error})")

    def _refuse(self, why: str, cause: Exception | None = None) -> None:
        refused = ReplayRefusedError(f"Not replayed: {why}, so its calls could reach the world")
        refused.__cause__ = cause
        with self._lock:
            for session in self._blocks:
                session.latch(refused)

    def _kind(self, hook: Hook) -> str:
        return "replay"

    def _call(
        self, hook: Hook, target: Target, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        presence = _here.get()
        if presence is None:
            if self.left_over:
                self.sweep()
            return wrapped(*args, **kwargs)
        return target.wrapper(presence.session, wrapped, instance, args, kwargs)


_installation: Final = _Installation()


@contextmanager
def installed(session: Session) -> Iterator[None]:
    """Answer what is called in this context from a session, until the block ends; after that, refuse it.

    Raises:
        ReplayRefusedError: A framework that is imported is not laid out as its hook knows it; nothing has run.
    """
    presence = Presence(session)
    token = None
    try:
        _installation.come(presence)
        if session.stopped is not None:
            raise session.stopped
        token = _here.set(presence)
        yield
    finally:
        session.end()
        presence.end()
        if token is not None:
            with suppress(ValueError):  # the block ends in another context than it began in
                _here.reset(token)
        del presence, token
        _installation.leave(session)
