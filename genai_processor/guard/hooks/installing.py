# SPDX-License-Identifier: Apache-2.0
"""Letting hooks in when their framework is imported, and leaving no trace when it is over."""

from __future__ import annotations

import logging
import sys
import threading
from functools import partial
from importlib import import_module
from typing import Any, Final

from genai_processor.forks import guard_with_lock
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target
from genai_processor.guard.modes import GuardMode
from genai_processor.imports import is_whole, when_imported
from genai_processor.places import Place, UnknownPlaceError, Wrapped, find, take_away, version_of, wrap
from genai_processor.replays import REPLAYS

_log = logging.getLogger(__name__)

HOOKS: Final = {
    "agent_framework": ("genai_processor.guard.hooks.agent_framework",),
    "agents": ("genai_processor.guard.hooks.openai_agents",),
    "agno": ("genai_processor.guard.hooks.agno",),
    "autogen_agentchat": ("genai_processor.guard.hooks.autogen",),
    "crewai": ("genai_processor.guard.hooks.crewai", "genai_processor.guard.hooks.crewai_0"),
    "google.adk": ("genai_processor.guard.hooks.google_adk",),
    "langchain_core": ("genai_processor.guard.hooks.langchain_core", "genai_processor.guard.hooks.langchain_errors"),
    "langgraph.pregel": ("genai_processor.guard.hooks.langgraph",),
    "llama_index.core": ("genai_processor.guard.hooks.llama_index",),
    "mcp": ("genai_processor.guard.hooks.mcp",),
    "pydantic_ai": ("genai_processor.guard.hooks.pydantic_ai",),
    "semantic_kernel": ("genai_processor.guard.hooks.semantic_kernel",),
    "smolagents": ("genai_processor.guard.hooks.smolagents",),
    "strands": ("genai_processor.guard.hooks.strands",),
}
"""Package of a framework -> the modules whose `HOOK` stands in front of it."""


class _Installation:
    """The hooks of this process. Its lock is held only while attributes are replaced, and over nothing that may import."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self.guard: Guard | None = None
        self._hooks: dict[str, Hook] = {}  # by the module that it is in
        self._awaited: set[str] = set()
        self._imported: set[str] = set()
        self._in_place: dict[str, bool] = {}  # False: left alone
        self._optional: set[Target] = set()
        self._wrapped: list[Wrapped] = []

    def install(self, guard: Guard) -> None:
        with self._lock:
            self.guard = guard
        for package in HOOKS:
            self._await(package)

    def uninstall(self) -> None:
        with self._lock:
            self.guard = None
            for wrapped in reversed(self._wrapped):  # one may stand around another
                take_away(wrapped)
            self._wrapped.clear()
            self._in_place.clear()
            self._optional.clear()
            self._hooks.clear()
            self._imported.clear()

    def _await(self, name: str) -> None:
        with self._lock:
            if name in self._awaited and not is_whole(name):
                return
            self._awaited.add(name)
        when_imported(name, self._is_imported)

    def _is_imported(self, name: str) -> None:
        """A module is there. The import system may not say so before this returns."""
        with self._lock:
            self._awaited.discard(name)
            self._imported.add(name)
        if self.guard is None:
            return  # the next installation finds it
        for module in HOOKS.get(name, ()):
            self._load(module)
        for module, hook in list(self._hooks.items()):
            if any(target.module == name for target in (*hook.targets, *hook.optional)):
                self._let_in(module, hook)

    def _load(self, module: str) -> None:
        try:
            hook: Hook = import_module(module).HOOK
        except Exception:  # noqa: BLE001 - the application must get its import
            _log.exception("The guard's hook %s could not be set up; calls there are not guarded", module)
            return
        with self._lock:
            self._hooks[module] = hook
        for name in dict.fromkeys(target.module for target in (*hook.targets, *hook.optional)):
            self._await(name)

    def _is_there(self, name: str) -> bool:
        return is_whole(name) or (name in self._imported and name in sys.modules)

    def _let_in(self, module: str, hook: Hook) -> None:
        """Wrap all targets as soon as all modules with them are there, and the optional ones when theirs are."""
        if not self._wants(hook):
            return
        if module not in self._in_place and all(self._is_there(target.module) for target in hook.targets):
            try:
                found = [(target, _place(target)) for target in hook.targets]
            except UnknownPlaceError as error:
                self._leave_alone(module, hook, error)
                return
            with self._lock:
                if self.guard is not None and module not in self._in_place:
                    self._in_place[module] = False
                    self._wrap_all(hook, found)
                    self._in_place[module] = True
        if self._in_place.get(module):
            for target in hook.optional:
                if target not in self._optional and self._is_there(target.module):
                    self._let_in_optional(hook, target)

    def _let_in_optional(self, hook: Hook, target: Target) -> None:
        place = None
        try:
            place = _place(target)
        except UnknownPlaceError as error:
            _log.warning("%s: %s; it is left alone", hook.framework, error)
        with self._lock:
            if self.guard is not None and target not in self._optional:
                self._optional.add(target)
                if place is not None:
                    self._wrap(hook, target, place)

    def _leave_alone(self, module: str, hook: Hook, error: UnknownPlaceError) -> None:
        with self._lock:
            if module in self._in_place:
                return
            self._in_place[module] = False
        _log.warning(
            "%s %s is not laid out as the guard knows it (%s); %s", hook.framework, _version(hook), error, hook.otherwise
        )

    def _wants(self, hook: Hook) -> bool:
        guard = self.guard
        return guard is not None and (guard.mode is not GuardMode.OFF or not hook.guards)

    def _wrap_all(self, hook: Hook, found: list[tuple[Target, Place]]) -> None:
        before = len(self._wrapped)
        try:
            for target, place in found:
                self._wrap(hook, target, place)
        except Exception:
            for wrapped in reversed(self._wrapped[before:]):
                take_away(wrapped)
            del self._wrapped[before:]
            raise

    def _wrap(self, hook: Hook, target: Target, place: Place) -> None:
        kind = "guard" if hook.guards else hook.framework
        wrapped = wrap(place, partial(self._call, hook, target), kind, everywhere=not target.here_only)
        if wrapped is not None:
            self._wrapped.append(wrapped)

    def _call(
        self, hook: Hook, target: Target, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        guard = self.guard
        if guard is None or not self._wants(hook) or (REPLAYS.ever and REPLAYS.answers(target.module)):
            return wrapped(*args, **kwargs)
        return target.wrapper(guard, wrapped, instance, args, kwargs)


_installation: Final = _Installation()


def active() -> Guard | None:
    """Return the guard that the hooks ask; None if there is none, or it is off."""
    guard = _installation.guard
    return None if guard is None or guard.mode is GuardMode.OFF else guard


def install(guard: Guard) -> None:
    """Stand in front of every framework that is imported, or will be. Raises nothing.

    Args:
        guard: Whom to ask, instead of whoever was asked before. With one that is off, only those hooks come that need none.
    """
    _installation.install(guard)


def uninstall() -> None:
    """Put back what was there. Where somebody else has wrapped since, our wrapper stays, and lets everything pass."""
    _installation.uninstall()


def _place(target: Target) -> Place:
    return find(target.module, target.name, target.parameters)


def _version(hook: Hook) -> str:
    return version_of(hook.targets[0].module, hook.framework)
