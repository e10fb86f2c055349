# SPDX-License-Identifier: Apache-2.0
"""Stories that go on in another process, with a ledger and a framework's state in files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from benchmarks.incidents.bodies import Body
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import Asks, Script, ask, refund

_SECONDS = 120
_DIED = 9


def in_two_processes(framework: str, story: str = "killed", *, ends_well: bool = False) -> Callable[[World], None]:
    """Return what tells a story in two processes, in the same folder: the first is killed, the second goes on.

    Args:
        framework: Module of this package that calls `main` with its stories.
        story: Name of the story.
        ends_well: The first is not killed.
    """
    first = 0 if ends_well else _DIED
    return lambda world: _run_twice(world, f"benchmarks.incidents.{framework}", story, first)


def _run_twice(world: World, module: str, story: str, first: int) -> None:
    from genai_processor.guard.hooks import active

    guard = active()
    with tempfile.TemporaryDirectory() as folder:
        for step in ("first", "then"):
            told = subprocess.run(
                [sys.executable, "-m", module, story, step, folder, "off" if guard is None else guard.mode.value],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            if told.returncode != (first if step == "first" else 0):
                raise AssertionError(f"{step}: {told.returncode}\n{told.stdout}\n{told.stderr}")
        effects = Path(folder, "effects")
        world.effects.extend(effects.read_text(encoding="utf-8").splitlines() if effects.exists() else ())


def land(folder: Path, effect: str) -> None:
    """The effect lands in the world outside of the process."""
    with open(folder / "effects", "a", encoding="utf-8") as file:
        file.write(f"{effect}\n")


def die() -> NoReturn:
    """The process is gone, as if it was killed."""
    os._exit(_DIED)


def pays_and_dies(step: str, folder: Path) -> Body:
    """A tool that pays; the process of the first step is killed before it can say so."""

    def refund(order: str) -> str:
        """Refund an order."""
        land(folder, order)
        if step == "first":
            die()
        return "paid"

    return refund


def pays_there(folder: Path) -> Body:
    """A tool that pays, and says so."""

    def refund(order: str) -> str:
        """Refund an order."""
        land(folder, order)
        return "paid"

    return refund


def dies_unseen(step: str) -> Script:
    """The model asks for a refund; the first process is killed as the result is on its way to the model."""
    return [refund(f"toolu_{step}", "o9")], die_unseen if step == "first" else "done"


def dies_unseen_asks(step: str) -> tuple[Asks, ...]:
    """As `dies_unseen`, for a model that gives its calls ids of its own."""
    return [ask()], die_unseen if step == "first" else []


def die_unseen() -> NoReturn:
    """The process is killed while its one call has ended well, and no model has seen that."""
    _make_sure("returned")
    die()


def all_is_told(step: str) -> None:
    """Make sure that a process which has ended has told the ledger that the model saw the result of its one call.

    Args:
        step: The one that goes on after it.
    """
    if step != "first":
        _make_sure("completed")


def _make_sure(state: str) -> None:
    from genai_processor.guard.hooks import active

    guard = active()
    if guard is not None:
        stand = {str(state): number for state, number in guard.ledger.counts().items() if number}
        assert stand == {state: 1}, stand


def main(stories: Mapping[str, Callable[[str, Path], None]]) -> None:
    """What a module with such stories runs: with a guard over a ledger in that folder."""
    from genai_processor.guard.guard import Guard
    from genai_processor.guard.hooks import install

    story, step, folder, mode = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    if mode != "off":
        install(Guard(f"sqlite:///{folder / 'ledger.db'}", mode=mode))
    stories[story](step, folder)
