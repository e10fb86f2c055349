# SPDX-License-Identifier: Apache-2.0
"""The span processor: every span that ends is judged, then forwarded to the processors behind it.

    provider.add_span_processor(GenAISpanProcessor(BatchSpanProcessor(exporter)))

Only what stands *behind* it sees the verdict on the span; processors registered beside it get the span as it was.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from genai_processor.assembly import make_stamper
from genai_processor.replays import REPLAYS, is_marked
from genai_processor.settings import Settings
from genai_processor.telemetry import EMITTING, Fault

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider

    from genai_processor.ledger.protocol import Ledger
    from genai_processor.retry.policy import Policy

_log = logging.getLogger(__name__)


class GenAISpanProcessor(SpanProcessor):
    """Answers, on every span that shows a tool call: may it be tried again?

    For each span that ends: read, judge, record, stamp, forward. What it forwards is a copy with the attributes of
    `genai_processor.attributes`; the span that other processors hold stays as it is. It never raises an exception of
    its own or of a processor behind it, does no I/O on the thread that ends a span, and loses no span: whatever goes
    wrong inside is counted in the metric ``genai.processor.faults`` and logged once, and the span goes on, as a call that
    is quarantined if it seems to show one, else as it came.

    Spans that were sampled to be recorded only are judged and kept in the ledger, and go on as they came. Spans that carry
    a verdict already, from another processor of this class or from the instrumentor, are not judged again.
    """

    def __init__(
        self,
        *downstream: SpanProcessor | SpanExporter,
        ledger: Ledger | str | None = None,
        policy: Policy | None = None,
        settings: Settings | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        """Make a processor in front of others.

        Args:
            *downstream: Who gets the spans, in this order. A bare exporter is put behind a `BatchSpanProcessor`. With
                none, spans are judged and recorded, and end here.
            ledger: Where to record verdicts, or the URL of that (``sqlite:///PATH``); by default what `settings` names.
            policy: What the user declares about tools; by default what `settings` says.
            settings: By default those of the environment.
            meter_provider: For the metrics of this package; by default the global one.
            logger_provider: For its log events; by default the global one.

        Raises:
            TypeError: Something in `downstream` is neither a processor nor an exporter.
            LedgerURLError: The ledger is given as a URL that names none.
        """
        self._downstream = tuple(_as_processor(one) for one in downstream)
        # What the SDK's own processors do there, which is nothing, need not be asked for on every span.
        self._starting = tuple(one for one in self._downstream if _does_something(one, "on_start"))
        self._ending = tuple(one for one in self._downstream if _does_something(one, "_on_ending"))
        settings = Settings.from_environ() if settings is None else settings
        self._stamper = make_stamper(
            ledger=ledger,
            policy=policy,
            settings=settings,
            meter_provider=meter_provider,
            logger_provider=logger_provider,
        )
        self._judge = self._stamper.judge
        self._stamps = self._stamper.stamps
        self._running = [True]
        if settings.guard == "enforce" and not _is_guarded():
            _log.warning(
                "GENAI_PROCESSOR_GUARD says enforce, and GenAISpanProcessor alone guards nothing: "
                "call GenAIProcessorInstrumentor().instrument(), which does"
            )
        if not self._downstream:
            _log.warning("GenAISpanProcessor has nothing behind it: it judges and records, and exports no verdicts")

    @property
    def ledger(self) -> Ledger:
        """Where verdicts are recorded."""
        return self._stamper.ledger

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Tell everybody behind that a span has begun, and note it."""
        interrupt: BaseException | None = None
        try:  # `Stamper.start` and `stamp` are written out here: a call less on every span of the application
            if not (EMITTING and EMITTING.here()) and not (REPLAYS.ever and REPLAYS.mark(span)):
                self._judge.on_start(span, parent_context)
        except Exception as error:  # noqa: BLE001 - telemetry must not hurt the application
            self._stamper.not_noted(error)
        finally:
            for one in self._starting:
                try:
                    one.on_start(span, parent_context=parent_context)
                except BaseException as error:  # noqa: BLE001
                    interrupt = self._caught(Fault.DOWNSTREAM_START, one, error, interrupt)
        if interrupt is not None:
            raise interrupt

    def _on_ending(self, span: Span) -> None:
        # An experimental part of the interface, which older SDKs neither have nor call.
        interrupt: BaseException | None = None
        for one in self._ending:  # as `_each`, which takes longer than this does on every span
            try:
                one._on_ending(span)
            except BaseException as error:  # noqa: BLE001
                interrupt = self._caught(Fault.DOWNSTREAM_END, one, error, interrupt)
        if interrupt is not None:
            raise interrupt

    def on_end(self, span: ReadableSpan) -> None:
        """Judge a span and forward it, tagged if it shows a tool call."""
        interrupt: BaseException | None = None
        forwarded = span
        try:  # `Stamper.stamp`, written out as in `on_start`
            replayed = REPLAYS.ever and is_marked(span)
            judgement = None if replayed or (EMITTING and EMITTING.here()) else self._judge.on_end(span)
            if judgement is not None:
                forwarded = self._stamper.tell(span, judgement)
            if self._stamps is not None:
                forwarded = self._stamper.recorded(forwarded, self._stamps)
        except Exception as error:  # noqa: BLE001
            forwarded = self._stamper.not_judged(span, error)
        finally:
            for one in self._downstream:
                try:
                    one.on_end(forwarded)
                except BaseException as error:  # noqa: BLE001
                    interrupt = self._caught(Fault.DOWNSTREAM_END, one, error, interrupt)
        if interrupt is not None:
            raise interrupt

    def shutdown(self) -> None:
        """Shut everybody behind down, once, then give the ledger time for what it has not recorded yet.

        Spans that end later are still judged and forwarded.
        """
        try:
            self._running.pop()  # atomic, and so neither a lock to inherit at a fork nor one to wait for
        except IndexError:
            return
        try:
            self._each(Fault.DOWNSTREAM_SHUTDOWN, "shutdown")
        finally:
            self._stamper.recorder.flush(_SHUTDOWN_SECONDS)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Flush everybody behind, one after the other, then the ledger's recorder, within one time limit.

        Args:
            timeout_millis: For all of them together.

        Returns:
            Whether all were flushed in time.
        """
        # Whatever is no number of milliseconds (a NaN, less than nothing) is no time at all.
        deadline = time.monotonic() + (min(timeout_millis, _LONGEST_MILLIS) / 1000 if timeout_millis > 0 else 0)
        flushed = True
        for one in self._downstream:
            left = int((deadline - time.monotonic()) * 1000)
            if left <= 0:
                return False
            try:
                flushed = one.force_flush(left) is not False and flushed
            except Exception as error:  # noqa: BLE001
                flushed = False
                self._caught(Fault.DOWNSTREAM_FLUSH, one, error)
        # Last: a ledger that hangs must not keep spans from an exporter.
        return self._stamper.recorder.flush(max(0.0, deadline - time.monotonic())) and flushed

    def _each(self, kind: Fault, method: str, *args: Any) -> None:
        interrupt: BaseException | None = None
        for one in self._downstream:
            try:
                getattr(one, method)(*args)
            except BaseException as error:  # noqa: BLE001
                interrupt = self._caught(kind, one, error, interrupt)
        if interrupt is not None:
            raise interrupt

    def _caught(
        self, kind: Fault, one: SpanProcessor, error: BaseException, earlier: BaseException | None = None
    ) -> BaseException | None:
        """Count what a processor behind raised. The others must still be called, and the application spared.

        Returns:
            What to raise once they all have been: the first that is no `Exception`, such as a KeyboardInterrupt.
        """
        if not isinstance(error, Exception):
            return earlier or error
        self._stamper.faults.count(kind, f"{type(one).__name__} raised; the others behind were called", error)
        return earlier


_IDLE = (None, SpanProcessor.on_start, BatchSpanProcessor.on_start, getattr(SpanProcessor, "_on_ending", None))
_SHUTDOWN_SECONDS = 30.0
_LONGEST_MILLIS = 1e9  # an infinity has no integer to hand on


def _is_guarded() -> bool:
    """Whether hooks are in place; without importing them, which takes time."""
    hooks = sys.modules.get("genai_processor.guard.hooks.installing")
    return hooks is not None and hooks.active() is not None


def _as_processor(one: object) -> SpanProcessor:
    if isinstance(one, SpanProcessor):
        return one
    if isinstance(one, SpanExporter):
        return BatchSpanProcessor(one)
    raise TypeError(f"{one!r} is neither a SpanProcessor nor a SpanExporter")


def _does_something(one: SpanProcessor, method: str) -> bool:
    return method in getattr(one, "__dict__", ()) or getattr(type(one), method, None) not in _IDLE
