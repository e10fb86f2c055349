# SPDX-License-Identifier: Apache-2.0
"""What happens to one ended span, whoever forwards it: judge, record, tell, tag.

`GenAISpanProcessor` and the instrumentor stand at different places and share this one path.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from opentelemetry.trace import SpanContext, TraceFlags

from genai_processor import attributes as names
from genai_processor.ledger.entries import State
from genai_processor.ledger.memory import MemoryLedger
from genai_processor.ledger.requests import Sighting
from genai_processor.recording import Recorder, recorder_for
from genai_processor.retry.came_back import CameBack
from genai_processor.retry.verdict import Effect, Execution, Reason, RetryVerdict
from genai_processor.settings import Settings
from genai_processor.tagging import tagged_copy
from genai_processor.telemetry import EMITTING, Events, Fault, Faults, Labels, totals_of

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from genai_processor.ledger.protocol import Ledger
    from genai_processor.retry.judgement import Judgement

_MAX_ENTRIES: Final = 10_000

MAX_TEXT: Final = 256
"""How long a piece of evidence or a call id may be on a span. Evidence is cut; an id is left out: half is none."""


class Judge(Protocol):
    """Keeps what spans have shown so far, and judges those that show a tool call. Does no I/O."""

    def on_start(self, span: Span, parent_context: Context | None) -> None:
        """Note that a span has begun."""
        ...

    def on_end(self, span: ReadableSpan) -> CameBack | Judgement | None:
        """Judge an ended span.

        Returns:
            None for a span that shows no tool call, or carries a verdict already. The call itself if it came back and
            repeats no other. With `late` set, a judgement about another span, one that has
            ended before.
        """
        ...

    def lost(self, span: ReadableSpan) -> Judgement | None:
        """Take note of a span for which `on_end` has raised; what it showed is unknown from now on.

        Returns:
            A judgement that quarantines the call which the span seems to show, or None if it seems to show none.
        """
        ...


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
    ) -> None:
        """Put the parts together. Opens nothing and starts nothing.

        Args:
            judge: Gives the verdicts.
            ledger: Keeps them; by default one in the memory of this process.
            settings: By default those of the environment.
            meter_provider: For its metrics; by default the global one.
            logger_provider: For its events; by default the global one.
        """
        settings = Settings.from_environ() if settings is None else settings
        totals = totals_of(meter_provider, offer=settings.metrics)
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self.faults = Faults(totals)
        self.recorder: Recorder = recorder_for(self.ledger, self.faults)
        self.judge = judge
        self._totals = totals
        self._events = Events(logger_provider) if settings.events else None
        self._stamp_digests = settings.stamp_digests
        self._digest_key = settings.digest_key
        self._entries: dict[int, str] = {}
        totals.watch(self.ledger)

    def start(self, span: Span, parent_context: Context | None) -> None:
        """Note that a span has begun. Raises no `Exception`."""
        try:
            if not (EMITTING and EMITTING.here()):
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
            judgement = None if EMITTING and EMITTING.here() else self.judge.on_end(span)
        except Exception as error:  # noqa: BLE001
            return self.not_judged(span, error)
        return span if judgement is None else self.tell(span, judgement)

    # -- the steps of these two, for whoever cannot afford the call on every span --------------------------------------

    def not_noted(self, error: Exception) -> None:
        """Count that the judge could not note the beginning of a span."""
        self.faults.count(Fault.WITNESS, "The beginning of a span could not be noted", error)

    def not_judged(self, span: ReadableSpan, error: Exception) -> ReadableSpan:
        """Count that the judge could not judge a span; returns it, quarantined if it seems to show a call."""
        self.faults.count(Fault.WITNESS, "A span could not be judged; a call that it shows is quarantined", error)
        judgement = self._lost(span)
        return span if judgement is None else self.tell(span, judgement)

    def tell(self, span: ReadableSpan, judgement: CameBack | Judgement) -> ReadableSpan:
        """Record a judgement and tell of it; returns the span to forward. Raises no `Exception`."""
        try:
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
        self._count(judgement)
        entry_id = None
        if verdict.effect is not Effect.READ_ONLY:  # such a call stands in nobody's way, and nobody has to settle it
            entry_id = self.recorder.record(sighting_of(judgement, self._entry_of(judgement)))
            self._remember(judgement, entry_id)
        context = span._context
        flags = context[3] if context is not None else 0  # a span context is a tuple, and its properties are slow
        if self._events is not None and (verdict.quarantined or judgement.late):
            self._emit(self._events, judgement, entry_id, span)
        if judgement.late or not flags & 1:
            return span
        return self._tagged(span, self._tags(judgement, entry_id))

    def _tell_of_return(self, span: ReadableSpan, call: CameBack) -> ReadableSpan:
        """As `_tell`, for a call that was compared with no other."""
        self._totals.add(names.METRIC_VERDICTS, _SUCCESS_LABELS)
        if call.effect is not _READ_ONLY:
            self.recorder.told(call)
        return self._tagged(span, _SUCCESS_TAGS)

    def _tell_of_success(self, span: ReadableSpan, judgement: Judgement) -> ReadableSpan:
        """As `_tell`, for a call that came back and repeats no other: only what applies."""
        self._totals.add(names.METRIC_VERDICTS, _SUCCESS_LABELS)
        if judgement.verdict.effect is not _READ_ONLY:
            self.recorder.record(sighting_of(judgement))
        tags = _SUCCESS_TAGS
        if self._stamp_digests and judgement.action is not None:
            tags = {**tags, names.GENAI_RETRY_ACTION: keyed(judgement.action, self._digest_key)}
        return self._tagged(span, tags)

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

    def _count(self, judgement: Judgement) -> None:
        verdict = judgement.verdict
        if judgement.late:
            return  # its span has been counted already
        self._totals.add(names.METRIC_VERDICTS, _labels(verdict.verdict._value_, verdict.reason._value_))
        if judgement.duplicate_of is not None or judgement.suspected:
            self._totals.add(names.METRIC_DUPLICATES, ((names.GENAI_RETRY_SUSPECTED, judgement.suspected),))
        if judgement.rebilled_tokens:
            self._totals.add(names.METRIC_REBILLED_TOKENS, (), judgement.rebilled_tokens)

    def _emit(self, events: Events, judgement: Judgement, entry_id: str | None, span: ReadableSpan) -> None:
        verdict = judgement.verdict
        labels: dict[str, Any] = {
            names.GENAI_RETRY_VERDICT: verdict.verdict._value_,
            names.GENAI_RETRY_REASON: verdict.reason._value_,
            names.GENAI_RETRY_LATE: judgement.late,
        }
        if verdict.tool is not None:
            labels[names.GEN_AI_TOOL_NAME] = _clean(verdict.tool)
        if entry_id is not None:
            labels[names.GENAI_RETRY_ENTRY_ID] = entry_id
        try:
            events.quarantined(_span_of(judgement, span), labels, None if judgement.late else span._end_time)
        except Exception as error:  # noqa: BLE001
            self.faults.count(Fault.EVENT, "A log event could not be emitted", error)

    def _tags(self, judgement: Judgement, entry_id: str | None) -> dict[str, Any]:
        verdict = judgement.verdict
        tags: dict[str, Any] = {
            names.GENAI_RETRY_VERDICT: verdict.verdict._value_,
            names.GENAI_RETRY_REASON: verdict.reason._value_,
            names.GENAI_RETRY_EFFECT: verdict.effect._value_,
        }
        if verdict.reason is not Reason.SUCCEEDED:  # of a call that came back, nothing else was looked into
            tags[names.GENAI_RETRY_EXECUTION] = verdict.execution._value_
            tags[names.GENAI_RETRY_ARGUMENTS_STATE] = verdict.arguments_state._value_
            tags[names.GENAI_RETRY_CALL_ID_SOURCE] = verdict.call_id_source._value_
            if verdict.evidence:
                tags[names.GENAI_RETRY_EVIDENCE] = tuple([_clean(piece) for piece in verdict.evidence])
            if not judgement.has_id and verdict.call_id is not None and _is_whole(verdict.call_id):
                tags[names.GENAI_RETRY_CALL_ID] = verdict.call_id
        if judgement.duplicate_of is not None:
            tags[names.GENAI_RETRY_DUPLICATE_OF] = judgement.duplicate_of
        if judgement.attempt is not None:
            tags[names.GENAI_RETRY_ATTEMPT] = judgement.attempt
        if entry_id is not None:
            tags[names.GENAI_RETRY_ENTRY_ID] = entry_id
        if self._stamp_digests and judgement.action is not None:
            tags[names.GENAI_RETRY_ACTION] = keyed(judgement.action, self._digest_key)
        return tags


def _span_of(judgement: Judgement, span: ReadableSpan) -> SpanContext:
    """The span that a judgement is about, which is another one if it is late."""
    own = span._context
    if own is not None and own[1] == judgement.span_id:
        return own
    flags = TraceFlags(own[3] if own is not None else 0)
    return SpanContext(judgement.trace_id, judgement.span_id, is_remote=False, trace_flags=flags)


@lru_cache(maxsize=64)
def _labels(verdict: str, reason: str) -> Labels:
    return (names.GENAI_RETRY_VERDICT, verdict), (names.GENAI_RETRY_REASON, reason)


_SUCCEEDED: Final = Reason.SUCCEEDED
_READ_ONLY: Final = Effect.READ_ONLY
_SUCCESS_LABELS: Final = _labels(RetryVerdict.NO_RETRY_NEEDED.value, Reason.SUCCEEDED.value)
_SUCCESS_TAGS: Final = dict(_SUCCESS_LABELS)


def sighting_of(judgement: Judgement, entry_id: str | None = None) -> Sighting:
    """Say to a ledger what a judgement says.

    A failed call that may be tried again under its call id is quarantined too: under any other id it may not.

    Args:
        judgement: What was found.
        entry_id: The entry that an inner span of the same call, or an earlier judgement of it, made.
    """
    verdict = judgement.verdict
    return Sighting(
        judgement.scope,
        verdict.tool or judgement.name or "(unnamed)",
        _STATES.get(verdict.reason, State.QUARANTINED),
        verdict.call_id if judgement.id_usable else None,
        judgement.action,
        None,
        entry_id,
        verdict.effect._value_,
        verdict.reason._value_,
        verdict.execution is Execution.STARTED,
        f"{judgement.trace_id:032x}" if judgement.trace_id else None,
        f"{judgement.span_id:016x}" if judgement.span_id else None,
    )


_STATES: Final = {
    Reason.SUCCEEDED: State.COMPLETED,
    Reason.PAUSED: State.PAUSED,
    Reason.REJECTED_BEFORE_EXECUTION: State.NOT_STARTED,
    Reason.MALFORMED_ARGUMENTS: State.NOT_STARTED,
    Reason.UNKNOWN_TOOL: State.NOT_STARTED,
}
"""What each reason means to a ledger; every other one quarantines."""


def keyed(digest: str, key: str | None) -> str:
    """Key a digest, so that arguments which are easy to guess cannot be found by trying.

    Args:
        digest: The digest, as text.
        key: The secret; None leaves the digest as it is.

    Returns:
        The digest, or its HMAC-SHA256 as hex.
    """
    return (
        digest
        if key is None
        else hmac.new(key.encode(errors="surrogateescape"), digest.encode(), hashlib.sha256).hexdigest()
    )


def _clean(text: str) -> str:
    """Cut a text, and replace what no exporter can encode: a lone surrogate loses it the whole batch."""
    if text.isascii() and len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT].encode("utf-8", "replace").decode()


def _is_whole(call_id: str) -> bool:
    return _clean(call_id) == call_id
