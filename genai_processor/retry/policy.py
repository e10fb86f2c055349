# SPDX-License-Identifier: Apache-2.0
"""What the user declares of tools: their effect, and which ones exist."""

from __future__ import annotations

import fnmatch
import functools
import re
from dataclasses import dataclass, fields
from typing import Any, Final

from genai_processor.retry.verdict import Effect

_NON_IDEMPOTENT: Final = Effect.NON_IDEMPOTENT


@dataclass(frozen=True)
class Policy:
    """Declarations about tools, as case-sensitive globs over tool names.

    Each may be given as a tuple, a list or a set of globs, or as text with commas between them, as the variables have it.

    Attributes:
        read_only: Tools that change nothing: may always be tried again.
        idempotent: Tools that honour a stable call id as idempotency key.
        known: Every tool that exists, or empty if not declared: a failed call of any other never ran.
    """

    read_only: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Read text as a variable would be: a bare string must not count as a sequence of letters, of which `*` fits all.

        Raises:
            TypeError: A declaration is neither globs nor text.
        """
        for row in fields(self):
            object.__setattr__(self, row.name, _globs(row.name, getattr(self, row.name)))

    def effect(self, tool: str | None) -> Effect:
        """The declared effect of a tool; `NON_IDEMPOTENT` for whatever is not declared or has no name."""
        if tool is None or not (self.read_only or self.idempotent):
            return _NON_IDEMPOTENT
        if _matches(self.read_only, tool):
            return Effect.READ_ONLY
        return Effect.IDEMPOTENT if _matches(self.idempotent, tool) else _NON_IDEMPOTENT

    def exists(self, tool: str) -> bool | None:
        """Whether a tool exists; None where nothing was declared."""
        return _matches(self.known, tool) if self.known else None


def parse_globs(text: str) -> tuple[str, ...]:
    """Read globs with commas between them, as environment variables have them."""
    return tuple(glob for part in text.split(",") if (glob := part.strip()))


def _globs(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return parse_globs(value)
    if isinstance(value, (tuple, list, set, frozenset)) and all(isinstance(glob, str) for glob in value):
        return tuple(sorted(value) if isinstance(value, (set, frozenset)) else value)
    raise TypeError(f'{name} must be globs over tool names, such as {name}=("get_*", "search"), but is {value!r}')


@functools.lru_cache(maxsize=4096)
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str] | None:
    return re.compile("|".join(fnmatch.translate(glob) for glob in globs)) if globs else None


def _matches(globs: tuple[str, ...], tool: str) -> bool:
    pattern = _pattern(globs)
    return pattern is not None and pattern.match(tool) is not None


def same_tool(one: str | None, other: str | None) -> bool:
    """Whether two recorded names can mean one tool: servers and plugins prefix names (docs/verdict.md)."""
    if one is None or other is None:
        return False
    if one == other:
        return True
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return longer.endswith(shorter) and not longer[-len(shorter) - 1].isalnum()
