# SPDX-License-Identifier: Apache-2.0
"""Results that no model has seen when their run is killed, in a ledger that outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.running import running
from genai_processor.guard.runs import Run
from genai_processor.ledger import Entry, State
from genai_processor.ledger.sqlite import SQLiteLedger

_RUN = """
import os, sys, time
from genai_processor import Guard
guard = Guard(sys.argv[1], lease_seconds=float(sys.argv[2]))
with guard.run("ticket 7"):
    for turn in sys.argv[3].split():
        with guard.call("refund", f"toolu_{os.getpid()}_{turn}", {"order": turn}, turn=f"{os.getpid()}-{turn}"):
            with open(sys.argv[4], "a") as effects:
                effects.write(f"{turn}\\n")
    print("asking the model", flush=True)
    time.sleep(600)
"""


def killed(url: str, effects: Path, turns: str, lease_seconds: float = 60) -> None:
    """A run that is killed while its model thinks about the last result."""
    command = [sys.executable, "-c", _RUN, url, str(lease_seconds), turns, str(effects)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking the model\n"
        os.kill(process.pid, signal.SIGKILL)


def states(guard: Guard) -> dict[State, int]:
    return {state: number for state, number in guard.ledger.counts().items() if number}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


def refund(guard: Guard, order: str, turn: str) -> None:
    with guard.call("refund", f"toolu_{turn}x", {"order": order}, turn=turn):
        pass


def test_what_a_killed_run_has_paid_is_not_paid_again_under_another_id(url: str, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    killed(url, effects, "o1 o2")
    guard = Guard(url)
    assert states(guard) == {State.COMPLETED: 1, State.RETURNED: 1}
    with guard.run("ticket 7"):
        refund(guard, "o1", "later")  # its result was delivered: the model went on to the next one
        with pytest.raises(ToolSpanCommitmentError) as refused:
            refund(guard, "o2", "later still")
    assert refused.value.reason == "action_undelivered"
    assert effects.read_text().split() == ["o1", "o2"]


def test_what_a_killed_run_has_not_delivered_waits_for_a_person(url: str, tmp_path: Path) -> None:
    killed(url, tmp_path / "effects", "o1", lease_seconds=0.2)
    guard = Guard(url)

    def waits() -> bool:
        guard.ledger.expire()
        return bool(guard.ledger.pending().entries)

    until(waits)
    [entry] = guard.ledger.pending().entries
    assert (entry.state, [change.event for change in entry.history][-1]) == (State.UNDELIVERED, "lost")
    with pytest.raises(ToolSpanCommitmentError), guard.run("ticket 7"):
        refund(guard, "o1", "later")


def test_a_result_waits_for_its_model_for_as_long_as_the_run_goes_on(url: str) -> None:
    """However long the model thinks: nobody is to take it for one that was lost."""
    guard, others = Guard(url, lease_seconds=0.3), Guard(url)
    with guard.run("ticket 7"):
        refund(guard, "o1", "first")
        [entry] = guard.ledger.by_call("ticket 7", "toolu_firstx")
        assert entry.lease_expires_ns is not None
        ends = entry.lease_expires_ns
        until(lambda: (others.ledger.get(entry.entry_id) or entry).lease_expires_ns not in (None, ends))
        others.ledger.expire()
        assert states(others) == {State.RETURNED: 1}
        assert others.ledger.pending().entries == ()
    assert states(others) == {State.COMPLETED: 1}


@pytest.mark.parametrize("turns", [["first", "second"], ["first"]])
def test_what_a_model_has_seen_may_be_wanted_again(url: str, turns: list[str]) -> None:
    guard = Guard(url)
    with guard.run("ticket 7"):
        for turn in turns:
            refund(guard, "o1", turn)
    with guard.run("ticket 7"):
        refund(guard, "o1", "of another run")
    assert states(guard) == {State.COMPLETED: len(turns) + 1}


def test_a_run_that_dies_or_waits_says_so(url: str) -> None:
    guard = Guard(url)
    with pytest.raises(ConnectionError), guard.run("ticket 7"):
        refund(guard, "o1", "first")
        raise ConnectionError
    assert states(guard) == {State.UNDELIVERED: 1}
    run = Run("ticket 8")
    with pytest.raises(KeyError), guard.running(run, paused=(KeyError,)):
        refund(guard, "o1", "first")
        raise KeyError("an approval")
    assert states(guard) == {State.UNDELIVERED: 1, State.COMPLETED: 1}


def test_whoever_stops_listening_may_have_seen_the_answer(url: str) -> None:
    guard, run = Guard(url), Run("ticket 7")
    with guard.running(Run("ticket 7")):
        refund(guard, "o0", "first")
    attempt = in_run_of(guard, run, "o1")
    attempt.returned("done")
    guard.ended(run, GeneratorExit())
    in_run_of(guard, Run("ticket 7"), "o1")  # granted: whoever asks finds it told


def in_run_of(guard: Guard, run: Run, order: str) -> Attempt:
    from genai_processor.guard.runs import in_run

    with in_run(run):
        attempt = guard.begin(Call("refund", f"toolu_{id(run)}x", {"order": order}, None, f"turn of {id(run)}"))
    assert isinstance(attempt, Attempt), attempt
    return attempt


class SlowToHear(SQLiteLedger):
    """Takes its time when it is told that a result was delivered by a thread for which nobody waits."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go_on = threading.Event()

    def deliver(self, entry: Entry) -> Entry:
        if threading.current_thread().name.startswith("GenAIProcessorGuard"):
            assert self.go_on.wait(20)
        self.go_on.set()
        return super().deliver(entry)


def test_the_next_run_need_not_wait_until_the_ledger_was_told_of_the_last_one(tmp_path: Path) -> None:
    guard = Guard(SlowToHear(tmp_path / "ledger.db"))

    async def story() -> None:
        for turn in ("first", "second", "third"):
            async with running(guard, "ticket 7"):
                attempt = guard.begin(Call("refund", f"toolu_{turn}x", {"order": "o1"}, None, turn))
                assert isinstance(attempt, Attempt), attempt
                attempt.returned("done")

    asyncio.run(story())
    assert guard.threads is not None
    assert guard.threads._pool is not None
    guard.threads._pool.shutdown()
    assert states(guard) == {State.COMPLETED: 3}


def test_a_result_that_nobody_got_is_not_delivered_by_the_next_turn(url: str) -> None:
    guard = Guard(url)
    with guard.run("ticket 7"):
        attempt = guard.begin(Call("refund", "toolu_1x", {"order": "o1"}, None, "first"))
        assert isinstance(attempt, Attempt)
        attempt.returned("done")
        attempt.not_delivered()
        refund(guard, "o2", "second")
    assert states(guard) == {State.UNDELIVERED: 1, State.COMPLETED: 1}


def test_a_ledger_that_ends_with_the_process_waits_for_nothing() -> None:
    guard = Guard("memory:")
    with guard.run("ticket 7"):
        refund(guard, "o1", "first")
        assert states(guard) == {State.COMPLETED: 1}
