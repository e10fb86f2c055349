# SPDX-License-Identifier: Apache-2.0
"""Standing in front of models: in frameworks that are imported, and in those that will be.

A framework that is not laid out as its hook knows it is left alone, and that is said once. Nothing that goes wrong in a hook
reaches the application: its request is made as ever, and its span has no stamp.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from genai_processor.forks import guard_with_lock
from genai_processor.imports import is_whole, when_imported
from genai_processor.places import UnknownPlaceError, Wrapped, find, take_away, version_of, wrap

_log = logging.getLogger(__name__)

HOOKS: Final = {
    "agents": "genai_processor.replay.recording.openai_agents",
    "langchain_core": "genai_processor.replay.recording.langchain",
    "pydantic_ai": "genai_processor.replay.recording.pydantic_ai",
}
"""Top-level package of a framework -> the module whose `TARGETS` are wrapped."""

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called instead of a method: with the method, bound, what it is bound to, and the arguments."""


class Target(NamedTuple):
    """A method that is wrapped.

    Attributes:
        module: The module of its class.
        name: Class and method.
        parameters: Parameters that the wrapper relies on.
        wrapper: Called in its place.
        optional: Other versions of the framework do without it.
    """

    module: str
    name: str
    parameters: tuple[str, ...]
    wrapper: Wrapper
    optional: bool = False


class _Installed:
    """What is wrapped."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self.on = False
        self.wrapped: list[Wrapped] = []
        self.awaited: set[tuple[str, str]] = set()
        self.said: set[str] = set()


_installed: Final = _Installed()


def install() -> None:
    """Stand in front of every framework that there is a hook for, now or when it is imported. Idempotent."""
    _installed.on = True
    for package in HOOKS:
        _await(package, "", partial(_look_at, package))


def uninstall() -> None:
    """Put back what was there. Under a stranger's wrapper ours has to stay, and lets everything pass."""
    _installed.on = False
    with _installed._lock:
        wrapped, _installed.wrapped = _installed.wrapped, []
    for one in reversed(wrapped):
        take_away(one)


def failed(framework: str) -> None:
    """Say once that something went wrong in a hook; called while an exception is handled."""
    if framework not in _installed.said:
        _installed.said.add(framework)
        _log.warning(
            "A request to a model of %s could not be looked at; its span may lack its stamp", framework, exc_info=True
        )


def _await(module: str, what: str, tell: Callable[[], None]) -> None:
    """Call back when a module is imported, at once if it is; for one thing of one that is not, only once."""
    if is_whole(module):
        tell()
        return
    with _installed._lock:
        if (module, what) in _installed.awaited:
            return
        _installed.awaited.add((module, what))
    when_imported(module, lambda _: tell())


def _look_at(package: str) -> None:
    try:
        targets: tuple[Target, ...] = import_module(HOOKS[package]).TARGETS
    except Exception:  # noqa: BLE001 - the application must get its import
        _log.exception("genai_processor could not prepare recording for replay for %s", package)
        return
    for target in targets:
        _await(target.module, target.name, partial(_wrap, package, target))


def _wrap(package: str, target: Target) -> None:
    if not _installed.on:
        return
    try:
        wrapped = wrap(find(target.module, target.name, target.parameters), partial(_call, target.wrapper), "recording")
    except UnknownPlaceError as error:
        if not target.optional:
            _log.warning(
                "%s %s is not laid out as genai_processor knows it (%s): what its models are asked is stamped only where "
                "their spans record it",
                package,
                version_of(target.module),
                error,
            )
        return
    if wrapped is not None:
        with _installed._lock:
            _installed.wrapped.append(wrapped)


def _call(around: Wrapper, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return around(wrapped, instance, args, kwargs) if _installed.on else wrapped(*args, **kwargs)
