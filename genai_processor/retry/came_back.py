# SPDX-License-Identifier: Apache-2.0
"""What is remembered of a call that came back: enough to look into it, should another call turn out to repeat it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from genai_processor.retry.execution import Execution
from genai_processor.retry.joins import Turns
from genai_processor.retry.open_traces import OpenTrace, OpenTraces
from genai_processor.retry.trace import Trace
from genai_processor.retry.verdict import CallIdSource, Effect, Ended, Reason, RetryVerdict, Verdict
from genai_processor.retry.verdict import Execution as Began
from genai_processor.spans.arguments import ArgumentsState, fingerprint, read_arguments

# Reading a member of an enum class costs more than reading a global, and this happens on every call that comes back.
_WELL: Final = Ended.WELL
_NO_RETRY_NEEDED: Final = RetryVerdict.NO_RETRY_NEEDED
_SUCCEEDED: Final = Reason.SUCCEEDED
_WITHHELD: Final = ArgumentsState.WITHHELD
_UNKNOWN: Final = Began.UNKNOWN
_NO_ID: Final = CallIdSource.NONE
_SPAN_ID: Final = CallIdSource.SPAN


class Rendered(str):
    """Recorded arguments that are a rendering for people."""

    __slots__ = ()


class CameBack(Execution):
    """The execution of a call that came back live. Neither its arguments nor its turn is looked into before it matters.

    One that was compared with no other is also all that there is to say of its span.

    Args:
        trace_number: Its trace; 0 if it has none.
        span_number: Its outermost span; 0 if it has none.
        tool: The tool's name, or None.
        call_id: Its call id, or None.
        effect: What the user declared of the tool.
        scope: Where ids and actions are unique.
        start_ns: Start, nanoseconds since the epoch.
        end_ns: End.
        arguments: The arguments as recorded.
        trace: What is kept of its trace, or None.
        traces: The open traces, to which that belongs.
        length_limit: The SDK's attribute value length limit, 0 if it has none.
    """

    __slots__ = ("_limit", "_traces", "effect", "scope", "span_number", "trace", "trace_number")

    def __init__(
        self,
        trace_number: int,
        span_number: int,
        tool: str | None,
        call_id: str | None,
        effect: Effect,
        scope: str,
        start_ns: int | None,
        end_ns: int | None,
        arguments: Any,
        trace: OpenTrace | None,
        traces: OpenTraces,
        length_limit: int,
    ) -> None:
        self.trace_number = trace_number
        self.span_number = span_number
        self.tool = tool
        self.call_id = call_id
        self.effect = effect
        self.scope = scope
        self.start_ns = start_ns or 0
        self.end_ns = end_ns or 0
        self.ended = _WELL
        self.uncertain = False
        self.trace = trace
        self._traces = traces
        self._limit = length_limit
        self._arguments = arguments
        self._digest = None
        self._turn = None
        self._proposed = 0

    @property
    def span_id(self) -> str:  # type: ignore[override]
        """Its outermost span, in hex."""
        return f"{self.span_number:016x}"

    @property
    def trace_id(self) -> str:  # type: ignore[override]
        """Its trace, in hex."""
        return f"{self.trace_number:032x}"

    @property
    def verdict(self) -> Verdict:
        """The verdict on it."""
        tool, call_id = self.tool, self.call_id
        source = _NO_ID if call_id is None else _SPAN_ID
        return Verdict(_NO_RETRY_NEEDED, _SUCCEEDED, (), tool, call_id, source, _WITHHELD, _UNKNOWN, self.effect)

    @property
    def held(self) -> int:
        """How many characters of arguments it refers to."""
        arguments = self._arguments
        return len(arguments) if isinstance(arguments, str) else 0

    def release(self) -> None:
        """Let go of the arguments. What this call did is unknown from now on, so nothing is compared with it."""
        self._arguments = None

    @property
    def digest(self) -> str | None:
        """SHA-256 of the canonical arguments, or None where they are not whole."""
        if self._arguments is not None:
            limit, raw = self._limit, self._arguments
            read = read_arguments(raw, rendered=isinstance(raw, Rendered), is_cut=lambda text: 0 < limit <= len(text))
            self._digest = fingerprint(read)
            self._arguments = None
        return self._digest

    @property
    def turn(self) -> Hashable | None:
        """What proposed it, or None if unknown."""
        if not self._proposed:
            self._turn, self._proposed = self._find_turn()
            self.trace = None
        return self._turn

    def _find_turn(self) -> tuple[Hashable | None, int]:
        if self.trace is None:
            return None, 1
        turns = Turns(Trace.of(self._traces.nodes(self.trace), length_limit=self._limit, partial=self.trace.partial))
        joined = turns.proposing(self.tool, self.call_id, self.start_ns, self.digest)
        if joined is None or joined.turn is None:
            return None, 1
        return joined.turn.span.span_id, turns.proposed_with(joined)
