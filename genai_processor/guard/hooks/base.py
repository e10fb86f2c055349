# SPDX-License-Identifier: Apache-2.0
"""What a hook is made of, and what several of them need."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from genai_processor.guard.guard import Guard

_T = TypeVar("_T")

Wrapper = Callable[[Guard, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called instead of a target: with the guard, the target, what it is bound to (None for a function), and the arguments."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function or method of a framework that a hook wraps.

    Attributes:
        module: Its module.
        name: Its name there, as in `ToolManager._raw_execute`. Of several, split by `|`, the first that is there is meant:
            versions differ.
        parameters: Parameters that the wrapper relies on. If one is missing, the whole hook leaves the framework alone.
        wrapper: Called in its place.
        here_only: It is replaced in that module, and not in others of the framework that have imported it, too.
    """

    module: str
    name: str
    parameters: tuple[str, ...]
    wrapper: Wrapper
    here_only: bool = False


@dataclass(frozen=True, slots=True)
class Hook:
    """How the guard stands in front of one framework.

    Attributes:
        framework: What people call it.
        targets: All that is wrapped: all or nothing.
        optional: Wrapped where they are found, once all others are: somebody else's module which uses the framework, say.
        guards: It asks the guard. One that does not is let in for a guard that is off, too.
        otherwise: What follows where a version is not laid out as the hook knows it, for the warning.
    """

    framework: str
    targets: tuple[Target, ...]
    optional: tuple[Target, ...] = ()
    guards: bool = True
    otherwise: str = "its calls are not guarded"


def argument(name: str, position: int, args: tuple[Any, ...], kwargs: dict[str, Any], default: Any = None) -> Any:
    """Return an argument of a call, given by name or by position (without `self`)."""
    if name in kwargs:
        return kwargs[name]
    return args[position] if position < len(args) else default


@contextmanager
def holding(variable: ContextVar[_T | None], value: _T | None) -> Iterator[None]:
    """Let a context variable have a value inside. Not across a `yield`: see `genai_processor.guard.streams`."""
    token = variable.set(value)
    try:
        yield
    finally:
        try:
            variable.reset(token)
        except ValueError:  # a generator was moved into another context, where there is nothing to undo
            variable.set(None)


async def held(variable: ContextVar[_T | None], value: _T | None, body: Callable[[], Awaitable[Any]]) -> Any:
    """Await something while a context variable has a value."""
    with holding(variable, value):
        return await body()


def fits(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function takes these arguments; True where nobody knows what it takes."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # no signature
        pass
    return True


def same_calls(own: tuple[str, Any], proposed: Iterable[tuple[str, Any]]) -> int:
    """Count the calls of a turn that are identical to one of them; at least 1.

    Args:
        own: Tool and arguments of that call, as the model gave them: a mapping or JSON text.
        proposed: Those of all calls of the turn.
    """
    wanted = own[0], _comparable(own[1])
    return max(1, sum((tool, _comparable(arguments)) == wanted for tool, arguments in proposed))


def _comparable(arguments: Any) -> Any:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return arguments
    try:
        return json.dumps(arguments, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(arguments)


def is_replayed() -> bool:
    """Whether this is workflow code of a durable runtime, which is run again and again: its activities are guarded."""
    workflow = sys.modules.get("temporalio.workflow")
    return workflow is not None and bool(workflow.in_workflow())
