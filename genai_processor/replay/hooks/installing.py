# SPDX-License-Identifier: Apache-2.0
"""Wrapping what hooks need for as long as somebody replays, in frameworks that are imported, or will be until then."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any, Final

import wrapt

from genai_processor.errors import ReplayRefusedError
from genai_processor.places import UnknownPlace, find, is_imported, places, version_of
from genai_processor.replay.hooks.base import Hook, Target
from genai_processor.replay.session import Session

HOOKS: Final = {
    "agents": ("genai_processor.replay.hooks.openai_agents",),
    "langchain_core": ("genai_processor.replay.hooks.langchain",),
    "langgraph": ("genai_processor.replay.hooks.langgraph",),
    "pydantic_ai": ("genai_processor.replay.hooks.pydantic_ai",),
}
"""Top-level package of a framework -> the modules whose `HOOK` stands in front of it."""

_session: Final[ContextVar[Session | None]] = ContextVar("genai_processor_replay_session", default=None)
_lock: Final = threading.RLock()
_users: Final[list[Session]] = []
_wrapped: Final[list[tuple[Any, str, Any, Any]]] = []
_done: Final[set[tuple[str, str]]] = set()
_registered: Final[set[str]] = set()


@contextmanager
def installed(session: Session) -> Iterator[None]:
    """Answer what is called in this context from a session.

    Raises:
        ReplayRefusedError: A framework that is imported is not laid out as its hook knows it; nothing has run.
    """
    with _lock:
        _users.append(session)
        try:
            for package, modules in HOOKS.items():
                if package in sys.modules:
                    _prepare(modules, None)
                elif package not in _registered:
                    _registered.add(package)
                    wrapt.register_post_import_hook(partial(_prepare, modules), package)
        except BaseException:
            _leave(session)
            raise
    token = _session.set(session)
    try:
        yield
    finally:
        _session.reset(token)
        _leave(session)


def _leave(session: Session) -> None:
    """Put back what was there when the last one goes. Where somebody else has wrapped since, ours lets everything pass."""
    with _lock:
        _users.remove(session)
        if _users:
            return
        for owner, name, original, wrapper in reversed(_wrapped):
            if inspect.getattr_static(owner, name, None) is wrapper:
                setattr(owner, name, original)
        _wrapped.clear()
        _done.clear()


def _prepare(modules: tuple[str, ...], _: Any) -> None:
    if not _users:
        return
    for module in modules:
        hook: Hook = import_module(module).HOOK
        for target in hook.targets:
            if is_imported(target.module):
                _wrap(hook, target, None)
            elif target.module not in sys.modules or target.module not in _registered:
                _registered.add(target.module)
                wrapt.register_post_import_hook(partial(_wrap, hook, target), target.module)


def _wrap(hook: Hook, target: Target, _: Any) -> None:
    with _lock:
        if not _users or (target.module, target.name) in _done:
            return
        try:
            owner, name, original = find(target.module, target.name, target.parameters)
        except UnknownPlace as error:
            if target.optional:
                return
            raise ReplayRefusedError(
                f"Not replayed: {hook.framework} {version_of(target.module)} is not laid out as this version knows it "
                f"({error}), so its calls could reach the world"
            ) from None
        _done.add((target.module, target.name))
        wrapper = wrapt.FunctionWrapper(original, partial(_call, target))
        for place in places(owner, name, original):
            setattr(place, name, wrapper)
            _wrapped.append((place, name, original, wrapper))


def _call(target: Target, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    session = _session.get()
    if session is None:
        return wrapped(*args, **kwargs)
    return target.wrapper(session, wrapped, instance, args, kwargs)
