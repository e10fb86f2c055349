# SPDX-License-Identifier: Apache-2.0
"""How far a scan is, on standard error, for a person who has waited for a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_PATIENCE = 1.0


class ScanProgress:
    """A context manager; inside, `update` takes what `read_batches` reports.

    Args:
        wanted: Show anything at all; a terminal on standard error is needed besides.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = 0

    def __enter__(self) -> ScanProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Take it off the screen for good."""
        self._wanted = False
        if self._bar is not None:
            self._bar.stop()

    def update(self, read: int, size: int | None) -> None:
        """Note that `read` bytes of the current file, of `size` if that is known, have been read."""
        if not self._wanted:
            return
        if self._bar is None or self._task is None:
            if time.monotonic() - self._began < _PATIENCE:
                return
            columns = (TextColumn("scanning"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("scan", total=size)
            self._bar.start()
        elif read < self._last:  # the next file
            self._bar.reset(self._task, total=size)
        self._last = read
        self._bar.update(self._task, completed=read, total=size)
