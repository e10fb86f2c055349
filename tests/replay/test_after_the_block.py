# SPDX-License-Identifier: Apache-2.0
"""What a replay began, and what outlives its block, reaches nothing; what was there before is there again."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.agent_run import AgentRun
from support.plans import Making, answered, calls, retrievals, says, user
from support.traps import Trap

from genai_processor.attributes import GENAI_REPLAY_RUN_ID
from genai_processor.errors import ReplayRefusedError
from genai_processor.replay.block import replaying
from genai_processor.replay.hooks import installing
from genai_processor.replays import REPLAYS

agents = pytest.importorskip("pydantic_ai")
from pydantic_ai import Agent  # noqa: E402
from pydantic_ai.models.function import FunctionModel  # noqa: E402
from pydantic_ai.tool_manager import ToolManager  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_left() -> None:
    """Begin without what the exceptions of other tests hold on to."""
    gc.collect()
    installing._installation.sweep()


def agent(trap: Trap) -> Agent[Any, Any]:
    made: Agent[Any, Any] = Agent(FunctionModel(lambda *_: trap.spring("the model")))

    @made.tool_plain
    async def search(query: str) -> str:
        trap.spring("search")

    return made


def is_wrapped() -> bool:
    return hasattr(vars(ToolManager)["_raw_execute"], "__wrapped__")


def test_a_run_that_outlives_its_block_never_reaches_a_tool_or_a_model(trap: Trap) -> None:
    """It holds a recorded response that calls tools, and would run them for real."""

    async def main() -> None:
        mine = agent(trap)
        with replaying(retrievals().plan(), whole=False) as run:
            task = asyncio.create_task(mine.run("compare them"))
            while not run.answered:
                await asyncio.sleep(0)
        with pytest.raises(ReplayRefusedError, match="replay is over"):
            await task

    asyncio.run(main())


def test_a_task_that_has_not_begun_when_its_block_ends_never_reaches_a_model(trap: Trap) -> None:
    async def main() -> None:
        with replaying(retrievals().plan(), whole=False):
            task = asyncio.create_task(agent(trap).run("compare them"))
        with pytest.raises(ReplayRefusedError, match="replay is over"):
            await task

    asyncio.run(main())


def test_a_thread_that_outlives_its_block_never_reaches_a_model(trap: Trap) -> None:
    go_on, found = threading.Event(), list[BaseException]()

    def body() -> None:
        go_on.wait(30)
        try:
            agent(trap).run_sync("compare them")
        except BaseException as error:  # noqa: BLE001
            found.append(error)

    with replaying(retrievals().plan(), whole=False):
        thread = threading.Thread(target=body)
        thread.start()
    go_on.set()
    thread.join()
    assert [type(error) for error in found] == [ReplayRefusedError]


def test_what_waits_in_a_pool_when_its_block_ends_never_reaches_a_model(trap: Trap) -> None:
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        with replaying(retrievals().plan(), whole=False):
            pool.submit(go_on.wait, 30)
            late = pool.submit(agent(trap).run_sync, "compare them")
        go_on.set()
        assert isinstance(late.exception(), ReplayRefusedError)


def test_the_wrappers_go_with_the_last_that_may_go_on(trap: Trap) -> None:
    async def main() -> None:
        mine = agent(trap)
        assert not is_wrapped()
        with replaying(retrievals().plan(), whole=False) as run:
            task = asyncio.create_task(mine.run("compare them"))
            while not run.answered:
                await asyncio.sleep(0)
        assert is_wrapped()
        with pytest.raises(ReplayRefusedError):
            await task

    asyncio.run(main())
    gc.collect()
    installing._installation.sweep()
    assert not is_wrapped()


def test_whoever_calls_next_sweeps_up(trap: Trap) -> None:
    from pydantic_ai.models.test import TestModel

    with replaying(retrievals().plan(), whole=False):
        session = installing._here.get().session  # type: ignore[union-attr]
        running = session.running()
        running.__enter__()
        holding = installing._here.get()
    assert is_wrapped()
    running.__exit__(None, None, None)
    del holding
    assert Agent(TestModel()).run_sync("hello").output == "success (no tool calls)"
    assert not is_wrapped()


def test_two_blocks_at_once_each_answer_their_own_and_the_first_to_end_takes_nothing_away(trap: Trap) -> None:
    def recorded(n: int) -> Any:
        made, call = Making(), calls("search", {"query": "q"}, "c")
        made.chat("01" * 8, [user("u")], [call])
        made.tool("02" * 8, call, f"found {n}")
        made.chat("03" * 8, [user("u"), call, answered(call, f"found {n}")], [says(f"end {n}")])
        return made.plan()

    inside = threading.Barrier(2)
    first_over = threading.Event()

    def one(n: int) -> str:
        with replaying(recorded(n)):
            inside.wait(30)
            if n:
                first_over.wait(30)
            found = str(agent(trap).run_sync("u").output)
        first_over.set()
        return found

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, range(2))) == ["end 0", "end 1"]
    assert not is_wrapped()


def test_a_pool_that_a_replay_made_threads_in_works_for_others(trap: Trap) -> None:
    with ThreadPoolExecutor(1) as pool:
        with replaying(retrievals().plan(), whole=False):
            assert pool.submit(REPLAYS.here).result() is not None
        assert pool.submit(REPLAYS.here).result() is None


def test_spans_that_are_made_after_the_block_by_what_began_in_it_are_marked() -> None:
    run, begun, go_on = AgentRun(), threading.Event(), threading.Event()

    def body() -> None:
        begun.set()
        go_on.wait(30)
        run.fail(id="call_1")

    with replaying(retrievals().plan(), whole=False, run_id="r"):
        thread = threading.Thread(target=body)
        thread.start()
        begun.wait(30)
    go_on.set()
    thread.join()
    (span,) = run.exported
    assert (span.attributes or {}).get(GENAI_REPLAY_RUN_ID) == "r"
    run.processor.force_flush()
    assert sum(run.ledger.counts().values()) == 0


def test_a_thread_with_a_body_of_its_own_keeps_it() -> None:
    found: list[Any] = []

    class Mine(threading.Thread):
        def run(self) -> None:
            found.append(REPLAYS.here())

    other = threading.Thread()
    other.run = lambda: found.append(REPLAYS.here())  # type: ignore[method-assign]
    with replaying(retrievals().plan(), whole=False, run_id="r"):
        for thread in (Mine(), other):
            thread.start()
            thread.join()
    assert found == ["r", "r"]
    assert "run" in vars(other)


def test_a_block_may_end_in_another_context_than_it_began_in() -> None:
    async def block() -> Any:
        with replaying(retrievals().plan(), whole=False):
            yield

    async def main() -> None:
        going = block()
        await asyncio.create_task(going.__anext__())
        with pytest.raises(StopAsyncIteration):
            await asyncio.create_task(going.__anext__())

    asyncio.run(main())
    assert REPLAYS.here() is None
    assert not is_wrapped()
