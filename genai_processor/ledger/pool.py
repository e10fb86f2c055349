# SPDX-License-Identifier: Apache-2.0
"""Connections to a server that many threads share, that do not outlive a fork, and that may break at any time.

There is no lock here, nor anywhere around what is sent: a finalizer that the garbage collector runs in the middle of one
request may send another one, by another connection.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from genai_processor.forks import call_in_child

_PAUSE_SECONDS: Final = 0.02
_T = TypeVar("_T")


class LostConnectionError(Exception):
    """A connection is broken or was never made; whether the last request was carried out is not known.

    Attributes:
        timed_out: The server did not answer in time.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        """Keep the message, which holds no secret."""
        super().__init__(message)
        self.timed_out = timed_out


class Connection(Protocol):
    """One connection."""

    def close(self) -> None:
        """Close it."""
        ...


_C = TypeVar("_C", bound=Connection)


class Pool(Generic[_C]):
    """Idle connections; as many are open as there were threads at one time."""

    def __init__(self, connect: Callable[[float], _C]) -> None:
        """Use a function that connects, and is told by when (`time.monotonic`) it has to be done.

        It raises `LostConnectionError` if it cannot.
        """
        self._connect = connect
        self._idle: deque[_C] = deque()
        self._inherited: list[deque[_C]] = []
        call_in_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self._inherited.append(self._idle)  # of the parent, and neither to be used nor to be closed here
        self._idle = deque()

    def ask(self, question: Callable[[_C, float], _T], deadline: float) -> tuple[_T, bool]:
        """Put a question that may be put again without harm, by another connection if one breaks.

        Returns:
            The answer; and whether it was put more than once, so that what it asks for may have been done before.

        Raises:
            LostConnectionError: There is no connection, or none by which the answer came in time.
        """
        again = False
        while True:
            try:
                connection = self._take(deadline)
            except LostConnectionError as error:
                if not again or error.timed_out or time.monotonic() + _PAUSE_SECONDS > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)  # it broke just now: a server that is started again comes back
                continue
            try:
                answer = question(connection, deadline)
            except LostConnectionError as error:
                self._drop(connection)
                self.close()  # the others are no better
                if error.timed_out or time.monotonic() > deadline:
                    raise
                again = True
            except BaseException:  # an interrupt may have left half an answer behind
                self._drop(connection)
                raise
            else:
                self._idle.append(connection)
                return answer, again

    def _take(self, deadline: float) -> _C:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect(deadline)

    def _drop(self, connection: _C) -> None:
        with suppress(Exception):
            connection.close()

    def close(self) -> None:
        """Close what is idle. The next question connects anew."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._drop(connection)
