# SPDX-License-Identifier: Apache-2.0
"""Which calls failed lately with which exception: what `is_safe_to_retry` asks."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from genai_processor.forks import guard_with_lock
from genai_processor.retry.nodes import Node
from genai_processor.retry.raised import MAX_CHAIN, Raised, caught_in, described, names_of, recorded_in, unless_caught
from genai_processor.retry.verdict import Effect, Reason, RetryVerdict, Verdict

_MAX_RUNS: Final = 2_000
_MAX_CALLS: Final = 1_000
_MAX_RAISED: Final = 100
_MAX_FORGOTTEN: Final = 16  # at a time
_ATTEMPTS: Final = 10
_BITS: Final = (1 << 25) - 1  # four MiB, allocated with the first trace


class _Call(NamedTuple):
    verdict: Verdict
    raised: tuple[Raised, ...]


_SUCCEEDED: Final = Verdict(RetryVerdict.NO_RETRY_NEEDED, Reason.SUCCEEDED)
_MILD: Final = frozenset({RetryVerdict.RETRYABLE_PRE_EXECUTION, RetryVerdict.RETRYABLE_READ_ONLY})
_READ_ONLY: Final = Effect.READ_ONLY


class _SeenTraces:
    """A Bloom filter like `SeenNames`, over trace ids: they are random already, so nothing has to be mixed or hashed."""

    __slots__ = ("_filter",)

    def __init__(self) -> None:
        self._filter: bytearray | None = None

    def add(self, trace_id: int) -> None:
        """Remember a trace. Not to be called by two threads at a time."""
        bits = self._filter
        if bits is None:
            bits = self._filter = bytearray((_BITS + 1) // 8)
        one, two, three = trace_id & _BITS, trace_id >> 28 & _BITS, trace_id >> 56 & _BITS
        bits[one >> 3] |= 1 << (one & 7)
        bits[two >> 3] |= 1 << (two & 7)
        bits[three >> 3] |= 1 << (three & 7)

    def __contains__(self, trace_id: int) -> bool:
        """Whether a trace may have been added."""
        bits = self._filter
        probes = (trace_id & _BITS, trace_id >> 28 & _BITS, trace_id >> 56 & _BITS)
        return bits is not None and all(bits[at >> 3] >> (at & 7) & 1 for at in probes)


class RecentRuns:
    """The verdicts of the calls of recent traces. Bounded; what is forgotten is unknown, so not safe.

    That something of a trace was forgotten is itself kept in fixed memory, which errs on the safe side as it fills: after
    the first million, one new trace in a thousand is taken for unknown, after ten million every fifth.
    """

    _lock: threading.RLock

    def __init__(self) -> None:
        guard_with_lock(self)
        self._runs: OrderedDict[int, dict[int, _Call]] = OrderedDict()
        self._succeeded: OrderedDict[int, None] = OrderedDict()
        """Apart from the runs, and written without the lock: no call that is noted meanwhile can overwrite it."""
        self._unknown = _SeenTraces()
        """Traces that were evicted, or of which something was lost."""
        self._open_calls: list[weakref.WeakMethod[Callable[[], Iterable[tuple[int, str]]]]] = []

    @classmethod
    def of_process(cls) -> RecentRuns:
        """The one that every witness of this process writes to."""
        return _OF_PROCESS

    def watch(self, open_calls: Callable[[], Iterable[tuple[int, str]]]) -> None:
        """Ask for calls that are still open, whenever somebody asks for verdicts.

        Args:
            open_calls: A bound method, which is not kept alive. It returns trace id and tool ("" if unknown) of each tool
                span that is open and not known to be read-only. A call has to stay among them until `note`, `succeeded` or
                `lost` has returned for it, or it is seen nowhere in between.
        """
        with self._lock:
            self._open_calls = [known for known in self._open_calls if known() is not None]
            self._open_calls.append(weakref.WeakMethod(open_calls))

    def lost(self, trace_id: int) -> None:
        """Remember that something of a trace could not be judged: its run is unknown from now on."""
        with self._lock:
            self._unknown.add(trace_id)

    def note(self, node: Node, trace_id: int, span_id: int, verdict: Verdict, handled: BaseException | None) -> None:
        """Remember the verdict on a call; it replaces those on inner spans that show the same call.

        A call without anything above it is the whole of its trace, which then tells nothing of the run that it belongs to.
        """
        views = node.views()
        recorded: list[Raised] = []
        caught: list[Raised] = []
        met: set[str | None] = set()
        if handled is not None or any(view.span.events for view in views):
            recorded = list(recorded_in(node))
            caught, met = caught_in(names_of(node), handled)
        shown = [int(view.span.span_id, 16) for view in views[1:] if view.span.span_id]
        with self._lock:
            run = self._runs.setdefault(trace_id, {})
            self._runs.move_to_end(trace_id)
            if len(self._runs) > _MAX_RUNS:
                self._forget(self._runs, _MAX_FORGOTTEN)
            if met:
                met -= {have.mark for call in run.values() for have in call.raised}
            raised = dict.fromkeys((*unless_caught(recorded, caught, met), *caught)) if recorded or caught else {}
            for view in (*shown, span_id):
                replaced = run.pop(view, None)
                if replaced is not None:
                    raised.update(dict.fromkeys(replaced.raised))
                if replaced is not None and view == span_id and replaced.verdict.verdict not in _MILD:
                    verdict = replaced.verdict  # of another processor, with another policy: the worse one counts
            if len(run) < _MAX_CALLS:
                run[span_id] = _Call(verdict, tuple(itertools.islice(raised, _MAX_RAISED)) if raised else ())
            if len(run) >= _MAX_CALLS or len(raised) > _MAX_RAISED or node.span.parent_span_id is None or not trace_id:
                self._unknown.add(trace_id)

    def revise(self, trace_id: int, span_id: int, verdict: Verdict) -> None:
        """Replace the verdict on a call: a span that ended late has belied it."""
        with self._lock:
            run = self._runs.get(trace_id)
            if run is not None and span_id in run:
                run[span_id] = run[span_id]._replace(verdict=verdict)

    def ended_by(self, trace_id: int, span_id: int, error: BaseException) -> None:
        """Remember with which exception a call ended that failed, where its span ended before that could be seen.

        Only for what is known to have ended this very call. A call that is not remembered as failed stays what it is.
        Raises no `Exception`.
        """
        caught, met = caught_in(frozenset(), error)
        with self._lock:
            run = self._runs.get(trace_id, {})
            call = run.get(span_id)
            if call is None:
                return
            met -= {have.mark for other in run.values() for have in other.raised}
            raised = dict.fromkeys((*unless_caught(list(call.raised), caught, met), *caught))
            run[span_id] = call._replace(raised=tuple(itertools.islice(raised, _MAX_RAISED)))
            if len(raised) > _MAX_RAISED:
                self._unknown.add(trace_id)

    def succeeded(self, trace_id: int, effect: Effect) -> None:
        """Remember that some call of a trace came back, unless it changes nothing."""
        if effect is _READ_ONLY:
            return
        succeeded = self._succeeded
        succeeded[trace_id] = None
        if len(succeeded) > _MAX_RUNS and self._lock.acquire(blocking=False):  # else whoever comes next does it
            try:
                self._forget(succeeded, _MAX_FORGOTTEN)
            finally:
                self._lock.release()

    def _forget(self, table: OrderedDict[int, Any], most: int) -> None:
        """Forget the oldest traces of a table, but not that there were such. Others may add meanwhile, so it has an end."""
        with self._lock:
            for _ in range(min(len(table) - _MAX_RUNS, most)):
                self._unknown.add(table.popitem(last=False)[0])

    def verdicts(self, errors: Iterable[BaseException]) -> list[Verdict] | None:
        """The verdicts of every call of the runs in which one of the exceptions ended a call.

        The runs of calls that may have been ended by one of them count as well, so that the answer can only get worse.

        Returns:
            None if no such run is known, or not all of its calls are, or one of them is still open.
        """
        wanted = [described(error) for error in itertools.islice(errors, MAX_CHAIN + 1)]
        if len(wanted) > MAX_CHAIN:
            return None
        still_open = self._open_traces()  # before what has ended: a call that ends in between is found there
        if still_open is None:
            return None
        with self._lock:
            runs = _items(self._runs)
            found = None if runs is None else _found(runs, wanted)
            if not found or any(id_ in still_open or id_ in self._unknown for id_ in found):
                return None
            verdicts = [call.verdict for id_ in found for call in self._runs[id_].values()]
            return verdicts + [_SUCCEEDED for id_ in found if id_ in self._succeeded]

    def _open_traces(self) -> set[int] | None:
        """The traces with an open call that may change something; None if that cannot be told."""
        try:
            sources = [source for known in list(self._open_calls) if (source := known()) is not None]
            return {trace_id for source in sources for trace_id, _ in source()}
        except Exception:  # noqa: BLE001 - whatever it was: what is open is unknown
            return None


_OF_PROCESS: Final = RecentRuns()


def _items(table: OrderedDict[int, dict[int, _Call]]) -> list[tuple[int, dict[int, _Call]]] | None:
    """What stands in a table to which the collector may add meanwhile; None if it does not stand still."""
    for _ in range(_ATTEMPTS):
        try:
            return list(table.items())
        except RuntimeError:
            continue
    return None


def _found(runs: Iterable[tuple[int, dict[int, _Call]]], wanted: list[Raised]) -> list[int] | None:
    """The traces in which one of the exceptions ended a call, and those in which it may have.

    Returns:
        None unless one of the exceptions bears a mark, and every mark is that of a call that is remembered.
    """
    marks = {want.mark for want in wanted if want.mark is not None}
    texts = {want.text for want in wanted if want.text is not None}
    kinds = {want.kind for want in wanted}
    unmarked = {(want.kind, want.text) for want in wanted if want.mark is None}
    found: dict[int, None] = {}
    met: set[str] = set()
    for trace_id, run in runs:
        for call in list(run.values()):
            for have in call.raised:
                if have.mark is not None:
                    same = have.mark in marks
                    if same:
                        met.add(have.mark)
                    alike = (have.kind, have.text) in unmarked
                else:
                    same = have.text in texts
                    alike = have.text is None and have.kind in kinds
                if same or alike:
                    found[trace_id] = None
    return list(found) if marks and met == marks else None
