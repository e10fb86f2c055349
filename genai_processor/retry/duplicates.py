# SPDX-License-Identifier: Apache-2.0
"""Which executions repeat an effect: certainly, or perhaps (docs/verdict.md, "Duplicates")."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from genai_processor.retry.execution import Execution
from genai_processor.retry.history import Action, Scope
from genai_processor.retry.verdict import Effect, Ended
from genai_processor.spans.values import index_like


class DuplicateKey(enum.StrEnum):
    """By what two executions were recognised as one effect."""

    CALL_ID = "call_id"
    ACTION = "action"
    LINK = "link"
    TOOL = "tool"
    SENDS = "sends"


class Repetition(NamedTuple):
    """An execution that repeats an earlier one.

    Attributes:
        first: The span id of the first execution.
        key: By what they were recognised.
        value: The call id, or the tool's name.
        suspected: It may as well be meant.
        attempt: Which execution of the effect this is, counted from 1.
        members: The span ids of the earlier executions, as far as they are remembered.
    """

    first: str
    key: DuplicateKey
    value: str
    suspected: bool
    attempt: int
    members: tuple[str, ...] = ()


def repetition(execution: Execution, effect: Effect, scope: Scope) -> Repetition | None:
    """Whether an execution repeats an earlier one of its scope; remembers it either way.

    Left out are read-only tools (nothing to repeat) and an idempotent tool's retry under its own id (what it is for).
    """
    if effect is Effect.READ_ONLY:
        return None
    by_id = _same_id(execution, effect, scope)
    action = scope.action_before(execution)
    found = by_id
    if found is None and action is not None and not _own_retry(execution, effect, action.last):
        suspected = _how_sure(execution, action, scope)
        if suspected is not None:
            found = Repetition(
                action.first.span_id, DuplicateKey.ACTION, execution.tool or "", suspected, action.count + 1, action.members
            )
    if found is None and execution.tool in scope.failed_tools and execution.digest is None:
        found = _after_failed_one(execution, scope)
    scope.add(execution, action)
    return found


def _same_id(execution: Execution, effect: Effect, scope: Scope) -> Repetition | None:
    if execution.call_id is None:
        return None
    first = scope.ids.get(execution.call_id)
    if first is None or first.tool != execution.tool or _own_retry(execution, effect, first):
        return None
    withheld = None in (first.digest, execution.digest)
    if not withheld and first.digest != execution.digest:
        return None  # one id for two actions is no token for either
    counts = index_like(execution.call_id, execution.tool)
    if counts and (first.trace_id != execution.trace_id or _in_two_turns(first, execution)):
        return None
    action = scope.actions.get((execution.tool, execution.digest or ""))
    count = action.count if action is not None else 1
    paused = first.ended is Ended.PAUSED and (action is None or not action.uncertain)
    suspected = paused or (counts and withheld)  # every turn may have such an id
    return Repetition(first.span_id, DuplicateKey.CALL_ID, execution.call_id, suspected, count + 1)


def _in_two_turns(first: Execution, execution: Execution) -> bool:
    return None not in (first.turn, execution.turn) and first.turn != execution.turn


def _own_retry(execution: Execution, effect: Effect, earlier: Execution) -> bool:
    return effect is Effect.IDEMPOTENT and execution.call_id is not None and execution.call_id == earlier.call_id


def _how_sure(execution: Execution, action: Action, scope: Scope) -> bool | None:
    """False: certain. True: suspected. None: no repetition."""
    last = action.last
    if action.uncertain:
        return False
    if action.paused:
        return True
    executed = action.in_turn(execution.turn) if execution.turn is not None else 0
    if executed:
        return None if executed < execution.proposed else False
    if scope.failed_between(last.end_ns, execution.start_ns):
        return False
    if last.trace_id != execution.trace_id:
        mark = scope.traces.get(last.trace_id)
        return not (execution.start_ns < last.end_ns or (mark is not None and mark.failed_call))
    overlapping = execution.start_ns < last.end_ns
    return None if overlapping and execution.turn is None and last.turn is None else True


def _after_failed_one(execution: Execution, scope: Scope) -> Repetition | None:
    """Arguments withheld: the same tool again after an uncertain call may be the same action."""
    failed = scope.failed_tools.get(execution.tool)
    if failed is None or failed.span_id == execution.span_id or failed.start_ns > execution.start_ns:
        return None
    return Repetition(failed.span_id, DuplicateKey.TOOL, execution.tool or "", True, 2)


def retry_of(links: Mapping[str, object]) -> bool:
    """Whether a span link says that the span repeats what it points at."""
    return any(
        key.upper() == "RETRY_OF" or (isinstance(value, str) and value.upper() in ("RETRY_OF", "RETRY"))
        for key, value in links.items()
    )
