# SPDX-License-Identifier: Apache-2.0
"""Results that come when nobody waits for them any more."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard import runs
from genai_processor.guard.actions import action_digest
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.calls import Call
from genai_processor.guard.guard import Guard
from genai_processor.guard.refused import Recorded, Refused
from genai_processor.guard.running import Manners, arun, hand_out, running
from genai_processor.guard.runs import Run, current_run, in_run
from genai_processor.guard.streams import run_of_asteps
from genai_processor.guard.threads import Threads, tell
from genai_processor.ledger import Entry, MemoryLedger, Outcome, State


@pytest.mark.parametrize(("turn", "state"), [("turn 1", State.UNDELIVERED), (None, State.COMPLETED)])
def test_a_result_that_comes_after_the_run_has_died_is_undelivered(turn: str | None, state: State) -> None:
    guard, run = Guard(), Run()
    with guard.running(run):
        attempt = guard.begin(Call("refund", "toolu_a1", {"order": "o9"}, "c1", turn))
    assert isinstance(attempt, Attempt)
    guard.died(run)
    attempt.returned("done")
    assert {one: number for one, number in guard.ledger.counts().items() if number} == {state: 1}


def test_a_result_that_comes_too_late_never_counts_as_delivered() -> None:
    """Not even for a moment: whoever runs the agent again at once may ask for the same just then."""
    guard, run = Guard(), Run()
    with guard.running(run):
        attempt = guard.begin(Call("refund", "toolu_a1", {"order": "o9"}, "c1", "turn 1"))
    assert isinstance(attempt, Attempt)
    guard.died(run)
    attempt.returned("done")
    [entry] = guard.ledger.by_call("c1", "toolu_a1")
    assert [change.after for change in entry.history] == [State.UNDELIVERED]


def test_a_run_goes_on_after_a_turn_that_is_lost() -> None:
    guard, run = Guard(), Run()
    with guard.running(run):
        late = guard.begin(Call("refund", "toolu_1", {"order": "1"}, "c1", "turn 1"))
        guard.lost(run)
        later = guard.begin(Call("refund", "toolu_2", {"order": "2"}, "c1", "turn 2"))
        assert isinstance(late, Attempt)
        assert isinstance(later, Attempt)
        later.returned("done")
        late.returned("done, but nobody waits")
    found = [entry.state for call_id in ("toolu_1", "toolu_2") for entry in guard.ledger.by_call("c1", call_id)]
    assert found == [State.UNDELIVERED, State.COMPLETED]


def test_what_goes_on_inside_a_call_says_nothing_of_what_goes_on_around_it() -> None:
    """A model that is asked inside a tool's body has not seen what the tool's siblings returned."""
    guard, run = Guard(), Run()

    def call(tool: str, turn: str) -> Attempt:
        begun = guard.begin(Call(tool, f"toolu_{tool}", {"order": tool}, "c1", turn))
        assert isinstance(begun, Attempt)
        return begun

    with pytest.raises(ConnectionError), guard.running(run):
        call("sibling", "turn 1").returned("done")
        with call("agent", "turn 1").inside():
            call("inner", "turn 2").returned("done")
            call("last", "turn 3").returned("done")
        raise ConnectionError("the model is down")
    states = {tool: guard.ledger.by_call("c1", f"toolu_{tool}")[0].state for tool in ("sibling", "inner", "last")}
    assert states == {"sibling": State.UNDELIVERED, "inner": State.COMPLETED, "last": State.UNDELIVERED}


@pytest.mark.parametrize(("dies", "state"), [(True, State.UNDELIVERED), (False, State.COMPLETED)])
def test_what_a_run_that_was_given_up_has_not_delivered_depends_on_the_run_around_it(dies: bool, state: State) -> None:
    guard = Guard()

    async def inner() -> Any:
        attempt = guard.begin(Call("refund", "toolu_a1", {"order": "o9"}, "c1", "turn 1"))
        assert isinstance(attempt, Attempt)
        attempt.returned("done")
        yield "result"
        yield "more"

    async def outer() -> Any:
        agent = run_of_asteps(guard, inner())
        yield await anext(agent)
        await agent.aclose()
        if dies:
            raise ConnectionError

    async def story() -> None:
        async for _ in run_of_asteps(guard, outer()):
            pass

    with pytest.raises(ConnectionError) if dies else nullcontext():
        asyncio.run(story())
    assert {one: number for one, number in guard.ledger.counts().items() if number} == {state: 1}


def test_a_cancelled_call_has_told_its_ledger_before_the_cancellation_goes_on() -> None:
    """So that whoever begins the run again finds how its calls have ended."""
    begun, go_on, told = threading.Event(), threading.Event(), list[str]()

    def slowly() -> None:
        begun.set()
        go_on.wait(30)
        told.append("told")

    async def story() -> None:
        telling = asyncio.create_task(tell(Threads(), slowly))
        await asyncio.to_thread(begun.wait, 30)
        for _ in range(2):
            telling.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not telling.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await telling
        assert told == ["told"]

    asyncio.run(story())


def test_what_a_told_ledger_raises_is_raised() -> None:
    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        asyncio.run(tell(Threads(), fail))


def test_an_unlucky_moment_leaves_no_claim_behind() -> None:
    """Threads of one run begin turns, and end calls, as fast as they can."""
    guard, run, errors = Guard("memory:"), Run(), list[BaseException]()

    def work(number: int) -> None:
        try:
            with in_run(run):
                for turn in (f"{number} {turn}" for turn in range(60)):
                    with guard.call("agent", f"toolu_{turn}", {}, scope=turn, turn=turn):
                        for call in range(10):
                            with guard.call("pay", f"toolu_{turn} {call}", {"order": call}, turn=f"{turn} {call // 5}"):
                                pass
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert guard.ledger.counts()[State.CLAIMED] == 0


def test_a_run_that_is_closed_elsewhere_leaves_whatever_is_current_there() -> None:
    """An asynchronous context manager may be entered in one task, and left in another one, which has a run of its own."""
    guard = Guard("memory:")

    async def story() -> None:
        elsewhere = running(guard)
        await asyncio.create_task(elsewhere.__aenter__())
        with guard.run("mine"), guard.call("pay", "toolu_1", {}):
            own = current_run()
            await elsewhere.__aexit__(None, None, None)
            assert current_run() is own

        async def copied() -> None:
            await inherited.__aexit__(None, None, None)
            assert current_run() is own

        with guard.run("mine"):
            own, inherited = current_run(), running(guard)
            await inherited.__aenter__()
            await asyncio.create_task(copied())

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["coroutine", "generator", "what a function returned", "a call of a framework's"])
@pytest.mark.parametrize("in_a_run", [False, True])
@pytest.mark.parametrize("end", ["cancelled", "closed"])
def test_a_result_that_was_kept_from_whoever_waited_is_handed_to_who_asks_again(
    kind: str, in_a_run: bool, end: str, tmp_path: Path
) -> None:
    """The tool is done in time; what takes too long is to tell the ledger so."""
    guard, paid = Guard(f"sqlite:///{tmp_path}/ledger.db", mode="enforce", scope="c1"), list[str]()
    guard.ledger.counts()
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)

    async def body(order: str) -> str:
        paid.append(order)
        if len(paid) == 1:
            other.execute("BEGIN IMMEDIATE")
        return f"paid {len(paid)}"

    async def framework(order: str) -> Any:
        return await arun(guard, Call("pay", None, {"order": order}), partial(body, order), Manners())

    @guard.tool("pay")
    async def items(order: str) -> AsyncIterator[str]:
        yield await body(order)

    async def generator(order: str) -> str:
        return [item async for item in items(order)][-1]

    pay = {
        "coroutine": guard.tool("pay")(body),
        "generator": generator,
        "what a function returned": guard.tool("pay")(lambda order: body(order)),
        "a call of a framework's": framework,
    }[kind]

    async def cancelled() -> None:
        waiting = asyncio.ensure_future(pay("o1"))
        while not other.in_transaction:
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def closed() -> None:
        coroutine = pay("o1")
        while True:
            waits_for = coroutine.send(None)
            if other.in_transaction:
                break
            while not waits_for.done():
                await asyncio.sleep(0.001)
        other.execute("ROLLBACK")  # nothing else of this event loop runs between here and the end
        coroutine.close()
        if kind == "generator":  # Python before 3.13 leaves an async generator to its event loop
            deadline = time.monotonic() + 20
            while not guard.ledger.counts()[State.UNDELIVERED]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.001)

    async def story() -> list[str]:
        await (cancelled() if end == "cancelled" else closed())
        assert guard.ledger.counts()[State.UNDELIVERED] == 1
        found = []
        if kind != "what a function returned":  # of which no result is kept
            found.append(await pay("o1"))
        else:
            with pytest.raises(ToolSpanCommitmentError):
                await pay("o1")
        return found

    with guard.run() if in_a_run else nullcontext():
        found = asyncio.run(story())
    assert len(paid) == 1
    assert found == ["paid 1"] or kind == "what a function returned"
    if guard.threads is not None and guard.threads._pool is not None:
        guard.threads._pool.shutdown()  # where the ledger is told
    assert guard.ledger.counts()[State.COMPLETED] == len(found)
    other.close()


def test_a_result_that_is_handed_to_code_is_delivered_with_that() -> None:
    guard, paid = Guard(mode="enforce", scope="c1"), list[str]()

    @guard.tool()
    def pay(order: str) -> str:
        paid.append(order)
        return f"paid {len(paid)}"

    pay("o1")
    [entry] = guard.ledger.by_action("c1", "pay", action_digest({"order": "o1"}) or "")
    guard.ledger.undeliver(entry)
    assert [pay("o1"), pay("o1")] == ["paid 1", "paid 2"]


def test_a_busy_ledger_keeps_no_run_from_its_own_result(tmp_path: Path) -> None:
    """That results which were handed back were seen is told later, for a time-out meanwhile would have it run again."""
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db", mode="enforce", scope="c1")
    with pytest.raises(ConnectionError), guard.run():
        attempt = guard.begin(Call("pay", "toolu_1", {"order": 1}, turn="turn 1"))
        assert isinstance(attempt, Attempt)
        attempt.returned("paid")
        raise ConnectionError
    other = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, check_same_thread=False)

    async def agent() -> str:
        async with running(guard):
            answer = guard.begin(Call("pay", "toolu_2", {"order": 1}, turn="turn 2"))
            assert isinstance(answer, Refused)
            assert answer.recorded == Recorded("paid")
            hand_out(answer)
            other.execute("BEGIN IMMEDIATE")
        return "done"

    async def story() -> str:
        try:
            return await asyncio.wait_for(agent(), 5)
        finally:
            other.execute("ROLLBACK")

    assert asyncio.run(story()) == "done"
    assert guard.threads is not None
    assert guard.threads._pool is not None
    guard.threads._pool.shutdown()
    assert guard.ledger.counts()[State.COMPLETED] == 1
    other.close()


def test_a_run_has_died_only_once_its_calls_that_are_just_ending_are_undelivered() -> None:
    """Whoever waits for it may run the agent again at once, and must not meet a result that counts as delivered."""

    class Slow(MemoryLedger):
        """Takes its time to say that it knows how a call ended."""

        ended, answer = threading.Event(), threading.Event()

        def finish(self, entry: Entry, outcome: Outcome, *, reason: str | None = None) -> Entry:
            found = super().finish(entry, outcome, reason=reason)
            self.ended.set()
            self.answer.wait(20)
            return found

    ledger, run = Slow(), Run()
    guard = Guard(ledger)
    with guard.running(run):
        attempt = guard.begin(Call("pay", "toolu_1", {"order": 1}, "c1", "turn 1"))
    assert isinstance(attempt, Attempt)
    thread = threading.Thread(target=attempt.returned, args=("paid",))
    thread.start()
    ledger.ended.wait(20)
    threading.Timer(0.2, ledger.answer.set).start()
    guard.died(run)
    assert ledger.counts()[State.UNDELIVERED] == 1
    thread.join()


def test_a_dead_run_waits_for_all_of_its_ends_together_no_longer_than_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_PATIENCE_SECONDS", 0.1)
    run, told = Run(), threading.Event()
    guard = Guard()
    begun = [guard.begin(Call("refund", f"toolu_{at}", {"order": at}, "c1", "turn 1")) for at in range(30)]

    def tell_slowly(entry: Entry, known: threading.Barrier) -> None:
        with run.ending(entry):
            known.wait(30)
            told.wait(30)

    everybody = threading.Barrier(len(begun) + 1)
    threads = [threading.Thread(target=tell_slowly, args=(one.entry, everybody)) for one in begun]
    for thread in threads:
        thread.start()
    everybody.wait(30)
    before = time.monotonic()
    run.wait_for_ends()
    waited = time.monotonic() - before
    told.set()
    for thread in threads:
        thread.join()
    assert 0.1 <= waited < 2
