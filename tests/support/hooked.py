# SPDX-License-Identifier: Apache-2.0
"""What the tests of every framework hook do: a guard in front of the framework, and what installing must and must not do."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.incidents.kit import Incident
from genai_processor.guard import hooks
from genai_processor.guard.actions import action_digest
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook
from genai_processor.ledger.entries import Entry
from genai_processor.places import Place, find


@contextmanager
def hooked(mode: str = "enforce", **kwargs: Any) -> Iterator[Guard]:
    """A guard that stands in front of whatever framework is imported."""
    guard = Guard(mode=mode, **kwargs)
    hooks.install(guard)
    try:
        yield guard
    finally:
        hooks.uninstall()


def entries(guard: Guard, scope: str, tool: str, **arguments: Any) -> list[Entry]:
    """The entries of an action, oldest first."""
    found = guard.ledger.by_action(scope, tool, action_digest(arguments))
    return sorted(found, key=lambda entry: entry.created_ns)


def states(guard: Guard, scope: str, tool: str, **arguments: Any) -> list[str]:
    """Where the calls of an action stand, oldest first."""
    return [entry.state.value for entry in entries(guard, scope, tool, **arguments)]


def targets(hook: Hook) -> list[Any]:
    """What stands where a hook wraps."""
    return [inspect.getattr_static(*place) for place in _places(hook)]


def _places(hook: Hook) -> list[Place]:
    return [find(target.module, target.name, target.parameters) for target in hook.targets]


def installing_tests(hook: Hook, incidents: Sequence[Incident]) -> tuple[Callable[..., None], ...]:
    """Return the tests of what installing a framework's hook must do, and must not."""

    def test_uninstalling_puts_back_what_was_there() -> None:
        before = targets(hook)
        with hooked():
            during = targets(hook)
            assert all(one is not other for one, other in zip(before, during, strict=True))
        assert all(one is other for one, other in zip(before, targets(hook), strict=True))

    def test_installing_again_wraps_nothing_twice() -> None:
        with hooked():
            once = targets(hook)
            with hooked():
                assert all(one is other for one, other in zip(once, targets(hook), strict=True))
                assert not any(hasattr(one.__wrapped__, "_self_genai_processor_hook") for one in once)

    def test_an_unknown_version_is_left_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        """Each target in turn takes other parameters than the hook expects."""
        places = _places(hook)
        for target, (owner, name) in zip(hook.targets, places, strict=True):
            if not target.parameters:
                continue
            caplog.clear()
            with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
                patched.setattr(owner, name, lambda: None)
                before = [inspect.getattr_static(*place) for place in places]
                with hooked():
                    now = [inspect.getattr_static(*place) for place in places]
                    assert all(one is other for one, other in zip(now, before, strict=True)), target
            said = [record for record in caplog.records if hook.framework in record.getMessage()]
            assert len(said) == 1, (target, [record.getMessage() for record in said])
            assert "not laid out as the guard knows it" in said[0].getMessage()
            assert "(unknown version)" not in said[0].getMessage()

    def test_a_guard_may_be_there_before_the_framework() -> None:
        told = next(one for one in incidents if one.bare > one.enforced and not one.elsewhere)
        assert _effects_of_a_guard_that_was_there_first(hook, told.name) == told.enforced

    return (
        test_uninstalling_puts_back_what_was_there,
        test_installing_again_wraps_nothing_twice,
        test_an_unknown_version_is_left_alone,
        test_a_guard_may_be_there_before_the_framework,
    )


_GUARD_FIRST = """
import importlib, sys
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard
hooks.install(Guard())
from benchmarks.incidents.kit import count
told = {incident.name: incident for incident in importlib.import_module(sys.argv[1]).INCIDENTS}
print("EFFECTS", count(told[sys.argv[2]]))
"""


def _effects_of_a_guard_that_was_there_first(hook: Hook, incident: str) -> int:
    """Tell an incident in a process in which the guard is installed before the framework is imported."""
    ours = {name: module for name, module in sys.modules.items() if name.startswith("genai_processor.guard.hooks.")}
    name = next(name for name, module in ours.items() if getattr(module, "HOOK", None) is hook)
    done = subprocess.run(
        [sys.executable, "-c", _GUARD_FIRST, f"benchmarks.incidents.{name.rpartition('.')[2]}", incident],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
    )
    [line] = [line for line in done.stdout.splitlines() if line.startswith("EFFECTS ")]
    return int(line.removeprefix("EFFECTS "))
