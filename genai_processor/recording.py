# SPDX-License-Identifier: Apache-2.0
"""Bringing sightings to a ledger without keeping the thread that ends a span waiting.

The ledger in memory is told at once. Every other one may do I/O, so a thread of its own tells it (`background`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from genai_processor.background import BackgroundRecorder
from genai_processor.ledger.memory import MemoryLedger
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import Returned, Sighting
from genai_processor.telemetry import Fault, Faults
from genai_processor.waiting import Then


class Recorder(Protocol):
    """Takes sightings to a ledger. No method raises."""

    def record(self, sighting: Sighting, then: Then | None = None) -> str | None:
        """Record, now or soon.

        Args:
            sighting: What to record.
            then: Called once, with the entry's id as soon as it is known: before this returns, or later from another
                thread. With None if that fails, or takes too long.

        Returns:
            Id of the entry, if it is known at once.
        """
        ...

    def record_return(self, returned: Returned) -> None:
        """Record a call that came back, as `record` does, where nobody has to know its entry."""
        ...

    def flush(self, timeout: float) -> bool:
        """Wait until everything is recorded, for so many seconds at most; False if it is not by then."""
        ...


def recorder_for(ledger: Ledger, faults: Faults) -> Recorder:
    """Choose how to tell a ledger: at once if it lives in memory, else from a thread.

    Args:
        ledger: The ledger.
        faults: Where to count what cannot be recorded.
    """
    return DirectRecorder(ledger, faults) if isinstance(ledger, MemoryLedger) else BackgroundRecorder(ledger, faults)


class DirectRecorder:
    """Tells a ledger on the thread that ends the span."""

    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._record = _recording(ledger)
        self._record_return = _recording_returns(ledger)
        self._faults = faults

    def record(self, sighting: Sighting, then: Then | None = None) -> str | None:
        """Record now; None if that failed, which is counted."""
        entry_id = None
        try:
            entry_id = self._record(sighting)
        except Exception as error:  # noqa: BLE001 - whatever a ledger raises, the span goes on
            self._faults.count(Fault.LEDGER, "A verdict could not be recorded in the ledger", error)
        if then is not None:
            then(entry_id)
        return entry_id

    def record_return(self, returned: Returned) -> None:
        """As `record`."""
        try:
            self._record_return(returned)
        except Exception as error:  # noqa: BLE001
            self._faults.count(Fault.LEDGER, "A verdict could not be recorded in the ledger", error)

    def flush(self, timeout: float) -> bool:
        """Nothing ever waits."""
        return True


def _recording(ledger: Ledger) -> Callable[[Sighting], str | None]:
    """Return the cheapest way to record with a ledger and be told the entry's id."""
    if isinstance(ledger, MemoryLedger) and type(ledger).record is MemoryLedger.record:
        return ledger.note

    def record(sighting: Sighting) -> str | None:
        entry = ledger.record(sighting)
        return None if entry is None else entry.entry_id

    return record


def _recording_returns(ledger: Ledger) -> Callable[[Returned], object]:
    """Return the cheapest way to record a call that came back."""
    if isinstance(ledger, MemoryLedger) and type(ledger).record is MemoryLedger.record:
        return ledger.record_return
    return lambda returned: ledger.record(returned.sighting())
