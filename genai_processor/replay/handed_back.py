# SPDX-License-Identifier: Apache-2.0
"""A recorded failure as an exception: of its own class if that is imported, else of one that bears its name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from genai_processor.errors import RecordedFailure
from genai_processor.replay.records import Outcome

Make = Callable[[str], BaseException]


def exception_of(outcome: Outcome, modules: tuple[str, ...] = (), makers: Mapping[str, Make] | None = None) -> BaseException:
    """Make the exception that a node failed with. Imports nothing.

    Args:
        outcome: A failure or a pause.
        modules: Where a name that says no module may be from, beside the builtins.
        makers: By the class's own name: what makes one whose class takes more than a message, or stands for another.
    """
    name, message = outcome.error_type or "Exception", outcome.error_message or ""
    module, _, short = name.rpartition(".")
    if makers is not None and short in makers:
        return makers[short](message)
    for place in (module or "builtins", *modules):
        found = _class_in(place, short)
        if found is not None and (made := _made(found, message) or _stand_in(found, message)) is not None:
            return made
    return _named(short)(message)


def _class_in(module: str, name: str) -> type[Exception] | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _made(kind: type[Exception], message: str) -> Exception | None:
    try:
        made = kind(message)
    except Exception:  # noqa: BLE001 - it takes something else, and what that was is not recorded
        return None
    return made if str(made) == message else None


def _stand_in(kind: Any, message: str) -> Exception | None:
    """One that whoever catches the class catches, though what it takes beside a message is not recorded."""
    try:
        made: Exception = _message_only(kind)(message)
    except Exception:  # noqa: BLE001 - it lets nobody subclass it, or make one
        return None
    return made if str(made) == message else None


@lru_cache(maxsize=256)
def _message_only(kind: Any) -> Any:
    def __init__(self: Exception, message: str) -> None:
        Exception.__init__(self, message)

    def __str__(self: Exception) -> str:
        return str(self.args[0])

    def __getattr__(self: Exception, name: str) -> Any:
        raise AttributeError(f"{name} of this {kind.__name__} is not recorded; only its message is")

    namespace = {"__init__": __init__, "__str__": __str__, "__getattr__": __getattr__, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), namespace)


@lru_cache(maxsize=256)
def _named(name: str) -> type[RecordedFailure]:
    return type(name, (RecordedFailure,), {})
