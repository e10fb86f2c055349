# SPDX-License-Identifier: Apache-2.0
"""What becomes of a result is told in the end, wherever and whenever its call or its run ends; and not before."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from genai_processor.errors import LedgerUnavailableError
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.running import delivered
from genai_processor.guard.runs import Run
from genai_processor.guard.streams import run_of_asteps, run_of_steps
from genai_processor.ledger import Entry, State
from genai_processor.ledger.sqlite import SQLiteLedger
from genai_processor.retry.policy import Policy


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return Guard(f"sqlite:///{tmp_path}/ledger.db")


def states(guard: Guard) -> dict[State, int]:
    """The states of what is in the ledger, once it has been told what nobody waits for."""
    if guard.threads is not None and guard.threads._pool is not None:
        guard.threads._pool.shutdown()
        guard.threads._pool = None
    return {state: number for state, number in guard.ledger.counts().items() if number}


def begun(guard: Guard, order: str, turn: str) -> Attempt:
    attempt = guard.begin(Call("refund", f"toolu_{turn}x", {"order": order}, None, turn))
    assert isinstance(attempt, Attempt), attempt
    return attempt


def refunded(guard: Guard, order: str, turn: str) -> None:
    begun(guard, order, turn).returned("done")


def renewed(guard: Guard) -> int:
    assert guard._desk._ends._leases is not None
    return len(guard._desk._ends._leases._held)


def test_a_call_that_ends_after_its_run_waits_for_nobody(guard: Guard) -> None:
    with guard.run("ticket 7"):
        attempt = begun(guard, "o1", "first")
    attempt.returned("done")
    assert (states(guard), renewed(guard)) == ({State.COMPLETED: 1}, 0)
    waiting = Run("ticket 7")
    with pytest.raises(KeyError), guard.running(waiting, paused=(KeyError,)):
        attempt = begun(guard, "o1", "second")
        raise KeyError("an approval")
    attempt.returned("done")
    assert (states(guard), renewed(guard)) == ({State.COMPLETED: 2}, 0)


def stream(guard: Guard) -> Iterator[str]:
    refunded(guard, "o1", "inside")
    yield "thinking"
    yield "done"


def test_a_stream_that_is_closed_after_the_run_around_it_waits_for_nobody(guard: Guard) -> None:
    with guard.run("ticket 7"):
        run = run_of_steps(guard, stream(guard), Run.within())
        next(run)
    run.close()
    assert (states(guard), renewed(guard)) == ({State.COMPLETED: 1}, 0)


def test_a_stream_that_is_closed_after_the_run_around_it_has_died_is_lost(guard: Guard) -> None:
    with pytest.raises(ConnectionError), guard.run("ticket 7"):
        run = run_of_steps(guard, stream(guard), Run.within())
        next(run)
        raise ConnectionError
    run.close()
    assert (states(guard), renewed(guard)) == ({State.UNDELIVERED: 1}, 0)


def test_a_call_of_a_closed_stream_ends_in_the_run_around_it(guard: Guard) -> None:
    def late() -> Iterator[Attempt]:
        yield begun(guard, "o1", "inside")

    with pytest.raises(ConnectionError), guard.run("ticket 7"):
        run = run_of_steps(guard, late(), Run.within())
        attempt = next(run)
        run.close()
        attempt.returned("done")
        assert states(guard) == {State.RETURNED: 1}
        raise ConnectionError
    assert (states(guard), renewed(guard)) == ({State.UNDELIVERED: 1}, 0)


def test_a_stream_that_vanishes_with_its_event_loop_is_renewed_no_more(guard: Guard) -> None:
    async def items() -> AsyncIterator[int]:
        refunded(guard, "o1", "first")
        yield 1

    async def first() -> None:
        async for _ in run_of_asteps(guard, items(), Run("ticket 7")):
            break

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(first())
    loop.close()
    del loop
    gc.collect()
    assert (states(guard), renewed(guard)) == ({State.RETURNED: 1}, 0)


def test_the_guard_that_granted_a_call_tells_its_own_ledger(guard: Guard, tmp_path: Path) -> None:
    other = Guard(f"sqlite:///{tmp_path}/other.db")
    with guard.run("ticket 7"):
        refunded(other, "o1", "first")
    assert (states(other), renewed(other)) == ({State.COMPLETED: 1}, 0)
    with pytest.raises(ConnectionError), guard.run("ticket 7"):
        refunded(other, "o1", "second")
        refunded(guard, "o1", "second")
        raise ConnectionError
    assert states(other) == {State.COMPLETED: 1, State.UNDELIVERED: 1}
    assert states(guard) == {State.UNDELIVERED: 1}


def test_a_turn_that_began_before_a_call_ended_has_not_seen_its_result(guard: Guard) -> None:
    """Its runtime has told the model of a timeout, say."""
    with pytest.raises(ConnectionError), guard.run("ticket 7"):
        slow = begun(guard, "o1", "first")
        refunded(guard, "o2", "second")
        slow.returned("done")
        again = guard.begin(Call("refund", "toolu_2x", {"order": "o1"}, None, "second"))
        assert not isinstance(again, Attempt)
        assert (again.reason, again.recorded is not None) == ("action_undelivered", True)
        raise ConnectionError
    assert states(guard) == {State.UNDELIVERED: 2}


def test_what_was_done_inside_a_call_is_delivered_with_its_result(guard: Guard) -> None:
    with guard.run("ticket 7"):
        for turn in ("first", "second", "third"):
            attempt = begun(guard, turn, turn)
            with attempt.inside():
                refunded(guard, "o1", f"{turn}, inside")  # granted each time
            attempt.returned("done")
        assert states(guard) == {State.COMPLETED: 4, State.RETURNED: 2}
    assert (states(guard), renewed(guard)) == ({State.COMPLETED: 6}, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_delivers_nothing_of_its_parents(guard: Guard) -> None:
    with guard.run("ticket 7"):
        refunded(guard, "o1", "first")
        child = os.fork()
        if child == 0:
            try:
                refunded(guard, "o2", "of the child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        [entry] = guard.ledger.by_call("ticket 7", "toolu_firstx")
        assert entry.state is State.RETURNED


class Unheard(SQLiteLedger):
    """Cannot be told of deliveries for a while."""

    error: BaseException | None = None

    def deliver(self, entry: Entry) -> Entry:
        if self.error is not None:
            raise self.error
        return super().deliver(entry)


@pytest.mark.parametrize("error", [LedgerUnavailableError("away"), KeyboardInterrupt()])
def test_what_could_not_be_told_is_told_by_the_next_call(error: BaseException, tmp_path: Path) -> None:
    ledger = Unheard(str(tmp_path / "ledger.db"))
    guard = Guard(ledger)
    try:
        with guard.run("ticket 7"):
            refunded(guard, "o1", "first")
            ledger.error = error
    except KeyboardInterrupt:
        pass
    assert (states(guard), renewed(guard)) == ({State.RETURNED: 1}, 0)
    ledger.error = None
    with guard.run("ticket 7"):
        refunded(guard, "o1", "second")
    assert states(guard) == {State.COMPLETED: 2}


def test_an_idempotent_tool_that_was_called_again_waits_for_no_person(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db", policy=Policy(idempotent=("refund",)))
    with guard.run("ticket 7"):
        attempt = guard.begin(Call("refund", "toolu_1x", {}, None, "first"))
        assert isinstance(attempt, Attempt)
        attempt.returned("done")
        again = guard.begin(Call("refund", "toolu_1x", {}, None, "first"))
        assert isinstance(again, Attempt)
        assert attempt.entry is not None
        assert guard._desk._ends._leases is not None
        with caplog.at_level(logging.WARNING):
            assert guard._desk._ends._leases._renew(attempt.entry)
        again.returned("done")
    assert "waits for a person" not in caplog.text
    assert (states(guard), renewed(guard)) == ({State.COMPLETED: 1}, 0)


def test_a_run_that_goes_on_after_its_model_has_answered_still_waits_for_the_next_answer(guard: Guard) -> None:
    run = Run("ticket 7")
    with pytest.raises(ConnectionError), guard.running(run):
        refunded(guard, "o1", "first")
        delivered(guard, run)
        assert states(guard) == {State.COMPLETED: 1}
        refunded(guard, "o2", "second")
        assert states(guard) == {State.COMPLETED: 1, State.RETURNED: 1}
        raise ConnectionError
    assert states(guard) == {State.COMPLETED: 1, State.UNDELIVERED: 1}
