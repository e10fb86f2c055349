# SPDX-License-Identifier: Apache-2.0
"""The standard output, to which the answer goes: it may be closed, full, or read by somebody who leaves early."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

UNWRITTEN: Final = 3
"""Exit status: the answer could not be written."""

READER_LEFT: Final = 141
"""Exit status: whoever read the answer left early. It is what a shell reports of tools that SIGPIPE ends."""


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Write the answer inside.

    Raises:
        SystemExit: It cannot be written. Where its reader left, nothing is said of it.
    """
    if sys.stdout is None:  # closed before the interpreter started
        _fail("it is closed")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, and not when the interpreter ends
    except BrokenPipeError:
        _discard()
        sys.exit(READER_LEFT)
    except OSError as error:
        if error.filename is not None:  # not of the standard output
            raise
        _discard()
        _fail(error.strerror or str(error))


def _discard() -> None:
    """Give what is buffered a place to go: the interpreter flushes once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(reason: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # as full as the other
            sys.stderr.write(f"genai-processor: standard output: cannot be written: {reason}\n")
            sys.stderr.flush()
    sys.exit(UNWRITTEN)
