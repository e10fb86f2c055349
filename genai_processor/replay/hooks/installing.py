# SPDX-License-Identifier: Apache-2.0
"""Wrapping what hooks need for as long as anybody may be replaying, in frameworks that are imported, or will be until then.

A task or thread may outlive the block that it was begun in, and hold a recorded response whose calls it is about to run. So
the wrappers stay for as long as such a one may be left, and refuse whatever it asks for.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.errors import ReplayRefusedError
from genai_processor.forks import guard_with_lock
from genai_processor.imports import is_whole, when_imported
from genai_processor.places import UnknownPlaceError, Wrapped, find, take_away, version_of, wrap
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


class _Installation:
    """The wrappers of this process. Its lock is held over nothing that may import."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self._blocks: list[Session] = []
        self._present: list[weakref.ref[Presence]] = []
        self._hooks: dict[str, Hook] = {}  # by the module that it is in
        self._awaited: set[str] = set()
        self._done: set[tuple[str, str]] = set()
        self._wrapped: list[Wrapped] = []
        self.left_over = False
        """No block is left, but something that was begun in one may go on."""

    def come(self, presence: Presence) -> None:
        with self._lock:
            self.left_over = False
            self._blocks.append(presence.session)
            self._present.append(weakref.ref(presence))
        for package in HOOKS:
            self._await(package)

    def leave(self, session: Session) -> None:
        with self._lock:
            self._blocks.remove(session)
            self.left_over = not self._blocks
        self.sweep()

    def sweep(self) -> None:
        """Put back what was there if nothing is left of any replay. Where a stranger has wrapped since, ours lets pass."""
        with self._lock:
            self._present = [one for one in self._present if (found := one()) is not None and found.is_left()]
            if self._blocks or self._present:
                return
            self.left_over = False
            for wrapped in reversed(self._wrapped):
                take_away(wrapped)
            self._wrapped.clear()
            self._done.clear()

    def _await(self, name: str) -> None:
        with self._lock:
            if name in self._awaited and not is_whole(name):
                return
            self._awaited.add(name)
        when_imported(name, self._is_imported)

    def _is_imported(self, name: str) -> None:
        with self._lock:
            self._awaited.discard(name)
            if not self._blocks:
                return  # the next block finds it
        for module in HOOKS.get(name, ()):
            hook: Hook = import_module(module).HOOK
            self._hooks[module] = hook
            for other in dict.fromkeys(target.module for target in hook.targets):
                if other != name:
                    self._await(other)
        for hook in list(self._hooks.values()):
            for target in hook.targets:
                if target.module == name and name in sys.modules:
                    self._wrap(hook, target)

    def _wrap(self, hook: Hook, target: Target) -> None:
        known = target.module, target.name
        if known in self._done:
            return
        try:
            place = find(target.module, target.name, target.parameters)
        except UnknownPlaceError as error:
            if not target.optional:
                self._refuse(hook, target, error)
            return
        with self._lock:
            if self._blocks and known not in self._done:
                self._done.add(known)
                wrapped = wrap(place, partial(_call, target), "replay")
                if wrapped is not None:
                    self._wrapped.append(wrapped)

    def _refuse(self, hook: Hook, target: Target, error: UnknownPlaceError) -> None:
        version = version_of(target.module, hook.framework)
        refused = ReplayRefusedError(
            f"Not replayed: {hook.framework} {version} is not laid out as this version knows it ({error}), so its calls "
            "could reach the world"
        )
        with self._lock:
            for session in self._blocks:
                session.latch(refused)


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


def _call(target: Target, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    presence = _here.get()
    if presence is None:
        if _installation.left_over:
            _installation.sweep()
        return wrapped(*args, **kwargs)
    return target.wrapper(presence.session, wrapped, instance, args, kwargs)
