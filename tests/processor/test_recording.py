# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value

from genai_processor.attributes import METRIC_FAULTS
from genai_processor.background import BackgroundRecorder
from genai_processor.ledger import Entry, MemoryLedger, Sighting, State
from genai_processor.ledger.requests import Returned
from genai_processor.recording import DirectRecorder, recorder_for
from genai_processor.telemetry import Faults, Totals


class Remote:
    """A ledger that is somewhere else: not one in memory, as far as the recorder can see."""

    def __init__(self) -> None:
        self.inner = MemoryLedger()
        self.gate = threading.Event()
        self.gate.set()
        self.threads: set[str] = set()
        self.suppressed = False
        self.fails = False

    def record(self, sighting: Sighting) -> Any:
        self.gate.wait(10)
        self.threads.add(threading.current_thread().name)
        self.suppressed = bool(get_value(_SUPPRESS_INSTRUMENTATION_KEY))
        if self.fails:
            raise OSError("away")
        return self.inner.record(sighting)


def sighting(number: int = 0) -> Sighting:
    return Sighting(scope="s", tool="refund", state=State.QUARANTINED, call_id=f"toolu_{number}", digest=f"d{number}")


@pytest.fixture
def totals() -> Totals:
    return Totals()


def test_the_ledger_in_memory_is_told_at_once(totals: Totals) -> None:
    ledger = MemoryLedger()
    recorder = recorder_for(ledger, Faults(totals))
    assert isinstance(recorder, DirectRecorder)
    entry_id = recorder.record(sighting())
    assert entry_id is not None
    assert ledger.get(entry_id) is not None
    assert recorder.flush(0)


RETURNED = Returned("s", "refund", "toolu_7", "idempotent", "succeeded", 0xAB, 0xCD)


class Broken(MemoryLedger):
    def record_return(self, returned: object) -> None:
        raise OSError("away")


class Audited(MemoryLedger):
    """A ledger in memory that does something of its own with what is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Sighting] = []

    def record(self, sighting: Sighting) -> Entry | None:
        self.seen.append(sighting)
        return super().record(sighting)


@pytest.mark.parametrize("make", [MemoryLedger, Audited, Remote])
def test_a_call_that_came_back_is_recorded_by_every_kind_of_ledger(make: Callable[[], Any], totals: Totals) -> None:
    ledger = make()
    recorder = recorder_for(ledger, Faults(totals))
    recorder.record_return(RETURNED)
    assert recorder.flush(10)
    (entry,) = (ledger.inner if isinstance(ledger, Remote) else ledger).by_call("s", "toolu_7")
    assert (entry.state, entry.effect, entry.trace_id, entry.span_id) == (
        State.COMPLETED,
        "idempotent",
        f"{0xAB:032x}",
        f"{0xCD:016x}",
    )
    if isinstance(ledger, Audited):
        assert [seen.call_id for seen in ledger.seen] == ["toolu_7"]


def test_a_ledger_that_cannot_be_told_is_a_fault(totals: Totals) -> None:
    recorder_for(Broken(), Faults(totals)).record_return(RETURNED)
    assert sum(totals.read(METRIC_FAULTS).values()) == 1


def test_any_other_is_told_from_a_thread_that_starts_with_the_first_call(totals: Totals) -> None:
    ledger, before = Remote(), threading.active_count()
    recorder = recorder_for(ledger, Faults(totals))  # type: ignore[arg-type]
    assert isinstance(recorder, BackgroundRecorder)
    assert recorder.flush(0)
    assert threading.active_count() == before
    for number in range(20):
        assert recorder.record(sighting(number)) is None
    assert recorder.flush(10)
    assert ledger.threads == {"GenAIProcessorRecorder"}
    assert ledger.suppressed
    assert len(ledger.inner.pending().entries) == 20


def test_a_slow_ledger_holds_nobody_up_and_the_rest_is_counted(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genai_processor.background._MAX_URGENT", 10)
    ledger = Remote()
    ledger.gate.clear()
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    for number in range(30):
        recorder.record(sighting(number))
    assert recorder.flush(0.01) is False
    lost = totals.read(METRIC_FAULTS)[(("genai.processor.fault", "ledger_overflow"),)]
    assert 19 <= lost <= 20
    ledger.gate.set()
    assert recorder.flush(10)
    assert len(ledger.inner.pending().entries) == 30 - lost


def test_calls_that_came_back_push_out_none_that_may_have_committed(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genai_processor.background.MAX_WAITING", 10)
    ledger = Remote()
    ledger.gate.clear()
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    for _ in range(30):
        recorder.record_return(RETURNED)
    for number in range(15):
        recorder.record(sighting(number))
    ledger.gate.set()
    assert not recorder.flush(10), "some that came back were dropped"
    assert len(ledger.inner.pending().entries) == 15


def test_a_ledger_that_raises_is_told_the_next_one_all_the_same(totals: Totals) -> None:
    ledger = Remote()
    ledger.fails = True
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    recorder.record(sighting(1))
    assert not recorder.flush(10), "it was not recorded"
    assert recorder.flush(10), "nothing was lost since"
    ledger.fails = False
    recorder.record(sighting(2))
    assert recorder.flush(10)
    assert totals.read(METRIC_FAULTS) == {(("genai.processor.fault", "ledger"),): 1}
    assert len(ledger.inner.pending().entries) == 1


def test_who_wants_to_know_an_entry_is_told_when_the_ledger_has_answered(totals: Totals) -> None:
    ledger = Remote()
    ledger.gate.clear()
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    told: list[str | None] = []
    for _ in range(2):
        recorder.record(sighting(1)._replace(call_id="toolu_h2Fq9x"), told.append)
    assert told == []
    ledger.gate.set()
    assert recorder.flush(10)
    (entry,) = ledger.inner.pending().entries
    assert told == [entry.entry_id] * 2


def test_a_direct_recorder_tells_before_it_returns(totals: Totals) -> None:
    told: list[str | None] = []
    assert [DirectRecorder(MemoryLedger(), Faults(totals)).record(sighting(), told.append)] == told
    broken = Remote()
    broken.fails = True
    DirectRecorder(broken, Faults(totals)).record(sighting(), told.append)  # type: ignore[arg-type]
    assert told[1:] == [None]


def test_what_cannot_be_recorded_is_told_without_an_entry(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Remote()
    ledger.fails = True
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    told: list[str | None] = []
    recorder.record(sighting(1), told.append)
    recorder.flush(10)
    assert told == [None]
    monkeypatch.setattr("genai_processor.background._MAX_URGENT", 0)
    recorder.record(sighting(2), told.append)
    assert told == [None, None]


@pytest.mark.parametrize("how", ["the next one", "flush"])
def test_a_ledger_that_hangs_keeps_nobody_from_being_told(totals: Totals, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    ledger = Remote()
    ledger.gate.clear()
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    told: list[tuple[int, str | None]] = []
    recorder.record(sighting(1), lambda entry_id: told.append((1, entry_id)))
    if how == "flush":
        assert not recorder.flush(0)
        assert told == [(1, None)]
    else:
        monkeypatch.setattr("genai_processor.background._TELL_SECONDS", -1)
        recorder.record(sighting(2), lambda entry_id: told.append((2, entry_id)))
        assert told == [(2, None)]
    ledger.gate.set()
    assert recorder.flush(10)
    assert len({number for number, _ in told}) == len(told), "each is told once"
    assert len(ledger.inner.pending().entries) == 2 - (how == "flush"), "all are recorded all the same"


def test_everybody_is_told_once_whoever_is_faster(totals: Totals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genai_processor.background._TELL_SECONDS", 0.0001)
    recorder = BackgroundRecorder(Remote(), Faults(totals))  # type: ignore[arg-type]
    told: list[int] = []

    def work(first: int) -> None:
        for number in range(first, first + 200):
            recorder.record(sighting(number), lambda _, number=number: told.append(number))  # type: ignore[misc]
            recorder.flush(0)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 1_600, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.flush(30)
    assert sorted(told) == list(range(1_600))


def test_where_no_thread_can_start_nobody_waits_and_the_next_one_tries_again(
    totals: Totals, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    ledger = Remote()
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        recorder.record(sighting(1))
        before = time.monotonic()
        assert recorder.flush(10) is False
        assert time.monotonic() - before < 5
        assert totals.read(METRIC_FAULTS) == {(("genai.processor.fault", "ledger"),): 2}
    recorder.record(sighting(2))
    assert recorder.flush(10)
    assert len(ledger.inner.pending().entries) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_records_what_is_its_own(totals: Totals) -> None:
    ledger = Remote()
    ledger.gate.clear()
    recorder = BackgroundRecorder(ledger, Faults(totals))  # type: ignore[arg-type]
    recorder.record(sighting(1))
    recorder.record(sighting(2))
    child = os.fork()
    if child == 0:
        try:
            ledger.gate = threading.Event()
            ledger.gate.set()
            recorder.record(sighting(3))
            fine = recorder.flush(10) and len(ledger.inner.pending().entries) == 1
            os._exit(0 if fine else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.gate.set()
    assert recorder.flush(10)
    assert len(ledger.inner.pending().entries) == 2


def test_what_waits_when_the_interpreter_exits_is_recorded() -> None:
    script = """
import time
from genai_processor.ledger import Sighting, State
from genai_processor.ledger.requests import Returned
from genai_processor.background import BackgroundRecorder
from genai_processor.telemetry import Faults, Totals

class Slow:
    def record(self, sighting):
        time.sleep(0.02)
        print(sighting.call_id, flush=True)

recorder = BackgroundRecorder(Slow(), Faults(Totals()))
for number in range(5):
    recorder.record(Sighting(scope="s", tool="refund", state=State.QUARANTINED, call_id=str(number)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["0", "1", "2", "3", "4"], done.stderr
