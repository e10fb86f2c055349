# SPDX-License-Identifier: Apache-2.0
"""What live models say, or fail with, held against the record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from genai_processor.errors import ReplayError, ReplayRefusedError
from genai_processor.replay.parts import EMPTY, PartList
from genai_processor.replay.records import Ending, Node, Outcome, State
from genai_processor.replay.stopping import Latch, named
from genai_processor.replay.values import failed, outcome_difference

_ENDED: Final = (Ending.VALUE, Ending.FAILURE)


class LiveAnswers:
    """Compares live models with the record.

    Args:
        latch: Keeps what stopped the run.
    """

    def __init__(self, latch: Latch) -> None:
        self._latch = latch

    def said(self, node: Node, parts: PartList) -> None:
        """Compare what a model answered.

        Raises:
            Stop: It is not what was recorded.
        """
        recorded = node.outcome
        is_known = recorded.ending is Ending.FAILURE or (recorded.ending is Ending.VALUE and recorded.state is State.WHOLE)
        if is_known and (recorded.ending is Ending.FAILURE or parts.digest != recorded.parts.digest):
            self._diverged(node, recorded._replace(ending=Ending.VALUE, state=State.WHOLE, parts=parts))
        self._latch.unheard.discard(node.key)

    def failed(self, node: Node, error_type: str | None, message: str | None = None) -> None:
        """Compare what a model failed with. Only its class: what providers say of it has times and ids of requests in it.

        Args:
            node: Who was asked.
            error_type: The class; None if that is not known.
            message: What it says.

        Raises:
            Stop: It did not fail in the record, or with another class.
        """
        recorded = node.outcome
        then = (recorded.error_type or "").rpartition(".")[2]
        is_other = error_type is not None and then.isidentifier() and then != error_type  # some write a sentence there
        if recorded.ending is Ending.VALUE or (recorded.ending is Ending.FAILURE and is_other):
            self._diverged(node, Outcome(Ending.FAILURE, State.WHOLE, EMPTY, None, error_type, message))
        self._latch.unheard.discard(node.key)

    def at_end(self) -> None:
        """Find a model whose recorded answer was not compared, because nobody has waited for the live one to end.

        Raises:
            Stop: There is one.
        """
        plan = self._latch.plan
        left = [node for node in plan.nodes if node.key in self._latch.unheard and node.outcome.ending in _ENDED]
        if left:
            self._latch.stop(
                ReplayRefusedError(
                    f"What {named(left[0])} answers was not waited for to its end, so that it could not be compared",
                    nodes=tuple(node.key for node in left),
                )
            )

    @contextmanager
    def asking(self, node: Node) -> Iterator[None]:
        """While this is open, a model is asked: what is raised is its failure, and is compared.

        Raises:
            Stop: It did not fail in the record, or with another class.
        """
        try:
            yield
        except ReplayError:
            raise
        except Exception as error:
            self.failed(node, type(error).__name__, failed(error).error_message)
            raise

    def _diverged(self, node: Node, now: Outcome) -> None:
        recorded = node.outcome
        self._latch.diverged(
            f"The output of {named(node)} is not what was recorded",
            node=node,
            where="output",
            expected=recorded.parts.digest if recorded.ending is Ending.VALUE else recorded.digest,
            got=now.parts.digest if now.ending is Ending.VALUE else now.digest,
            different=outcome_difference(recorded, now),
        )
