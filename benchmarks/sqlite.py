# SPDX-License-Identifier: Apache-2.0
"""What a ledger in a SQLite file costs beside the bare statements, written through to the disk just as often.

    python -m benchmarks.sqlite [--calls N]

Both claim a call and note its end: two transactions, in which the rows that bear on the claim are read, one row is added,
and that row is read and changed. The rounds alternate; each figure is the median over them.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from genai_processor.ledger import Claim, Granted, Outcome
from genai_processor.ledger.rows import COLUMNS, row_of
from genai_processor.ledger.sqlite import SQLiteLedger

_ROUNDS = 9
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM genai_ledger_entries"
_INSERT = f"INSERT INTO genai_ledger_entries VALUES ({', '.join('?' * len(COLUMNS))})"
_UPDATE = (
    "UPDATE genai_ledger_entries SET state = ?, version = ?, updated_ns = ?, history = ? WHERE entry_id = ? AND version = ?"
)
_HISTORY = '[{"at_ns": 1, "before": "claimed", "after": "completed", "event": "returned", "reason": null, "who": null}]'
_BEARING = (
    f"{_SELECT} WHERE scope = ? AND tool = ? AND state IN ('claimed', 'quarantined', 'undelivered')"
    f" UNION {_SELECT} WHERE scope = ? AND call_id = ?"
    f" UNION {_SELECT} WHERE scope = ? AND tool = ? AND digest = ?"
)
_numbers = count()


def through_the_ledger(path: str) -> Callable[[], None]:
    """Claim and finish by the rules."""
    ledger = SQLiteLedger(path)

    def call() -> None:
        number = next(_numbers)
        answer = ledger.claim(Claim(f"s{number % 50}", "pay", f"toolu_{number}x", f"d{number}", f"t{number}"))
        assert isinstance(answer, Granted)
        ledger.finish(answer.entry, Outcome.RETURNED)

    return call


def by_hand(path: str) -> Callable[[], None]:
    """The same statements on the same tables, without any rule."""
    template = SQLiteLedger(path)
    granted = template.claim(Claim("template", "pay", "toolu_x", "d", "t"))
    assert isinstance(granted, Granted)
    row = row_of(granted.entry)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")

    def call() -> None:
        number = next(_numbers)
        entry_id, scope, call_id, digest = f"e{number}", f"s{number % 50}", f"toolu_{number}x", f"d{number}"
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_BEARING, (scope, "pay", scope, call_id, scope, "pay", digest)).fetchall()
        own = dict(zip(COLUMNS, row, strict=True)) | {
            "entry_id": entry_id,
            "scope": scope,
            "call_id": call_id,
            "digest": digest,
        }
        connection.execute(_INSERT, tuple(own.values()))
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"{_SELECT} WHERE entry_id = ?", (entry_id,)).fetchall()
        connection.execute(_UPDATE, ("completed", 2, time.time_ns(), _HISTORY, entry_id, 1))
        connection.execute("COMMIT")

    return call


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="per round")
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory(dir=".") as folder:
        ways = {
            "bare statements": by_hand(str(Path(folder, "bare.db"))),
            "the ledger": through_the_ledger(str(Path(folder, "ledger.db"))),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for round_number in range(_ROUNDS + 1):
            for name, call in ways.items():
                begin = time.perf_counter()
                for _ in range(calls):
                    call()
                if round_number:  # the first warms up
                    times[name].append((time.perf_counter() - begin) / calls)
    print(f"{'claim and finish a call':26s} {'µs':>8s} {'ratio':>6s}")
    bare = statistics.median(times["bare statements"])
    for name, found in times.items():
        ratio = statistics.median(one / two for one, two in zip(found, times["bare statements"], strict=True))
        print(f"{name:26s} {statistics.median(found) * 1e6:8.1f} {ratio:6.2f}{'' if name != 'the ledger' else '  <= 1.3'}")
    assert bare


if __name__ == "__main__":
    main()
