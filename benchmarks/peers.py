# SPDX-License-Identifier: Apache-2.0
"""What it costs to run a call once: the ledger and the guard beside a dictionary, bare statements, and other packages.

    python -m benchmarks.peers [--calls N]

Every row claims a new call, runs an empty body, and records its end. The rounds alternate; each figure is the median over
them. How durably each of them writes differs: what SQLite was told is in the last column (the journal, and its own word for
the level of `synchronous`: NORMAL may lose the last calls with the machine's power, FULL does not).
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sqlite import by_hand
from genai_processor import Guard
from genai_processor.ledger import Claim, Granted, Ledger, MemoryLedger, Outcome, open_ledger

_ROUNDS = 9
OWN = "wal, FULL"
DURABLE = ("wal, NORMAL", "wal, FULL", "delete, FULL")
"""What exactly-once 0.2.1, agent-once 0.1.0 and DBOS 3.4.0 say to SQLite; read in their sources."""
_numbers = count()


class Row(NamedTuple):
    """One way to do it.

    Attributes:
        name: For the table.
        call: Runs one call.
        durable: How durably it writes, for people.
    """

    name: str
    call: Callable[[], object]
    durable: str = ""


def dictionary() -> Callable[[], object]:
    lock, calls = threading.Lock(), dict[tuple[str, str], str]()

    def call() -> None:
        key = ("pay", f"toolu_{next(_numbers)}x")
        with lock:
            if key in calls:
                raise RuntimeError("repeated")
            calls[key] = "claimed"
        with lock:
            calls[key] = "completed"

    return call


def ledger(opened: Ledger) -> Callable[[], object]:
    def call() -> None:
        number = next(_numbers)
        answer = opened.claim(Claim(f"s{number % 50}", "pay", f"toolu_{number}x", f"d{number}", f"t{number}"))
        assert isinstance(answer, Granted)
        opened.finish(answer.entry, Outcome.RETURNED)

    return call


def guard(url: str) -> Callable[[], object]:
    made = Guard(url)

    def call() -> None:
        number = next(_numbers)
        with made.call("pay", f"toolu_{number}x", {"order": number}, scope=f"s{number % 50}", turn=f"t{number}"):
            pass

    return call


def exactly_once(store: Any) -> Callable[[], object]:
    from exactly_once import once

    def call() -> None:
        with once(store, key=f"pay:{next(_numbers)}") as effect:
            effect.result = None

    return call


def agent_once(path: str) -> Callable[[], object]:
    from once import Once

    made = Once(path)

    @made.tool
    def pay(order: int) -> None:
        return None

    def call() -> None:
        with made.scope("s"):
            pay(next(_numbers))

    return call


def dbos(path: str) -> Callable[[int], float]:
    """Seconds for each of so many steps of one workflow: steps are what DBOS runs once."""
    from dbos import DBOS

    DBOS(config={"name": "peers", "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"})

    @DBOS.step()
    def step(number: int) -> None:
        return None

    @DBOS.workflow()
    def workflow(calls: int) -> float:
        began = time.perf_counter()
        for number in range(calls):
            step(number)
        return (time.perf_counter() - began) / calls

    DBOS.launch()
    return workflow


def seconds(call: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def compare(title: str, rows: list[Row], calls: int) -> None:
    taken: dict[str, list[float]] = {row.name: [] for row in rows}
    for row in rows:
        seconds(row.call, max(1, calls // 10))
    for _ in range(_ROUNDS):
        for row in rows:
            taken[row.name].append(seconds(row.call, calls))
    base = statistics.median(taken[rows[0].name])
    print(f"\n{title:<44} {'us a call':>10} {'times':>8}")
    for row in rows:
        median = statistics.median(taken[row.name])
        print(f"  {row.name:<42} {median * 1e6:>10.1f} {median / base:>8.2f}  {row.durable}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300, help="in each round")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    from exactly_once import Store

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compare(
            "in memory",
            [
                Row("a dictionary under a lock", dictionary()),
                Row("MemoryLedger: claim, finish", ledger(MemoryLedger())),
                Row("Guard.call", guard("memory:")),
                Row("exactly-once, Store.memory", exactly_once(Store.memory())),
                Row("agent-once, SQLite in memory", agent_once(":memory:")),
            ],
            given.calls * 10,
        )
        files = {kind: folder / f"{kind}.db" for kind in ("bare", "ledger", "guard", "exactly", "agent")}
        rows = [
            Row("the bare statements", by_hand(str(files["bare"])), OWN),
            Row("SQLiteLedger: claim, finish", ledger(open_ledger(f"sqlite:///{files['ledger']}")), OWN),
            Row("Guard.call", guard(f"sqlite:///{files['guard']}"), OWN),
            Row("exactly-once, Store.sqlite", exactly_once(Store.sqlite(str(files["exactly"]))), DURABLE[0]),
            Row("agent-once", agent_once(str(files["agent"])), DURABLE[1]),
        ]
        step = dbos(str(folder / "dbos.db"))
        compare("in a SQLite file", rows, given.calls)
        steps = [step(given.calls) for _ in range(_ROUNDS)]
        print(
            f"  {'DBOS step (one record, after it ran)':<42} {statistics.median(steps) * 1e6:>10.1f} {'':>8}  {DURABLE[2]}"
        )
    os._exit(0)  # DBOS has threads that would go on


if __name__ == "__main__":
    main()
