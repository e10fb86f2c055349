# SPDX-License-Identifier: Apache-2.0
"""The guard in front of frameworks: its hooks, of which each stands there with all of its targets or not at all."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target
from genai_processor.guard.modes import GuardMode
from genai_processor.hooks import Installation
from genai_processor.imports import is_whole
from genai_processor.places import Place, UnknownPlaceError, take_away
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


class _Installation(Installation[Hook]):
    """The guard's hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.guard: Guard | None = None
        self._imported: set[str] = set()
        self._in_place: dict[Hook, bool] = {}  # False: left alone

    def install(self, guard: Guard) -> None:
        with self._lock:
            self.guard = guard
        self._begin(HOOKS)

    def uninstall(self) -> None:
        with self._lock:
            self.guard = None
            self._end()
            self._imported.clear()
            self._in_place.clear()

    def _is_wanted(self) -> bool:
        return self.guard is not None

    def _wants(self, hook: Hook) -> bool:
        guard = self.guard
        return guard is not None and (guard.mode is not GuardMode.OFF or not hook.guards)

    def _cannot_load(self, module: str, error: Exception) -> None:
        _log.exception("The guard's hook %s could not be set up; calls there are not guarded", module)

    def _let_in(self, hook: Hook, name: str) -> None:
        """Wrap all targets as soon as all modules with them are there, and the optional ones when theirs are."""
        with self._lock:
            self._imported.add(name)
        if not self._wants(hook):
            return
        if hook not in self._in_place and all(self._is_there(target.module) for target in hook.targets):
            try:
                found = [(target, target.find()) for target in hook.targets]
            except UnknownPlaceError as error:
                self._leave_alone(hook, error)
                return
            with self._lock:
                if self.guard is not None and hook not in self._in_place:
                    self._in_place[hook] = False
                    self._wrap_all(hook, found)
                    self._in_place[hook] = True
        if self._in_place.get(hook):
            for target in hook.optional:
                if self._is_there(target.module):
                    self._wrap_once(hook, target)

    def _is_there(self, name: str) -> bool:
        return is_whole(name) or (name in self._imported and name in sys.modules)

    def _leave_alone(self, hook: Hook, error: UnknownPlaceError) -> None:
        with self._lock:
            if hook in self._in_place:
                return
            self._in_place[hook] = False
        _log.warning(
            "%s %s is not laid out as the guard knows it (%s); %s", hook.framework, hook.version, error, hook.otherwise
        )

    def _is_unknown(self, hook: Hook, target: Target, error: UnknownPlaceError) -> None:
        with self._lock:
            self._done.add(target)
        _log.warning("%s: %s; it is left alone", hook.framework, error)

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

    def _kind(self, hook: Hook) -> str:
        return "guard" if hook.guards else hook.framework

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
