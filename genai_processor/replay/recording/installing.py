# SPDX-License-Identifier: Apache-2.0
"""Standing in front of models: in frameworks that are imported, and in those that will be.

A framework that is not laid out as its hook knows it is left alone, and that is said once. Nothing that goes wrong in a hook
reaches the application: its request is made as ever, and its span has no stamp.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from genai_processor.hooks import Hook as AnyHook
from genai_processor.hooks import Installation
from genai_processor.hooks import Target as AnyTarget
from genai_processor.places import UnknownPlaceError

_log = logging.getLogger(__name__)

HOOKS: Final = {
    "agents": ("genai_processor.replay.recording.openai_agents",),
    "langchain_core": ("genai_processor.replay.recording.langchain",),
    "pydantic_ai": ("genai_processor.replay.recording.pydantic_ai",),
}
"""Top-level package of a framework -> the modules whose `HOOK` stands in front of its models."""

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called instead of a method: with the method, bound, what it is bound to, and the arguments."""

Target = AnyTarget[Wrapper]
Hook = AnyHook[Wrapper]


class _Installed(Installation[Hook]):
    """What stands in front of models."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False
        self.said: set[str] = set()

    def install(self) -> None:
        self.on = True
        self._begin(HOOKS)

    def uninstall(self) -> None:
        self.on = False
        self._end()

    def _is_wanted(self) -> bool:
        return self.on

    def _cannot_load(self, module: str, error: Exception) -> None:
        _log.exception("The hook %s of a recording for replay could not be set up; requests there are not looked at", module)

    def _is_unknown(self, hook: Hook, target: Target, error: UnknownPlaceError) -> None:
        if target not in hook.optional:
            _log.warning(
                "%s %s is not laid out as genai_processor knows it (%s): what its models are asked is stamped only where "
                "their spans record it",
                hook.framework,
                hook.version,
                error,
            )

    def _kind(self, hook: Hook) -> str:
        return "recording"

    def _call(
        self, hook: Hook, target: Target, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return target.wrapper(wrapped, instance, args, kwargs) if self.on else wrapped(*args, **kwargs)


_installed: Final = _Installed()


def install() -> None:
    """Stand in front of every framework that there is a hook for, now or when it is imported. Idempotent."""
    _installed.install()


def uninstall() -> None:
    """Put back what was there. Under a stranger's wrapper ours has to stay, and lets everything pass."""
    _installed.uninstall()


def failed(framework: str) -> None:
    """Say once that something went wrong in a hook; called while an exception is handled."""
    if framework not in _installed.said:
        _installed.said.add(framework)
        _log.warning(
            "A request to a model of %s could not be looked at; its span may lack its stamp", framework, exc_info=True
        )
