# SPDX-License-Identifier: Apache-2.0
"""What happens to one ended span, whoever forwards it: judge, record, tell, tag.

`GenAISpanProcessor` and the instrumentor stand at different places and share this one path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from genai_processor import attributes as names
from genai_processor.announcing import count, event_of, labels_of
from genai_processor.guard.bindings import BOUND, Bound
from genai_processor.judges import Beginnings, Judge, Stamps
from genai_processor.ledger.memory import MemoryLedger
from genai_processor.recording import Recorder, recorder_for
from genai_processor.replays import REPLAYS, is_marked
from genai_processor.retry.came_back import CameBack
from genai_processor.retry.judgement import judgement_of
from genai_processor.retry.verdict import Effect, Reason
from genai_processor.settings import Settings
from genai_processor.sightings import returned, sighting_of
from genai_processor.tagging import tagged_copy
from genai_processor.tags import SUCCESS, keyed, tags_of
from genai_processor.telemetry import EMITTING, Events, Fault, Faults, totals_of

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from genai_processor.ledger.protocol import Ledger
    from genai_processor.retry.judgement import Judgement

_MAX_ENTRIES: Final = 10_000


class Stamper:
    """Judges, records, tells, and returns the span to forward."""

    def __init__(
        self,
        judge: Judge,
        *,
        ledger: Ledger | None = None,
        settings: Settings | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        stamps: Stamps | None = None,
    ) -> None:
        """Put the parts together. Opens nothing and starts nothing.

        Args:
            judge: Gives the verdicts.
            ledger: Keeps them; by default one in the memory of this process.
            settings: By default those of the environment.
            meter_provider: For its metrics; by default the global one.
            logger_provider: For its events; by default the global one.
            stamps: Makes what is written on the spans of models; by default nothing is.
        """
        settings = Settings.from_environ() if settings is None else settings
        totals = totals_of(meter_provider, offer=settings.metrics)
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self.faults = Faults(totals)
        self.recorder: Recorder = recorder_for(self.ledger, self.faults)
        self.judge = judge if stamps is None else Beginnings(judge, stamps)
        self.totals = totals
        self.stamps = stamps
        self._events = Events(logger_provider) if settings.events else None
        self._stamp_digests = settings.stamp_digests
        self._digest_key = settings.digest_key
        self._entries: dict[int, str] = {}
        totals.watch(self.ledger)

    def start(self, span: Span, parent_context: Context | None) -> None:
        """Note that a span has begun. Raises no `Exception`."""
        try:
            if not (EMITTING and EMITTING.here()) and not (REPLAYS.ever and REPLAYS.mark(span)):
                self.judge.on_start(span, parent_context)
        except Exception as error:  # noqa: BLE001 - telemetry must not hurt the application
            self.not_noted(error)

    def stamp(self, span: ReadableSpan) -> ReadableSpan:
        """Judge an ended span. Raises no `Exception`; what is no `Exception` passes, and the caller forwards the span.

        Args:
            span: Any ended span. It is left as it is.

        Returns:
            A tagged copy of a sampled span that shows a tool call, else the span itself: also if it carries a verdict
            already, or anything goes wrong.
        """
        try:
            replayed = REPLAYS.ever and is_marked(span)
            judgement = None if replayed or (EMITTING and EMITTING.here()) else self.judge.on_end(span)
        except Exception as error:  # noqa: BLE001
            return self.not_judged(span, error)
        forwarded = span if judgement is None else self.tell(span, judgement)
        return forwarded if self.stamps is None else self.recorded(forwarded, self.stamps)

    # -- the steps of these, for whoever cannot afford the call on every span --------------------------------------

    def not_noted(self, error: Exception) -> None:
        """Count that the judge could not note the beginning of a span."""
        self.faults.count(Fault.WITNESS, "The beginning of a span could not be noted", error)

    def not_judged(self, span: ReadableSpan, error: Exception) -> ReadableSpan:
        """Count that the judge could not judge a span; returns it, quarantined if it seems to show a call."""
        self.faults.count(Fault.WITNESS, "A span could not be judged; a call that it shows is quarantined", error)
        judgement = self._lost(span)
        return span if judgement is None else self.tell(span, judgement)

    def recorded(self, span: ReadableSpan, stamps: Stamps) -> ReadableSpan:
        """Return a span with what a replay has to know of it, if it shows a model's response. Raises no `Exception`."""
        try:
            context = span._context
            if context is None or not context[3] & 1:  # it is not exported, so nothing may be said to begin with it
                return span
            tags = stamps.of(span)
            return span if tags is None else self._tagged(span, tags)
        except Exception as error:  # noqa: BLE001
            self.faults.count(Fault.REPLAY, "A model's span could not be stamped for a replay; it goes on without", error)
            return span

    def tell(self, span: ReadableSpan, judgement: CameBack | Judgement) -> ReadableSpan:
        """Record a judgement and tell of it; returns the span to forward. Raises no `Exception`."""
        try:
            if BOUND and span._context is not None and (bound := BOUND.pop(span._context.span_id, None)) is not None:
                return self._tell_of_guarded(span, judgement, bound)
            if isinstance(judgement, CameBack):
                return self._tell_of_return(span, judgement)
            late = judgement.belies
            while late is not None:
                self._tell(span, late)
                late = late.belies
            return self._tell(span, judgement)
        except Exception as error:  # noqa: BLE001
            self.faults.count(Fault.TAG, "A span could not be tagged; it is forwarded as it came", error)
            return span

    def _lost(self, span: ReadableSpan) -> Judgement | None:
        try:
            return self.judge.lost(span)
        except Exception as error:  # noqa: BLE001
            self.faults.count(Fault.WITNESS, "A span that could not be judged could not be noted either", error)
            return None

    def _tell(self, span: ReadableSpan, judgement: Judgement) -> ReadableSpan:
        verdict = judgement.verdict
        if verdict.reason is _SUCCEEDED and judgement.attempt is None and not (judgement.views or judgement.inner):
            return self._tell_of_success(span, judgement)
        count(self.totals, judgement)
        entry_id = None
        then = None
        if self._events is not None and (verdict.quarantined or judgement.late):
            then = event_of(self._events, self.faults, judgement, span)
        if verdict.effect is not Effect.READ_ONLY:  # such a call stands in nobody's way, and nobody has to settle it
            entry_id = self.recorder.record(sighting_of(judgement, self._entry_of(judgement)), then)
            self._remember(judgement, entry_id)
        elif then is not None:
            then(None)
        context = span._context
        flags = context[3] if context is not None else 0  # a span context is a tuple, and its properties are slow
        if judgement.late or not flags & 1:
            return span
        return self._tagged(span, self._with_action(tags_of(judgement, entry_id), judgement))

    def _tell_of_return(self, span: ReadableSpan, call: CameBack) -> ReadableSpan:
        """As `_tell`, for a call that was compared with no other."""
        self.totals.add(names.METRIC_VERDICTS, _SUCCESS_LABELS)
        if call.effect is not _READ_ONLY:
            self.recorder.record_return(returned(call))
        return self._tagged(span, SUCCESS)

    def _tell_of_guarded(self, span: ReadableSpan, judgement: CameBack | Judgement, bound: Bound) -> ReadableSpan:
        """As `_tell`, for a call in front of which the guard stood: it has made the entry, and tells of its end.

        Of a span the ledger needs to hear only that the call may have committed.
        """
        entry_id = bound.entry_id if bound.claimed or not bound.ran else None
        found = judgement_of(judgement, span._name) if isinstance(judgement, CameBack) else judgement
        late = found.belies
        while late is not None:
            self._tell(span, late)
            late = late.belies
        count(self.totals, found)
        if found.verdict.quarantined:
            bound.span_failed = True
            then = None if self._events is None else event_of(self._events, self.faults, found, span)
            if then is not None and entry_id is not None:
                then(entry_id)
                then = None
            if bound.ran and found.verdict.effect is not _READ_ONLY:
                self.recorder.record(sighting_of(found, entry_id), then)
            elif then is not None:
                then(None)
        tags = {
            **tags_of(found, entry_id),
            names.GENAI_GUARD_MODE: bound.mode,
            names.GENAI_GUARD_OUTCOME: bound.outcome.value,
        }
        return self._tagged(span, self._with_action(tags, found))

    def _tell_of_success(self, span: ReadableSpan, judgement: Judgement) -> ReadableSpan:
        """As `_tell`, for a call that came back and repeats no other: only what applies."""
        self.totals.add(names.METRIC_VERDICTS, _SUCCESS_LABELS)
        if judgement.verdict.effect is not _READ_ONLY:
            self.recorder.record(sighting_of(judgement))
        return self._tagged(span, self._with_action(SUCCESS, judgement))

    def _with_action(self, tags: dict[str, Any], judgement: Judgement) -> dict[str, Any]:
        """Add the digest of the arguments, if it is known, and the user wants it on spans."""
        if not self._stamp_digests or judgement.action is None:
            return tags
        return {**tags, names.GENAI_RETRY_ACTION: keyed(judgement.action, self._digest_key)}

    def _tagged(self, span: ReadableSpan, tags: dict[str, Any]) -> ReadableSpan:
        """A tagged copy of a span that is going to be exported."""
        context = span._context
        if context is None or not context[3] & 1:  # the flags; a span context is a tuple, and its properties are slow
            return span
        tagged = tagged_copy(span, tags)
        if tagged is None:
            self.faults.count(Fault.TAG, f"A {type(span).__name__} cannot be copied; it is forwarded as it came")
            return span
        return tagged

    def _entry_of(self, judgement: Judgement) -> str | None:
        """The entry that an earlier judgement of the same call made: of an inner span, or of the call itself if late."""
        if not judgement.views and not judgement.late:
            return None
        found = (self._entries.get(span) for span in (judgement.span_id, *judgement.views))
        return next((entry for entry in found if entry is not None), None)

    def _remember(self, judgement: Judgement, entry_id: str | None) -> None:
        """Keep the entry of a call that may yet be shown by another span, or belied by a late one."""
        if entry_id is None or not judgement.inner:
            return
        self._entries[judgement.span_id] = entry_id
        while len(self._entries) > _MAX_ENTRIES:
            try:
                del self._entries[next(iter(self._entries))]
            except (KeyError, StopIteration, RuntimeError):  # another thread was faster
                return


_SUCCEEDED: Final = Reason.SUCCEEDED
_READ_ONLY: Final = Effect.READ_ONLY
_SUCCESS_LABELS: Final = labels_of(*SUCCESS.values())
