# SPDX-License-Identifier: Apache-2.0
"""An answer that goes to a file."""

from __future__ import annotations

import os
from collections.abc import Iterable

import typer

from genai_processor.cli.answer import UNWRITTEN
from genai_processor.cli.console import printable, usage_error, warn


def spare_inputs(output: str | None, inputs: Iterable[str]) -> None:
    """See that the answer does not take the place of what is read.

    Args:
        output: Where the answer goes; None is the standard output.
        inputs: The files that are read.

    Raises:
        typer.Exit: It would: that is a fault of the command line.
    """
    if output is None or not os.path.exists(output):
        return
    for file in inputs:
        if os.path.exists(file) and os.path.samefile(file, output):
            raise usage_error("--output", f"{output} is read, too; name another file")


def save(output: str, answer: bytes) -> None:
    """Write an answer to a file, in place of what is there.

    Raises:
        typer.Exit: It cannot be written.
    """
    try:
        with open(output, "wb") as file:
            file.write(answer)
    except OSError as error:
        warn(f"{printable(output)}: cannot be written: {error.strerror or error}")
        raise typer.Exit(UNWRITTEN) from None
