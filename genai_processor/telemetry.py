# SPDX-License-Identifier: Apache-2.0
"""What the processor says about itself: metrics, log events, and faults that must not reach the application.

Metrics are observable: the thread that ends a span adds to plain integers, and whoever collects reads them. Totals
belong to a meter provider, not to a processor, so that processors come and go without a counter ever falling.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any, Final, Protocol

from opentelemetry import _logs, metrics, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import CallbackOptions, Observation

from genai_processor import attributes as names
from genai_processor.errors import LedgerError
from genai_processor.forks import call_in_child, guard_with_lock

_log = logging.getLogger(__name__)

SCOPE: Final = "genai_processor"
"""Name of the instrumentation scope of the metrics and events."""

Labels = tuple[tuple[str, str | bool], ...]


class Fault(StrEnum):
    """What can go wrong without anybody but the log and a counter noticing: values of `genai.processor.fault`."""

    WITNESS = "witness"
    """A span could not be judged; a call that it seems to show is quarantined."""
    LEDGER = "ledger"
    """A verdict could not be recorded."""
    LEDGER_OVERFLOW = "ledger_overflow"
    """A verdict was not recorded, because the ledger is slower than the spans."""
    TAG = "tag"
    """A span is of a make that cannot be copied; it went on as it came."""
    EVENT = "event"
    """A log event could not be emitted."""
    DOWNSTREAM_START = "downstream_on_start"
    """A processor behind this one raised when a span began."""
    DOWNSTREAM_END = "downstream_on_end"
    """A processor behind this one raised when a span ended; the others got the span."""
    DOWNSTREAM_FLUSH = "downstream_force_flush"
    """A processor behind this one raised when it was flushed."""
    DOWNSTREAM_SHUTDOWN = "downstream_shutdown"
    """A processor behind this one raised when it was shut down."""
    REPLAY = "replay"
    """A model's span could not be stamped for a replay; it went on without."""
    GUARD = "guard"
    """The guard could not ask, or tell, the ledger or the user's store of results."""
    ATTACH = "attach"
    """A tracer provider could not be given the processor."""


_COUNTERS: Final = (
    (names.METRIC_VERDICTS, "{span}", "Tool spans judged, by verdict and reason."),
    (names.METRIC_DUPLICATES, "{execution}", "Executions of a tool that repeat another one."),
    (names.METRIC_REBILLED_TOKENS, "{token}", "Input tokens of inferences that proposed a duplicated action again."),
    (names.METRIC_GUARD_CALLS, "{call}", "Tool calls that came to the guard, by what it did with them."),
    (names.METRIC_FAULTS, "{fault}", "What went wrong inside the processor or behind it."),
)


class Counting(Protocol):
    """What the gauge needs of a ledger."""

    def counts(self) -> Mapping[Any, int]:
        """Return how many entries are held in each state."""
        ...


_MOST_WAITING: Final = 1_000


def _itself(ledger: Counting) -> Counting:
    return ledger


class Totals:
    """Plain integers that only grow, by metric and labels, and the gauges of the ledgers.

    Safe to use from every thread, from a finalizer that runs inside it, and in a forked child.
    """

    _lock: threading.RLock

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, int]] = {name: {} for name, *_ in _COUNTERS}
        self._waiting: deque[tuple[str, Labels, int]] = deque()
        self._ledgers: list[Callable[[], Counting | None]] = []
        guard_with_lock(self)

    def add(self, metric: str, labels: Labels, amount: int = 1) -> None:
        """Add to a total.

        Args:
            metric: The metric's name.
            labels: Pairs of an attribute name and a value; the combinations must be few.
            amount: How much, at least 0.
        """
        if not self._lock.acquire(blocking=len(self._waiting) > _MOST_WAITING):
            self._waiting.append((metric, labels, amount))  # nobody waits for a thread that was interrupted here
            return
        try:
            counts = self._counts[metric]
            counts[labels] = counts.get(labels, 0) + amount
            if self._waiting:
                self._catch_up()
        finally:
            self._lock.release()

    def _catch_up(self) -> None:
        for _ in range(len(self._waiting)):  # those that are here now: others may add more meanwhile
            metric, labels, amount = self._waiting.popleft()
            counts = self._counts[metric]
            counts[labels] = counts.get(labels, 0) + amount

    def read(self, metric: str) -> dict[Labels, int]:
        """Return a metric's totals by labels; {} if nothing was added yet."""
        with self._lock:
            self._catch_up()
            return dict(self._counts[metric])

    def watch(self, ledger: Counting) -> None:
        """Let a ledger feed the gauge, for as long as the ledger lives. Watching it twice counts it once."""
        try:
            found: Callable[[], Counting | None] = weakref.ref(ledger)
        except TypeError:  # its class has no room for weak references
            found = partial(_itself, ledger)
        with self._lock:
            alive = [known for known in self._ledgers if known() is not None]
            self._ledgers = alive if any(known() is ledger for known in alive) else [*alive, found]

    def entries(self) -> dict[str, int]:
        """Return how many ledger entries there are in each state. Asks each ledger, so no lock is held."""
        sums: Counter[str] = Counter()
        for find in self._ledgers:
            if (ledger := find()) is not None:
                # One ledger that cannot answer must not hide the others.
                with suppress(Exception):
                    sums.update({str(state): count for state, count in ledger.counts().items()})
        return dict(sums)

    def offer(self, meter: metrics.Meter) -> None:
        """Create the instruments that read these totals."""
        for name, unit, description in _COUNTERS:
            meter.create_observable_counter(name, [self._callback(name)], unit, description)
        meter.create_observable_gauge(
            names.METRIC_LEDGER_ENTRIES, [self._observe_entries], "{entry}", "Ledger entries by state."
        )

    def _callback(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(count, dict(labels)) for labels, count in self.read(name).items()]

        return observe

    def _observe_entries(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count, {names.GENAI_LEDGER_STATE: state}) for state, count in self.entries().items()]


_global_totals: Final = Totals()
_totals: Final[weakref.WeakKeyDictionary[metrics.MeterProvider, Totals]] = weakref.WeakKeyDictionary()
_offered: Final[weakref.WeakSet[Totals]] = weakref.WeakSet()


class _Setup:
    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)


_setup: Final = _Setup()


def totals_of(meter_provider: metrics.MeterProvider | None, *, offer: bool) -> Totals:
    """Return the totals of a meter provider.

    Args:
        meter_provider: The provider; None for the global one, also if it is set only later.
        offer: Create the instruments, unless that has been done.

    Returns:
        The same object each time for the same provider.
    """
    with _setup._lock:
        if meter_provider is None or meter_provider is metrics.get_meter_provider():
            totals = _global_totals
        else:
            totals = _totals.setdefault(meter_provider, Totals())
        if not offer or totals in _offered:
            return totals
        _offered.add(totals)
    totals.offer(metrics.get_meter(SCOPE, package_version(), meter_provider))
    return totals


def package_version() -> str:
    """Return the installed version of this package, or "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # a third of what importing this module would cost

    try:
        return version("otel-genai-processor")
    except PackageNotFoundError:
        return ""


class Faults:
    """Counts what went wrong, and logs each kind once."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._logged: dict[Fault, object] = {}

    def count(self, kind: Fault, what: str, error: BaseException | None = None) -> None:
        """Note a fault. Never raises.

        Args:
            kind: What went wrong.
            what: A sentence for the log: what happened, and what became of the span.
            error: The exception, if there was one.
        """
        # Whatever is wrong with the log, or with the stack, the span has to go on.
        with suppress(Exception):
            self._totals.add(names.METRIC_FAULTS, ((names.GENAI_PROCESSOR_FAULT, kind.value),))
            token = object()
            if self._logged.setdefault(kind, token) is token:
                known = isinstance(error, LedgerError)  # says what is wrong and, where there is one, the remedy
                said = f"{what}: {' '.join(str(error).split())}" if known else what
                _log.warning(
                    "%s (logged once; see the metric %s)", said, names.METRIC_FAULTS, exc_info=None if known else error
                )
                if known:
                    _log.debug("Where that came from", exc_info=error)


class _Emitting(set[int]):
    """The threads that are inside an event of ours: a span that ends there is a log exporter's own.

    Asked on every span, where it is empty nearly always: that is cheaper than to read a `threading.local`.
    """

    def here(self) -> bool:
        """Whether this thread is one."""
        return threading.get_ident() in self

    def renew(self) -> None:
        """Forget the other threads, which a forked child does not have."""
        self.intersection_update({threading.get_ident()})


EMITTING: Final = _Emitting()
call_in_child(EMITTING.renew)


class Events:
    """Emits log events through the Logs API."""

    def __init__(self, logger_provider: _logs.LoggerProvider | None = None) -> None:
        """Get a logger, from the global provider by default, which may also be set later."""
        self._logger = _logs.get_logger(SCOPE, package_version(), logger_provider)

    def quarantined(
        self, span: trace.SpanContext, labels: dict[str, Any], at_ns: int, around: Context | None = None
    ) -> None:
        """Say that a tool call may have committed.

        Args:
            span: The span that shows the call, to which the event belongs; without ids if it has none.
            labels: The event's attributes.
            at_ns: When it happened, in nanoseconds since the epoch.
            around: The context in which it did; by default that of this thread.

        Raises:
            Exception: Whatever a log processor raises.
        """
        thread = threading.get_ident()
        context = trace.set_span_in_context(trace.NonRecordingSpan(span), around)  # also if it has no ids: no other one
        EMITTING.add(thread)
        token = None if around is None else attach(around)
        try:
            self._logger.emit(
                timestamp=at_ns,
                context=context,
                severity_number=_logs.SeverityNumber.WARN,
                severity_text="WARN",
                body="A tool call may have committed; do not try it again.",
                attributes=labels,
                event_name=names.EVENT_QUARANTINED,
            )
        finally:
            if token is not None:
                detach(token)
            EMITTING.discard(thread)
