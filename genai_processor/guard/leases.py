# SPDX-License-Identifier: Apache-2.0
"""Keeping the claims of running tools alive. A lease that is lost quarantines its call; it never lets another one run."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Final

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value

from genai_processor.errors import InvalidTransitionError, UnknownEntryError
from genai_processor.forks import call_in_child, guard_with_lock
from genai_processor.ledger.entries import Entry
from genai_processor.ledger.protocol import Ledger

_log = logging.getLogger(__name__)

_PARTS: Final = 3  # renewals in one lease: two may fail
_LONGEST_SECONDS: Final = 3e9  # nearly a century, which clocks in nanoseconds can still count


class Leases:
    """Renews the claims of this process from one thread, which lives as long as there are any.

    Args:
        ledger: Where the claims are.
        lease_seconds: How long each lease is.

    Attributes:
        lease_ns: The same in nanoseconds.
    """

    _lock: threading.RLock

    def __init__(self, ledger: Ledger, lease_seconds: float) -> None:
        self._ledger = ledger
        self.lease_ns = int(min(lease_seconds, _LONGEST_SECONDS) * 1e9)
        guard_with_lock(self)
        self._begin()
        call_in_child(self._begin)

    def _begin(self) -> None:
        self._held: dict[tuple[str, int], Entry] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, entry: Entry) -> None:
        """Renew a claim until it is let go."""
        with self._lock:
            self._held[entry.entry_id, entry.attempt] = entry
            if self._thread is None:
                thread = threading.Thread(target=self._work, args=(self._wake,), name="GenAIProcessorLeases", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is shutting down; the lease then runs out, and quarantines
                    return
                self._thread = thread

    def let_go(self, entry: Entry) -> None:
        """Renew a claim no more."""
        with self._lock:
            self._held.pop((entry.entry_id, entry.attempt), None)

    def _work(self, wake: threading.Event) -> None:
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))  # a driver's own spans would be noise
        while True:
            wake.wait(min(self.lease_ns / _PARTS / 1e9, threading.TIMEOUT_MAX))
            with self._lock:
                if wake is not self._wake:
                    return
                held = list(self._held.values())
                if not held:
                    self._thread = None
                    return
            answered = [self._renew(entry) for entry in held]
            if all(answered):  # else the ledger may be back by now, and would take those of this process for lost
                with suppress(Exception):  # those whose process is gone, so that they wait for somebody
                    self._ledger.expire()

    def _renew(self, entry: Entry) -> bool:
        """Renew a claim; returns whether the ledger has answered."""
        try:
            self._ledger.renew(entry, lease_ns=self.lease_ns)
        except (InvalidTransitionError, UnknownEntryError) as error:
            with self._lock:
                lost = self._held.pop((entry.entry_id, entry.attempt), None)
            if lost is not None and self._is_pending(entry):  # else it ended meanwhile, or another one has used its result
                _log.warning("The lease of a call of %s is lost; it waits for a person: %s", entry.tool, error)
        except Exception as error:  # noqa: BLE001 - the ledger may be back before the lease runs out
            _log.debug("A lease could not be renewed: %s", error)
            return False
        return True

    def _is_pending(self, entry: Entry) -> bool:
        """Whether a call waits for a person; also if nobody can say."""
        try:
            now = self._ledger.get(entry.entry_id)
        except Exception:  # noqa: BLE001 - it has just answered, and does not any more
            return True
        return now is None or now.pending
