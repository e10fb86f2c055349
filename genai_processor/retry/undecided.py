# SPDX-License-Identifier: Apache-2.0
"""Calls that ended as safe, and that a span which ends late below them may yet belie. Bounded, thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Final

from genai_processor.forks import guard_with_lock
from genai_processor.retry.evidence import Evidence
from genai_processor.retry.judgement import Judgement, belied
from genai_processor.retry.nodes import Below, Node
from genai_processor.retry.recent import RecentRuns

_MAX_UNDECIDED: Final = 1_000


class Undecided:
    """Which calls rest on nothing having run below them.

    Args:
        evidence: Who stands below whom.
        recent: Where a verdict that turns out wrong is revised.
    """

    _lock: threading.RLock

    def __init__(self, evidence: Evidence, recent: RecentRuns) -> None:
        guard_with_lock(self)
        self._evidence = evidence
        self._recent = recent
        self.by_span: OrderedDict[int, Judgement] = OrderedDict()
        """Their judgements, by each span that shows them. Empty nearly always, which is asked on every span."""

    def begun_below(self, parent: int, span: Any) -> None:
        """Note that a span has begun below one that may be such a call's; that its own span says so has to wait."""
        before = self.by_span.get(parent)
        if before is not None:
            self._evidence.tell(parent, span)
            self._recent.revise(before.trace_id, before.span_id, belied(before).verdict)

    def add(self, node: Node, judgement: Judgement) -> Judgement:
        """Remember a call that a span below it may yet belie; returns it, belied if one has done so by now.

        Its verdict has been noted before, so that whoever belies it from here on finds what to revise.
        """
        spans = (judgement.span_id, *judgement.views)
        with self._lock:
            for span_id in spans:
                self.by_span[span_id] = judgement
            excess = len(self.by_span) - _MAX_UNDECIDED
            forgotten = [self.by_span.popitem(last=False)[1] for _ in range(excess)]
        for one in forgotten:  # after the lock: that of the runs may be held by a thread that waits for this one
            self._recent.lost(one.trace_id)
        told = [self._evidence.told(span_id) for span_id in spans]
        if not any(told):
            return judgement
        for view in node.views():  # for a call above, which finds the views among what is nested in it
            view.below |= Below.OTHER
        with self._lock:
            for span_id in spans:
                self.by_span.pop(span_id, None)
        judgement = belied(judgement)._replace(late=False)
        self._recent.revise(judgement.trace_id, judgement.span_id, judgement.verdict)
        return judgement

    def belie(self, above: tuple[int, ...]) -> Judgement | None:
        """Return the judgements that a span belies by ending late below their calls, each with the next.

        Args:
            above: The spans above it.
        """
        found: Judgement | None = None
        with self._lock:
            for span_id in above:
                before = self.by_span.pop(span_id, None)
                if before is not None:
                    for view in (before.span_id, *before.views):
                        self.by_span.pop(view, None)
                    found = belied(before)._replace(belies=found)
        judgement = found
        while judgement is not None:
            self._recent.revise(judgement.trace_id, judgement.span_id, judgement.verdict)
            judgement = judgement.belies
        return found
