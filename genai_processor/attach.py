# SPDX-License-Identifier: Apache-2.0
"""Standing in front of everything that a tracer provider exports to, and leaving no trace when it is over.

The SDK gives every tracer and every open span the provider's one multi-processor. Its `on_start` and `on_end` are
shadowed by attributes of that one object, so that every processor is covered, whenever it was or will be registered;
its class, its list of processors, its `shutdown` and its `force_flush` stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from genai_processor.stamper import Stamper
from genai_processor.telemetry import SCOPE, Fault

if TYPE_CHECKING:
    from opentelemetry.context import Context

_MARK: Final = "_genai_processor_front"
_METHODS: Final = ("on_start", "on_end")


class Front:
    """Stands in front of one multi-processor.

    Attributes:
        stamper: Whose verdicts the spans get; None lets every span pass as it is.
    """

    def __init__(self, multi: Any, stamper: Stamper) -> None:
        """Shadow the two methods.

        Args:
            multi: The multi-processor of a provider.
            stamper: What judges and tags.

        Raises:
            AttributeError: It has not the methods, or does not let them be shadowed; it is then as it was.
            TypeError: Likewise.
        """
        self.stamper: Stamper | None = stamper
        self._multi = multi
        self._before = {name: vars(multi)[name] for name in _METHODS if name in vars(multi)}
        self._shadows = {"on_start": self._shadow_of_start(), "on_end": self._shadow_of_end()}
        try:
            for name, shadow in self._shadows.items():
                setattr(multi, name, shadow)
            setattr(multi, _MARK, self)
        except Exception:
            self._restore()
            raise

    def leave(self) -> None:
        """Put back what was there. Under somebody else's wrapper the shadows have to stay, and let everything pass."""
        self.stamper = None
        if all(vars(self._multi).get(name) is shadow for name, shadow in self._shadows.items()):
            self._restore()

    def _restore(self) -> None:
        fields = vars(self._multi)
        for name, shadow in self._shadows.items():
            if fields.get(name) is not shadow:
                continue
            if name in self._before:
                setattr(self._multi, name, self._before[name])
            else:
                delattr(self._multi, name)
        if _MARK in fields:
            delattr(self._multi, _MARK)

    # Where nothing was shadowed before, the class is asked anew each time: somebody may wrap its method later.

    def _shadow_of_start(self) -> Callable[..., None]:
        multi, cls, own = self._multi, type(self._multi), self._before.get("on_start")

        @functools.wraps(cls.on_start)
        def on_start(span: Span, parent_context: Context | None = None) -> None:
            try:
                if (stamper := self.stamper) is not None:
                    stamper.start(span, parent_context)
            finally:
                if own is None:
                    cls.on_start(multi, span, parent_context=parent_context)
                else:
                    own(span, parent_context=parent_context)

        return on_start

    def _shadow_of_end(self) -> Callable[..., None]:
        multi, cls, own = self._multi, type(self._multi), self._before.get("on_end")

        @functools.wraps(cls.on_end)
        def on_end(span: ReadableSpan) -> None:
            forwarded = span
            try:
                if (stamper := self.stamper) is not None:
                    forwarded = stamper.stamp(span)
            finally:
                if own is None:
                    cls.on_end(multi, forwarded)
                else:
                    own(forwarded)

        return on_end


class Beside(SpanProcessor):
    """Judges the spans of a provider before which nobody can stand: into the ledger, events and metrics only.

    Attributes:
        stamper: What judges; None for nobody. An SDK cannot remove a processor.
    """

    def __init__(self, stamper: Stamper) -> None:
        self.stamper: Stamper | None = stamper

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note that a span has begun."""
        if (stamper := self.stamper) is not None:
            stamper.start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Judge a span; the tagged copy has nobody to go to."""
        if (stamper := self.stamper) is not None:
            stamper.stamp(span)

    def leave(self) -> None:
        """Judge no more."""
        self.stamper = None


def attach(provider: Any, stamper: Stamper) -> Front | Beside | None:
    """Let all spans of a provider be judged, and tagged before any of its processors sees them end. Idempotent.

    Args:
        provider: A tracer provider.
        stamper: What judges and tags.

    Returns:
        What stands there now; its `leave` undoes it. None if the provider makes no spans. If the provider is not laid
        out as the SDK's is, this counts and logs a fault, and only judges.
    """
    if getattr(provider, "_disabled", False):
        return None
    try:
        multi = _multi_of(provider)
        front = vars(multi).get(_MARK)
        if not isinstance(front, Front):
            return Front(multi, stamper)
        front.stamper = front.stamper or stamper
        return front
    except (AttributeError, TypeError) as error:
        return _beside(provider, stamper, error)


def _beside(provider: Any, stamper: Stamper, error: Exception) -> Beside | None:
    name = type(provider).__qualname__
    if not callable(getattr(provider, "add_span_processor", None)):
        stamper.faults.count(Fault.ATTACH, f"{name} takes no span processors; its spans are not judged", error)
        return None
    stamper.faults.count(Fault.ATTACH, f"{name} is not laid out as expected; its spans are judged, not tagged", error)
    beside = Beside(stamper)
    provider.add_span_processor(beside)
    return beside


def _multi_of(provider: Any) -> Any:
    """Return the multi-processor to which the provider's tracers hand their spans.

    Raises:
        AttributeError: There is none.
        TypeError: There is one, and the tracers have another.
    """
    multi = provider._active_span_processor
    # The SDK's own method, whatever a subclass makes of it: it may not have been set up yet.
    tracer: Any = TracerProvider.get_tracer(provider, SCOPE)
    if tracer.span_processor is not multi:
        raise TypeError("its tracers do not hand their spans to its multi-processor")
    return multi
