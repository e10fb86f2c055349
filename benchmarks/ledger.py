# SPDX-License-Identifier: Apache-2.0
"""What the ledger in memory costs the thread that ends a span, and the guard: microseconds for each operation.

Run it: python benchmarks/ledger.py
"""

from __future__ import annotations

import gc
import random
import statistics
import string
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from genai_processor.ledger import Bounds, Claim, Granted, MemoryLedger, Outcome, Sighting, State

HELD: Final = 20_000
MEASURED: Final = 5_000
_LETTERS: Final = string.ascii_letters + string.digits
_random: Final = random.Random(1)


class Cost(NamedTuple):
    what: str
    median_us: float
    mean_us: float
    p99_us: float


def call_id() -> str:
    return "call_" + "".join(_random.choices(_LETTERS, k=24))


def sighting(state: State = State.COMPLETED, *, digest: bool = False) -> Sighting:
    """One span of a call: fifty calls to a conversation."""
    number = _random.getrandbits(128)
    return Sighting(
        scope=f"conversation_{number % (HELD // 50)}",
        tool="refund",
        state=state,
        call_id=call_id(),
        digest=f"{_random.getrandbits(256):064x}" if digest else None,
        reason="succeeded",
        started=True,
        trace_id=f"{number:032x}",
        span_id=f"{number >> 64:016x}",
    )


def filled(room: int) -> MemoryLedger:
    """A ledger that holds what a busy process holds, and has room for so many entries more."""
    ledger = MemoryLedger(Bounds(max_entries=HELD + room))
    for _ in range(HELD):
        ledger.note(sighting())
    return ledger


def measure(what: str, operations: Iterable[Callable[[], object]]) -> Cost:
    """Time every operation on its own, less what it costs to time none."""
    none = statistics.median(_times([lambda: None] * MEASURED))
    took = sorted(max(0.0, each - none) for each in _times(operations))
    return Cost(what, statistics.median(took), statistics.fmean(took), took[len(took) * 99 // 100])


def _times(operations: Iterable[Callable[[], object]]) -> list[float]:
    """The garbage of the benchmark itself is nobody's cost."""
    gc.collect()
    gc.disable()
    took: list[float] = []
    for operation in operations:
        began = time.perf_counter_ns()
        operation()
        took.append((time.perf_counter_ns() - began) / 1000)
    gc.enable()
    return took


def noting(ledger: MemoryLedger, sightings: Iterable[Sighting]) -> Iterable[Callable[[], object]]:
    return [lambda seen=seen: ledger.note(seen) for seen in sightings]  # type: ignore[misc]


def records() -> Iterable[Cost]:
    """What a span costs that ends."""
    for room, where in ((HELD, "room left"), (0, "full")):
        for state, digest in (
            (State.COMPLETED, False),
            (State.COMPLETED, True),
            (State.NOT_STARTED, False),
            (State.QUARANTINED, True),
        ):
            seen = [sighting(state, digest=digest) for _ in range(MEASURED)]
            what = f"record new {state}{', digest known' if digest else ''}; {where}"
            yield measure(what, noting(filled(room), seen))
    ledger, seen = filled(HELD), [sighting() for _ in range(MEASURED)]
    for first in seen:
        ledger.note(first)
    yield measure("record once more (join by call id)", noting(ledger, seen))
    yield measure("record, entry returned", [lambda s=s: ledger.record(s) for s in map(_fresh, seen)])  # type: ignore[misc]


def _fresh(seen: Sighting) -> Sighting:
    return seen._replace(call_id=call_id())


def attempts() -> Iterable[Cost]:
    """What a guarded call costs."""
    ledger = filled(2 * HELD)
    claims = [
        Claim("conversation_1", f"tool_{n % 50}", call_id(), f"{n}", f"turn_{n}", lease_ns=10**9) for n in range(MEASURED)
    ]

    def attempt(claim: Claim) -> None:
        granted = ledger.claim(claim)
        assert isinstance(granted, Granted)
        ledger.finish(ledger.start(granted.entry), Outcome.RETURNED)

    yield measure("claim + start + finish", [lambda c=c: attempt(c) for c in claims])  # type: ignore[misc]


def looks() -> Iterable[Cost]:
    """What it costs to look."""
    ledger = filled(HELD)
    ids = [ledger.note(sighting()) or "" for _ in range(MEASURED)]
    yield measure("get an entry that nobody has looked at", [lambda i=i: ledger.get(i) for i in ids])  # type: ignore[misc]
    yield measure("counts", [ledger.counts] * MEASURED)


def main() -> None:
    print(f"{HELD:,} entries held; {MEASURED:,} operations each; microseconds\n")
    print(f"{'':<52}{'median':>8}{'mean':>8}{'p99':>8}")
    for costs in (records(), attempts(), looks()):
        for cost in costs:
            print(f"{cost.what:<52}{cost.median_us:>8.2f}{cost.mean_us:>8.2f}{cost.p99_us:>8.2f}")


if __name__ == "__main__":
    main()
