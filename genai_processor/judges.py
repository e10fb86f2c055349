# SPDX-License-Identifier: Apache-2.0
"""Whom a stamper asks about spans: a judge of tool calls, and for a recording for replay whoever stamps models' spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from genai_processor.retry.came_back import CameBack
    from genai_processor.retry.judgement import Judgement


class Stamps(Protocol):
    """Makes what a replay has to know of the spans of models. Does no I/O."""

    def began(self, span: Span) -> None:
        """Note that a span has begun."""
        ...

    def of(self, readable: ReadableSpan) -> dict[str, Any] | None:
        """Return the attributes to write on an ended span, or None for none."""
        ...


class Judge(Protocol):
    """Keeps what spans have shown so far, and judges those that show a tool call. Does no I/O."""

    def on_start(self, span: Span, parent_context: Context | None) -> None:
        """Note that a span has begun."""
        ...

    def on_end(self, span: ReadableSpan) -> CameBack | Judgement | None:
        """Judge an ended span.

        Returns:
            None for a span that shows no tool call, or carries a verdict already. The call itself, if it came back and
            was compared with no other: then there is no more to say. With `late` set, a judgement about another span,
            one that has ended before.
        """
        ...

    def lost(self, span: ReadableSpan) -> Judgement | None:
        """Take note of a span for which `on_end` has raised; what it showed is unknown from now on.

        Returns:
            A judgement that quarantines the call which the span seems to show, or None if it seems to show none.
        """
        ...


class Beginnings:
    """A judge that also tells of beginnings, for nobody else pays for that."""

    def __init__(self, judge: Judge, stamps: Stamps) -> None:
        self._judge = judge
        self._stamps = stamps
        self.on_end = judge.on_end
        self.lost = judge.lost

    def on_start(self, span: Span, parent_context: Context | None) -> None:
        """Note that a span has begun."""
        self._judge.on_start(span, parent_context)
        self._stamps.began(span)
