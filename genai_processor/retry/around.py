# SPDX-License-Identifier: Apache-2.0
"""What is going on around a span while it ends, of which the span itself tells nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.trace import get_current_span

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span as SDKSpan

_MAX_OPEN: Final = 10_000


class Around(NamedTuple):
    """What is going on around a span that ends.

    Attributes:
        raised: The exception that is passing through it. Of a cancellation or an interrupt the API records nothing.
        handled: The exception that was being handled already when it began, and still is.
        parent_ended: When the span above it ended, nanoseconds since the epoch, if that was before this one.
    """

    raised: BaseException | None
    parent_ended: int | None
    handled: BaseException | None = None

    @property
    def harmless(self) -> bool:
        """Whether a span that shows no failure may be taken for well."""
        return self.parent_ended is None and (self.raised is None or isinstance(self.raised, Exception))


NOTHING_AROUND: Final = Around(None, None)


class Surroundings:
    """The span above each open tool span, and the exception that was being handled when it began: that did not end it."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Any, BaseException | None]] = {}

    def began(self, span: SDKSpan, parent_context: Context | None) -> None:
        """Remember what surrounds a span that begins."""
        above = get_current_span(parent_context) if span._parent is not None else None
        handled = sys.exception()
        if span._context is not None and (above is not None or handled is not None):
            self._open[span._context.span_id] = (above, handled)
            while len(self._open) > _MAX_OPEN:
                try:
                    del self._open[next(iter(self._open))]
                except (KeyError, StopIteration, RuntimeError):  # another thread was faster
                    return

    def ended(self, span: Any) -> Around:
        """What surrounds a span as it ends, beside what did when it began."""
        error = sys.exception()
        found = self._open.pop(span._context[1], None) if span._context is not None else None
        if found is None:
            return NOTHING_AROUND if error is None else Around(error, None)
        above, handled = found
        ended = getattr(above, "_end_time", None)
        if ended is not None and span._end_time is not None and ended >= span._end_time:
            ended = None
        same = error if error is handled else None
        error = None if error is handled else error
        return NOTHING_AROUND if error is None and same is None and ended is None else Around(error, ended, same)

    def forget(self, span_id: int) -> None:
        """Let go of what surrounded a span."""
        self._open.pop(span_id, None)
