# SPDX-License-Identifier: Apache-2.0
"""Where the id and the arguments of a call are unique."""

from __future__ import annotations

import logging
from typing import Final

from opentelemetry import trace

from genai_processor.guard.bindings import Bound
from genai_processor.guard.calls import Call, as_text
from genai_processor.guard.runs import Run
from genai_processor.ledger.ids import random_id

_log = logging.getLogger(__name__)

_PROCESS_SCOPE: Final = f"process-{random_id()}"  # of calls in no trace; a forked child goes on with it


class Scopes:
    """Finds the scopes of calls.

    Args:
        default: Scope of all calls for which the application sets none; None for none.
        strict: See `as_text`.
    """

    def __init__(self, default: str | None, *, strict: bool) -> None:
        self._default = default
        self._strict = strict
        self._told: set[str] = set()

    def of(self, call: Call, scope: str | None, parent: Bound | None, run: Run | None) -> str:
        """Return the application's scope, else the enclosing call's, else the framework's, else the trace's or process's.

        Where it is none that another process would know, the application is told so, once for each framework.

        Args:
            call: The call.
            scope: The scope that the application set for it.
            parent: The call in whose body it is made.
            run: The run in which it is made.
        """
        found = self.known(call, scope, parent, run)
        if found:
            return found
        span = trace.get_current_span().get_span_context()
        around = call.trace or (f"{span.trace_id:032x}" if span.is_valid else None)
        self._tell_of_missing(call.framework, traced=around is not None)
        return around or _PROCESS_SCOPE

    def known(self, call: Call, scope: str | None, parent: Bound | None, run: Run | None) -> str | None:
        """Return the scope that application or framework know of; None if they know of none.

        Raises:
            TypeError: It has no text, and the guard enforces.
        """
        around = None if parent is None else parent.scope
        own, hint = (None, None) if run is None else (run.scope, run.hint)
        for found in (scope, own, around, self._default, call.scope, hint):
            text = as_text(found, "scope", strict=self._strict)
            if text:
                return text
        return None

    def _tell_of_missing(self, framework: str | None, *, traced: bool) -> None:
        name = framework or "this application"
        if name not in self._told:
            self._told.add(name)
            _log.warning(
                "The calls of %s have no conversation to tell them apart by, so %s. "
                "Stand `guard.run(scope=...)` around each run, or set GENAI_PROCESSOR_SCOPE.",
                name,
                "a repetition in another trace is not recognised"
                if traced
                else "those in no trace share one scope, whichever run they are of, and a repetition in another process is "
                "not recognised",
            )
