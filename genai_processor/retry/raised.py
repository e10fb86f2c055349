# SPDX-License-Identifier: Apache-2.0
"""By what an exception is known again as the one that ended a call.

A span keeps an exception's type and message, not the exception. The one that is being handled while a failed span ends gets
a mark of its own, a random word among its attributes; the call remembers the mark, and no reference to the exception.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from genai_processor.retry.nodes import Node

MAX_CHAIN: Final = 100
"""How many exceptions are looked at that stand behind one."""

_MARK: Final = "_genai_processor_mark"


class Raised(NamedTuple):
    """An exception, as far as it is remembered.

    Attributes:
        mark: The mark that the exception object bears, or None if only a span's event tells of it, or it can bear none.
        kind: Digest of the last part of the type's name.
        text: Digest of that name and the message, or None where the message is empty or was not recorded.
    """

    mark: str | None
    kind: bytes
    text: bytes | None


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, what it was raised from, and what a group holds; each once, and not without end."""
    stack, seen = [error], set[int]()
    while stack and len(seen) <= MAX_CHAIN:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        stack.extend(inner for inner in (current.__cause__, current.__context__) if inner is not None)
        if isinstance(current, BaseExceptionGroup):
            stack.extend(current.exceptions)


def ended_calls(error: BaseException, depth: int = 0) -> bool:
    """Whether an exception has ended a call, or was raised explicitly from one that did; of a group, whether all have.

    Its likes do not count, and neither does what was being handled while it was raised: that may belong to an earlier run.
    """
    if depth > MAX_CHAIN:
        return False
    if _mark_of(error) is not None:
        return True
    if isinstance(error, BaseExceptionGroup):
        return all(ended_calls(inner, depth + 1) for inner in error.exceptions)
    return error.__cause__ is not None and ended_calls(error.__cause__, depth + 1)


_GENERIC = frozenset({"_OTHER", "Exception", "None"})


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def names_of(node: Node) -> frozenset[str]:
    """The types of what ended a call, as its spans name them."""
    names: list[str] = []
    for view in node.views():
        names += [_last(str(event.attributes.get("exception.type"))) for event in _exceptions(view)]
        if view.call is not None:
            names += map(_last, view.call.error_types)
    return frozenset(names)


def _exceptions(view: Node) -> list[Any]:
    return [event for event in view.span.events if event.name == "exception"]


def recorded_in(node: Node) -> Iterator[Raised]:
    """The exceptions that a call's spans tell of."""
    for view in node.views():
        for event in _exceptions(view):
            message = event.attributes.get("exception.message")
            name = _last(str(event.attributes.get("exception.type")))
            yield _remembered(None, name, message if isinstance(message, str) else "")


def caught_in(names: frozenset[str], handled: BaseException | None) -> tuple[list[Raised], set[str | None]]:
    """The exceptions, among those that are being handled, that may have ended a call, and marks that they bore before.

    What was being handled before the call began stands behind its own exception, and is none of it. So where the outermost
    fits, only that counts.
    """
    if handled is None:
        return [], set()
    fitting: list[BaseException] = []
    try:
        if not names or not names.isdisjoint(_GENERIC) or type(handled).__name__ in names:
            fitting = [handled]
        else:
            fitting.extend(error for error in chain(handled) if type(error).__name__ in names)
    except Exception:  # noqa: BLE001 - an exception's own attributes may raise anything
        pass
    met = {mark for error in fitting if (mark := _mark_of(error)) is not None}
    return [described(error, mark=True) for error in fitting], {*met}


def unless_caught(recorded: list[Raised], caught: list[Raised], met: set[str | None]) -> Iterator[Raised]:
    """What was recorded of exceptions that were not caught as well. One that some other call bore before may be another."""
    own = [have for have in caught if have.mark is not None and have.mark not in met]
    known = {(have.kind, text) for have in own for text in (have.text, None)}
    return (have for have in recorded if (have.kind, have.text) not in known)


def described(error: BaseException, *, mark: bool = False) -> Raised:
    """What is remembered of an exception; with `mark`, it gets one if it bears none."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an exception's own `__str__` may raise anything
        message = ""
    return _remembered(_mark_of(error, make=mark), type(error).__name__, message)


def _remembered(mark: str | None, name: str, message: str) -> Raised:
    return Raised(mark, _digest(name), _digest(f"{name}\0{message}") if message else None)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _mark_of(error: BaseException, *, make: bool = False) -> str | None:
    """The mark that an exception bears. Random, so that one that was pickled elsewhere is not taken for another.

    It stands in the exception's own dictionary, past whatever its class does on access to attributes.
    """
    try:
        own: dict[str, Any] = BaseException.__dict__["__dict__"].__get__(error)
        mark = own.setdefault(_MARK, os.urandom(16).hex()) if make else own.get(_MARK)
    except Exception:  # noqa: BLE001 - whatever it was: it cannot be told from its likes
        return None
    return mark if isinstance(mark, str) else None
