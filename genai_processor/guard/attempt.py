# SPDX-License-Identifier: Apache-2.0
"""A call that was granted: its body runs now, and how it ends is told to the ledger."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from genai_processor.forks import call_in_child
from genai_processor.guard.bindings import Bound, GuardOutcome, inside
from genai_processor.guard.modes import GuardMode
from genai_processor.guard.refused import refused
from genai_processor.ledger.entries import NON_IDEMPOTENT, Entry
from genai_processor.ledger.requests import Outcome, Refusal, RefusalReason

if TYPE_CHECKING:
    from genai_processor.guard.runs import Run

NOT_KEPT: Final = object()
"""Stands for a result that is not kept."""

RUNNING: Final[WeakValueDictionary[str, Attempt]] = WeakValueDictionary()
"""Entry id -> the attempt at it that runs in this process. One whose end is told, or that nobody holds any more, is gone."""

call_in_child(RUNNING.clear)  # the parent's run on there

Finish = Callable[["Attempt", Outcome, "str | None", Any], None]


class Attempt:
    """One attempt at one call.

    Attributes:
        bound: The call, as its body and its spans see it.
        entry: Its claim, or None: the tool is read-only, or the ledger could not be asked.
        run: The run that it belongs to, if one is known.
        not_started_on: Exceptions by which its tool says that it did nothing.
    """

    __slots__ = ("__weakref__", "_abandon", "_finish", "_lose", "_process", "bound", "entry", "not_started_on", "run")

    def __init__(
        self,
        bound: Bound,
        entry: Entry | None,
        finish: Finish,
        *,
        run: Run | None = None,
        not_started_on: tuple[type[BaseException], ...] = (),
        abandon: Callable[[Entry], None] = lambda entry: None,
        lose: Callable[[tuple[Entry, ...]], None] = lambda entries: None,
    ) -> None:
        self._process = os.getpid()
        self._abandon = abandon
        self._lose = lose
        self.bound = bound
        self.entry = entry
        self.run = run
        self.not_started_on = not_started_on
        self._finish = finish
        if entry is not None:
            RUNNING[entry.entry_id] = self

    @property
    def idempotency_key(self) -> str | None:
        """See `genai_processor.idempotency_key`."""
        self.bound.acts()
        return self.bound.key

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is inside is this call's: its spans, the calls that it makes, its idempotency key."""
        with inside(self.bound):
            try:
                yield
            except BaseException:
                self._runs_no_more()  # even if an interrupt has kept its end from being told
                raise

    def start(self) -> None:
        """Say that the body begins, at the last point before it does."""
        self.bound.begins()

    def runs_once_more(self) -> None:
        """Say that what ran, or runs, is about to be run once more in this very call.

        Raises:
            ToolSpanCommitmentError: It must not (`enforce` only, and no read-only or idempotent tool).
        """
        entry, bound = self.entry, self.bound
        if entry is not None and bound.mode == GuardMode.ENFORCE and entry.effect == NON_IDEMPOTENT:
            raise refused(bound.tool, bound.call_id, Refusal(RefusalReason.CALL_REPEATED, entry)).error()
        bound.begins()

    def returned(self, value: Any = NOT_KEPT, *, by_the_body: bool = True) -> None:
        """Say that it ended well.

        Args:
            value: Its result, which is kept to be handed back.
            by_the_body: It is the body itself that came back, and no runtime around it that may have turned a failure into
                a result: if not, a failure that a span of the call shows goes before.
        """
        if self.bound.body_failed:  # as a decorated function saw, whatever somebody around it made of that
            self.end(Outcome.FAILED, "failed_body")
        elif not by_the_body and self.bound.span_failed:
            self.end(Outcome.FAILED, "failed_span")
        else:
            self.end(Outcome.RETURNED, None, value)

    def raised(
        self,
        error: BaseException,
        *,
        paused: tuple[type[BaseException], ...] = (),
        awaits_start: bool = False,
    ) -> None:
        """Say that it ended with an exception.

        Args:
            error: The exception.
            paused: Types by which its runtime says that it waits for somebody.
            awaits_start: `start` is called whenever the body begins: if it was not, it never did.
        """
        bound = self.bound
        if isinstance(error, self.not_started_on) or bound.rejected or (awaits_start and not bound.started):
            self.end(Outcome.REJECTED, type(error).__name__)
        elif paused and isinstance(error, paused):
            self.end(Outcome.FAILED if bound.outside else Outcome.PAUSED, "effect_before_pause" if bound.outside else None)
        else:
            self.end(Outcome.FAILED, type(error).__name__)

    def failed(self, reason: str, *, awaits_start: bool = False) -> None:
        """Say that it ended with a result by which its runtime reports a failure.

        Args:
            reason: What the runtime calls it, in a word.
            awaits_start: As for `raised`.
        """
        nothing_ran = self.bound.rejected or (awaits_start and not self.bound.started)
        self.end(Outcome.REJECTED if nothing_ran else Outcome.FAILED, reason)

    def end(self, outcome: Outcome, reason: str | None = None, value: Any = NOT_KEPT) -> None:
        """Say how it ended. The first word counts. A good end is told where it began: a forked child has but a copy."""
        if self.bound.over or (outcome is not Outcome.FAILED and os.getpid() != self._process):
            return
        self.bound.over = True
        if outcome is Outcome.REJECTED and self.bound.unseen:  # of what its ledger would have known better by
            outcome = Outcome.FAILED
        if outcome is Outcome.FAILED and (self.entry is not None or self.bound.outcome is GuardOutcome.UNGUARDED):
            self.bound.failed_unseen()
        self.bound.never_began = outcome is Outcome.REJECTED and not self.bound.outside
        try:
            self._finish(self, outcome, reason, value)
        except BaseException:  # an interrupt: the ledger must hear of the end all the same
            self._finish(self, outcome, reason, NOT_KEPT)
            self.not_delivered()
            raise
        finally:
            self._runs_no_more()

    def not_delivered(self) -> None:
        """Say that nobody got its result, though it ended well: whoever asks again is handed that, and pays for nothing."""
        if self.entry is not None:
            self._lose((self.entry,))

    def __del__(self) -> None:
        # An interrupt has come between two lines, say: nobody will ever tell its end.
        entry = getattr(self, "entry", None)  # which may have come before there is one
        if entry is not None and not self.bound.over:
            self._abandon(entry)

    def _runs_no_more(self) -> None:
        if self.entry is not None and RUNNING.get(self.entry.entry_id) is self:
            RUNNING.pop(self.entry.entry_id, None)
