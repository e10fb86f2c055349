# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import itertools
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest
from ledger_helpers import held

from genai_processor.errors import LedgerConflictError, LedgerUnavailableError
from genai_processor.ledger import Bounds, Claim, Granted, MemoryLedger, Outcome, Refusal, Resolution, Sighting, State
from genai_processor.ledger.forks import ForkSafeLock
from genai_processor.ledger.requests import Returned

THREADS = 8


def together(work: Callable[[int], None]) -> None:
    barrier = threading.Barrier(THREADS)
    errors: list[Exception] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors


def test_of_many_claims_of_one_call_one_is_granted() -> None:
    ledger = MemoryLedger()
    granted: list[str] = []

    def work(number: int) -> None:
        for call in range(100):
            answer = ledger.claim(Claim("s", "refund", call_id=f"c{call}x", digest=f"{call}", turn=f"t{number}"))
            if isinstance(answer, Granted):
                granted.append(answer.entry.entry_id)
                ledger.finish(held(ledger, answer.entry.entry_id), Outcome.FAILED)

    together(work)
    assert len(granted) == 100
    assert ledger.counts()[State.QUARANTINED] == 100


def test_of_many_people_one_settles() -> None:
    ledger = MemoryLedger()
    entry = ledger.record(Sighting("s", "refund", State.QUARANTINED))
    assert entry is not None
    settled: list[int] = []

    def work(number: int) -> None:
        try:
            ledger.settle(entry.entry_id, Resolution.COMMITTED, who=f"{number}", note="n", version=1)
            settled.append(number)
        except LedgerConflictError:
            pass

    together(work)
    assert len(settled) == 1


def test_no_sighting_is_lost_and_the_bounds_hold() -> None:
    ledger = MemoryLedger(Bounds(max_entries=50))

    def work(number: int) -> None:
        for call in range(300):
            ledger.record(Sighting("s", "refund", State.COMPLETED, call_id=f"{number}x{call}y"))
            ledger.record(Sighting("s", "refund", State.QUARANTINED, call_id="shared-id"))
            ledger.pending()

    together(work)
    (shared,) = ledger.by_call("s", "shared-id")
    assert shared.witnessed == THREADS * 300
    stats = ledger.stats()
    assert stats.entries == sum(ledger.counts().values()) == 50
    assert stats.entries + stats.evicted == THREADS * 300 + 1


class Interrupting:
    """A clock whose reading runs a finalizer, as the garbage collector may anywhere inside the ledger."""

    def __init__(self) -> None:
        self.finalizer: Callable[[], object] | None = None

    def __call__(self) -> int:
        finalizer, self.finalizer = self.finalizer, None
        if finalizer is not None:
            finalizer()
        return 1


def test_a_span_that_ends_in_a_finalizer_inside_the_ledger_neither_hangs_nor_is_lost() -> None:
    clock = Interrupting()
    ledger = MemoryLedger(clock=clock)
    answers: list[object] = []
    clock.finalizer = lambda: answers.append(ledger.record(Sighting("s", "mail", State.QUARANTINED, call_id="inner")))
    assert ledger.record(Sighting("s", "refund", State.COMPLETED, call_id="outer")) is not None
    assert answers == [None]
    assert [e.state for e in ledger.by_call("s", "inner")] == [State.QUARANTINED]


def test_the_end_of_a_claim_in_a_finalizer_is_noted_afterwards_and_a_new_claim_is_not_made() -> None:
    clock = Interrupting()
    ledger = MemoryLedger(clock=clock)
    granted = ledger.claim(Claim("s", "refund"))
    assert isinstance(granted, Granted)
    states: list[State] = []

    def finalizer() -> None:
        states.append(ledger.finish(held(ledger, granted.entry.entry_id), Outcome.FAILED).state)
        with pytest.raises(LedgerUnavailableError, match="finalizer"):
            ledger.claim(Claim("s", "mail"))

    clock.finalizer = finalizer
    ledger.record(Sighting("s", "other", State.COMPLETED))
    assert states == [State.CLAIMED]
    entry = ledger.get(granted.entry.entry_id)
    assert entry is not None
    assert entry.state is State.QUARANTINED


def test_what_was_postponed_is_noted_by_its_id_only_and_may_be_interrupted() -> None:
    clock = Interrupting()
    ledger = MemoryLedger(clock=clock)
    answers: list[object] = []

    def finalizer() -> None:
        answers.append(ledger.note(Sighting("s", "mail", State.COMPLETED, call_id="inner")))
        clock.finalizer = interrupt

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.finalizer = finalizer
    with pytest.raises(KeyboardInterrupt):
        ledger.note(Sighting("s", "refund", State.COMPLETED, call_id="outer"))
    assert answers == [None]
    assert ledger.by_call("s", "outer")
    assert ledger.note(Sighting("s", "refund", State.COMPLETED, call_id="later")) is not None


@pytest.mark.parametrize(
    "look",
    [
        lambda ledger: ledger.by_call("s", "left1"),
        lambda ledger: ledger.counts()[State.COMPLETED],
        lambda ledger: ledger.stats().entries,
        lambda ledger: ledger.note(Sighting("s", "pay", State.QUARANTINED, call_id="left1")) == "e1",
        lambda ledger: isinstance(ledger.claim(Claim("s", "pay", call_id="left1")), Refusal),
    ],
)
def test_nobody_waits_to_note_a_return_and_everybody_sees_it(look: Callable[[MemoryLedger], object]) -> None:
    numbers = itertools.count(1)
    ledger = MemoryLedger(new_id=lambda: f"e{next(numbers)}")
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger._lock:
            inside.set()
            go_on.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(10)
    ledger.record_return(Returned("s", "pay", "left1", "non_idempotent", "succeeded", 1, 2))  # would hang, if it waited
    assert not ledger._shelf.counts[State.COMPLETED]
    go_on.set()
    holder.join()
    assert look(ledger)


def test_what_is_left_for_others_is_bounded() -> None:
    ledger, stop = MemoryLedger(), threading.Event()
    most = [0]

    def work(thread: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            ledger.record_return(Returned("s", "pay", f"id{thread}x{number}", "idempotent", "succeeded", 1, 2))
            most[0] = max(most[0], len(ledger._lock._postponed))

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    stop.wait(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    assert most[0] <= 1_100


def test_whoever_holds_the_lock_does_not_work_for_others_without_end() -> None:
    lock, done = ForkSafeLock(), list[int]()

    def left_again_by_others(number: int) -> None:
        done.append(number)
        assert len(done) < 100
        lock._postponed.append(partial(left_again_by_others, number + 1))

    lock.change_or_leave(left_again_by_others, 0)
    lock.change_or_postpone(left_again_by_others, 10)
    with lock:
        before = len(done)
    assert 3 <= before == len(done) < 20


def test_a_ledger_is_collected_although_forks_know_it() -> None:
    ledger = MemoryLedger()
    gone = weakref.ref(ledger._lock)
    del ledger
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_a_whole_copy_and_a_free_lock() -> None:
    ledger = MemoryLedger()
    ledger.record(Sighting("s", "refund", State.QUARANTINED, call_id="before"))
    inside, go_on, stop = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with ledger._lock:
            inside.set()
            go_on.wait(10)

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            ledger.record(Sighting("s", "mail", State.COMPLETED, call_id=f"{number}x"))

    holder, churner = threading.Thread(target=hold), threading.Thread(target=churn)
    holder.start()
    inside.wait(10)
    churner.start()
    threading.Timer(0.05, go_on.set).start()  # a fork waits for whoever is inside
    pid = os.fork()
    if pid == 0:  # the child may only leave by os._exit
        code = 1
        try:
            entries = ledger.stats().entries
            ledger.record(Sighting("s", "refund", State.QUARANTINED, call_id="child"))
            whole = ledger.stats().entries == entries + 1 == sum(ledger.counts().values())
            code = 0 if whole and len(ledger.pending().entries) == 2 else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    ledger.record(Sighting("s", "refund", State.QUARANTINED, call_id="parent"))
    stop.set()
    churner.join(10)
    holder.join(10)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(ledger.pending().entries) == 2
