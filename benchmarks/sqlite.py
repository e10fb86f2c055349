# SPDX-License-Identifier: Apache-2.0
"""What a ledger in a SQLite file costs beside the same statements alone, written through to the disk just as often.

    python -m benchmarks.sqlite [--calls N]

Both claim a call and note its end: two transactions. What the ledger sends is listened to once, and then sent again for
other calls by the bare connection, on a file of the same tables. The rounds alternate; each figure is the median over them.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from genai_processor.ledger import Claim, Granted, Outcome
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.sqlite import SQLiteLedger
from genai_processor.ledger.sqlite_file import Opened

_ROUNDS = 15
_numbers = count()
Statement = tuple[str, Sequence[Any]]


def _claim(number: object) -> Claim:
    return Claim(f"s{number}", "pay", f"toolu_{number}x", f"d{number}", f"t{number}")


def through_the_ledger(path: str) -> Callable[[], None]:
    """Claim and finish by the rules."""
    ledger = SQLiteLedger(path)

    def call() -> None:
        answer = ledger.claim(_claim(next(_numbers)))
        assert isinstance(answer, Granted)
        ledger.finish(answer.entry, Outcome.RETURNED)

    return call


class Statements:
    """The statements of the ledger, without any rule.

    Args:
        path: The file, which the ledger makes.
    """

    def __init__(self, path: str) -> None:
        self._sent: list[Statement] = []
        execute = Opened.execute

        def listening(opened: Opened, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
            self._sent.append((statement, parameters))
            return execute(opened, statement, parameters)

        ledger = SQLiteLedger(path)
        Opened.execute = listening  # type: ignore[method-assign]
        try:
            self._claim(ledger, "first")  # opens the file, and looks for what has expired
            self._sent.clear()
            entry = self._claim(ledger, "learned")
            self._at_end = len(self._sent)
            ledger.finish(entry, Outcome.RETURNED)
        finally:
            Opened.execute = execute  # type: ignore[method-assign]
        ledger.close()
        self._entry_id = entry.entry_id
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA synchronous=FULL")

    def _claim(self, ledger: SQLiteLedger, name: str) -> Any:
        answer = ledger.claim(_claim(name))
        assert isinstance(answer, Granted)
        return answer.entry

    def of_another_call(self) -> list[Statement]:
        """Return the statements for a call that was not made yet."""
        number = next(_numbers)
        own = dict(zip([self._entry_id, *_values("learned")], [random_id(), *_values(number)], strict=True))
        return [
            (statement, [own.get(value, value) if isinstance(value, str) else value for value in parameters])
            for statement, parameters in self._sent
        ]

    def send(self, statements: list[Statement]) -> None:
        """Run them: two transactions."""
        execute = self._connection.execute
        for part in (statements[: self._at_end], statements[self._at_end :]):
            execute("BEGIN IMMEDIATE")
            for statement, parameters in part:
                execute(statement, parameters).fetchall()
            execute("COMMIT")


def _values(number: object) -> list[str]:
    claim = _claim(number)
    return [claim.scope, claim.call_id or "", claim.digest or "", claim.turn or ""]


def by_hand(path: str) -> Callable[[], None]:
    """The same statements, on the same tables."""
    statements = Statements(path)
    return lambda: statements.send(statements.of_another_call())


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="per round")
    calls = parser.parse_args().calls
    times: dict[str, list[float]] = {"the bare statements": [], "the ledger": []}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        statements = Statements(str(Path(folder, "bare.db")))
        claim_and_finish = through_the_ledger(str(Path(folder, "ledger.db")))

        def bare() -> float:
            prepared = [statements.of_another_call() for _ in range(calls)]
            begin = time.perf_counter()
            for one in prepared:
                statements.send(one)
            return time.perf_counter() - begin

        def ruled() -> float:
            begin = time.perf_counter()
            for _ in range(calls):
                claim_and_finish()
            return time.perf_counter() - begin

        ways = {"the bare statements": bare, "the ledger": ruled}
        for round_number in range(_ROUNDS + 1):
            for name in ways if round_number % 2 else reversed(ways):
                seconds = ways[name]()
                if round_number:  # the first warms up
                    times[name].append(seconds / calls)
    print(f"{'claim and finish a call':26s} {'µs':>8s} {'ratio':>6s}")
    for name, found in times.items():
        ratio = statistics.median(one / two for one, two in zip(found, times["the bare statements"], strict=True))
        print(f"{name:26s} {statistics.median(found) * 1e6:8.1f} {ratio:6.2f}{'' if name != 'the ledger' else '  <= 1.3'}")


if __name__ == "__main__":
    main()
