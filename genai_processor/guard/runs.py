# SPDX-License-Identifier: Apache-2.0
"""One run of an agent: its scope, and whether what its tools returned ever reached the model.

A result counts as delivered when a later turn begins, or the run ends well. Where the run dies before, the calls of its last
turn are `undelivered`: whoever runs the agent again must not pay for them twice.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Final

from genai_processor.ledger.entries import Entry

_current: Final[ContextVar[Run | None]] = ContextVar("genai_processor_run", default=None)


class Run:
    """A run that is going on.

    Args:
        scope: The scope that the application set, if any; calls inside inherit it.
        hint: The scope that the framework knows of, which anything that the application set goes before.
    """

    def __init__(self, scope: str | None = None, hint: str | None = None) -> None:
        self.scope = scope
        self.hint = hint
        self._turn: str | None = None
        self._returned: dict[str, Entry] = {}
        self._handed_back: dict[str, Entry] = {}
        self._dead = False

    def turn_began(self, turn: str | None) -> tuple[Entry, ...]:
        """Note the turn of a call that is being claimed; a new one shows that what the last one returned was delivered.

        Returns:
            The entries that were handed back before, and have been delivered now.
        """
        if turn is None or turn == self._turn:
            return ()
        self._turn = turn
        return self.delivered()

    def delivered(self) -> tuple[Entry, ...]:
        """Note that the model has seen all results; returns what `turn_began` does."""
        self._returned.clear()
        done = tuple(self._handed_back.values())
        self._handed_back.clear()
        return done

    def returned(self, entry: Entry) -> bool:
        """Note that a call has ended well.

        Returns:
            Whether a model may see the result yet: not if it is one of the current turn, and the run has died meanwhile.
        """
        if entry.turn is None or entry.turn != self._turn:
            return True
        self._returned[entry.entry_id] = entry
        return not self._dead

    def take_over(self, inner: Run) -> None:
        """Note that a run inside this one was given up: what becomes of its latest results is what becomes of this run's."""
        self._returned.update(inner._returned)
        self._handed_back.update(inner._handed_back)

    def handed_back(self, entry: Entry) -> None:
        """Note that a recorded result was the answer to a call of the current turn."""
        self._handed_back[entry.entry_id] = entry

    def died(self) -> tuple[Entry, ...]:
        """Note that the run has ended before a model saw the latest results; returns the entries of these."""
        self._dead = True  # before looking: a call may be ending in another thread
        lost = tuple(self._returned.values())
        self._returned.clear()
        self._handed_back.clear()
        return lost


def current_run() -> Run | None:
    """Return the run in which this code is."""
    return _current.get()


def enter_run(run: Run | None) -> Token[Run | None]:
    """Make a run the current one of this context; give what this returns to `leave_run`."""
    return _current.set(run)


def leave_run(token: Token[Run | None]) -> None:
    """Undo `enter_run`; in another context there is nothing to undo."""
    try:
        _current.reset(token)
    except ValueError:
        _current.set(None)
