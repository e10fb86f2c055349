# SPDX-License-Identifier: Apache-2.0
"""Wrapping the targets of hooks when their framework is imported, and leaving no trace when it is over."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from functools import partial
from importlib import import_module
from typing import Any, Final

import wrapt

from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook, Target
from genai_processor.guard.modes import GuardMode
from genai_processor.places import UnknownPlace, find, is_imported, places, version_of
from genai_processor.replays import REPLAYS

_log = logging.getLogger(__name__)

HOOKS: Final = {
    "agents": ("genai_processor.guard.hooks.openai_agents",),
    "mcp": ("genai_processor.guard.hooks.mcp",),
    "pydantic_ai": ("genai_processor.guard.hooks.pydantic_ai",),
}
"""Top-level package of a framework -> the modules whose `HOOK` stands in front of it."""

_MARK: Final = "_self_genai_processor_hook"
_lock: Final = threading.RLock()
_guards: Final[list[Guard]] = []
_registered: Final[set[str]] = set()
_installed: Final[dict[str, list[tuple[Any, str, Any, Any]]]] = {}


def active() -> Guard | None:
    """Return the guard that the hooks ask, or None."""
    return _guards[-1] if _guards else None


def install(guard: Guard) -> None:
    """Stand in front of every framework that is imported, or will be. Raises nothing.

    Args:
        guard: Whom to ask.
    """
    with _lock:
        _guards[:] = [guard]
    for package, modules in HOOKS.items():
        if package in sys.modules:
            _prepare(modules, None)
        elif package not in _registered:
            _registered.add(package)
            wrapt.register_post_import_hook(partial(_prepare, modules), package)


def uninstall() -> None:
    """Put back what was there. Where somebody else has wrapped since, our wrapper stays, and lets everything pass."""
    with _lock:
        _guards.clear()
        for wrapped in _installed.values():
            for owner, name, original, wrapper in wrapped:
                if inspect.getattr_static(owner, name, None) is wrapper:
                    setattr(owner, name, original)
        _installed.clear()


def _prepare(modules: tuple[str, ...], _: Any) -> None:
    """Load the hooks of a framework, and let them in as soon as all modules with their targets are there."""
    if not _guards:
        return
    for module in modules:
        try:
            hook: Hook = import_module(module).HOOK
            for name in {target.module for target in hook.targets}:
                wrapt.register_post_import_hook(partial(_install_if_complete, hook), name)
            for target in hook.optional:
                wrapt.register_post_import_hook(partial(_install_optional, hook, target), target.module)
        except Exception:  # noqa: BLE001 - the application must get its import
            _log.exception("The guard's hook %s could not be set up; calls there are not guarded", module)


def _install_if_complete(hook: Hook, _: Any) -> None:
    with _lock:
        if not _guards or hook.framework in _installed:
            return
        if not all(is_imported(target.module) for target in hook.targets):
            return
        _installed[hook.framework] = []
        try:
            found = [(target, *find(target.module, target.name, target.parameters)) for target in hook.targets]
        except UnknownPlace as error:
            _log.warning(
                "%s %s is not laid out as the guard knows it (%s); its calls are not guarded",
                hook.framework,
                version_of(hook.targets[0].module),
                error,
            )
            return
        for target, owner, name, original in found:
            _wrap(hook, target, owner, name, original)


def _install_optional(hook: Hook, target: Target, _: Any) -> None:
    with _lock:
        if not _guards:
            return
        try:
            owner, name, original = find(target.module, target.name, target.parameters)
        except UnknownPlace as error:
            _log.warning("%s: %s; it is left alone", hook.framework, error)
            return
        _installed.setdefault(hook.framework + " " + target.module, [])
        _wrap(hook, target, owner, name, original)


def _wrap(hook: Hook, target: Target, owner: Any, name: str, original: Any) -> None:
    if _is_ours(original):
        return
    wrapper = wrapt.FunctionWrapper(original, partial(_call, target))
    setattr(wrapper, _MARK, True)
    wrapped = _installed.setdefault(hook.framework, [])
    for place in places(owner, name, original):
        setattr(place, name, wrapper)
        wrapped.append((place, name, original, wrapper))


def _call(target: Target, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    guard = active()
    if guard is None or guard.mode is GuardMode.OFF or (REPLAYS.running and REPLAYS.here()):
        return wrapped(*args, **kwargs)
    return target.wrapper(guard, wrapped, instance, args, kwargs)


def _is_ours(function: Any) -> bool:
    while function is not None:
        if getattr(function, _MARK, False):
            return True
        function = getattr(function, "__wrapped__", None)
    return False
