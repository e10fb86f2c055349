# SPDX-License-Identifier: Apache-2.0
"""Which reconciler answers for which tool."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from genai_processor.reconcile.records import Reconciler


class Registered:
    """Reconcilers by names or globs of tools, case-sensitive: the name itself goes first, then the first glob that fits."""

    def __init__(self, reconcilers: Mapping[str, Reconciler]) -> None:
        """Take them.

        Raises:
            TypeError: It is no mapping from names or globs to functions.
        """
        given: Any = reconcilers
        if not isinstance(given, Mapping):
            raise TypeError(f'reconcilers must be a mapping, as in {{"refund": ask_about_refund}}, but are a {_type(given)}')
        for name, function in given.items():
            if not isinstance(name, str) or not name.strip():
                raise TypeError(f"a reconciler is registered under the name or a glob of a tool, not under {name!r}")
            if not callable(function):
                raise TypeError(f"the reconciler of {name!r} must be a function, but is a {_type(function)}")
        self._reconcilers = dict(reconcilers)

    def of(self, tool: str) -> tuple[str, Reconciler] | None:
        """Return under what a tool's reconciler is registered, and the reconciler; None if there is none."""
        exact = self._reconcilers.get(tool)
        if exact is not None:
            return tool, exact
        return next(((glob, one) for glob, one in self._reconcilers.items() if fnmatchcase(tool, glob)), None)

    def tools(self) -> tuple[str | None, ...]:
        """Return the tools to look for, each once; a single None if they cannot be listed, because of a glob."""
        if any(char in name for name in self._reconcilers for char in "*?["):
            return (None,)
        return tuple(self._reconcilers)


def _type(value: object) -> str:
    return type(value).__name__
