# SPDX-License-Identifier: Apache-2.0
"""What a hook is, letting hooks in when their frameworks are imported, and leaving no trace when that is over."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Generic, TypeVar

from genai_processor.forks import guard_with_lock
from genai_processor.imports import is_whole, when_imported
from genai_processor.places import Place, UnknownPlaceError, Wrapped, find, take_away, version_of, wrap

W = TypeVar("W", bound=Callable[..., Any])


@dataclass(frozen=True)
class Target(Generic[W]):
    """A function or method of a framework that a hook wraps.

    Attributes:
        module: Its module.
        name: Its name there, as in `ToolManager._raw_execute`. Of several, split by `|`, the first that is there is meant:
            versions differ.
        parameters: Parameters that the wrapper relies on. If one is missing, the place is unknown.
        wrapper: Called in its place.
        here_only: It is replaced in that module, and not in others of the framework that have imported it, too.
    """

    module: str
    name: str
    parameters: tuple[str, ...]
    wrapper: W
    here_only: bool = False

    def find(self) -> Place:
        """Return where it is, once its module is imported.

        Raises:
            UnknownPlaceError: It is not there, or lacks a parameter.
        """
        return find(self.module, self.name, self.parameters)


@dataclass(frozen=True)
class Hook(Generic[W]):
    """What stands in front of one framework.

    Attributes:
        framework: What people call it.
        targets: What is wrapped in every version that is known.
        optional: Wrapped where it is found: other versions do without it, or it is somebody else's who uses the framework.
    """

    framework: str
    targets: tuple[Target[W], ...]
    optional: tuple[Target[W], ...] = ()

    @property
    def all(self) -> tuple[Target[W], ...]:
        """All that it may wrap."""
        return *self.targets, *self.optional

    @property
    def version(self) -> str:
        """The framework's version, for messages."""
        return version_of(self.targets[0].module, self.framework)


H = TypeVar("H", bound=Hook[Any])


class Installation(ABC, Generic[H]):
    """The hooks of one kind in this process. Its lock is held over nothing that may import."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self._table: Mapping[str, tuple[str, ...]] = {}
        self._hooks: dict[str, H] = {}  # by the module that it is in
        self._awaited: set[str] = set()
        self._done: set[Target[Any]] = set()
        self._wrapped: list[Wrapped] = []

    # -- what each kind has of its own -----------------------------------------------------------------------------

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Whether hooks are to be let in now. If not, the next call of `_begin` finds what has been imported meanwhile."""

    @abstractmethod
    def _cannot_load(self, module: str, error: Exception) -> None:
        """The module of a hook cannot be imported; called while that is handled."""

    @abstractmethod
    def _is_unknown(self, hook: H, target: Target[Any], error: UnknownPlaceError) -> None:
        """A target is not laid out as its hook knows it."""

    @abstractmethod
    def _kind(self, hook: H) -> str:
        """What its wrappers are for: nothing is wrapped twice for one kind."""

    @abstractmethod
    def _call(
        self, hook: H, target: Target[Any], wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Called instead of a target."""

    # -- what they share -------------------------------------------------------------------------------------------

    def _begin(self, table: Mapping[str, tuple[str, ...]]) -> None:
        """Load hooks when their frameworks are imported, those that are at once.

        Args:
            table: Package of a framework -> the modules whose `HOOK` stands in front of it.
        """
        self._table = table
        self._await(table)

    def _end(self) -> None:
        """Put back what was there. Where somebody else has wrapped since, our wrapper stays, and has to let pass."""
        with self._lock:
            for wrapped in reversed(self._wrapped):  # one may stand around another
                take_away(wrapped)
            self._wrapped.clear()
            self._done.clear()
            self._hooks.clear()

    def _await(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys(names):
            with self._lock:
                if name in self._awaited and not is_whole(name):
                    continue
                self._awaited.add(name)
            when_imported(name, self._is_imported)

    def _is_imported(self, name: str) -> None:
        """A module is there. The import system may not say so before this returns."""
        with self._lock:
            self._awaited.discard(name)
        if not self._is_wanted():
            return
        for module in self._table.get(name, ()):
            self._load(module, name)
        if name not in sys.modules:
            return
        for hook in list(self._hooks.values()):
            if any(target.module == name for target in hook.all):
                self._let_in(hook, name)

    def _load(self, module: str, package: str) -> None:
        try:
            hook: H = import_module(module).HOOK
        except Exception as error:  # noqa: BLE001 - the application must get its import
            self._cannot_load(module, error)
            return
        with self._lock:
            self._hooks[module] = hook
        self._await(target.module for target in hook.all if target.module != package)

    def _let_in(self, hook: H, name: str) -> None:
        """Wrap what can be, now that a module with a target is there. Called more than once."""
        for target in hook.all:
            if target.module == name:
                self._wrap_once(hook, target)

    def _wrap_once(self, hook: H, target: Target[Any]) -> None:
        if target in self._done:
            return
        try:
            place = target.find()
        except UnknownPlaceError as error:
            self._is_unknown(hook, target, error)
            return
        with self._lock:
            if self._is_wanted() and target not in self._done:
                self._done.add(target)
                self._wrap(hook, target, place)

    def _wrap(self, hook: H, target: Target[Any], place: Place) -> None:
        wrapped = wrap(place, partial(self._call, hook, target), self._kind(hook), everywhere=not target.here_only)
        if wrapped is not None:
            self._wrapped.append(wrapped)
