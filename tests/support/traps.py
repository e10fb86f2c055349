# SPDX-License-Identifier: Apache-2.0
"""What must not be reached, and notices when it is, whatever a framework makes of the exception."""

from __future__ import annotations

from typing import NoReturn


class Trap:
    """Remembers what has sprung it."""

    def __init__(self) -> None:
        self.sprung: list[str] = []

    def spring(self, what: str) -> NoReturn:
        """Say that something ran."""
        self.sprung.append(what)
        raise AssertionError(f"{what} was reached")
