# SPDX-License-Identifier: Apache-2.0
"""What a guard does with a call that must not run."""

from __future__ import annotations

from enum import StrEnum


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
