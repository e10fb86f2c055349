# SPDX-License-Identifier: Apache-2.0
"""What a person says who settles an entry, on the command line or when asked, and what follows from it."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import typer

from genai_processor.cli.console import printable, usage_error
from genai_processor.ledger import Entry, Resolution

ENFORCED: Final = (
    "A guard in mode enforce on this ledger holds everybody to that; without one, whoever runs the call again has to look."
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What was said on the command line: None where nothing was.

    Attributes:
        who: Who settles.
        note: On what ground.
        version: The version that they read.
    """

    who: str | None
    note: str | None
    version: int | None

    def check(self) -> None:
        """End the command if something is missing and there is nobody to ask."""
        missing = [f"--{name}" for name in ("who", "note", "version") if getattr(self, name) is None]
        if missing and not _is_somebody_there():
            raise usage_error(", ".join(missing), "has to be said where there is no terminal to ask for it")

    def complete(self, show: Callable[[], Entry]) -> tuple[str, str, int]:
        """Ask for what is missing.

        Args:
            show: Shows the entry, and returns it; called before anything is asked. What is shown is the version read.

        Returns:
            Who, the ground, and the version.
        """
        who, note, version = self.who, self.note, self.version
        if who is None or note is None or version is None:
            entry = show()
            version = entry.version if version is None else version
            who = typer.prompt("Who settles it", default=_logged_in(), err=True) if who is None else who
            note = typer.prompt("On what ground", err=True) if note is None else note
        return who, note, version


def meaning(entry: Entry, resolution: Resolution) -> str:
    """Say what a settlement says of a call, and what it lets happen."""
    call = f"this call of {printable(entry.tool)}"
    if resolution is Resolution.COMMITTED:
        return f"{call} committed. Nothing is released: it is not to be run again."
    if resolution is Resolution.COMPENSATED:
        return f"{call} committed and was undone. Nothing is released."
    return (
        f"{call} did not commit. One new attempt of it is released, and no second: how that one ends decides. "
        "It is still refused where another entry of the same action waits, or was settled as committed."
    )


def _is_somebody_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def _logged_in() -> str | None:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return None
