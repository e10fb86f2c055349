# SPDX-License-Identifier: Apache-2.0
"""Which call an exception ended, where its span ends when the exception is not being handled.

A span that ends while an exception passes through it is known to have been ended by that one. LangChain keeps what a tool
raised, lets its callbacks end the span, and raises it only then. Whoever stands around such a runtime opens a `ToolRun`,
which sees both: the spans that begin in it before the tool's body does, and the exception that leaves it.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from genai_processor.retry.recent import RecentRuns

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Span as SDKSpan

_MAX_SPANS: Final = 16  # of one run; more instrumentations than that trace nothing at once

TOOL_RUNS: Final = set[int]()
"""Those that are open in this process. Asked on every span that begins, where it is empty nearly always."""


class ToolRun:
    """One run of a tool by its runtime, as a context manager around it. Not to be entered twice."""

    __slots__ = ("_begun", "_spans", "_token")

    _token: Token[ToolRun | None]

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._begun = False

    def __enter__(self) -> Self:
        """Let the spans that begin from now on be those of this run."""
        self._token = _current.set(self)
        TOOL_RUNS.add(id(self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Remember what left the run, if anything did, as what ended its calls."""
        TOOL_RUNS.discard(id(self))
        _current.reset(self._token)
        if error is not None:
            for trace_id, span_id in self._spans:
                RecentRuns.of_process().ended_by(trace_id, span_id, error)


_current: Final[ContextVar[ToolRun | None]] = ContextVar("genai_processor_tool_run", default=None)


def body_begins() -> None:
    """Say that the body of the tool begins: what begins from now on may have raised, and handled, errors of its own."""
    if (run := _current.get()) is not None:
        run._begun = True


def span_begun(span: SDKSpan) -> None:
    """Take a span that begins for one of the run that is open here, unless that run's body has begun."""
    run = _current.get()
    if run is not None and not run._begun and span._context is not None and len(run._spans) < _MAX_SPANS:
        run._spans.append((span._context.trace_id, span._context.span_id))
