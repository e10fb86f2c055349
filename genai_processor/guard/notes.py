# SPDX-License-Identifier: Apache-2.0
"""What a guard needs of the telemetry and the recorder around it; a guard that stands alone has neither."""

from __future__ import annotations

import logging
from collections.abc import Callable

from genai_processor.guard.bindings import GuardOutcome
from genai_processor.guard.modes import GuardMode
from genai_processor.ledger.entries import Entry
from genai_processor.ledger.protocol import Ledger

_log = logging.getLogger(__name__)


class Notes:
    """Counts and postpones. This one does neither; the processor's does both. No method raises."""

    def decided(self, mode: GuardMode, outcome: GuardOutcome) -> None:
        """Count a decision."""

    def fault(self, what: str, error: BaseException | None = None) -> None:
        """Tell of something that went wrong."""
        _log.warning("%s: %s", what, error)

    def later(self, change: Callable[[Ledger], object], entry: Entry, error: BaseException | None) -> bool:
        """Tell a ledger something when it is back. Until then what it holds is a claim, which leads into quarantine.

        Args:
            change: Tells it.
            entry: What it is about.
            error: Why it cannot be told now; None if something else about such a call waits to be told before.

        Returns:
            Whether it will be told.
        """
        self.fault("The ledger could not be told how a call ended; its claim will be quarantined", error)
        return False

    def is_behind(self, scope: str, tool: str) -> bool:
        """Whether something that is to be told of a tool in a scope waits to be told."""
        return False

    def catch_up(self, scope: str, tool: str) -> bool:
        """Wait a moment for what waits to be told of a tool in a scope; False if the ledger still has to be told."""
        return True

    def has_lost(self, scope: str, tool: str) -> bool:
        """Whether something that was to be told of a tool in a scope never reached the ledger."""
        return False
