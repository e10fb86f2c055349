# SPDX-License-Identifier: Apache-2.0
"""Retrievals that an agent makes outside of its tools, matched by what is looked up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.digests import part_digest
from genai_processor.replay.executions import Answer
from genai_processor.replay.parts import PartKind, Role
from genai_processor.replay.records import Ending, Node, Operation, State
from genai_processor.replay.stopping import Latch


class Retrievals:
    """Matches retrievals.

    Args:
        latch: Keeps what has been answered.
    """

    def __init__(self, latch: Latch) -> None:
        self._latch = latch
        self._by_query: defaultdict[bytes, list[Node]] = defaultdict(list)
        for node in latch.plan.nodes:
            if node.operation is Operation.RETRIEVAL and len(node.inputs.parts) == 1:
                self._by_query[node.inputs.parts[0].digest].append(node)

    def retrieved(self, query: str, is_here: Callable[[Node], bool]) -> Answer:
        """Find what a retrieval came to.

        Args:
            query: What is looked up.
            is_here: Whether a node is of the run of an agent that asks; of several, those are meant.

        Raises:
            Stop: It is not in the record, or what it came to is not, or it came to one thing and to another.
        """
        self._latch.check()
        digest = part_digest(Role.USER, PartKind.TEXT, None, query)
        with self._latch.lock:
            known = self._by_query.get(digest, ())
            left = [node for node in known if node.key not in self._latch.answered]
            left = [node for node in left if is_here(node)] or left
            if not left:
                what = f"{query!r} is looked up" + (
                    " once more than in the record" if known else ", which is not in the record"
                )
                node = known[-1] if known else None
                self._latch.diverged(what, node=node, where="call", expected=digest if known else b"", got=digest)
            keys = tuple(node.key for node in left)
            if len({node.outcome.digest for node in left}) > 1:
                self._latch.stop(
                    ReplayRefusedError(
                        f"{query!r} was looked up more than once, with different results, and nothing tells which are meant",
                        nodes=keys,
                    )
                )
            outcome = left[0].outcome
            if outcome.state is not State.WHOLE or outcome.ending not in (Ending.VALUE, Ending.FAILURE):
                self._latch.stop(ReplayRefusedError(f"What came of looking up {query!r} is not recorded", nodes=keys[:1]))
            self._latch.answered[left[0].key] = 1
            return Answer(left[0], outcome)
