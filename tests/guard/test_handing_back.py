# SPDX-License-Identifier: Apache-2.0
"""When a recorded result that answers a later run has reached its model, and when it has not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from genai_processor import Guard
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.calls import Call
from genai_processor.guard.generators import asteps_of_call
from genai_processor.guard.refused import Refused
from genai_processor.guard.running import Manners, arun
from genai_processor.ledger import State
from genai_processor.ledger.requests import Claim, Granted, Refusal
from genai_processor.ledger.sqlite import SQLiteLedger


class Stops(SQLiteLedger):
    """Answers a claim of one turn only when it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.asked, self.answers = threading.Event(), threading.Event()

    def claim(self, claim: Claim, *, observe: bool = False) -> Granted | Refusal:
        answer = super().claim(claim, observe=observe)
        if claim.turn == "turn 2":
            self.asked.set()
            assert self.answers.wait(20)
        return answer


class Tool:
    """A payment, and how often it was made."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.paid = 0

    def _call(self, turn: str) -> Call:
        return Call("pay", f"toolu_{turn}", {"order": 1}, turn=turn)

    async def awaited(self, turn: str) -> Any:
        async def body() -> int:
            self.paid += 1
            return self.paid

        return await arun(self.guard, self._call(turn), body, Manners(by_the_body=True))

    async def streamed(self, turn: str) -> Any:
        async def body() -> Any:
            self.paid += 1
            yield self.paid

        def kept(refused: Refused) -> Any:
            if refused.recorded is None:
                raise refused.error()
            return refused.recorded.value

        begin = lambda: self.guard.begin(self._call(turn))  # noqa: E731
        [paid] = [item async for item in asteps_of_call(self.guard.threads, begin, body, kept)]
        return paid


@pytest.mark.parametrize("way", [Tool.awaited, Tool.streamed])
@pytest.mark.parametrize("late", [False, True], ids=["answered before", "answered after"])
def test_a_recorded_result_that_a_cancellation_kept_from_its_caller_is_not_delivered(
    tmp_path: Path, way: Callable[[Tool, str], Any], late: bool
) -> None:
    """The run goes on, as one does that tells its model of a time-out."""
    ledger = Stops(tmp_path / "ledger.db")
    guard = Guard(ledger, mode="enforce", scope="c1")
    tool = Tool(guard)

    async def story() -> None:
        with suppress(ConnectionError), guard.run():
            await way(tool, "turn 1")
            raise ConnectionError
        with guard.run():
            call = asyncio.ensure_future(way(tool, "turn 2"))
            await asyncio.to_thread(ledger.asked.wait, 20)
            if not late:
                ledger.answers.set()
                assert guard.threads is not None
                guard.threads.submit(lambda: None).result()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            ledger.answers.set()
            assert await way(tool, "turn 3") == 1

    asyncio.run(story())
    assert tool.paid == 1
    ledger.close()


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_what_a_model_asks_for_after_it_has_seen_a_recorded_result_is_asked_for_anew(tmp_path: Path, url: str) -> None:
    guard = Guard(url if url == "memory:" else f"sqlite:///{tmp_path}/ledger.db", mode="enforce", scope="c1")
    paid: list[str] = []

    def pay(turn: str) -> Any:
        try:
            with guard.call("pay", f"toolu_{turn}", {"order": 1}, turn=turn) as attempt:
                paid.append(turn)
                attempt.returned(turn)
        except ToolSpanCommitmentError as error:
            return getattr(error.recorded, "value", None)
        return turn

    with suppress(ConnectionError), guard.run():
        pay("turn 1")
        raise ConnectionError
    with guard.run():
        assert [pay(turn) for turn in ("turn 2", "turn 3", "turn 4")] == ["turn 1", "turn 3", "turn 4"]
    assert paid == ["turn 1", "turn 3", "turn 4"]
    assert guard.ledger.counts()[State.COMPLETED] == 3


def test_a_function_of_the_users_that_raises_stop_iteration_keeps_nobody_waiting(tmp_path: Path) -> None:
    """No future takes that exception."""
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db", mode="enforce", scope="c1")

    @guard.tool(call_id=lambda arguments: next(iter(())))
    async def pay(order: int) -> int:
        return order

    async def story() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(pay(1), 20)

    asyncio.run(story())
