# SPDX-License-Identifier: Apache-2.0
"""What the incidents of all frameworks are told with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from genai_processor.guard.context import idempotency_key


class World:
    """What tools change: effects that landed cannot be taken back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.effects: list[str] = []
        self.keys: list[str | None] = []

    def commit(self, effect: str) -> str:
        """The effect lands."""
        with self._lock:
            self.effects.append(effect)
            self.keys.append(idempotency_key())
        return f"done: {effect}"

    def commit_then_fail(self, effect: str) -> str:
        """The effect lands, and its answer is lost."""
        self.commit(effect)
        raise ConnectionError("502 Bad Gateway")

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """One run of an application that says which conversation it is about, if a guard is there to be told."""
        from genai_processor.guard.hooks import active

        guard = active()
        if guard is None:
            yield
        else:
            with guard.run(name):
                yield


@dataclass(frozen=True, slots=True)
class Incident:
    """One story, and what should come of it.

    Attributes:
        name: What it is called in the table.
        tell: Runs the framework; what it raises is part of the story, and does not matter.
        bare: How many effects land without a guard.
        enforced: How many land with one that enforces.
    """

    name: str
    tell: Callable[[World], None]
    bare: int
    enforced: int


def count(incident: Incident) -> int:
    """Tell a story; return how many effects have landed."""
    world = World()
    with suppress(Exception):  # how the run ends is not what is counted
        incident.tell(world)
    return len(world.effects)
