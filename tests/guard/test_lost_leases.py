# SPDX-License-Identifier: Apache-2.0
"""Claims whose ledger goes away while their tool runs, and tools that end after their claim was given up."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from genai_processor import Guard
from genai_processor.cli.entries import shown
from genai_processor.errors import LedgerConflictError, LedgerUnavailableError
from genai_processor.ledger import Entry, Resolution, State, open_ledger
from genai_processor.ledger.sqlite import SQLiteLedger
from tests.support.servers import PATIENCE_SECONDS, RedisServer


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One that a test may end."""
    server = RedisServer()
    server.start()
    yield server
    server.remove()


def test_a_claim_is_renewed_again_when_its_server_is_back(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "genai_processor.guard.leases")
    url = f"{server.url()}?timeout_seconds=1"
    guard = Guard(url, lease_seconds=1)
    with guard.call("pay", None, {"order": 1}, scope="s") as attempt:
        assert attempt.entry is not None
        entry_id = attempt.entry.entry_id
        server.kill()
        wait_until(lambda: caplog.text.count("A lease could not be renewed") > 1)
        server.start()
        back_ns = time.time_ns()
        other = open_ledger(url)

        def lease_ends() -> int:
            entry = other.get(entry_id)
            assert entry is not None
            return entry.lease_expires_ns or 0

        wait_until(lambda: lease_ends() > back_ns + 10**9)
    entry = other.get(entry_id)
    assert entry is not None
    assert entry.state is State.COMPLETED


class ComesBack(SQLiteLedger):
    """Cannot be asked to renew until an hour has passed, and is back as soon as that has failed."""

    def __init__(self, path: Path) -> None:
        self.now, self.away, self.expired = [time.time_ns()], True, 0
        super().__init__(str(path), clock=lambda: self.now[0])

    def renew(self, entry: Entry, *, lease_ns: int) -> Entry:
        if self.away:
            self.away = False
            self.now[0] += 3_600 * 10**9
            raise LedgerUnavailableError("away")
        return super().renew(entry, lease_ns=lease_ns)

    def expire(self) -> tuple[Entry, ...]:
        self.expired += 1
        return super().expire()


def test_a_ledger_that_comes_back_late_is_not_told_to_give_up_what_runs_here(tmp_path: Path) -> None:
    ledger = ComesBack(tmp_path / "ledger.db")
    with Guard(ledger, lease_seconds=0.2).call("pay", None, {"order": 1}, scope="s") as attempt:
        wait_until(lambda: ledger.expired)
    assert attempt.entry is not None
    entry = ledger.get(attempt.entry.entry_id)
    assert entry is not None
    assert steps(entry) == [(State.CLAIMED, State.COMPLETED, "returned", None)]


@pytest.mark.parametrize("seconds", [1e10, float("inf"), 10**400])
def test_a_lease_may_be_as_long_as_anybody_likes(tmp_path: Path, seconds: float) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db", lease_seconds=seconds)
    before = set(threading.enumerate())
    with guard.call("pay", None, {"order": 1}, scope="s") as attempt:
        (renews,) = set(threading.enumerate()) - before
        renews.join(0.2)  # it ends at once if it cannot wait that long
        assert renews.is_alive()
    assert attempt.entry is not None
    entry = guard.ledger.get(attempt.entry.entry_id)
    assert entry is not None
    assert steps(entry) == [(State.CLAIMED, State.COMPLETED, "returned", None)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_that_comes_out_of_a_body_has_not_ended_the_call(tmp_path: Path) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db")
    failed, tell_failed = os.pipe()
    child = -1
    try:
        with guard.call("pay", "toolu_1x", {"order": 1}, scope="s"):
            child = os.fork()
            if child:
                raise ConnectionError("502")
            os.read(failed, 1)
    except ConnectionError:
        pass
    finally:
        if not child:
            os._exit(0)
    os.write(tell_failed, b".")
    assert os.waitpid(child, 0)[1] == 0
    (entry,) = guard.ledger.by_call("s", "toolu_1x")
    assert steps(entry) == [(State.CLAIMED, State.QUARANTINED, "failed", "ConnectionError")]


class Lost:
    """A call that another host gives up while its tool runs on."""

    def __init__(self, folder: Path) -> None:
        self.now = [time.time_ns()]
        self.guard = Guard(f"sqlite:///{folder}/ledger.db", lease_seconds=60)
        self.elsewhere = SQLiteLedger(f"{folder}/ledger.db", clock=lambda: self.now[0])

    def give_up(self) -> Entry:
        self.now[0] += 3_600 * 10**9
        [entry] = self.elsewhere.expire()
        return entry

    def entry(self, lost: Entry) -> Entry:
        found = self.elsewhere.get(lost.entry_id)
        assert found is not None
        return found


def steps(entry: Entry) -> list[tuple[State, State, str, str | None]]:
    return [(change.before, change.after, change.event, change.reason) for change in entry.history]


_LOST = (State.CLAIMED, State.QUARANTINED, "lost", "no_end_recorded")


def test_whoever_settles_a_call_that_was_given_up_sees_how_its_tool_ended(tmp_path: Path) -> None:
    desk = Lost(tmp_path)
    with pytest.raises(TimeoutError), desk.guard.call("pay", None, {"order": 1}, scope="s"):
        lost = desk.give_up()
        raise TimeoutError
    found = desk.entry(lost)
    assert steps(found) == [_LOST, (State.QUARANTINED, State.QUARANTINED, "failed", "TimeoutError")]
    assert shown(found)["history"][-1]["reason"] == "TimeoutError"
    with pytest.raises(LedgerConflictError):  # read before the tool's end was known
        desk.elsewhere.settle(lost.entry_id, Resolution.NOT_COMMITTED, who="ann", note="guessed", version=lost.version)


@pytest.mark.parametrize("error", [None, TimeoutError()])
def test_a_tool_that_ends_after_its_call_was_settled_is_seen_to_have_run(tmp_path: Path, error: Exception | None) -> None:
    desk = Lost(tmp_path)
    try:
        with desk.guard.call("pay", None, {"order": 1}, scope="s"):
            lost = desk.give_up()
            desk.elsewhere.settle(lost.entry_id, Resolution.NOT_COMMITTED, who="ann", note="looked", version=lost.version)
            if error is not None:
                raise error
    except TimeoutError:
        pass
    event, reason = ("returned", None) if error is None else ("failed", "TimeoutError")
    found = desk.entry(lost)
    assert steps(found)[-1] == (State.SETTLED, State.SETTLED, event, reason)
    assert found.resolution is Resolution.NOT_COMMITTED


def test_a_tool_that_ends_well_after_its_call_was_given_up_is_done(tmp_path: Path) -> None:
    desk = Lost(tmp_path)
    with desk.guard.call("pay", None, {"order": 1}, scope="s"):
        lost = desk.give_up()
    assert steps(desk.entry(lost)) == [_LOST, (State.QUARANTINED, State.COMPLETED, "returned", None)]
