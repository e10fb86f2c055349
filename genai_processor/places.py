# SPDX-License-Identifier: Apache-2.0
"""Finding functions of other packages, wrapping them wherever they are called from, and putting back what was there.

Several of this package may stand around one function, and come and go in any order.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions, version
from typing import Any, Final, NamedTuple

import wrapt

from genai_processor.forks import guard_with_lock

_KIND: Final = "_self_genai_processor_hook"
_OWN: Final = "_self_genai_processor_own"


class FunctionWrapper(wrapt.FunctionWrapper):  # type: ignore[misc, type-arg, unused-ignore]
    """Ours: a stranger's, which may be of the same kind, is left as it is."""


class UnknownPlaceError(Exception):
    """A function is not there, or not as expected."""


class Place(NamedTuple):
    """Where a function is: an attribute of a module or a class."""

    owner: Any
    name: str


class Wrapped(NamedTuple):
    """A place that is wrapped.

    Attributes:
        place: Where.
        everywhere: Also in the modules of its package that have imported it by name.
        wrapper: What is there now, or inside of what is there now.
    """

    place: Place
    everywhere: bool
    wrapper: Any


class _Replacing:
    """Held while attributes are replaced, and over nothing that may import."""

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)


_replacing: Final = _Replacing()


def find(module: str, names: str, parameters: tuple[str, ...]) -> Place:
    """Return where a function or method is. May import, if its package imports parts of itself when they are asked for.

    Args:
        module: Its module, which is imported.
        names: Its name there, as in `ToolManager._raw_execute`. Of several, split by `|`, the first that is there is meant:
            versions differ.
        parameters: Parameters that it must have.

    Raises:
        UnknownPlaceError: It is not there, or lacks a parameter.
    """
    where = f"{module}:{names}"
    place = _first(module, names)
    if place is None:
        raise UnknownPlaceError(f"there is no {where}")
    original = inspect.getattr_static(*place)
    function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    try:
        found = inspect.signature(function).parameters
    except Exception:  # noqa: BLE001 - annotations are the other package's code
        raise UnknownPlaceError(f"{where} has no signature") from None
    missing = [parameter for parameter in parameters if parameter not in found]
    if missing:
        raise UnknownPlaceError(f"{where} has no {', '.join(missing)}")
    return place


def _first(module: str, names: str) -> Place | None:
    for one in names.split("|"):
        *path, name = one.split(".")
        try:
            owner: Any = sys.modules[module]
            for part in path:
                owner = getattr(owner, part)
            inspect.getattr_static(owner, name)
        except Exception:  # noqa: BLE001 - a module may do anything when it is asked for an attribute
            continue
        return Place(owner, name)
    return None


def wrap(place: Place, around: Callable[..., Any], kind: str, *, everywhere: bool = True) -> Wrapped | None:
    """Wrap what is at a place. Imports nothing.

    Args:
        place: Where.
        around: Called instead, as `wrapt` calls wrappers.
        kind: What for: nothing is wrapped twice for one kind, whoever else has wrapped it meanwhile.
        everywhere: A function is also replaced in the modules of its package that have imported it by name.

    Returns:
        What is wrapped; None if it was, for that kind.
    """
    owner, name = place
    with _replacing._lock:
        original = inspect.getattr_static(owner, name)
        if _is_wrapped(original, kind):
            return None
        wrapper = FunctionWrapper(original, around)
        setattr(wrapper, _KIND, kind)
        setattr(wrapper, _OWN, name in vars(owner))  # else it is from a class above
        for one, found in _holders(place, everywhere):
            if found is original:
                setattr(one, name, wrapper)
    return Wrapped(place, everywhere, wrapper)


def take_away(wrapped: Wrapped) -> None:
    """Put back what was there. Where a stranger has wrapped since, nothing is changed: the wrapper has to let pass."""
    place, everywhere, wrapper = wrapped
    with _replacing._lock:
        for one, found in list(_holders(place, everywhere)):
            if found is wrapper:
                if getattr(wrapper, _OWN):
                    setattr(one, place.name, wrapper.__wrapped__)
                else:
                    delattr(one, place.name)
            else:
                _take_out(found, wrapper)


def _take_out(outer: Any, wrapper: Any) -> None:
    """Take a wrapper out of those of this package that stand around it."""
    while type(outer) is FunctionWrapper:
        inner = outer.__wrapped__
        if inner is wrapper:
            outer.__wrapped__ = inner.__wrapped__
            setattr(outer, _OWN, getattr(inner, _OWN))
            return
        outer = inner


def _is_wrapped(function: Any, kind: str) -> bool:
    while function is not None:
        if getattr(function, _KIND, None) == kind:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _holders(place: Place, everywhere: bool) -> Iterator[tuple[Any, Any]]:
    """The owner, and what it holds; of a function, also the other modules of its package where something has its name."""
    owner, name = place
    yield owner, inspect.getattr_static(owner, name, None)
    if not (everywhere and inspect.ismodule(owner)):
        return
    package = owner.__name__.partition(".")[0]
    for known, module in list(sys.modules.items()):
        if known.partition(".")[0] == package and module is not owner:
            try:
                found = object.__getattribute__(module, "__dict__").get(name)  # which wakes no lazy module
            except AttributeError:
                continue
            if found is not None:
                yield module, found


def version_of(module: str, *distributions: str) -> str:
    """The version of what a module is of, for messages.

    Args:
        module: Its name.
        distributions: Names of distributions to ask first: a namespace is shared by many.
    """
    package = module.partition(".")[0]
    for name in (*distributions, *packages_distributions().get(package, ())):
        try:
            return version(name)
        except Exception:  # noqa: BLE001 - only for a message
            continue
    return "(unknown version)"
