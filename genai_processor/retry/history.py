# SPDX-License-Identifier: Apache-2.0
"""What was executed in a scope so far, kept small: enough to tell that a call runs again, not what it carried.

Everything is bounded. What is dropped is forgotten, never taken for safe: a duplicate may go unnoticed, but an id that may
have meant something else before is no token any more.
"""

from __future__ import annotations

import bisect
import contextlib
from collections import OrderedDict
from collections.abc import Container, Hashable, Mapping
from typing import Any, NamedTuple

from genai_processor.retry.execution import Execution
from genai_processor.retry.seen import SeenNames
from genai_processor.retry.verdict import Ended
from genai_processor.spans.arguments import Arguments, fingerprint

_MAX_MEMBERS = 256


class Action:
    """The executions of one tool with one argument set in one scope: the first, the last, and what was uncertain."""

    __slots__ = ("_executions", "count", "first", "last", "paused", "uncertain")

    def __init__(self, first: Execution) -> None:
        self.first = self.last = first
        self.count = 0
        self._executions: list[Execution] = []
        self.uncertain = False
        self.paused = False
        self.add(first)

    def add(self, execution: Execution) -> None:
        """Count one more execution."""
        self.count += 1
        if len(self._executions) < _MAX_MEMBERS:
            self._executions.append(execution)
        self.uncertain = self.uncertain or execution.uncertain
        self.paused = self.paused or execution.ended is Ended.PAUSED
        if execution.end_ns >= self.last.end_ns:
            self.last = execution

    def withdraw(self, span_ids: Container[str]) -> bool:
        """Forget executions; returns whether any is left."""
        left = [execution for execution in self._executions if execution.span_id not in span_ids]
        if not left:
            return self.count > len(self._executions)
        if len(left) < len(self._executions):
            self.count -= len(self._executions) - len(left)
            self._executions = left
            self.first = left[0]
            self.last = max(left, key=lambda execution: execution.end_ns)
            self.uncertain = any(execution.uncertain for execution in left)
        return True

    @property
    def members(self) -> tuple[str, ...]:
        """The span ids of the executions, as far as they are remembered."""
        return tuple(execution.span_id for execution in self._executions)

    def in_turn(self, turn: Hashable) -> int:
        """How many executions one turn has had."""
        return sum(execution.turn == turn for execution in self._executions)


class TraceMark(NamedTuple):
    """What is remembered of a trace of a scope: when it ran, and whether a call in it failed."""

    start_ns: int
    end_ns: int
    failed_call: bool


class Scope:
    """What was executed in one scope.

    Attributes:
        ids: The first execution under each usable call id.
        actions: What was executed with which arguments, by tool and digest.
        failures: When inferences and enclosing spans of the scope failed, end times in nanoseconds.
        failed_tools: Per tool, the first execution whose end is uncertain.
        traces: What is remembered of each trace of the scope.
        forgot: Some of its ids were forgotten, so any id may have been seen.
        size: About how many executions it holds.
    """

    __slots__ = ("_limit", "_tools", "actions", "failed_tools", "failures", "forgot", "ids", "size", "traces", "weight")

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._tools: dict[str | None, Execution | None] = {}
        self.ids: OrderedDict[str, Execution] = OrderedDict()
        self.actions: OrderedDict[tuple[str | None, str], Action] = OrderedDict()
        self.failures: list[int] = []
        self.failed_tools: dict[str | None, Execution] = {}
        self.traces: OrderedDict[str, TraceMark] = OrderedDict()
        self.forgot = False
        self.size = self.weight = 0

    def knows(self, tool: str | None) -> bool:
        """Whether a call of that tool was seen."""
        return tool in self._tools

    def action_before(self, execution: Execution) -> Action | None:
        """The earlier executions of the same action. Digests are computed only once there is something to compare."""
        if execution.tool not in self._tools:
            return None
        only = self._tools[execution.tool]
        if only is not None:
            self._tools[execution.tool] = None
            if only.digest is not None:
                self.actions[execution.tool, only.digest] = Action(only)
        key = execution.digest
        return self.actions.get((execution.tool, key)) if key is not None else None

    def means_otherwise(self, call_id: str, tool: str | None, arguments: Arguments) -> bool:
        """Whether a call id was seen here for another tool, or for other arguments: then it is no token for either."""
        first = self.ids.get(call_id)
        if first is None:
            return self.forgot
        if first.tool != tool:
            return True
        own = fingerprint(arguments)
        return own is not None and first.digest is not None and first.digest != own

    def add(self, execution: Execution, action: Action | None) -> None:
        """Remember an execution; `action` is what `action_before` gave for it."""
        self.size += 1
        if execution.call_id is not None:
            self.ids.setdefault(execution.call_id, execution)
        if execution.uncertain:
            self.failed_tools.setdefault(execution.tool, execution)
        if action is not None:
            action.add(execution)
        elif execution.tool not in self._tools:
            self._tools[execution.tool] = execution
        elif execution.digest is not None:
            self.actions[execution.tool, execution.digest] = Action(execution)
        if self.size > self._limit:
            self._shrink()

    def withdraw(self, execution: Execution, span_ids: Container[str]) -> None:
        """Forget what inner spans of a call told of it, now that an outer span shows the whole call."""
        first = self.ids.get(execution.call_id) if execution.call_id is not None else None
        if first is not None and first.span_id in span_ids:
            del self.ids[first.call_id or ""]
        failed = self.failed_tools.get(execution.tool)
        if failed is not None and failed.span_id in span_ids:
            del self.failed_tools[execution.tool]
        only = self._tools.get(execution.tool)
        if only is not None and only.span_id in span_ids:
            del self._tools[execution.tool]
        key = (execution.tool, execution.digest or "")
        action = self.actions.get(key)
        if action is not None and not action.withdraw(span_ids):
            del self.actions[key]

    def _shrink(self) -> None:
        """Forget the older half. Tools of which one call was seen go first: of the others, repetitions are known."""
        tables: tuple[dict[Any, Any], ...] = (self.ids, self.failed_tools, self._tools, self.actions)
        for table in tables:
            for key in list(table)[: (len(table) + 1) // 2]:
                del table[key]
        self.forgot = True
        self.size = self._limit // 2

    def failed_at(self, end_ns: int) -> None:
        """Remember that an inference or an enclosing span failed."""
        bisect.insort(self.failures, end_ns)
        del self.failures[: -self._limit]

    def failed_between(self, begin_ns: int, end_ns: int) -> bool:
        """Whether an inference or an enclosing span of the scope failed in that time."""
        index = bisect.bisect_left(self.failures, begin_ns)
        return index < len(self.failures) and self.failures[index] <= end_ns

    def mark(self, trace_id: str, start_ns: int, end_ns: int, failed_call: bool) -> None:
        """Remember that a trace of the scope ran."""
        before = self.traces.get(trace_id)
        if before is not None:
            start_ns, end_ns = min(start_ns, before.start_ns), max(end_ns, before.end_ns)
            failed_call = failed_call or before.failed_call
        self.traces[trace_id] = TraceMark(start_ns, end_ns, failed_call)
        _bound(self.traces, 1000)


class History:
    """The scopes that were seen, and what links traces to each other. Bounded: the oldest is forgotten first.

    Args:
        scopes: How many scopes are remembered.
        executions: How many executions are remembered in each, and about how many in all that were `weigh`ed.
        evicted: Remembers the names of scopes that were dropped; without it, one that returns counts as new.
    """

    def __init__(self, scopes: int = 20_000, executions: int = 100_000, evicted: SeenNames | None = None) -> None:
        self._max_scopes = scopes
        self._max_executions = executions
        self._evicted = evicted
        self._weight = 0
        self._scopes: OrderedDict[str, Scope | Execution] = OrderedDict()
        self._schemas: OrderedDict[str, list[Any]] = OrderedDict()

    def is_first(self, name: str, execution: Execution) -> bool:
        """Remember an execution if nothing at all is known of its scope: then it repeats nothing. Needs no lock."""
        if self._evicted is not None and name in self._evicted:
            return False
        if self._scopes.setdefault(name, execution) is not execution:
            return False
        if len(self._scopes) > self._max_scopes:
            self._evict()
        return True

    def scope(self, name: str) -> Scope:
        """The scope of that name, new if it is. Where threads share a history, the caller holds a lock."""
        found = self._scopes.get(name)
        if found is None:
            new = Scope(self._max_executions)
            new.forgot = self._evicted is not None and name in self._evicted
            found = self._scopes.setdefault(name, new)  # `is_first` may have been faster, on another thread
        if isinstance(found, Scope):
            scope = found
            self._to_end(name)
        else:
            scope = self._scopes[name] = Scope(self._max_executions)
            scope.add(found, None)
        if len(self._scopes) > self._max_scopes:
            self._evict()
        return scope

    def knows(self, name: str, tool: str | None) -> bool:
        """Whether a call of a tool was seen in a scope, so that another one is compared with it. Needs no lock."""
        found = self._scopes.get(name)
        return found.knows(tool) if isinstance(found, Scope) else found is not None and found.tool == tool

    def _to_end(self, name: str) -> None:
        with contextlib.suppress(KeyError):  # evicted by another thread since
            self._scopes.move_to_end(name)

    def _evict(self) -> None:
        name, scope = self._scopes.popitem(last=False)
        if isinstance(scope, Scope):
            self._weight -= scope.weight
        if self._evicted is not None:
            self._evicted.add(name)

    def weigh(self, name: str) -> None:
        """Count what a scope has grown by, and drop the scopes that were quiet for longest if it is too much in all."""
        scope = self._scopes.get(name)
        if isinstance(scope, Scope):
            self._weight += scope.size - scope.weight
            scope.weight = scope.size
            while self._weight > self._max_executions and len(self._scopes) > 1:
                self._evict()

    def means_otherwise(self, scope: str, call_id: str, tool: str | None, arguments: Arguments) -> bool:
        """As `Scope.means_otherwise`, for a scope by name."""
        if scope in self._scopes:
            return self.scope(scope).means_otherwise(call_id, tool, arguments)
        return self._evicted is not None and scope in self._evicted

    def offer(self, schemas: Mapping[str, Any]) -> None:
        """Remember the schemas with which an agent was created: its runs, in other traces, may not repeat them."""
        for tool, schema in schemas.items():
            known = self._schemas.setdefault(tool, [])
            if schema is not None and schema not in known and len(known) < 8:
                known.append(schema)
            _bound(self._schemas, self._max_scopes)

    def schemas(self, tool: str) -> list[Any]:
        """Every schema that a tool of that name was declared with, or an empty list."""
        known = self._schemas.get(tool, [])
        return known if len(known) < 8 else []


def _bound(table: OrderedDict[Any, Any], limit: int) -> None:
    while len(table) > limit:
        table.popitem(last=False)
