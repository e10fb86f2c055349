# SPDX-License-Identifier: Apache-2.0
"""Where functions of other packages are to be wrapped, so that all who have imported them by name call the wrapper."""

from __future__ import annotations

import inspect
import sys
from importlib.metadata import packages_distributions, version
from typing import Any

import wrapt


class UnknownPlace(Exception):
    """A function is not there, or not as expected."""


def is_imported(module: str) -> bool:
    """Whether a module is there, and past its own import."""
    found = sys.modules.get(module)
    spec = getattr(found, "__spec__", None)
    return found is not None and not getattr(spec, "_initializing", False)


def find(module: str, path: str, needed: tuple[str, ...]) -> tuple[Any, str, Any]:
    """Find a function or method.

    Args:
        module: Its module, which is imported.
        path: Its name there, as in `ToolManager._raw_execute`.
        needed: Parameters that it must have.

    Returns:
        What holds it, under which name, and what stands there.

    Raises:
        UnknownPlace: It is not there, or lacks a parameter.
    """
    where = f"{module}:{path}"
    try:
        owner, name, _ = wrapt.resolve_path(module, path)
        original = inspect.getattr_static(owner, name)
    except (ImportError, AttributeError):
        raise UnknownPlace(f"there is no {where}") from None
    function = original.__func__ if isinstance(original, (staticmethod, classmethod)) else original
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise UnknownPlace(f"{where} has no signature") from None
    missing = [parameter for parameter in needed if parameter not in parameters]
    if missing:
        raise UnknownPlace(f"{where} has no {', '.join(missing)}")
    return owner, name, original


def places(owner: Any, name: str, original: Any) -> list[Any]:
    """Where a target is to be replaced: of a function, also the modules of its framework that have imported it by name."""
    if not inspect.ismodule(owner):
        return [owner]
    package = owner.__name__.partition(".")[0]
    siblings = [module for known, module in list(sys.modules.items()) if known.partition(".")[0] == package]
    return [owner, *(one for one in siblings if one is not owner and getattr(one, "__dict__", {}).get(name) is original)]


def version_of(module: str) -> str:
    """The version of the distribution that a module is of, for messages."""
    package = module.partition(".")[0]
    try:
        return version(packages_distributions()[package][0])
    except Exception:  # noqa: BLE001 - only for a message
        return "(unknown version)"
