# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed in the middle of a guarded call, and then run again.

    python -m benchmarks.crashes [--runs N] [STORE ...]

Each run is a process that claims a call, makes an effect (a line in a file, written through to the disk) and records its
end. It is killed with SIGKILL: at a moment that it reaches itself (before the claim, after it, after the effect, after the
record, which is before a model has seen the result), or from outside at any moment. Then every call is made again under its
id, as by a run that is resumed, and those whose result no model has seen once more under a new id, as by an agent that asks
again. Exits with 1 if an effect happened twice, if one happened of which the ledger knows nothing, or if a call that nobody
can know about does not wait for a person.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from benchmarks.stores import STORES, Store
from genai_processor import Guard
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.ledger import State, open_ledger

LEASE_SECONDS = 2.0
MOMENTS = ("before the claim", "after the claim", "after the effect", "after the record", "any moment")


def effect(path: Path, call: int) -> None:
    """Pay, for good."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{call}\n".encode())
        os.fsync(file.fileno())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(url: str, path: Path, call: int, moment: str, ready: int) -> None:
    """One run, which does not live to see its end."""
    guard = Guard(url, lease_seconds=LEASE_SECONDS, scope="shop")
    guard.ledger.get("")  # connected: what is to be killed is the call, not the start
    os.write(ready, b".")
    if moment == "before the claim":
        die()
    with guard.run():
        with guard.call("pay", f"toolu_{call}a", {"order": call}, turn=f"t{call}"):
            if moment == "after the claim":
                die()
            effect(path, call)
            if moment == "after the effect":
                die()
        if moment == "after the record":
            die()
    os._exit(0)


def spawn(url: str, path: Path, call: int, moment: str, longest: float) -> float:
    """Fork a run, and see it dead; returns how long its call took at most."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            run(url, path, call, moment, writing)
        finally:
            os._exit(1)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    began = time.perf_counter()
    if moment == "any moment":
        time.sleep(random.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.perf_counter() - began


def again(url: str, path: Path, calls: Iterable[int], attempt: str) -> int:
    """Make calls once more; returns how many ran."""
    guard, ran = Guard(url, scope="shop"), 0
    for call in calls:
        try:
            with guard.call("pay", f"toolu_{call}{attempt}", {"order": call}, turn=f"t{call}{attempt}"):
                effect(path, call)
        except ToolSpanCommitmentError:
            continue
        ran += 1
    return ran


def measure(store: Store, runs: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "effects"
        path.touch()
        moments = [random.choice(MOMENTS) for _ in range(runs)]
        longest = max(spawn(store.url, path, -1 - number, "after the record", 0) for number in range(5)) * 1.2
        for call, moment in enumerate(moments):
            spawn(store.url, path, call, moment, longest)
        before = Counter(int(line) for line in path.read_text().split())
        ledger = open_ledger(store.url)
        deadline = time.monotonic() + 10 * LEASE_SECONDS
        while (ledger.counts()[State.CLAIMED] or ledger.counts()[State.RETURNED]) and time.monotonic() < deadline:
            # every lease runs out
            ledger.expire()
            time.sleep(0.05)
        states = {call: entry.state for call in range(runs) for entry in ledger.by_call("shop", f"toolu_{call}a")}
        completed = {call for call, state in states.items() if state is State.COMPLETED}
        undelivered = {call for call, state in states.items() if state is State.UNDELIVERED}
        waiting = {call for call, state in states.items() if state is State.QUARANTINED} | undelivered
        unknown = {call for call in before if call >= 0 and call not in completed and call not in waiting}
        ran = again(store.url, path, range(runs), "a") + again(store.url, path, sorted(waiting), "b")
        after = Counter(int(line) for line in path.read_text().split())
        twice = [call for call in range(runs) if after[call] > 1]
        lost = [call for call in waiting if not ledger.by_call("shop", f"toolu_{call}a")[0].pending]
        late = [call for call in waiting if after[call] != before[call]]
        ledger.close()
    print(
        f"{store.name:<12} {runs:>6} {sum(call >= 0 for call in before):>8} {len(completed):>10} "
        f"{len(undelivered):>12} {len(waiting - undelivered):>12} "
        f"{ran:>10} {len(twice) + len(late):>14} {len(unknown) + len(lost):>14}"
    )
    return not (twice or late or unknown or lost)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", help=f"of {', '.join(STORES)}; all if none is named")
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args()
    print(
        f"{'':<12} {'killed':>6} {'effects':>8} {'completed':>10} {'undelivered':>12} {'quarantined':>12} {'run later':>10} "
        f"{'effects twice':>14} {'effects lost':>14}"
    )
    logging.getLogger("genai_processor").setLevel(logging.ERROR)
    good = True
    for name in given.stores or list(STORES):
        with STORES[name]() as store:
            good &= measure(store, given.runs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
