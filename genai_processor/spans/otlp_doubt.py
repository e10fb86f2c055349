# SPDX-License-Identifier: Apache-2.0
"""Whether a text is OTLP/JSON at all: of one that is not, one error says so, and not one for every line."""

from __future__ import annotations

from collections.abc import Callable

_MOST = 100
"""How many errors are kept until it is known; what comes after them is counted."""


class Doubt:
    """Keeps the errors of a text back until something in it is OTLP/JSON, or it ends.

    Args:
        report: Takes the line and what is wrong there.
    """

    def __init__(self, report: Callable[[int | None, str], None]) -> None:
        self._report = report
        self._kept: list[tuple[int | None, str]] = []
        self._more = 0
        self._objects = 0
        self.is_open = True

    def look(self, line: bytes) -> None:
        """See whether a line was meant as OTLP/JSON, damaged or not."""
        if line.lstrip().startswith((b"{", b"[")) and b'"resource' in line:
            self.settle()
        elif line.lstrip().startswith(b'{"'):
            self._objects += 1

    def report(self, place: int | None, error: str) -> None:
        """Take an error: report it, or keep it back."""
        if not self.is_open:
            self._report(place, error)
        elif len(self._kept) < _MOST:
            self._kept.append((place, error))
        else:
            self._more += 1

    def settle(self) -> None:
        """It is OTLP/JSON: report what was kept back, and all that comes."""
        if self.is_open:
            self.is_open = False
            for place, error in self._kept:
                self._report(place, error)
            if self._more:
                self._report(None, f"{self._more} more lines before the first trace cannot be read")
            self._kept.clear()

    def end(self) -> None:
        """The text has ended: if nothing in it was OTLP/JSON, nor most of it damaged objects, say that once."""
        if self.is_open and self._kept and self._objects * 2 < len(self._kept) + self._more:
            self._kept.clear()
            self._more = 0
            self._report(
                None,
                "neither OTLP/JSON nor OTLP protobuf; name a file of traces as the collector's file exporter writes it, "
                'each line an object with "resourceSpans"',
            )
        self.settle()
