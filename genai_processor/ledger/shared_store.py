# SPDX-License-Identifier: Apache-2.0
"""What a ledger that many hosts share needs of the server that holds its entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from genai_processor.errors import LedgerError, LedgerUnavailableError
from genai_processor.ledger.entries import Entry, State
from genai_processor.ledger.pool import LostConnectionError
from genai_processor.ledger.protocol import Query
from genai_processor.ledger.server_clock import ServerClock
from genai_processor.ledger.snapshot import Answers, Request


@dataclass(frozen=True, slots=True)
class Reply:
    """What a store says to a request.

    Attributes:
        done: The answers were as expected, and the changes are made.
        answers: Otherwise: what the answers are, all at one moment, and nothing is changed.
        again: The request was sent more than once, because a connection broke: it may have been carried out before.
    """

    done: bool
    answers: Answers
    again: bool = False


@contextmanager
def telling(name: str, refused: type[Exception]) -> Iterator[None]:
    """Say of a ledger, in one kind of error, that it cannot be asked, that it refuses, or what is wrong in it.

    Args:
        name: What messages call it.
        refused: The driver's error for what a server refuses.

    Raises:
        LedgerUnavailableError: In place of the error inside.
    """
    try:
        yield
    except LostConnectionError as error:
        raise LedgerUnavailableError(
            f"the ledger {name} cannot be asked: {error}; see whether the server runs and can be reached from here"
        ) from error
    except refused as error:
        raise LedgerUnavailableError(f"the ledger {name} refuses: {error}") from error
    except LedgerError:
        raise
    except (ValueError, LookupError, TypeError) as error:  # somebody else wrote there, and it may be anything
        raise LedgerUnavailableError(
            f"the ledger {name} holds something that no ledger wrote: {type(error).__name__}: {error}"
        ) from error


def lost(name: str) -> LedgerUnavailableError:
    """Return the error for a ledger that does not hold any more what this process has seen in it.

    It stays like that for as long as the process uses it: what else is missing nobody can know.
    """
    return LedgerUnavailableError(
        f"the ledger {name} has lost what this process had seen in it: it was emptied, made anew, brought back to an "
        "earlier state, or its place taken by a replica that lagged; calls that ran are not known there any more and may "
        "have committed, so find out which, and then start this process again"
    )


class SharedStore(Protocol):
    """Holds entries for many hosts. Each method is one round trip, and raises `LedgerUnavailableError`.

    Attributes:
        name: What messages call it; no secret is in it.
        timeout_seconds: After how long a method gives up.
        clock: The server's.
    """

    name: str
    timeout_seconds: float
    clock: ServerClock

    def open(self, deadline: float) -> None:
        """Connect, unless that is done, so that the clock is known."""
        ...

    def ask(self, request: Request, deadline: float) -> Reply:
        """Do a request, atomically."""
        ...

    def overdue(self, now_ns: int, limit: int) -> Sequence[Entry]:
        """Return claims whose lease has run out, those first that ran out first."""
        ...

    def expirable(self, before_ns: int, limit: int) -> Sequence[Entry]:
        """Return entries that may expire and have not changed since, those first that were untouched longest."""
        ...

    def pending(self, query: Query, after: tuple[int, str] | None, limit: int) -> Sequence[Entry]:
        """Return the first pending entries that fit and come after a place in the queue, oldest first."""
        ...

    def counts(self) -> Mapping[State, int]:
        """Return how many entries there are in each state."""
        ...

    def sizes(self) -> tuple[int, int]:
        """Return how many marks there are of expired calls, and of unknown tools."""
        ...

    def close(self) -> None:
        """Let go of all connections. The next method connects again."""
        ...
