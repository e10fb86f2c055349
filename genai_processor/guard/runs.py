# SPDX-License-Identifier: Apache-2.0
"""One run of an agent: its scope, and whether what its tools returned ever reached the model.

A result counts as delivered when a later turn begins, or the run ends well. Where the run dies before, the calls of its last
turn are `undelivered`: whoever runs the agent again must not pay for them twice. A ledger that outlives the process is told
of both, so that a run which is killed has not delivered anything.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Final, Self, TypeVar

from genai_processor.guard.variables import holding
from genai_processor.ledger.entries import Entry

_T = TypeVar("_T")
_PATIENCE_SECONDS: Final = 5.0
_current: Final[ContextVar[Run | None]] = ContextVar("genai_processor_run", default=None)


class Fate(enum.Enum):
    """What becomes of the result of a call that has ended well."""

    AWAITED = enum.auto()
    """A model may yet see it: `Run.turn_began`, `delivered` or `died` will tell."""
    SEEN = enum.auto()
    """It counts as delivered."""
    LOST = enum.auto()
    """No model will see it any more."""


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
        self._returned: dict[str, tuple[Entry, bool]] = {}  # and whether the ledger waits to hear of it
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
            The entries of which the ledger waits to hear that they have been delivered.
        """
        if turn is None or turn == self._turns.get(parent):
            return ()
        self._turns[parent] = turn
        returned = [entry for entry, _ in tuple(self._returned.values()) if entry.parent == parent]
        taken = [self._returned.pop(entry.entry_id, None) for entry in returned]
        seen = [entry for within, entry in tuple(self._handed_back.values()) if within == parent]
        handed_back = [entry for entry in seen if self._handed_back.pop(entry.entry_id, None) is not None]
        return (*_awaited([one for one in taken if one is not None]), *handed_back)

    def delivered(self) -> tuple[Entry, ...]:
        """Note that the model has seen all results; returns what `turn_began` does."""
        return (*_awaited(_all_of(self._returned)), *[entry for _, entry in _all_of(self._handed_back)])

    def waits(self) -> tuple[Entry, ...]:
        """Note that it has ended to wait for somebody: whoever goes on has what its calls returned.

        Returns:
            As `turn_began`.
        """
        return _awaited(_all_of(self._returned))

    def fate_of(self, entry: Entry) -> Fate:
        """What becomes of the result of a call, if that ends well now."""
        in_its_turn = entry.turn is not None and entry.turn == self._turns.get(entry.parent)
        if entry.turn in self._lost or (self._dead and in_its_turn):
            return Fate.LOST
        return Fate.AWAITED if in_its_turn else Fate.SEEN

    def returned(self, entry: Entry, *, awaited: bool = False) -> Fate:
        """Note that a call has ended well.

        Args:
            entry: The call.
            awaited: The ledger waits to hear what becomes of its result.

        Returns:
            What does, as far as is known.
        """
        if self.fate_of(entry) is Fate.AWAITED:
            self._returned[entry.entry_id] = entry, awaited  # before looking again: the run may be dying in another thread
        fate = self.fate_of(entry)
        if fate is not Fate.AWAITED:
            self.not_returned(entry)
        return fate

    def not_returned(self, entry: Entry) -> None:
        """Note that nobody got a result after all."""
        self._returned.pop(entry.entry_id, None)

    def has_saved(self, entry: Entry) -> bool:
        """Whether whoever goes on where it died finds the result of a call."""
        return False

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

    def given_up(self) -> tuple[Entry, ...]:
        """Note that nobody listens to it any more: what becomes of its latest results is what becomes of the run around it.

        Whoever stopped listening may have seen the answer: without a run around it, they count as delivered.

        Returns:
            As `turn_began`.
        """
        if self._outer is None:
            return _awaited(_all_of(self._returned))
        self._outer._returned.update(self._returned)
        self._outer._handed_back.update(self._handed_back)
        return ()

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
        self._handed_back.clear()
        return tuple(entry for entry, _ in _all_of(self._returned))


def _awaited(returned: list[tuple[Entry, bool]]) -> tuple[Entry, ...]:
    return tuple(entry for entry, awaited in returned if awaited)


def _all_of(held: dict[str, _T]) -> list[_T]:
    """Take everything out of a dictionary to which other threads add."""
    taken: list[_T] = []
    with suppress(KeyError):
        while True:
            taken.append(held.popitem()[1])
    return taken[::-1]


def current_run() -> Run | None:
    """Return the run in which this code is."""
    return _current.get()


def in_run(run: Run) -> AbstractContextManager[None]:
    """Make a run the current one of what is inside."""
    return holding(_current, run)
