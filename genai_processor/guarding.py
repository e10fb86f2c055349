# SPDX-License-Identifier: Apache-2.0
"""From settings to a guard that counts into the processor's metrics, and tells the ledger through its recorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genai_processor import attributes as names
from genai_processor.background import BackgroundRecorder
from genai_processor.guard.guard import Guard
from genai_processor.guard.notes import Notes
from genai_processor.telemetry import Fault

if TYPE_CHECKING:
    from genai_processor.guard.bindings import GuardOutcome
    from genai_processor.guard.modes import GuardMode
    from genai_processor.ledger.entries import Entry
    from genai_processor.ledger.protocol import Ledger
    from genai_processor.retry.policy import Policy
    from genai_processor.settings import Settings
    from genai_processor.stamper import Stamper


def make_guard(settings: Settings, policy: Policy, stamper: Stamper) -> Guard:
    """Build the guard that the settings ask for, on the ledger of the processor. Opens nothing and starts nothing."""
    return Guard(
        stamper.ledger,
        mode=settings.guard,
        policy=policy,
        notes=StamperNotes(stamper),
        settings=settings,
    )


class StamperNotes(Notes):
    """What a guard tells a processor."""

    def __init__(self, stamper: Stamper) -> None:
        self._stamper = stamper

    def decided(self, mode: GuardMode, outcome: GuardOutcome) -> None:
        """Count a decision."""
        labels = ((names.GENAI_GUARD_MODE, mode.value), (names.GENAI_GUARD_OUTCOME, outcome.value))
        self._stamper.totals.add(names.METRIC_GUARD_CALLS, labels)

    def fault(self, what: str, error: BaseException | None = None) -> None:
        """Count a fault, and log the first."""
        self._stamper.faults.count(Fault.GUARD, what, error)

    def later(self, change: Callable[[Ledger], object], entry: Entry, error: BaseException | None) -> bool:
        """Have the recorder tell the ledger when it is back."""
        if error is not None:
            self.fault("The ledger could not be told how a call ended; it is told when it is back", error)
        recorder = self._stamper.recorder
        if not isinstance(recorder, BackgroundRecorder):
            return False
        recorder.later(change, entry.scope, entry.tool)
        return True

    def is_behind(self, scope: str, tool: str) -> bool:
        """Whether something of a tool waits in the recorder."""
        recorder = self._stamper.recorder
        return isinstance(recorder, BackgroundRecorder) and recorder.is_behind(scope, tool)

    def catch_up(self, scope: str, tool: str) -> bool:
        """Wait for the recorder."""
        recorder = self._stamper.recorder
        return not isinstance(recorder, BackgroundRecorder) or recorder.catch_up(scope, tool)

    def has_lost(self, scope: str, tool: str) -> bool:
        """Whether the recorder has lost something of a tool."""
        recorder = self._stamper.recorder
        return isinstance(recorder, BackgroundRecorder) and recorder.lost.has(scope, tool)
