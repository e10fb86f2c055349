# SPDX-License-Identifier: Apache-2.0
"""Which replay this code runs in: nothing that happens there is an effect.

The processor marks the spans that begin in a replay and judges none of them, and the guard lets pass what a replay answers.
Both ask `REPLAYS.ever` first, which is false as long as nobody has replayed. What a replay began is its own also after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from genai_processor.attributes import GENAI_REPLAY_RUN_ID


class _Run(NamedTuple):
    run_id: str
    answered: Collection[str]


_run: Final[ContextVar[_Run | None]] = ContextVar("genai_processor_replay_run", default=None)


class _Replays:
    """The replays of this process."""

    def __init__(self) -> None:
        self.ever = False
        """Whether there has been one, so that spans may carry its mark, and code may still run in it."""

    def here(self) -> str | None:
        """The id of the replay that this code runs in, or None."""
        run = _run.get()
        return None if run is None else run.run_id

    def answers(self, module: str) -> bool:
        """Whether this code runs in a replay that answers the calls of the framework that a module is of."""
        run = _run.get()
        return run is not None and module.partition(".")[0] in run.answered

    @contextmanager
    def entered(self, run_id: str, answered: Collection[str] = ()) -> Iterator[None]:
        """Be inside a replay, in this context and in those that are made from it.

        Args:
            run_id: Its id.
            answered: Top-level packages of the frameworks whose calls it answers; those of others must not have effects.
        """
        self.ever = True
        token = _run.set(_Run(run_id, answered))
        try:
            yield
        finally:
            with suppress(ValueError):  # it ends in another context than it began in
                _run.reset(token)

    def mark(self, span: Any) -> bool:
        """Mark a span that has begun, if it did so in a replay.

        Returns:
            Whether it did.
        """
        run = _run.get()
        if run is None:
            return False
        span.set_attribute(GENAI_REPLAY_RUN_ID, run.run_id)
        return True


REPLAYS: Final = _Replays()


def is_marked(span: Any) -> bool:
    """Whether a span was made in a replay."""
    return GENAI_REPLAY_RUN_ID in (span._attributes or ())
