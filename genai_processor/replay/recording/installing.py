# SPDX-License-Identifier: Apache-2.0
"""Standing in front of models: in frameworks that are imported, and in those that will be.

A framework that is not laid out as its hook knows it is left alone, and that is said once. Nothing that goes wrong in a hook
reaches the application: its request is made as ever, and its span has no stamp.
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

import wrapt

from genai_processor.places import is_imported, version_of

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
        owner: The class.
        method: The method.
        parameters: Parameters that the wrapper relies on.
        wrapper: Called in its place.
        optional: Other versions of the framework do without it.
    """

    module: str
    owner: str
    method: str
    parameters: tuple[str, ...]
    wrapper: Wrapper
    optional: bool = False


_MARK: Final = "_self_genai_processor_recording"
_DEEPEST: Final = 50

_lock: Final = threading.RLock()
_wrapped: Final[dict[tuple[str, str, str], tuple[Any, Any, Any]]] = {}
_registered: Final[set[tuple[str, ...]]] = set()
_state = {"on": False}


def install() -> None:
    """Stand in front of every framework that there is a hook for, now or when it is imported. Idempotent."""
    with _lock:
        _state["on"] = True
    for package in HOOKS:
        _when_imported((package,), partial(_look_at, package))


def uninstall() -> None:
    """Put back what was there. Under somebody else's wrapper ours has to stay, and lets everything pass."""
    with _lock:
        _state["on"] = False
        for key, (owner, original, wrapper) in list(_wrapped.items()):
            if inspect.getattr_static(owner, key[2], None) is wrapper:
                setattr(owner, key[2], original)
                del _wrapped[key]


def is_on() -> bool:
    """Whether requests are looked at."""
    return _state["on"]


def _when_imported(what: tuple[str, ...], tell: Callable[[], None]) -> None:
    """Call back when a module, the first of `what`, is imported; at once if it is. For one thing only once."""
    if is_imported(what[0]):
        tell()
    elif what not in _registered:
        _registered.add(what)
        wrapt.register_post_import_hook(lambda _: tell(), what[0])


def _look_at(package: str) -> None:
    try:
        targets: tuple[Target, ...] = import_module(HOOKS[package]).TARGETS
    except Exception:  # noqa: BLE001 - the application must get its import
        _log.exception("genai_processor could not prepare recording for replay for %s", package)
        return
    for target in targets:
        _when_imported((target.module, target.owner, target.method), partial(_wrap, package, target))


def _wrap(package: str, target: Target) -> None:
    try:
        with _lock:
            key = (target.module, target.owner, target.method)
            if not _state["on"]:
                return
            problem = _wrap_method(key, target)
        if problem and not target.optional:
            _log.warning(
                "%s %s is not laid out as genai_processor knows it (%s): what its models are asked is stamped only where "
                "their spans record it",
                package,
                version_of(target.module),
                problem,
            )
    except Exception:  # noqa: BLE001
        _log.exception("genai_processor could not wrap %s.%s", target.owner, target.method)


def _wrap_method(key: tuple[str, str, str], target: Target) -> str:
    """Wrap a method; why not, or ""."""
    where = f"{target.module}:{target.owner}.{target.method}"
    owner = getattr(sys.modules.get(target.module), target.owner, None)
    original = inspect.getattr_static(owner, target.method, None) if owner is not None else None
    if not callable(original):
        return f"there is no {where}"
    found = inspect.signature(original).parameters
    missing = [name for name in target.parameters if name not in found]
    if missing:
        return f"{where} has no {', '.join(missing)}"
    if _is_wrapped(original):
        return ""
    wrapper = wrapt.FunctionWrapper(original, target.wrapper, enabled=is_on)
    setattr(wrapper, _MARK, True)
    setattr(owner, target.method, wrapper)
    _wrapped[key] = owner, original, wrapper
    return ""


def _is_wrapped(function: Any) -> bool:
    """Whether a wrapper of ours had to stay, under those of others."""
    for _ in range(_DEEPEST):
        if function is None or getattr(function, _MARK, False):
            break
        function = getattr(function, "__wrapped__", None)
    return function is not None


_said: Final[set[str]] = set()


def failed(framework: str) -> None:
    """Say once that something went wrong in a hook; called while an exception is handled."""
    if framework not in _said:
        _said.add(framework)
        _log.warning(
            "A request to a model of %s could not be looked at; its span may lack its stamp", framework, exc_info=True
        )
