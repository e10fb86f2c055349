# SPDX-License-Identifier: Apache-2.0
"""Which replay this code runs in: nothing that happens there is an effect.

The processor marks the spans that begin in a replay and judges none of them, and the guard lets its calls pass: both ask
`REPLAYS.running` first, which is 0 as long as nobody replays.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from genai_processor.attributes import GENAI_REPLAY_RUN_ID

_run: Final[ContextVar[str | None]] = ContextVar("genai_processor_replay_run", default=None)


class _Replays:
    """The replays of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = 0
        """How many there are."""
        self.ever = False
        """Whether there has been one, so that spans may carry its mark."""

    def here(self) -> str | None:
        """The id of the replay that this code runs in, or None."""
        return _run.get()

    @contextmanager
    def entered(self, run_id: str) -> Iterator[None]:
        """Be inside a replay, in this context and in those that are made from it."""
        with self._lock:
            self.running += 1
            self.ever = True
        token = _run.set(run_id)
        try:
            yield
        finally:
            _run.reset(token)
            with self._lock:
                self.running -= 1

    def mark(self, span: Any) -> bool:
        """Mark a span that has begun, if it did so in a replay.

        Returns:
            Whether it did.
        """
        run_id = _run.get()
        if run_id is None:
            return False
        span.set_attribute(GENAI_REPLAY_RUN_ID, run_id)
        return True


REPLAYS: Final = _Replays()


def is_marked(span: Any) -> bool:
    """Whether a span was made in a replay."""
    return GENAI_REPLAY_RUN_ID in (span._attributes or ())
