# SPDX-License-Identifier: Apache-2.0
"""The ledger that a command works on: named by an option or the environment, opened, and never made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer

from genai_processor.cli.console import printable, usage_error, warn
from genai_processor.errors import LedgerError, LedgerUnavailableError, LedgerURLError
from genai_processor.ledger import Ledger, open_ledger
from genai_processor.settings import PREFIX, Settings

REFUSED: Final = 1
"""Exit status where the ledger refuses: no such entry, say."""
UNAVAILABLE: Final = 4
"""Exit status where the ledger cannot be used, as where there is none."""

LedgerOption = Annotated[
    str | None,
    typer.Option("--ledger", metavar="URL", help="The ledger, as in sqlite:///PATH. Beats GENAI_PROCESSOR_LEDGER."),
]


@contextmanager
def opened_ledger(url: str | None) -> Iterator[Ledger]:
    """Open the ledger that a URL or the environment names; its errors end the command with one line."""
    where = "--ledger" if url else f"{PREFIX}LEDGER"
    url = url or Settings.from_environ(os.environ, warn).ledger
    if url.partition(":")[0].lower() == "memory":
        raise usage_error(
            where,
            "a ledger in memory ends with its process, so there is nothing to see from here; "
            "name one that lasts, as in --ledger sqlite:///PATH, or set GENAI_PROCESSOR_LEDGER",
        )
    try:
        ledger = open_ledger(_existing(url))
        try:
            yield ledger
        finally:
            ledger.close()
    except LedgerURLError as error:
        raise usage_error(where, str(error).replace(_existing(url), url)) from error
    except LedgerError as error:
        warn(printable(str(error)))
        raise typer.Exit(UNAVAILABLE if isinstance(error, LedgerUnavailableError) else REFUSED) from error


def _existing(url: str) -> str:
    """The URL of a ledger that is not to be made: a file, or what a server would be given. Others know no such option."""
    if url.partition(":")[0].lower() not in ("sqlite", "redis", "rediss", "postgresql", "postgres"):
        return url
    return f"{url}{'&' if '?' in url else '?'}create=false"
