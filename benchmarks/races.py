# SPDX-License-Identifier: Apache-2.0
"""Processes and threads that claim the same calls at once.

    python -m benchmarks.races [--calls N] [--processes N] [--threads N] [STORE ...]

Every thread of every process makes every call, each in an order of its own. Once plainly; on a server also with the clocks
of half the processes an hour ahead, with the server killed and started again in the middle, and with connections cut in the
middle of claims, before they arrive or before their answers do. Exits with 1 if an effect happened twice, or if one never
happened though its call does not wait for a person.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from benchmarks.stores import STORES, Store
from genai_processor import Guard
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.ledger import open_ledger
from tests.support.wire import Wire

HOUR_NS = 3_600 * 10**9


def work(url: str, path: Path, scope: str, calls: int, threads: int, ahead_ns: int, begin: multiprocessing.Event) -> None:
    """One process."""
    if ahead_ns:
        now_ns, now = time.time_ns, time.time
        time.time_ns = lambda: now_ns() + ahead_ns
        time.time = lambda: now() + ahead_ns / 1e9
    logging.getLogger("genai_processor").setLevel(logging.CRITICAL)
    guard = Guard(url, lease_seconds=60, scope=scope)

    def claim_all() -> None:
        order = list(range(calls))
        random.shuffle(order)
        with path.open("ab", buffering=0) as file:
            begin.wait()
            for call in order:
                while True:
                    try:
                        with guard.call("pay", f"toolu_{call}a", {"order": call}, turn="t"):
                            file.write(f"{call}\n".encode())
                    except ToolSpanCommitmentError as error:
                        if error.reason == "ledger_unavailable":
                            time.sleep(0.05)  # its server is being started again
                            continue
                    break

    running = [threading.Thread(target=claim_all) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def race(store: Store, what: str, calls: int, processes: int, threads: int) -> bool:
    context = multiprocessing.get_context("spawn")
    begin = context.Event()
    scope = f"{what}-{os.getpid()}"
    cutting = Wire(store.server.port) if what == "cut" and store.server is not None else None
    with tempfile.TemporaryDirectory() as folder, cutting or nullcontext() as wire:
        url = store.url if wire is None or store.server is None else store.server.url(wire.port)
        path = Path(folder) / "effects"
        path.touch()
        running = [
            context.Process(
                target=work,
                args=(url, path, scope, calls, threads, HOUR_NS * (number % 2) * (what == "clocks"), begin),
            )
            for number in range(processes)
        ]
        for process in running:
            process.start()
        began = time.perf_counter()
        begin.set()
        if what == "restart":
            time.sleep(2)
            store.restart()
        while wire is not None and any(process.is_alive() for process in running):
            wire.cut(after_arrival=random.random() < 0.5, at=random.randint(1, 50))
            time.sleep(0.05)
        for process in running:
            process.join()
        seconds = time.perf_counter() - began
        ran = Counter(int(line) for line in path.read_text().split())
    ledger = open_ledger(store.url)
    waiting = sum(
        1 for call in range(calls) if not ran[call] and any(e.pending for e in ledger.by_call(scope, f"toolu_{call}a"))
    )
    claimed = sum(
        1
        for call in range(calls)
        if not ran[call] and any(e.state.value == "claimed" for e in ledger.by_call(scope, f"toolu_{call}a"))
    )
    ledger.close()
    twice, never = sum(count > 1 for count in ran.values()), calls - len(ran) - waiting - claimed
    attempts = calls * processes * threads
    print(
        f"{store.name:<12} {what:<10} {attempts:>9} {calls:>7} {len(ran):>9} {twice:>6} {never:>6} {waiting + claimed:>8} "
        f"{attempts / seconds:>11.0f}",
        flush=True,
    )
    return not twice and not never


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", help=f"of {', '.join(STORES)}; all if none is named")
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=8)
    given = parser.parse_args()
    print(
        f"{'':<12} {'':<10} {'claims':>9} {'calls':>7} {'ran once':>9} {'twice':>6} {'never':>6} {'in doubt':>8} "
        f"{'claims/s':>11}"
    )
    good = True
    for name in given.stores or list(STORES):
        with STORES[name]() as store:
            for what in ("plain", "clocks", "restart", "cut") if store.server is not None else ("plain",):
                good &= race(store, what, given.calls, given.processes, given.threads)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
