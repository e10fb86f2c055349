# SPDX-License-Identifier: Apache-2.0
"""Finding what a hook wraps, wrapping it, and putting back what was there."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import wrapt

from genai_processor.guard.hooks.base import Target

_MARK: Final = "_self_genai_processor_hook"


class UnknownTargetError(Exception):
    """A target is not there, or not as expected."""


class Place(NamedTuple):
    """Where a target is: an attribute of a module or a class."""

    owner: Any
    name: str


def find(target: Target) -> Place:
    """Return where a target is. May import, if its framework imports parts of itself when they are asked for.

    Raises:
        UnknownTargetError: It is not there, or takes other parameters than its wrapper relies on.
    """
    where = f"{target.module}:{target.name}"
    place = _first(target)
    if place is None:
        raise UnknownTargetError(f"there is no {where}")
    original = inspect.getattr_static(*place)
    function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    try:
        parameters = inspect.signature(function).parameters
    except Exception:  # noqa: BLE001 - annotations are the framework's code
        raise UnknownTargetError(f"{where} has no signature") from None
    missing = [parameter for parameter in target.parameters if parameter not in parameters]
    if missing:
        raise UnknownTargetError(f"{where} has no {', '.join(missing)}")
    return place


def _first(target: Target) -> Place | None:
    for one in target.name.split("|"):
        *path, name = one.split(".")
        try:
            owner: Any = sys.modules[target.module]
            for part in path:
                owner = getattr(owner, part)
            inspect.getattr_static(owner, name)
        except Exception:  # noqa: BLE001 - a module may do anything when it is asked for an attribute
            continue
        return Place(owner, name)
    return None


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A target that is wrapped.

    Attributes:
        place: Where.
        everywhere: Also in the modules of its framework that have imported it by name.
        original: What was there; None where the place has it from a class above.
        wrapper: What is there now.
    """

    place: Place
    everywhere: bool
    original: Any
    wrapper: Any

    def take_away(self) -> None:
        """Put back what was there. Where somebody else has wrapped since, nothing is changed."""
        name = self.place.name
        for one in _places(self.place, self.wrapper, self.everywhere):
            if inspect.getattr_static(one, name, None) is not self.wrapper:
                continue
            if self.original is None:
                delattr(one, name)
            else:
                setattr(one, name, self.original)


def wrap(place: Place, around: Callable[..., Any], kind: str, *, everywhere: bool) -> Wrapped | None:
    """Wrap what is at a place. Imports nothing.

    Args:
        place: Where.
        around: Called instead, as `wrapt` calls wrappers.
        kind: What for: nothing is wrapped twice for one kind, whoever else has wrapped it meanwhile.
        everywhere: A function is also replaced in the modules of its framework that have imported it by name.

    Returns:
        What is wrapped; None if it was, for that kind.
    """
    owner, name = place
    original = inspect.getattr_static(owner, name)
    if _is_wrapped(original, kind):
        return None
    wrapper = wrapt.FunctionWrapper(original, around)
    setattr(wrapper, _MARK, kind)
    own = name in vars(owner)
    for one in _places(place, original, everywhere):
        setattr(one, name, wrapper)
    return Wrapped(place, everywhere, original if own else None, wrapper)


def _is_wrapped(function: Any, kind: str) -> bool:
    while function is not None:
        if getattr(function, _MARK, None) == kind:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _places(place: Place, value: Any, everywhere: bool) -> Iterator[Any]:
    """The owner; of a function, also the other modules of its package where it has the same name."""
    owner, name = place
    yield owner
    if not (everywhere and inspect.ismodule(owner)):
        return
    package = owner.__name__.partition(".")[0]
    for known, module in list(sys.modules.items()):
        if known.partition(".")[0] == package and module is not owner and _has(module, name, value):
            yield module


def _has(module: Any, name: str, value: Any) -> bool:
    try:
        return object.__getattribute__(module, "__dict__").get(name) is value  # which wakes no lazy module
    except AttributeError:
        return False
