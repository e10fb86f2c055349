# SPDX-License-Identifier: Apache-2.0
"""How a guarded call and the spans that show it find each other: one table for the whole process.

`get_current_span()` is not the tool's span in a third of the pairs of framework and instrumentation, so a guarded call is
kept in a context variable, and the processor binds it to the first tool span of its name that starts under it; a span that
was current already when the call was claimed is bound then. The names must be equal: a hook claims under the name that its
framework's spans have, namespace and all (`shop.refund`, `shop-refund`, `mcp__shop__refund`). A span whose name merely ends
like that may be another tool's, such as `cancel_refund`, of which a `refund` inside it that never began proves nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final

from genai_processor.forks import call_in_child
from genai_processor.guard.variables import holding


class GuardOutcome(StrEnum):
    """What the guard did with a call: values of `genai.guard.outcome`."""

    GRANTED = "granted"
    """It was claimed, and ran."""
    REFUSED = "refused"
    """Its body never began."""
    HANDED_BACK = "handed_back"
    """Its body never began: the recorded result of the very same call was the answer."""
    WOULD_REFUSE = "would_refuse"
    """It ran, because the guard only observes."""
    UNGUARDED = "unguarded"
    """It ran though the ledger could not be asked."""


NOT_RUN: Final = frozenset({GuardOutcome.REFUSED, GuardOutcome.HANDED_BACK})


class Bound:
    """A guarded call, as its body and its spans need to know it.

    Attributes:
        tool: Name of the tool.
        mode: `observe` or `enforce`.
        outcome: What the guard did.
        call_id: Its call id, only if usable.
        digest: Digest of its arguments or of the user's key, or None.
        scope: Where these are unique.
        entry_id: Its entry in the ledger; of a call that was not run, the entry that stands in its way. None if it has none.
        key: The idempotency key of its intent, or None.
        reason: Why it was refused, or would have been.
        started: The body has begun.
        never_began: It has ended, and its body never began.
        outside: A call was made inside it.
        rejected: The tool itself says that it did nothing.
        over: It has ended.
        ledger: Where its entry, or that of the call around it, is; None if it has none.
        joined: A decorated function has taken itself for its body.
        body_failed: That function did not end well.
        span_failed: A span of it shows a failure.
        has_span: A span is bound to it.
        around: The call in whose body it is made, where the ledger of that one knows nothing of it.
        unseen: A call was made inside it of which its ledger knows nothing.
    """

    __slots__ = (
        "around",
        "body_failed",
        "call_id",
        "digest",
        "entry_id",
        "has_span",
        "joined",
        "key",
        "ledger",
        "mode",
        "never_began",
        "outcome",
        "outside",
        "over",
        "reason",
        "rejected",
        "scope",
        "span_failed",
        "started",
        "tool",
        "unseen",
    )

    def __init__(
        self,
        tool: str,
        mode: str,
        outcome: GuardOutcome,
        *,
        scope: str,
        call_id: str | None = None,
        digest: str | None = None,
        entry_id: str | None = None,
        key: str | None = None,
        reason: str | None = None,
        ledger: object = None,
    ) -> None:
        self.tool = tool
        self.mode = mode
        self.outcome = outcome
        self.scope = scope
        self.call_id = call_id
        self.digest = digest
        self.entry_id = entry_id
        self.key = key
        self.reason = reason
        self.ledger = ledger
        self.started = False
        self.never_began = False
        self.outside = False
        self.rejected = False
        self.over = False
        self.joined = False
        self.body_failed = False
        self.span_failed = False
        self.has_span = False
        self.around: Bound | None = None
        self.unseen = False

    def begins(self) -> None:
        """Note that its body begins; if it had begun before, this is another attempt."""
        if self.started:
            self.acts()
        self.started = True

    def acts(self) -> None:
        """Note that its body goes on to do something: that it did nothing was said of an attempt before this."""
        self.rejected = False

    def runs_unseen(self) -> None:
        """Note that it runs, with all those around it: none of their ledgers will hear of that."""
        outer = self.around
        while outer is not None:
            outer.unseen = True
            outer = outer.around

    def failed_unseen(self) -> None:
        """Note that it did not end well, likewise."""
        outer = self.around
        while outer is not None:
            outer.body_failed = True
            outer = outer.around

    @property
    def claimed(self) -> bool:
        """It has an entry of its own in the ledger."""
        return self.key is not None

    @property
    def ran(self) -> bool:
        """Its body was let run."""
        return self.outcome not in NOT_RUN

    @property
    def handed_back(self) -> bool:
        """It was answered with the recorded result of the very same call."""
        return self.outcome is GuardOutcome.HANDED_BACK


_MOST_SPANS: Final = 10_000
_current: Final[ContextVar[Bound | None]] = ContextVar("genai_processor_guarded_call", default=None)

BOUND: Final[dict[int, Bound]] = {}
"""Span id -> the call that the span shows. Empty in a process without a guard, and cheap to ask whether it is."""


class _InChild:
    def renew(self) -> None:
        BOUND.clear()


_in_child: Final = _InChild()
call_in_child(_in_child.renew)


def current() -> Bound | None:
    """Return the guarded call whose body this runs in."""
    return _current.get()


def inside(bound: Bound) -> AbstractContextManager[None]:
    """Make a call the current one of what is inside."""
    return holding(_current, bound)


def enter(bound: Bound | None) -> None:
    """Make a call the current one of this context for good: of one that is a copy for a body."""
    _current.set(bound)


def bind(bound: Bound, span: Any) -> None:
    """Let a span show a call."""
    context = getattr(span, "_context", None)
    if context is None or bound.has_span:
        return
    bound.has_span = True
    BOUND[context.span_id] = bound
    while len(BOUND) > _MOST_SPANS:  # spans that never end
        try:
            BOUND.pop(next(iter(BOUND)), None)
        except (StopIteration, RuntimeError):  # another thread was faster
            return


def tool_span_began(span: Any, tool: str | None) -> None:
    """Bind a tool span that starts inside a guarded call, if it is the first and can be that call's.

    Args:
        span: A span that has just begun and shows a tool call.
        tool: The name of the tool that it tells of, or None while it tells of none.
    """
    bound = _current.get()
    if bound is None or bound.has_span or bound.over:
        return
    if tool is None or tool == bound.tool:
        bind(bound, span)


def tool_span_is_current(bound: Bound, span: Any) -> None:
    """Bind the span that was current when a call was claimed, if it shows that call."""
    values = getattr(getattr(span, "_attributes", None), "_dict", None) or {}
    name = getattr(span, "_name", "")
    if getattr(span, "_context", None) is None or span._context.span_id in BOUND:
        return
    tool = values.get("gen_ai.tool.name") or values.get("tool.name")
    if not isinstance(tool, str):
        tool = name.removeprefix("execute_tool ").removeprefix("tools/call ")
    if tool == bound.tool and values.get("gen_ai.operation.name", "execute_tool") == "execute_tool":
        bind(bound, span)
