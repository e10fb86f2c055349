# SPDX-License-Identifier: Apache-2.0
"""How long the queue takes to answer when very much waits in it.

    python -m benchmarks.queue [--entries N]

A SQLite ledger in which N calls wait: of twenty tools and of a rare one, in N / 100 scopes, one in a hundred undelivered,
made a second apart. Each question is asked several times through `Ledger.pending`, by a ledger that has been opened anew;
the figure is the median. The last rows run the command itself, interpreter and output included.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from genai_processor.ledger import Entry, Query, Sighting, State
from genai_processor.ledger.noted import entry_of
from genai_processor.ledger.rows import COLUMNS, row_of
from genai_processor.ledger.sqlite import SQLiteLedger

_ASKED = 5
_PAGE = 100
_RARE = 10_000  # one call in so many is of the rare tool
_BEGIN_NS = 1_700_000_000 * 10**9
_SECOND_NS = 10**9


def entries(number: int) -> Iterator[Entry]:
    """What waits, oldest first."""
    scopes = max(1, number // 100)
    for n in range(number):
        tool = "rare_tool" if n % _RARE == _RARE // 2 else f"tool_{n % 20}"
        state = State.UNDELIVERED if n % 100 == 0 else State.QUARANTINED
        seen = Sighting(
            f"conversation-{n * 7919 % scopes}",
            tool,
            state,
            f"toolu_{n:024d}x",
            f"{n:064x}",
            reason="commitment_marker",
            trace_id=f"{n:032x}",
            span_id=f"{n:016x}",
        )
        yield entry_of((f"{n * 2654435761 % 2**128:032x}", _BEGIN_NS + n * _SECOND_NS, 0, seen))


def fill(path: Path, number: int) -> None:
    """Make the ledger, past its own rules, which would take an hour."""
    ledger = SQLiteLedger(str(path))
    ledger.counts()
    ledger.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    marks = ", ".join("?" * len(COLUMNS))
    connection.executemany(f"INSERT INTO genai_ledger_entries VALUES ({marks})", map(row_of, entries(number)))
    connection.commit()
    connection.close()


def cursor_at(number: int) -> str | None:
    """The cursor of the page that begins behind so many entries."""
    if number <= 0:
        return None
    last = number - 1
    return f"{_BEGIN_NS + last * _SECOND_NS}:{last * 2654435761 % 2**128:032x}"


def ask(path: Path, query: Query, cursor: str | None) -> tuple[float, int]:
    """Seconds, and how many entries the page has."""
    took = []
    for _ in range(_ASKED):
        ledger = SQLiteLedger(str(path), create=False)
        ledger.get("nobody")  # opens the file
        begin = time.perf_counter()
        page = ledger.pending(query, limit=_PAGE, cursor=cursor)
        took.append(time.perf_counter() - begin)
        ledger.close()
    return statistics.median(took), len(page.entries)


def command(path: Path, *arguments: str) -> float:
    """Seconds that the command takes."""
    run = [sys.executable, "-m", "genai_processor", *arguments]
    environ = {**os.environ, "GENAI_PROCESSOR_LEDGER": f"sqlite:///{path}"}
    begin = time.perf_counter()
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL, env=environ)
    return time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    number = parser.parse_args().entries
    middle_ns = _BEGIN_NS + number // 2 * _SECOND_NS
    scope = f"conversation-{max(1, number // 100) // 2}"
    questions: dict[str, tuple[Query, str | None]] = {
        "first page": (Query(), None),
        "middle page": (Query(), cursor_at(number // 2)),
        "last page": (Query(), cursor_at(number - _PAGE)),
        "--tool, a common one": (Query(tool="tool_7"), None),
        "--tool, a common one, middle page": (Query(tool="tool_7"), cursor_at(number // 2)),
        "--tool, a rare one": (Query(tool="rare_tool"), None),
        "--tool, one that is not there": (Query(tool="no_such_tool"), None),
        "--scope": (Query(scope=scope), None),
        "--scope, one that is not there": (Query(scope="nowhere"), None),
        "--scope --tool": (Query(scope=scope, tool="rare_tool"), None),
        "--state undelivered": (Query(state=State.UNDELIVERED), None),
        "--state undelivered, last page": (Query(state=State.UNDELIVERED), cursor_at(number - _PAGE * 100)),
        "--state undelivered --tool": (Query(state=State.UNDELIVERED, tool="rare_tool"), None),
        "--older-than": (Query(created_before_ns=middle_ns), None),
        "--older-than --tool": (Query(tool="rare_tool", created_before_ns=middle_ns), None),
    }
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = Path(folder, "ledger.db")
        begin = time.perf_counter()
        fill(path, number)
        print(f"{number} calls wait; {path.stat().st_size / 2**20:.0f} MiB; made in {time.perf_counter() - begin:.0f} s")
        print(f"\n{'a page of ' + str(_PAGE):36s} {'ms':>9s} {'rows':>5s}")
        for name, (query, cursor) in questions.items():
            seconds, rows = ask(path, query, cursor)
            print(f"{name:36s} {seconds * 1e3:9.1f} {rows:5d}", flush=True)
        print(f"\n{'genai-processor':36s} {'s':>9s}")
        for arguments in (["queue"], ["queue", "--trace", f"{number // 2:032x}"], ["export"]):
            print(f"{' '.join(arguments)[:36]:36s} {command(path, *arguments):9.1f}", flush=True)


if __name__ == "__main__":
    main()
