# SPDX-License-Identifier: Apache-2.0
"""A stop that no framework can swallow: kept here, raised by whatever is asked next, and once more at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NoReturn

from genai_processor.errors import ReplayDivergence, ReplayError
from genai_processor.replay.decisions import Plan
from genai_processor.replay.records import EdgeKind, Node, Outcome
from genai_processor.replay.results import ReplayBoundary


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
        self._wake: list[Callable[[], object]] = []

    def check(self) -> None:
        """Raise the stop again if there has been one."""
        if self.stopped is not None:
            raise Stop(str(self.stopped))

    def stop(self, error: ReplayError) -> NoReturn:
        """Stop the run for good."""
        with self.lock:
            if self.stopped is None:
                if isinstance(error, ReplayDivergence):
                    error.last_valid_boundary = self.boundary()
                self.stopped = error
            wake, self._wake = self._wake, []
        for one in wake:
            one()
        raise Stop(str(error))

    def on_stop(self, wake: Callable[[], object]) -> None:
        """Call back when the run is stopped; at once if it is already."""
        with self.lock:
            if self.stopped is None:
                self._wake.append(wake)
                return
        wake()

    def boundary(self) -> ReplayBoundary:
        """What has been answered, as far as all that it depends on has been, too."""
        outcomes: dict[str, Outcome] = {}
        for node in self.plan.nodes:
            if node.key in self.answered and all(
                edge.producer in outcomes
                for edge in self.plan.decisions[node.key].edges
                if edge.kind not in (EdgeKind.RETURN, EdgeKind.DELEGATE)
            ):
                outcomes[node.key] = node.outcome
        return ReplayBoundary(self.plan, outcomes)

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
