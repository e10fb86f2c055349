# SPDX-License-Identifier: Apache-2.0
"""What a hook, a decorator or an application says of a call before it runs, and what that is to a ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from opentelemetry import trace

from genai_processor.guard.actions import action_digest
from genai_processor.guard.attempt import RUNNING
from genai_processor.guard.bindings import Bound
from genai_processor.ledger.requests import Claim
from genai_processor.retry.verdict import Effect
from genai_processor.spans.values import usable_id

Key = Callable[[Any], Any]
"""Takes a call's arguments as they were given to the guard, and returns what makes it the same action as another."""

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


def as_text(value: object, name: str, *, strict: bool) -> str | None:
    """Return what names something as a text: a ledger compares texts, and `7` is no `"7"`. None for None.

    Args:
        value: The name.
        name: What it was given as, for the message.
        strict: Whoever refuses calls is told of a value that has no text; for whoever does not, there is none.

    Raises:
        TypeError: `strict`, and it has no text.
    """
    if value is None or isinstance(value, str):
        return value
    try:
        return str(value)
    except Exception as error:
        wrong = f"{name} has to be a text, and str() of this {type(value).__name__} fails"
        if strict:
            raise TypeError(wrong) from error
        _log.warning("%s; the call has none", wrong, exc_info=True)
        return None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that is about to run.

    Attributes:
        tool: Name of the tool.
        call_id: The id that the model's response gave it, if any.
        arguments: A mapping, JSON text, or a model with the arguments as fields; None for not known.
        scope: Where id and arguments are unique, such as a conversation id; None for not known.
        turn: Id of the model response that proposed it, unique in the world; None where no model did.
        proposed: How many identical calls that response proposed.
        effect: What is known of the tool's effect beside what the user declared; None for nothing.
        framework: Whose tool it is, for messages.
        trace: Id of the framework's own trace, which stands for OpenTelemetry's where nothing better is known.
    """

    tool: str
    call_id: str | None = None
    arguments: Any = None
    scope: str | None = None
    turn: str | None = None
    proposed: int = 1
    effect: Effect | None = None
    framework: str | None = None
    trace: str | None = None


def claim_of(
    call: Call, *, effect: Effect, key: Key | None, scope: str, parent: Bound | None, lease_ns: int | None, strict: bool
) -> Claim:
    """Return what to ask a ledger.

    Args:
        call: The call.
        effect: Of its tool.
        key: The user's key function for its tool.
        scope: Where its id and arguments are unique.
        parent: The call in whose body it is made.
        lease_ns: How long the claim holds without being renewed, in nanoseconds; None for ever.
        strict: See `as_text`.

    Raises:
        TypeError: `strict`, and its id or its turn has no text.
    """
    span = trace.get_current_span().get_span_context()
    return Claim(
        scope=scope,
        tool=call.tool,
        call_id=usable_id(as_text(call.call_id, "call_id", strict=strict), call.tool),
        digest=action_digest(call.arguments if key is None else _keyed(key, call.arguments)),
        turn=as_text(call.turn, "turn", strict=strict),
        proposed=max(1, call.proposed) if isinstance(call.proposed, int) else 1,
        parent=None if parent is None else parent.entry_id,
        effect=effect.value,
        lease_ns=lease_ns,
        trace_id=f"{span.trace_id:032x}" if span.is_valid else None,
        span_id=f"{span.span_id:016x}" if span.is_valid else None,
        running=RUNNING,
    )


def _keyed(key: Key, arguments: Any) -> Any:
    """Ask a key function; what it cannot answer has no digest, and so may be equal to everything."""
    try:
        found = key(arguments)
    except Exception:  # noqa: BLE001 - the user's code, asked before a tool runs
        return None
    return None if found is None else {"key": found}


def exceptions_of(given: Any, where: str) -> tuple[type[BaseException], ...]:
    """Return the classes of exceptions that somebody names; one alone may stand for itself.

    Args:
        given: A class, or a tuple or list of classes.
        where: What it was given as, for the message.

    Raises:
        TypeError: It is neither.
    """
    kinds = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise TypeError(f"{where} takes classes of exceptions, such as (ValueError,), but is {given!r}")
    return kinds


def by_glob(table: Mapping[str, _T], tool: str) -> _T | None:
    """Return what a table of globs over tool names has for a tool: its very name first."""
    if tool in table:
        return table[tool]
    return next((value for glob, value in table.items() if fnmatchcase(tool, glob)), None)
