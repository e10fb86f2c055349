# SPDX-License-Identifier: Apache-2.0
"""A guard whose process dies, whose ledger is away, whose callers give up."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from genai_processor import GenAIProcessorInstrumentor, Guard, idempotency_key
from genai_processor.errors import LedgerUnavailableError, ToolSpanCommitmentError
from genai_processor.guard.hooks import active
from genai_processor.ledger import Ledger, State, open_ledger

PATIENCE = 20.0


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def refuses(guard: Guard, order: int = 1) -> ToolSpanCommitmentError:
    with pytest.raises(ToolSpanCommitmentError) as caught, guard.call("pay", None, {"order": order}, scope="s"):
        raise AssertionError("it ran twice")
    return caught.value


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_call_that_takes_longer_than_its_lease_is_kept_alive(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    guard, other = Guard(url, lease_seconds=3), open_ledger(url)
    with guard.call("pay", None, {"order": 1}, scope="s") as attempt:
        assert attempt.entry is not None
        entry_id, first = attempt.entry.entry_id, attempt.entry.lease_expires_ns or 0

        def lease() -> int:
            entry = other.get(entry_id)
            assert entry is not None
            assert other.expire() == ()
            return entry.lease_expires_ns or 0

        wait_until(lambda: lease() > first + 500_000_000)
    assert other.counts()[State.COMPLETED] == 1


_HOLDER = """
import os, sys, time
from genai_processor import Guard
with Guard(sys.argv[1], lease_seconds=0.5).call("pay", None, {"order": 1}, scope="s"):
    print("inside", flush=True)
    time.sleep(60)
"""


def test_a_call_whose_process_is_killed_is_quarantined_and_never_run_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, url], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "inside\n"
    guard = Guard(url)
    holder.send_signal(signal.SIGKILL)
    holder.wait(PATIENCE)
    holder.stdout.close()
    wait_until(guard.ledger.expire)
    [entry] = guard.ledger.pending().entries
    assert entry.reason == "no_end_recorded"
    assert refuses(guard).entry_id == entry.entry_id


def test_a_lease_that_is_lost_quarantines_and_the_bodys_own_end_lifts_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    now = [time.time_ns()]
    from genai_processor.ledger.sqlite import SQLiteLedger

    guard, elsewhere = Guard(url, lease_seconds=0.2), SQLiteLedger(f"{tmp_path}/ledger.db", clock=lambda: now[0])
    with guard.call("pay", None, {"order": 1}, scope="s"):
        now[0] += 3_600 * 10**9  # a host whose clock is an hour ahead
        assert len(elsewhere.expire()) == 1
        Context().run(refuses, guard)  # here it would be a call within that call
        wait_until(lambda: "The lease of a call of pay is lost" in caplog.text)
    assert guard.ledger.counts()[State.COMPLETED] == 1


# -- a ledger that is away ---------------------------------------------------------------------------------------------


def test_without_a_ledger_who_enforces_refuses_and_who_observes_runs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/missing/ledger.db"
    error = refuses(Guard(url))
    assert error.reason == "ledger_unavailable"
    assert "bring the ledger back" in str(error)
    assert isinstance(error.__cause__, LedgerUnavailableError)
    with Guard(url, mode="observe").call("pay", None, {"order": 1}, scope="s"):
        assert idempotency_key() is None


def test_without_a_ledger_an_idempotent_tool_runs_all_the_same(tmp_path: Path) -> None:
    from genai_processor import Policy

    guard = Guard(f"sqlite:///{tmp_path}/missing/ledger.db", policy=Policy(idempotent="pay"))
    with guard.call("pay", "toolu_a1", {"order": 1}, scope="s"):
        pass


def test_an_end_that_cannot_be_told_is_told_when_the_ledger_is_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db?timeout_seconds=0.1"
    instrumentor = GenAIProcessorInstrumentor()
    provider = TracerProvider()
    instrumentor.instrument(tracer_provider=provider, ledger=url, guard="enforce")
    try:
        guard = active()
        assert guard is not None
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        with guard.call("pay", None, {"order": 1}, scope="s"):
            other.execute("BEGIN IMMEDIATE")  # somebody holds the file for longer than anybody waits
        assert refuses(guard).reason == "ledger_unavailable"
        other.execute("ROLLBACK")
        other.close()
        wait_until(lambda: guard.ledger.counts()[State.COMPLETED] == 1)
    finally:
        instrumentor.uninstrument()


def test_where_more_was_lost_than_the_recorder_holds_the_guard_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genai_processor.background._MAX_URGENT", 4)
    url = f"sqlite:///{tmp_path}/ledger.db?timeout_seconds=0.1"
    instrumentor, provider = GenAIProcessorInstrumentor(), TracerProvider()
    instrumentor.instrument(tracer_provider=provider, ledger=url, guard="enforce", scope="s")
    try:
        guard, tracer = active(), provider.get_tracer("agent")
        assert guard is not None
        guard.ledger.counts()
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for number in range(20):
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "pay",
                "gen_ai.tool.call.id": f"toolu_{number}x",
                "gen_ai.conversation.id": "s",
            }
            with pytest.raises(TimeoutError), tracer.start_as_current_span("execute_tool pay", attributes=attributes):
                raise TimeoutError
        other.execute("ROLLBACK")
        other.close()
        wait_until(lambda: guard.ledger.counts()[State.QUARANTINED] >= 4)
        assert refuses(guard, order=7).reason == "ledger_unknown"
        with guard.call("mail", None, {"order": 7}, scope="s"):
            pass
    finally:
        instrumentor.uninstrument()


# -- callers that give up ----------------------------------------------------------------------------------------------


def test_a_claim_that_is_granted_to_nobody_any_more_never_began(tmp_path: Path) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db")
    guard.ledger.counts()

    @guard.tool()
    async def pay(order: int) -> None:
        raise AssertionError("it ran")

    async def story() -> None:
        other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with guard.run("s"):
            task = asyncio.ensure_future(pay(1))
            await asyncio.sleep(0.05)  # the loop is free while the claim waits for the file
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        other.execute("ROLLBACK")
        other.close()

    asyncio.run(story())
    wait_until(lambda: guard.ledger.counts()[State.NOT_STARTED] == 1)


def test_the_event_loop_goes_on_while_a_claim_waits(tmp_path: Path) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db")
    guard.ledger.counts()
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)

    @guard.tool()
    async def pay(order: int) -> str:
        return f"paid {order}, {idempotency_key() is not None}"

    async def story() -> str:
        other.execute("BEGIN IMMEDIATE")
        with guard.run("s"):
            task = asyncio.ensure_future(pay(1))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not task.done()
            other.execute("ROLLBACK")
            return await task

    assert asyncio.run(story()) == "paid 1, True"
    other.close()


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_the_event_loop_goes_on_while_the_users_store_keeps_a_result(url: str, tmp_path: Path) -> None:
    class Store:
        """Takes as long as the event loop needs to go on."""

        saving, went_on = threading.Event(), threading.Event()
        saw_it_go_on = False

        def save(self, entry_id: str, value: Any) -> None:
            self.saving.set()
            self.saw_it_go_on = self.went_on.wait(20)

        def load(self, entry_id: str) -> None:
            return None

    store = Store()
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db" if url == "sqlite" else url, results=store, scope="s")

    @guard.tool()
    async def pay(order: int) -> str:
        return f"paid {order}"

    async def story() -> str:
        task = asyncio.ensure_future(pay(1))
        while not store.saving.is_set():
            await asyncio.sleep(0.001)
        store.went_on.set()
        return await task

    assert asyncio.run(story()) == "paid 1"
    assert store.saw_it_go_on


# -- forks -------------------------------------------------------------------------------------------------------------


def _child(guard: Guard, answers: multiprocessing.Queue[str]) -> None:
    with contextlib.suppress(ToolSpanCommitmentError), guard.call("pay", None, {"order": 1}, scope="s"):
        answers.put("ran")
    answers.put("ended")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_asks_the_ledger_that_it_shares_with_its_parent(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    guard, answers = Guard(f"sqlite:///{tmp_path}/ledger.db", lease_seconds=5), context.Queue()
    with pytest.raises(ConnectionError), guard.call("pay", None, {"order": 1}, scope="s"):
        raise ConnectionError
    child = context.Process(target=_child, args=(guard, answers))
    child.start()
    assert answers.get(timeout=PATIENCE) == "ended"
    child.join(PATIENCE)
    refuses(guard)


# -- many at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/ledger.db"])
def test_of_many_threads_with_one_call_one_runs_it(url: str, tmp_path: Path) -> None:
    guard, ran, begin = Guard(url.format(tmp_path)), list[int](), threading.Barrier(8)

    def run() -> None:
        begin.wait(PATIENCE)
        for order in range(20):
            with (
                contextlib.suppress(ToolSpanCommitmentError),
                guard.call("pay", f"toolu_{order}x", {"order": order}, scope="s", turn="t"),
            ):
                ran.append(order)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(ran) == list(range(20))


def test_a_ledger_that_raises_anything_is_a_ledger_that_is_away() -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("broken")

    broken: Ledger = Broken()  # type: ignore[assignment]
    assert refuses(Guard(broken)).reason == "ledger_unavailable"
    with Guard(broken, mode="observe").call("pay"):
        pass


# -- what is set up wrongly --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["mysql://somewhere/x", "/var/lib/agent/ledger.db", "sqlite://relative.db", "redis://h/0?max_age_days=never"]
)
def test_a_guard_that_is_to_enforce_refuses_where_its_ledger_cannot_be_opened(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GENAI_PROCESSOR_LEDGER", url)
    monkeypatch.setenv("GENAI_PROCESSOR_GUARD", "enforce")
    instrumentor = GenAIProcessorInstrumentor()
    instrumentor.instrument(tracer_provider=TracerProvider())
    try:
        guard = active()
        assert guard is not None
        assert refuses(guard).reason == "ledger_unavailable"
        assert "the guard refuses every call that is not safe" in caplog.text
    finally:
        instrumentor.uninstrument()


def test_a_guard_that_is_to_enforce_refuses_where_it_could_not_be_set_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GENAI_PROCESSOR_GUARD", "enforce")
    instrumentor = GenAIProcessorInstrumentor()
    instrumentor.instrument(policy=object())
    try:
        guard = active()
        assert guard is not None
        assert refuses(guard).reason == "ledger_unavailable"
    finally:
        instrumentor.uninstrument()


def test_a_mode_that_is_none_enforces(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("GENAI_PROCESSOR_GUARD", "enforced")
    assert Guard().mode == "enforce"
    assert "GENAI_PROCESSOR_GUARD must be off or observe or enforce, but is 'enforced'; using 'enforce'" in caplog.text


@pytest.mark.parametrize("said", ["", " "])
def test_a_guard_made_in_code_enforces_where_the_variable_is_empty(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENAI_PROCESSOR_GUARD", said)
    assert Guard().mode == "enforce"


def test_a_guard_made_in_code_is_what_the_environment_says_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENAI_PROCESSOR_GUARD", "observe")
    monkeypatch.setenv("GENAI_PROCESSOR_LEDGER", f"sqlite:///{tmp_path}/ledger.db")
    monkeypatch.setenv("GENAI_PROCESSOR_READ_ONLY_TOOLS", "get_*")
    monkeypatch.setenv("GENAI_PROCESSOR_SCOPE", "job 7")
    guard = Guard()
    for tool in ("get_rate", "pay"):
        with guard.call(tool, "toolu_a1", {}):
            pass
    assert guard.mode == "observe"
    assert [entry.tool for entry in open_ledger(f"sqlite:///{tmp_path}/ledger.db").by_call("job 7", "toolu_a1")] == ["pay"]
    assert Guard(mode="enforce").mode == "enforce"


def test_calls_whose_process_is_gone_come_into_the_queue_by_themselves(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, url], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "inside\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait(PATIENCE)
    holder.stdout.close()
    guard = Guard(url, lease_seconds=1)
    with guard.call("other", None, {"order": 2}, scope="s"):  # whose lease is renewed beside
        wait_until(lambda: guard.ledger.counts()[State.QUARANTINED] == 1)
