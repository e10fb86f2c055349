# SPDX-License-Identifier: Apache-2.0
"""What waits for a ledger that cannot be told at once, who waits for an answer, and what was lost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

_MOST_LOST: Final = 10_000

Then = Callable[[str | None], None]
"""Is told the id of an entry; None where it did not come to be known. Raises nothing."""


class Waiter:
    """Somebody who wants to know an entry, and is told once."""

    __slots__ = ("_then", "since")

    def __init__(self, then: Then) -> None:
        self.since = time.monotonic()
        self._then = [then]

    @property
    def told(self) -> bool:
        """Whether that is done."""
        return not self._then

    def tell(self, entry_id: str | None) -> None:
        """Tell, unless that is done."""
        try:
            then = self._then.pop()  # atomic: two threads may be about to
        except IndexError:
            return
        then(entry_id)


class Calls:
    """Scopes and tools of calls that something waits about, one for each thing. Any thread may ask at any moment."""

    def __init__(self) -> None:
        self._calls: deque[tuple[str, str]] = deque()

    def add(self, scope: str, tool: str) -> None:
        """Something waits."""
        self._calls.append((scope, tool))

    def has(self, scope: str, tool: str) -> bool:
        """Whether something about that tool in that scope waits; also where nobody can say at this moment."""
        if not self._calls:
            return False
        try:
            return (scope, tool) in self._calls
        except RuntimeError:  # it changes at this moment
            return True

    def drop(self, scope: str, tool: str) -> None:
        """One thing waits no more."""
        while True:
            try:
                self._calls.remove((scope, tool))
            except IndexError:  # it changes at this moment
                continue
            except ValueError:
                pass
            return


class Lost:
    """Of which tools something was lost that would have stood in the way of a call. Bounded: too many are all."""

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str], None] = {}
        self._all = False

    def add(self, scope: str, tool: str) -> None:
        """Remember that something was lost."""
        if len(self._tools) >= _MOST_LOST:
            self._all = True
        else:
            self._tools[scope, tool] = None

    def has(self, scope: str, tool: str) -> bool:
        """Whether something of that tool in that scope was lost."""
        return self._all or (scope, tool) in self._tools
