# SPDX-License-Identifier: Apache-2.0
"""What a hook is made of, and what several of them need."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from genai_processor.guard.actions import action_digest
from genai_processor.guard.guard import Guard
from genai_processor.hooks import Hook as AnyHook
from genai_processor.hooks import Target as AnyTarget

Wrapper = Callable[[Guard, Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called instead of a target: with the guard, the target, what it is bound to (None for a function), and the arguments."""


Target = AnyTarget[Wrapper]


@dataclass(frozen=True)
class Hook(AnyHook[Wrapper]):
    """How the guard stands in front of one framework: with all of its targets, or with nothing.

    Attributes:
        guards: It asks the guard. One that does not is let in for a guard that is off, too.
        otherwise: What follows where a version is not laid out as the hook knows it, for the warning.
    """

    guards: bool = True
    otherwise: str = "its calls are not guarded"


def argument(name: str, position: int, args: tuple[Any, ...], kwargs: dict[str, Any], default: Any = None) -> Any:
    """Return an argument of a call, given by name or by position (without `self`)."""
    if name in kwargs:
        return kwargs[name]
    return args[position] if position < len(args) else default


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
    """Count the calls of a turn that are identical to one of them, as a ledger compares them; at least 1.

    Args:
        own: Tool and arguments of that call, as the model gave them: a mapping or JSON text.
        proposed: Those of all calls of the turn.
    """
    wanted = own[0], _comparable(own[1])
    return max(1, sum((tool, _comparable(arguments)) == wanted for tool, arguments in proposed))


def _comparable(arguments: Any) -> str:
    return action_digest(arguments) or repr(arguments)


def is_replayed() -> bool:
    """Whether this is workflow code of a durable runtime, which is run again and again: its activities are guarded."""
    workflow = sys.modules.get("temporalio.workflow")
    return workflow is not None and bool(workflow.in_workflow())
