# SPDX-License-Identifier: Apache-2.0
"""A stop that no framework can swallow: kept here, raised by whatever is asked next, and once more at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import NoReturn

from genai_processor.errors import ReplayDivergence, ReplayError, ReplayRefusedError
from genai_processor.replay.decisions import Plan
from genai_processor.replay.records import Node, Operation, Outcome
from genai_processor.replay.results import ORDERLESS, ReplayBoundary


class Stop(BaseException):
    """Ends a run past every `except Exception`. Nobody outside sees it: the `with` block raises what it stands for."""


class Latch:
    """Which nodes a running agent has been answered, and whether it was stopped.

    Args:
        plan: The recorded run.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lock = threading.RLock()
        self.stopped: ReplayError | None = None
        self.answered: dict[str, int] = {}
        self.unheard: set[str] = set()  # asked of live models, whose answers have not been compared
        self._ended = False
        self._runs = 0
        self._wake: dict[int, Callable[[], object]] = {}

    def check(self) -> None:
        """Raise the stop again if there has been one.

        Raises:
            Stop: There was one.
            ReplayRefusedError: The block is over in which this began.
        """
        if self._ended:
            raise ReplayRefusedError("This replay is over; what it began, and what goes on after it, is refused")
        if self.stopped is not None:
            raise Stop(str(self.stopped))

    def stop(self, error: ReplayError) -> NoReturn:
        """Stop the run for good."""
        self.latch(error)
        raise Stop(str(error))

    def latch(self, error: ReplayError) -> None:
        """As `stop`, where nothing may be raised: whatever is asked next raises it. The first stop counts."""
        with self.lock:
            if self.stopped is None:
                if isinstance(error, ReplayDivergence):
                    error.last_valid_boundary = self.boundary()
                self.stopped = error
        self._wake_all()

    def end(self) -> None:
        """The block is over: what is left of it is refused."""
        self._ended = True
        self._wake_all()

    @contextmanager
    def running(self) -> Iterator[None]:
        """While this is open, a run of an agent goes on, whether or not the block is over."""
        with self.lock:
            self._runs += 1
        try:
            yield
        finally:
            with self.lock:
                self._runs -= 1

    def _wake_all(self) -> None:
        for one in list(self._wake.values()):
            with suppress(RuntimeError):  # a loop that is closed
                one()

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have somebody called who waits, when the run is stopped or its block is over; at once if that is so."""
        key = id(wake)
        self._wake[key] = wake
        try:
            if self.stopped is not None or self._ended:
                wake()
            yield
        finally:
            del self._wake[key]

    def boundary(self) -> ReplayBoundary:
        """What has been answered, as far as all that it depends on has been, too."""
        outcomes: dict[str, Outcome] = {}
        edges = {
            key: [edge for edge in self.plan.decisions[key].edges if edge.kind not in ORDERLESS]
            for key in self.answered
            if key not in self.unheard
        }
        # Nobody asks for a handoff, which the framework makes itself: what came of it is in the next model's input.
        handed = {edge.producer for found in edges.values() for edge in found}
        for node in self.plan.nodes:
            is_done = node.key in edges or (node.operation is Operation.HANDOFF and node.key in handed)
            if is_done and all(edge.producer in outcomes for edge in edges.get(node.key, ())):
                outcomes[node.key] = node.outcome
        return ReplayBoundary(self.plan, MappingProxyType(outcomes))

    def diverged(
        self, what: str, *, node: Node | None, where: str, expected: bytes = b"", got: bytes = b"", different: str = ""
    ) -> NoReturn:
        """Stop the run because it went another way than the record."""
        self.stop(
            ReplayDivergence(
                f"{what}\n{different}".rstrip(),
                node=None if node is None else node.key,
                where=where,
                expected=expected.hex(),
                got=got.hex(),
                difference=different,
            )
        )


def named(node: Node) -> str:
    """A node in words."""
    return " ".join(filter(None, (node.name, node.tool or node.model, f"({node.key})")))
