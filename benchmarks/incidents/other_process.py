# SPDX-License-Identifier: Apache-2.0
"""Stories that go on in another process, with a ledger and a framework's state in files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.incidents.bodies import Body
from benchmarks.incidents.kit import World

_SECONDS = 120
_DIED = 9


def in_two_processes(framework: str, story: str = "killed") -> Callable[[World], None]:
    """Return what tells a story in two processes, in the same folder: the first is killed, the second goes on.

    Args:
        framework: Module of this package that calls `main` with its stories.
        story: Name of the story.
    """
    return lambda world: _run_twice(world, f"benchmarks.incidents.{framework}", story)


def _run_twice(world: World, module: str, story: str) -> None:
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
            if told.returncode != (_DIED if step == "first" else 0):
                raise AssertionError(f"{step}: {told.returncode}\n{told.stdout}\n{told.stderr}")
        effects = Path(folder, "effects")
        world.effects.extend(effects.read_text(encoding="utf-8").splitlines() if effects.exists() else ())


def land(folder: Path, effect: str) -> None:
    """The effect lands in the world outside of the process."""
    with open(folder / "effects", "a", encoding="utf-8") as file:
        file.write(f"{effect}\n")


def die() -> None:
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


def main(stories: Mapping[str, Callable[[str, Path], None]]) -> None:
    """What a module with such stories runs: with a guard over a ledger in that folder."""
    from genai_processor.guard.guard import Guard
    from genai_processor.guard.hooks import install

    story, step, folder, mode = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    if mode != "off":
        install(Guard(f"sqlite:///{folder / 'ledger.db'}", mode=mode))
    stories[story](step, folder)
