# SPDX-License-Identifier: Apache-2.0
"""Lets `is_safe_to_retry` know an exception that a LangChain tool raised, so that LangGraph's `RetryPolicy` can ask it.

Three functions are wrapped when LangChain is imported, if it ever is. They return and raise what they did before.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

import wrapt

from genai_processor.retry.tool_runs import ToolRun, body_begins

_log = logging.getLogger(__name__)

_MODULE: Final = "langchain_core.tools.base"


def _run(wrapped: Callable[..., Any], tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with ToolRun():
        return wrapped(*args, **kwargs)


async def _arun(wrapped: Callable[..., Any], tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with ToolRun():
        return await wrapped(*args, **kwargs)


def _body(wrapped: Callable[..., Any], tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    body_begins()
    return wrapped(*args, **kwargs)


_TARGETS: Final = (
    ("run", _run, ("self", "tool_input"), False),
    ("arun", _arun, ("self", "tool_input"), True),
    ("_to_args_and_kwargs", _body, ("self", "tool_input", "tool_call_id"), False),  # the span is open, the body not called
)
"""Method of `BaseTool`, what goes around it, its first parameters, and whether it is a coroutine function."""


class LangChainErrors:
    """The hook. Takes effect when LangChain is imported, or at once if it is."""

    def __init__(self) -> None:
        self._left = False
        self._put: list[tuple[str, Any, Any]] = []
        wrapt.register_post_import_hook(self._imported, _MODULE)

    def _imported(self, module: Any) -> None:
        if self._left or self._put:
            return
        try:
            base = module.BaseTool
            found = {name: base.__dict__[name] for name, *_ in _TARGETS}
            odd = [name for name, _, first, awaited in _TARGETS if not _fits(found[name], first, awaited)]
        except (AttributeError, KeyError) as error:
            odd = [str(error)]
        if odd:
            _log.warning(
                "LangChain is of a version that genai_processor does not know (%s); it is left alone, "
                "and is_safe_to_retry answers False for what its tools raise",
                ", ".join(odd),
            )
            return
        for name, around, *_ in _TARGETS:
            wrapper = wrapt.FunctionWrapper(found[name], around, enabled=self._is_on)
            setattr(base, name, wrapper)
            self._put.append((name, wrapper, base))

    def _is_on(self) -> bool:
        return not self._left

    def leave(self) -> None:
        """Put back what was there; under somebody else's wrapper, do nothing any more."""
        self._left = True
        for name, wrapper, base in self._put:
            if base.__dict__.get(name) is wrapper:
                setattr(base, name, wrapper.__wrapped__)
        self._put.clear()


def _fits(method: Any, first: tuple[str, ...], awaited: bool) -> bool:
    names = tuple(inspect.signature(method).parameters)
    return names[: len(first)] == first and inspect.iscoroutinefunction(method) is awaited
