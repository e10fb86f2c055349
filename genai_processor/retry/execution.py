# SPDX-License-Identifier: Apache-2.0
"""One execution of a tool, as far as it is remembered: what must be compared is found out when it must be."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from genai_processor.retry.verdict import Ended
from genai_processor.spans.arguments import Arguments, fingerprint


class Execution:
    """One execution of a tool. Its arguments are kept until somebody must compare them, then only their digest.

    `arguments` and `turn` may be given as functions: live, neither is worth finding out before it matters.

    Attributes:
        span_id: Its outermost span.
        trace_id: Its trace.
        tool: The tool's name, or None.
        call_id: Its usable call id, or None.
        start_ns: Start, nanoseconds since the epoch.
        end_ns: End, or its start while none is recorded.
        ended: How it ended.
        uncertain: It failed, or nobody can tell, or it is quarantined.
    """

    __slots__ = (
        "_arguments",
        "_digest",
        "_proposed",
        "_turn",
        "call_id",
        "end_ns",
        "ended",
        "span_id",
        "start_ns",
        "tool",
        "trace_id",
        "uncertain",
    )

    def __init__(
        self,
        *,
        span_id: str,
        trace_id: str,
        tool: str | None,
        call_id: str | None,
        start_ns: int,
        end_ns: int,
        ended: Ended,
        uncertain: bool,
        arguments: Arguments | Callable[[], Arguments] | None,
        turn: Hashable | Callable[[], tuple[Hashable | None, int]] | None = None,
        proposed: int = 1,
    ) -> None:
        self.span_id = span_id
        self.trace_id = trace_id
        self.tool = tool
        self.call_id = call_id
        self.start_ns = start_ns
        self.end_ns = end_ns
        self.ended = ended
        self.uncertain = uncertain
        self._turn = turn
        self._proposed = proposed
        self._arguments = arguments
        self._digest: str | None = None

    @property
    def digest(self) -> str | None:
        """SHA-256 of the canonical arguments, or None where they are not whole."""
        if self._arguments is not None:
            self._digest = fingerprint(self._arguments() if callable(self._arguments) else self._arguments)
            self._arguments = None
        return self._digest

    @property
    def known_digest(self) -> str | None:
        """The digest if it was computed before, else None."""
        return self._digest

    @property
    def turn(self) -> Hashable | None:
        """What proposed it (any token), or None if unknown."""
        if callable(self._turn):
            self._turn, self._proposed = self._turn()
        return self._turn

    @property
    def proposed(self) -> int:
        """How many calls like it that turn proposed."""
        return self._proposed if self.turn is not None else 1
