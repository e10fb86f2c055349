# SPDX-License-Identifier: Apache-2.0
"""What stands in for a ledger that cannot be opened, where nothing may be taken for granted without it."""

from __future__ import annotations

from typing import Any, NoReturn

from genai_processor.errors import LedgerUnavailableError


class MissingLedger:
    """A `Ledger` that is never there: each of its methods raises `LedgerUnavailableError`.

    Args:
        why: A sentence: which ledger was wanted, and why there is none.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def fail(*args: Any, **kwargs: Any) -> NoReturn:
            raise LedgerUnavailableError(self._why)

        return fail

    def close(self) -> None:
        """There is nothing to close."""
