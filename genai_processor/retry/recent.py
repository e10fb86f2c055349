# SPDX-License-Identifier: Apache-2.0
"""Which calls failed lately with which exception: what `is_safe_to_retry` asks.

A span keeps an exception's type and message, not the exception. The one that is being handled while a failed span ends is
remembered by identity beside them, without a reference to it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from genai_processor.retry.locks import guard_with_lock
from genai_processor.retry.nodes import Node
from genai_processor.retry.verdict import Effect, Reason, RetryVerdict, Verdict

_MAX_RUNS: Final = 2_000
_MAX_CALLS: Final = 1_000
_MAX_CHAIN: Final = 100


class Raised(NamedTuple):
    """An exception, as far as it is remembered.

    Attributes:
        identity: `id()` of the exception object, or None if only a span's event tells of it.
        type_name: Last part of the type's name.
        message: Its text, or None where content capture is off.
    """

    identity: int | None
    type_name: str
    message: str | None


class _Call(NamedTuple):
    verdict: Verdict
    raised: tuple[Raised, ...]


_SUCCEEDED = _Call(Verdict(RetryVerdict.NO_RETRY_NEEDED, Reason.SUCCEEDED), ())


_ONE_SUCCEEDED: Final = {0: _SUCCEEDED}
_READ_ONLY: Final = Effect.READ_ONLY


class RecentRuns:
    """The verdicts of the calls of recent traces. Bounded; what is forgotten is unknown, so not safe."""

    _lock: threading.RLock
    _process: RecentRuns | None = None

    def __init__(self) -> None:
        guard_with_lock(self)
        self._runs: OrderedDict[int, dict[int, _Call]] = OrderedDict()
        self._overfull: dict[int, None] = {}

    @classmethod
    def of_process(cls) -> RecentRuns:
        """The one that every witness of this process writes to."""
        if cls._process is None:
            cls._process = cls()
        return cls._process

    def note(self, node: Node, trace_id: int, span_id: int, verdict: Verdict, handled: BaseException | None) -> None:
        """Remember the verdict on a call; it replaces those on inner spans that show the same call."""
        views = tuple(int(view.span.span_id, 16) for view in node.views()[1:])
        self._put(trace_id, span_id, views, _Call(verdict, tuple(_raised(node, handled))))

    def revise(self, trace_id: int, span_id: int, verdict: Verdict) -> None:
        """Replace the verdict on a call: a span that ended late has belied it."""
        with self._lock:
            run = self._runs.get(trace_id)
            if run is not None and span_id in run:
                run[span_id] = run[span_id]._replace(verdict=verdict)

    def succeeded(self, trace_id: int, effect: Effect) -> None:
        """Remember that some call of a trace came back, unless it changes nothing."""
        if effect is _READ_ONLY:
            return
        run = self._runs.setdefault(trace_id, _ONE_SUCCEEDED)  # most runs never hold more, and then share one table
        if run is not _ONE_SUCCEEDED:
            run[0] = _SUCCEEDED
        elif len(self._runs) > _MAX_RUNS:
            with self._lock:
                self._overfull.pop(self._runs.popitem(last=False)[0], None)

    def _put(self, trace_id: int, span_id: int, views: tuple[int, ...], call: _Call) -> None:
        with self._lock:
            run = self._runs.get(trace_id)
            if run is None or run is _ONE_SUCCEEDED:
                run = self._runs[trace_id] = dict(run or ())
                if len(self._runs) > _MAX_RUNS:
                    self._overfull.pop(self._runs.popitem(last=False)[0], None)
            for view in views:
                run.pop(view, None)
            if len(run) < _MAX_CALLS:
                run[span_id] = call
            else:
                self._overfull[trace_id] = None

    def _where(self, matches: Callable[[Raised, Raised], bool], wanted: list[Raised]) -> list[int]:
        return [
            trace_id
            for trace_id, run in list(self._runs.items())
            if any(matches(have, want) for call in list(run.values()) for have in call.raised for want in wanted)
        ]

    def verdicts(self, errors: Iterable[BaseException]) -> list[Verdict] | None:
        """The verdicts of every call of the runs in which one of the exceptions ended a call.

        Returns:
            None if no such run is known, or not all of its calls are.
        """
        wanted = [_described(error) for error in errors]
        with self._lock:
            # The very exception tells the run; a type and a text, which many runs may share, only where nothing better is.
            found = self._where(_is_same, wanted) or self._where(_looks_same, wanted)
            if not found or any(trace_id in self._overfull for trace_id in found):
                return None
            return [call.verdict for trace_id in found for call in list(self._runs[trace_id].values())]


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what it was raised from, and what a group holds; each once, and not without end."""
    stack, seen = [error], set[int]()
    while stack and len(seen) < _MAX_CHAIN:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        stack.extend(inner for inner in (current.__cause__, current.__context__) if inner is not None)
        if isinstance(current, BaseExceptionGroup):
            stack.extend(current.exceptions)


def _raised(node: Node, handled: BaseException | None) -> Iterable[Raised]:
    names = []
    for view in node.views():
        for event in view.span.events:
            if event.name == "exception":
                name = str(event.attributes.get("exception.type")).rpartition(".")[2]
                message = event.attributes.get("exception.message")
                names.append(name)
                yield Raised(None, name, message if isinstance(message, str) and message else None)
        if view.call is not None:
            names.extend(name.rpartition(".")[2] for name in view.call.error_types)
    for error in chain(handled) if handled is not None else ():
        described = _described(error)
        if not names or described.type_name in names or any(name in _GENERIC for name in names):
            yield described


_GENERIC = frozenset({"_OTHER", "Exception", "None"})


def _described(error: BaseException) -> Raised:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an exception's own `__str__` may raise anything
        message = ""
    return Raised(id(error), type(error).__name__, message or None)


def _is_same(have: Raised, want: Raised) -> bool:
    return have.identity == want.identity and have.type_name == want.type_name and have.message == want.message


def _looks_same(have: Raised, want: Raised) -> bool:
    return have.type_name == want.type_name and have.message is not None and have.message == want.message
