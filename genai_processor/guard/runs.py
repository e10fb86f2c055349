# SPDX-License-Identifier: Apache-2.0
"""One run of an agent: its scope, and whether what its tools returned ever reached the model.

A result counts as delivered when a later turn begins, or the run ends well. Where the run dies before, the calls of its last
turn are `undelivered`: whoever runs the agent again must not pay for them twice. A ledger that outlives the process is told
of both, so that a run which is killed has not delivered anything. A forked child is not the run: it tells of its own calls.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol, Self, TypeVar

from genai_processor.forks import call_in_child
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


class Teller(Protocol):
    """Tells a ledger what becomes of results; the one that granted a call does, whichever guard tells of the run."""

    def delivered(self, entries: tuple[Entry, ...]) -> None:
        """A model has seen them."""
        ...

    def undelivered(self, entries: tuple[Entry, ...]) -> None:
        """No model has."""
        ...

    def will_tell(self, entries: tuple[Entry, ...]) -> None:
        """A model has seen them, and `delivered` will soon be told so."""
        ...

    def let_go(self, entry: Entry) -> None:
        """Nobody will ever tell. No I/O."""
        ...


class Result(NamedTuple):
    """What a call has returned, or what was handed back for it.

    Attributes:
        entry: The call.
        teller: Tells of it.
        awaited: The ledger waits to hear what becomes of it.
    """

    entry: Entry
    teller: Teller
    awaited: bool = True

    def delivered(self) -> None:
        """Tell that a model has seen it."""
        self.teller.delivered((self.entry,))

    def undelivered(self) -> None:
        """Tell that no model has."""
        self.teller.undelivered((self.entry,))


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
        self._heir: Run | None = None
        self._turns: dict[str | None, str] = {}
        self._lost: set[str] = set()
        self._over = False
        self._dead = False
        self._begin()
        call_in_child(self._begin)

    def _begin(self) -> None:
        self._returned: dict[str, Result] = {}
        self._handed_back: dict[str, tuple[str | None, Result]] = {}
        self._ending: dict[str, tuple[int, threading.Event]] = {}

    def __del__(self) -> None:
        # Its generator was collected with a closed event loop, say: nobody will ever tell how it ended.
        for result in _all_of(getattr(self, "_returned", {})):
            result.teller.let_go(result.entry)

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

    def turn_began(self, turn: str | None, parent: str | None = None) -> tuple[Result, ...]:
        """Note the turn of a call that is being claimed; a new one shows that what the last one returned was delivered.

        Args:
            turn: The turn; None shows nothing.
            parent: The entry of the call in whose body this one is made. A model that is asked in there has seen what its
                own calls returned, and nothing of what goes on around it.

        Returns:
            What the ledger waits to hear the delivery of.
        """
        if turn is None or turn == self._turns.get(parent):
            return ()
        self._turns[parent] = turn
        taken: list[Result] = []
        seen = {parent}
        while seen:  # and what was done inside of what it has seen
            within = [result.entry for result in tuple(self._returned.values()) if result.entry.parent in seen]
            found = [self._returned.pop(entry.entry_id, None) for entry in within]
            taken += [result for result in found if result is not None]
            seen = {entry.entry_id for entry in within}
            for entry_id in seen:
                self._turns.pop(entry_id, None)
        answers = [result for within, result in tuple(self._handed_back.values()) if within == parent]
        handed_back = [one for one in answers if self._handed_back.pop(one.entry.entry_id, None) is not None]
        return (*_awaited(taken), *handed_back)

    def delivered(self) -> tuple[Result, ...]:
        """Note that the model has seen all results; returns what `turn_began` does."""
        return (*_awaited(_all_of(self._returned)), *[result for _, result in _all_of(self._handed_back)])

    def ended(self) -> tuple[Result, ...]:
        """Note that it has ended, and the model has seen all results; returns what `turn_began` does."""
        self._over = True  # before looking: a call may be ending in another thread
        return self.delivered()

    def waits(self) -> tuple[Result, ...]:
        """Note that it has ended to wait for somebody: whoever goes on has what its calls returned.

        Returns:
            As `turn_began`.
        """
        self._over = True
        return _awaited(_all_of(self._returned))

    def fate_of(self, entry: Entry) -> Fate:
        """What becomes of the result of a call, if that ends well now.

        A turn that has begun before shows nothing of it. Of what ends after the run did, nobody would ever tell.
        """
        run = self._lasting()
        if run._dead or entry.turn in self._lost or entry.turn in run._lost:
            return Fate.LOST
        return Fate.SEEN if run._over else Fate.AWAITED

    def returned(self, result: Result) -> Fate:
        """Note that a call has ended well; returns what becomes of its result, as far as is known."""
        entry, run = result.entry, self._lasting()
        if run.fate_of(entry) is Fate.AWAITED:
            run._returned[entry.entry_id] = result  # before looking again: the run may be ending in another thread
        if run is not self._lasting() and run._returned.pop(entry.entry_id, None) is not None:
            return self.returned(result)
        fate = self.fate_of(entry)
        if fate is not Fate.AWAITED:
            self.not_returned(entry)
        return fate

    def not_returned(self, entry: Entry) -> None:
        """Note that nobody got a result after all."""
        self._returned.pop(entry.entry_id, None)
        if self._heir is not None:
            self._heir.not_returned(entry)

    def _lasting(self) -> Run:
        """The run whose end tells what becomes of what is returned in this one."""
        run = self
        while run._heir is not None:
            run = run._heir
        return run

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

    def given_up(self) -> tuple[tuple[Result, ...], tuple[Result, ...]]:
        """Note that nobody listens to it any more: what becomes of its latest results is what becomes of the run around it.

        Whoever stopped listening may have seen the answer: without a run around it, they count as delivered.

        Returns:
            What was delivered, as `turn_began`; and what was lost, as the run around it has died.
        """
        self._heir, self._over = self._outer, True  # before looking: a call may be ending in another thread
        if self._outer is None:
            return _awaited(_all_of(self._returned)), ()
        self._outer._handed_back.update(_taken(self._handed_back))
        known = [(result, self.returned(result)) for result in _all_of(self._returned)]
        seen, lost = ([result for result, fate in known if fate is one] for one in (Fate.SEEN, Fate.LOST))
        return _awaited(seen), tuple(lost)

    def handed_back(self, result: Result, parent: str | None = None) -> None:
        """Note that a recorded result was the answer to a call of the current turn, made in the body of `parent`, if any."""
        self._handed_back[result.entry.entry_id] = parent, result

    def died(self) -> tuple[Result, ...]:
        """Note that the run has ended before a model saw the latest results; returns these."""
        self._dead = True
        return self.lost()

    def lost(self) -> tuple[Result, ...]:
        """Note that no model will see the results of the current turn, though the run goes on; returns these."""
        self._lost.update(self._turns.values())  # before looking: a call may be ending in another thread
        self._handed_back.clear()
        return tuple(_all_of(self._returned))


def tell_delivered(results: Iterable[Result]) -> None:
    """Tell that a model has seen some results."""
    results = tuple(results)
    for result in results:  # first: an interrupt may keep them from being told
        result.teller.will_tell((result.entry,))
    for result in results:
        result.delivered()


def _awaited(returned: list[Result]) -> tuple[Result, ...]:
    return tuple(result for result in returned if result.awaited)


def _all_of(held: dict[str, _T]) -> list[_T]:
    """Take everything out of a dictionary to which other threads add."""
    return list(_taken(held).values())


def _taken(held: dict[str, _T]) -> dict[str, _T]:
    taken: list[tuple[str, _T]] = []
    with suppress(KeyError):
        while True:
            taken.append(held.popitem())
    return dict(taken[::-1])


def current_run() -> Run | None:
    """Return the run in which this code is."""
    return _current.get()


def in_run(run: Run) -> AbstractContextManager[None]:
    """Make a run the current one of what is inside."""
    return holding(_current, run)
