# SPDX-License-Identifier: Apache-2.0
"""The time by a server's clock, of which every answer brings a sample: hosts need not agree on the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_FRESH_NS: Final = 30 * 10**9
_STEP_NS: Final = 10**9


def _counted_ns() -> int:
    """Nanoseconds that have passed, also while the machine slept, where the system counts these."""
    return time.clock_gettime_ns(_BOOT)


_BOOT: Final[int] = getattr(time, "CLOCK_BOOTTIME", -1)
passed_ns: Final[Callable[[], int]] = _counted_ns if _BOOT >= 0 else time.monotonic_ns


class ServerClock:
    """Counts on from the samples, of which that with the shortest way counts most. For any number of threads."""

    def __init__(self) -> None:
        # Offset, half the round trip and time of the best sample: one tuple, so that it changes in one piece.
        self._best: tuple[int, int, int] | None = None
        self._last = 0

    @property
    def is_known(self) -> bool:
        """Whether there has been a sample."""
        return self._best is not None

    def sample(self, server_ns: int, sent_ns: int, received_ns: int) -> None:
        """Note what the server's clock said between two moments, by `passed_ns`."""
        offset, doubt = server_ns - (sent_ns + received_ns) // 2, (received_ns - sent_ns) // 2
        best = self._best
        stale = best is None or received_ns - best[2] > _FRESH_NS
        if stale or doubt <= best[1] or abs(offset - best[0]) > doubt + best[1] + _STEP_NS:  # type: ignore[index]
            self._best = (offset, doubt, received_ns)

    def __call__(self) -> int:
        """Return the time in nanoseconds since the epoch. Does not go back, unless the server's clock was set."""
        best = self._best
        assert best is not None, "no sample yet"
        now = passed_ns() + best[0]
        last = self._last
        if last - _STEP_NS < now < last:
            return last
        self._last = now
        return now
