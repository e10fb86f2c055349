# SPDX-License-Identifier: Apache-2.0
"""The two streams of a command: the answer, and what has to be said beside it."""

from __future__ import annotations

import os
import sys

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console

PIPED_WIDTH = 120
"""How wide is what goes to a file or a pipe."""

_USAGE = 2


class _Console(Console):
    """Leaves a closed pipe to `answering`, as every other fault of the output."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Standard output. What is piped is made for a wide reader, unless COLUMNS says otherwise."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    piped = not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    return _Console(width=PIPED_WIDTH if piped else None)


def errors() -> Console:
    """Standard error, for what a person at the terminal is to read while the answer may go elsewhere."""
    return Console(stderr=True)


def warn(sentence: str) -> None:
    """Say something beside the answer."""
    typer.echo(f"genai-processor: {sentence}", err=True)


def usage_error(where: str, sentence: str) -> typer.Exit:
    """Say in one line what is wrong with the command line; returns what ends the command."""
    warn(f"{where}: {printable(sentence)}")
    return typer.Exit(_USAGE)


def printable(text: str) -> str:
    """The text with whatever a terminal might obey, or cannot show, escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def as_cell(text: str, width: int) -> str:
    """The text in so many columns of a terminal: filled up, or cut."""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
