# SPDX-License-Identifier: Apache-2.0
"""Ending a command that runs for long, when it suits the command."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from types import FrameType, TracebackType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context manager; inside, the first SIGINT or SIGTERM is only noted, and the second one ends the process as ever.

    Attributes:
        received: The signal that came; None while there was none.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}
        # No `threading.Event`: a handler that sets one can interrupt the very thread that holds its lock.
        self._bell, self._rings = socket.socketpair()

    def __enter__(self) -> Interrupts:
        self._bell.setblocking(False)
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()
        self._bell.close()
        self._rings.close()

    def came(self) -> bool:
        """Whether a signal came."""
        return self.received is not None

    def wait(self, seconds: float) -> bool:
        """Wait, but not longer than until a signal comes; return whether it came."""
        if not self.came():
            select.select([self._rings], [], [], max(0.0, seconds))
        return self.came()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()
        with contextlib.suppress(OSError):
            self._bell.send(b"\0")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
