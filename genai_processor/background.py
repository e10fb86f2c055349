# SPDX-License-Identifier: Apache-2.0
"""Telling a ledger from a thread of its own, so that whoever ends a span does not wait for it.

Nothing is started before there is something to tell.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, NamedTuple

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value

from genai_processor.errors import LedgerUnavailableError, UnknownEntryError
from genai_processor.forks import call_in_child
from genai_processor.ledger.entries import State
from genai_processor.ledger.protocol import Ledger
from genai_processor.ledger.requests import Returned, Sighting
from genai_processor.telemetry import Fault, Faults
from genai_processor.waiting import Calls, Lost, Then, Waiter

MAX_WAITING: Final = 2048
"""How many sightings may wait for a slow ledger; what comes on top is counted and not recorded."""

_MAX_URGENT: Final = 8 * MAX_WAITING  # of whatever did not end well
_EXIT_SECONDS: Final = 5.0
_TELL_SECONDS: Final = 1.0
"""Whoever wants to know an entry is told without it, rather than be kept waiting by a ledger for much longer."""
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0


class _Change(NamedTuple):
    change: Callable[[Ledger], object]
    scope: str
    tool: str


_Item = tuple[Sighting, Waiter | None] | _Change | threading.Event


class BackgroundRecorder:
    """Tells a ledger from a thread of its own, in order."""

    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._ledger = ledger
        self._faults = faults
        self._lost_since_flush = False
        self.lost = Lost()
        self._begin()
        call_in_child(self._begin)

    def _begin(self) -> None:
        # A queue in C, whose `put` the garbage collector may call in the middle of another one. What waits in a parent
        # is the parent's to record.
        self._waiting: SimpleQueue[_Item] = SimpleQueue()
        self._waiters: deque[Waiter] = deque()  # in about the order of the queue
        self._changes = Calls()
        self._doubts = Calls()  # of sightings that may stand in the way of a call
        self._to_start = [self._new_thread()]

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name="GenAIProcessorRecorder", daemon=True)

    def record(self, sighting: Sighting, then: Then | None = None) -> str | None:
        """Record soon. What is too much is counted and dropped: the ledger will then know less, never wrong."""
        waiting = self._waiting.qsize()
        good = sighting.state == State.COMPLETED  # of which there are many, and which wait for nobody
        if waiting >= (MAX_WAITING if good else _MAX_URGENT):
            self._give_up(sighting.scope, sighting.tool, harmless=good)
            if then is not None:
                then(None)
            return None
        waiter = None if then is None else Waiter(then)
        if waiter is not None:
            if self._is_late(waiter.since):
                waiter.tell(None)
            else:
                self._waiters.append(waiter)
        if not good:
            self._doubts.add(sighting.scope, sighting.tool)
        self._waiting.put((sighting, waiter))
        if not self._start():
            self._tell_waiters(time.monotonic())
        return None

    def later(self, change: Callable[[Ledger], object], scope: str, tool: str) -> None:
        """Tell the ledger something else, in order, as soon as it can be told.

        Args:
            change: Tells it.
            scope: Of the call that it is about.
            tool: Of that call.
        """
        if self._waiting.qsize() >= _MAX_URGENT:
            self._give_up(scope, tool)
            return
        self._changes.add(scope, tool)
        self._waiting.put(_Change(change, scope, tool))
        self._start()

    def is_behind(self, scope: str, tool: str) -> bool:
        """Whether a change of a tool in a scope waits."""
        return self._changes.has(scope, tool)

    def catch_up(self, scope: str, tool: str) -> bool:
        """Wait a second at most for what may stand in the way of a call of a tool in a scope; False if it still waits."""
        if not (self._changes.has(scope, tool) or self._doubts.has(scope, tool)):
            return True
        done = threading.Event()
        self._waiting.put(done)
        return self._start() and done.wait(_TELL_SECONDS)

    def _give_up(self, scope: str, tool: str, *, harmless: bool = False) -> None:
        self._lost_since_flush = True
        if not harmless:
            self.lost.add(scope, tool)
        self._faults.count(Fault.LEDGER_OVERFLOW, "The ledger is too slow; some verdicts are not recorded")

    def record_return(self, returned: Returned) -> None:
        """As `record`."""
        self.record(returned.sighting())

    def flush(self, timeout: float) -> bool:
        """Wait for what waits now; False at once if there is no thread that could bring it to the ledger.

        Also False if something was lost since the last time.
        """
        if self._to_start and self._waiting.empty():
            return not self._lost_meanwhile()
        if not self._start():
            return False
        done = threading.Event()
        self._waiting.put(done)
        recorded = done.wait(timeout)
        if not recorded:
            self._tell_waiters(time.monotonic())
        return not self._lost_meanwhile() and recorded

    def _lost_meanwhile(self) -> bool:
        """Whether something was lost since this was asked for the last time."""
        lost, self._lost_since_flush = self._lost_since_flush, False
        return lost

    def _is_late(self, now: float) -> bool:
        """Whether somebody has been waiting for too long."""
        try:
            return now - self._waiters[0].since > _TELL_SECONDS
        except IndexError:
            return False

    def _tell_waiters(self, since: float) -> None:
        """Tell those who have waited since then, or longer, that their entries are not known; forget who was told."""
        waiters = self._waiters
        try:
            while waiters[0].told or waiters[0].since <= since:
                waiters.popleft().tell(None)
        except IndexError:  # nobody is left, or another thread was faster
            return

    def _start(self) -> bool:
        """Start the thread unless that is done. Returns whether there is one; if not, the next call tries again."""
        try:
            thread = self._to_start.pop()
        except IndexError:
            return True
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            self._to_start.append(self._new_thread())
            self._faults.count(Fault.LEDGER, "The thread that tells the ledger cannot be started", error)
            return False
        flush = weakref.WeakMethod(self.flush)
        atexit.register(lambda: (method := flush()) is not None and method(_EXIT_SECONDS))
        return True

    def _work(self) -> None:
        # Whatever the driver of a database is instrumented with must not turn this into spans.
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        waiting = self._waiting
        while True:
            item = waiting.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            if isinstance(item, _Change):
                self._tell(item)
                self._changes.drop(item.scope, item.tool)
            else:
                sighting, waiter = item
                entry_id = self._tell(sighting)
                if sighting.state != State.COMPLETED:
                    self._doubts.drop(sighting.scope, sighting.tool)
                if waiter is not None:
                    waiter.tell(entry_id)
            self._tell_waiters(time.monotonic() - _TELL_SECONDS)

    def _tell(self, item: Sighting | _Change) -> str | None:
        """Tell the ledger, and wait for it if it is not there. What it does not take while it is there is lost.

        Returns:
            Id of the entry of a sighting, if it has one.
        """
        pause = _SHORTEST_PAUSE
        while True:
            try:
                if isinstance(item, _Change):
                    item.change(self._ledger)
                    return None
                entry = self._ledger.record(item)
                return None if entry is None else entry.entry_id
            except UnknownEntryError:
                return None
            except LedgerUnavailableError as error:
                self._faults.count(Fault.LEDGER, "The ledger cannot be told of a call; it is told when it is back", error)
                self._tell_waiters(time.monotonic())  # nobody knows when that will be
                if self._is_there() and pause > _LONGEST_PAUSE:  # the fault is this item's
                    break
            except Exception as error:  # noqa: BLE001
                self._faults.count(Fault.LEDGER, "A verdict could not be recorded in the ledger", error)
                break
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE + _SHORTEST_PAUSE)
        self._lost_since_flush = True
        if not (isinstance(item, Sighting) and item.state == State.COMPLETED):
            self.lost.add(item.scope, item.tool)
        return None

    def _is_there(self) -> bool:
        try:
            self._ledger.get("")
        except Exception:  # noqa: BLE001
            return False
        return True
