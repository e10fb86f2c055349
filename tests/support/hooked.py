# SPDX-License-Identifier: Apache-2.0
"""What the tests of every framework hook do: a guard in front of the framework, and what installing must and must not do."""

from __future__ import annotations

import inspect
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import wrapt

from genai_processor.guard import hooks
from genai_processor.guard.actions import action_digest
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks.base import Hook
from genai_processor.ledger.entries import Entry


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
    return [_target(target.module, target.name) for target in hook.targets]


def _target(module: str, path: str) -> Any:
    owner, name, _ = wrapt.resolve_path(module, path)
    return inspect.getattr_static(owner, name)


def effects_of_a_guard_that_was_there_first(story: str) -> list[str]:
    """Tell a story in a process in which the guard is installed before the framework is imported.

    Args:
        story: Module of the incidents, and the function that tells it, as in `module:function`.
    """
    code = (
        "import importlib, json, sys\n"
        "from genai_processor.guard import hooks\n"
        "from genai_processor.guard.guard import Guard\n"
        "hooks.install(Guard())\n"
        "from benchmarks.incidents.kit import World\n"
        "module, _, name = sys.argv[1].partition(':')\n"
        "world = World()\n"
        "getattr(importlib.import_module(module), name)(world)\n"
        "print('EFFECTS', json.dumps(world.effects))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, story],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("EFFECTS ")]
    return list(json.loads(line.removeprefix("EFFECTS ")))


def check_that_uninstalling_puts_back_what_was_there(hook: Hook) -> None:
    before = targets(hook)
    with hooked():
        during = targets(hook)
        assert all(one is not other for one, other in zip(before, during, strict=True))
    assert all(one is other for one, other in zip(before, targets(hook), strict=True))


def check_that_installing_again_wraps_nothing_twice(hook: Hook) -> None:
    with hooked():
        once = targets(hook)
        with hooked():
            assert all(one is other for one, other in zip(once, targets(hook), strict=True))
            assert not any(hasattr(one.__wrapped__, "_self_genai_processor_hook") for one in once)


def check_that_an_unknown_version_is_left_alone(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each target in turn takes other parameters than the hook expects."""
    for target in hook.targets:
        if not target.parameters:
            continue
        owner, name, _ = wrapt.resolve_path(target.module, target.name)
        caplog.clear()
        with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
            patched.setattr(owner, name, lambda: None)
            before = targets(hook)
            with hooked():
                assert all(one is other for one, other in zip(before, targets(hook), strict=True)), target
        said = [record for record in caplog.records if hook.framework in record.getMessage()]
        assert len(said) == 1, (target, [record.getMessage() for record in said])
        assert "not laid out as the guard knows it" in said[0].getMessage()
