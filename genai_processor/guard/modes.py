# SPDX-License-Identifier: Apache-2.0
"""What a guard does with a call that must not run."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

_Kind = TypeVar("_Kind", bound=StrEnum)


def one_of(kind: type[_Kind], given: Any, name: str) -> _Kind:
    """Return the value of a kind that somebody gives.

    Args:
        kind: The kind.
        given: One of its values, or the text of one.
        name: What it was given as, for the message.

    Raises:
        ValueError: It is none.
    """
    try:
        return kind(given)
    except ValueError:
        raise ValueError(f"{name} must be {' or '.join(kind)}, but is {given!r}") from None


class GuardMode(StrEnum):
    """How far the guard goes."""

    OFF = "off"
    """Nothing is claimed."""
    OBSERVE = "observe"
    """Calls are claimed; none is refused, and what would have been is said."""
    ENFORCE = "enforce"
    """A call that must not run does not."""


class RefusalMode(StrEnum):
    """How a framework is told that a call was not run."""

    TELL = "tell"
    """The model gets the framework's own error result with our text; the other calls of its turn finish."""
    RAISE = "raise"
    """The run ends: `ToolSpanCommitmentError`, or the framework's own exception that nothing swallows."""
