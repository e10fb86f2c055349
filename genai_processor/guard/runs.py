# SPDX-License-Identifier: Apache-2.0
"""One run of an agent: its scope, and whether what its tools returned ever reached the model.

A result counts as delivered when a later turn begins, or the run ends well. Where the run dies before, the calls of its last
turn are `undelivered`: whoever runs the agent again must not pay for them twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final, Self

from genai_processor.guard.variables import holding
from genai_processor.ledger.entries import Entry

_PATIENCE_SECONDS: Final = 5.0
_current: Final[ContextVar[Run | None]] = ContextVar("genai_processor_run", default=None)


class Run:
    """A run that is going on.

    Its calls begin and end in many threads at once, so dictionaries are copied, or changed, by single operations.

    Args:
        scope: The scope that the application set, if any; calls inside inherit it.
        hint: The scope that the framework knows of, which anything that the application set goes before.
    """

    def __init__(self, scope: str | None = None, hint: str | None = None) -> None:
        self.scope = scope
        self.hint = hint
        self._outer: Run | None = None
        self._turns: dict[str | None, str] = {}
        self._returned: dict[str, Entry] = {}
        self._handed_back: dict[str, tuple[str | None, Entry]] = {}
        self._lost: set[str] = set()
        self._ending: dict[str, tuple[int, threading.Event]] = {}
        self._dead = False

    @classmethod
    def within(cls, hint: str | None = None) -> Self:
        """Return a run that begins here, in the scope of the one around it.

        Args:
            hint: The scope that the framework knows of, if it does at this place only.
        """
        outer = current_run()
        run = cls(None if outer is None else outer.scope, hint or (None if outer is None else outer.hint))
        run._outer = outer
        return run

    def turn_began(self, turn: str | None, parent: str | None = None) -> tuple[Entry, ...]:
        """Note the turn of a call that is being claimed; a new one shows that what the last one returned was delivered.

        Args:
            turn: The turn; None shows nothing.
            parent: The entry of the call in whose body this one is made. A model that is asked in there has seen what its
                own calls returned, and nothing of what goes on around it.

        Returns:
            The entries that were handed back before, and have been delivered now.
        """
        if turn is None or turn == self._turns.get(parent):
            return ()
        self._turns[parent] = turn
        for entry in tuple(self._returned.values()):
            if entry.parent == parent:
                self._returned.pop(entry.entry_id, None)
        seen = [entry for within, entry in tuple(self._handed_back.values()) if within == parent]
        return tuple(entry for entry in seen if self._handed_back.pop(entry.entry_id, None) is not None)

    def delivered(self) -> tuple[Entry, ...]:
        """Note that the model has seen all results; returns what `turn_began` does."""
        self._returned.clear()
        done = tuple(self._handed_back.values())
        self._handed_back.clear()
        return tuple(entry for _, entry in done)

    def returned(self, entry: Entry) -> bool:
        """Note that a call has ended well.

        Returns:
            Whether a model may see the result yet: not if it is one of a turn that is lost, or of the current turn of a run
            that has died meanwhile.
        """
        if entry.turn in self._lost:
            return False
        if entry.turn is None or entry.turn != self._turns.get(entry.parent):
            return True
        self._returned[entry.entry_id] = entry
        return not self._dead

    def has_lost(self, entry: Entry) -> bool:
        """Whether no model will see the result of a call any more, however it ends."""
        in_its_turn = entry.turn is not None and entry.turn == self._turns.get(entry.parent)
        return entry.turn in self._lost or (self._dead and in_its_turn)

    @contextmanager
    def ending(self, entry: Entry) -> Iterator[None]:
        """Inside, the ledger is told how a call has ended: see `wait_for_ends`."""
        done = threading.Event()
        self._ending[entry.entry_id] = threading.get_ident(), done
        try:
            yield
        finally:
            self._ending.pop(entry.entry_id, None)
            done.set()

    def wait_for_ends(self) -> None:
        """Wait a moment for calls that other threads tell the ledger of; each of them sees by itself that the run has died.

        Whoever runs the agent again then finds no result that counts as delivered for just a moment.
        """
        here, deadline = threading.get_ident(), time.monotonic() + _PATIENCE_SECONDS
        for thread, done in tuple(self._ending.values()):
            if thread != here:
                done.wait(max(0.0, deadline - time.monotonic()))

    def given_up(self) -> None:
        """Note that nobody listens to it any more: what becomes of its latest results is what becomes of the run around it.

        Whoever stopped listening may have seen the answer.
        """
        if self._outer is not None:
            self._outer._returned.update(self._returned)
            self._outer._handed_back.update(self._handed_back)

    def handed_back(self, entry: Entry, parent: str | None = None) -> None:
        """Note that a recorded result was the answer to a call of the current turn, made in the body of `parent`, if any."""
        self._handed_back[entry.entry_id] = parent, entry

    def died(self) -> tuple[Entry, ...]:
        """Note that the run has ended before a model saw the latest results; returns the entries of these."""
        self._dead = True
        return self.lost()

    def lost(self) -> tuple[Entry, ...]:
        """Note that no model will see the results of the current turn, though the run goes on; returns their entries."""
        self._lost.update(self._turns.values())  # before looking: a call may be ending in another thread
        lost = tuple(self._returned.values())
        self._returned.clear()
        self._handed_back.clear()
        return lost


def current_run() -> Run | None:
    """Return the run in which this code is."""
    return _current.get()


def in_run(run: Run) -> AbstractContextManager[None]:
    """Make a run the current one of what is inside."""
    return holding(_current, run)
