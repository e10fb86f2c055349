# SPDX-License-Identifier: Apache-2.0
"""The guard around runs of LangGraph: those that die, wait, are streamed, or go on elsewhere."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from support.graphs import run, sync_and_async, told
from support.incidents import Install

from benchmarks.incidents.kit import World
from benchmarks.incidents.langgraph_agents import GO, THREAD, agent, graph, one_of_two, paying, run_async, tool
from benchmarks.incidents.scripts import AGAIN, refund
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.bindings import current
from genai_processor.guard.calls import Call
from genai_processor.guard.hooks.langgraph import _GraphRun
from genai_processor.guard.runs import current_run
from genai_processor.ledger import State


def test_an_interrupt_is_a_pause_and_no_death(guarded: Install) -> None:
    guard, world = guarded(), World()

    def ask_first(order: str) -> str:
        return world.commit(order) if interrupt("sure?") else "no"

    made = agent(AGAIN, tool(ask_first), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_a1")
    assert entry.state is State.PAUSED
    made.invoke(Command(resume=True), THREAD)
    assert guard.ledger.by_call("thread-1", "toolu_a1")[0].state is State.COMPLETED
    made.invoke(Command(resume=True), THREAD)
    assert world.effects == ["o1", "o1"]
    assert not guard.ledger.pending().entries


def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
    guard, world = guarded(), World()

    def again(number: int, handle: bool) -> Any:
        calls = [refund(f"toolu_9{number}z", "o9"), refund(f"toolu_x{number}z", "oX")]
        return run_async(graph([calls], one_of_two(world), handle=handle))

    with pytest.raises(ConnectionError):
        again(1, False)
    assert guard.ledger.counts()[State.UNDELIVERED] == 1
    assert told(again(2, False))[0].content == "done: o9"
    assert guard.ledger.counts()[State.UNDELIVERED] == 0
    assert world.effects == ["o9", "oX"]


@sync_and_async
def test_what_the_thread_has_saved_is_not_lost_with_the_run(guarded: Install, sync: bool) -> None:
    guard = guarded()
    turns = [AGAIN[0], OSError("model overloaded")]
    with pytest.raises(OSError, match="overloaded"):
        run(agent(turns, paying(World(), sync=sync), checkpointer=InMemorySaver()), sync=sync)
    assert guard.ledger.counts()[State.COMPLETED] == 1


@sync_and_async
def test_what_no_thread_has_saved_is_lost_with_the_run(guarded: Install, sync: bool) -> None:
    guard = guarded()
    for made, scope in ((agent, None), (lambda *a: agent(*a, checkpointer=InMemorySaver()), "order o1")):
        with pytest.raises(OSError, match="overloaded"), guard.run(scope):
            run(made([AGAIN[0], OSError("model overloaded")], paying(World(), sync=sync)), sync=sync)
    assert guard.ledger.counts()[State.UNDELIVERED] == 2


def test_who_stops_listening_to_a_stream_kills_no_run(guarded: Install) -> None:
    guard = guarded()
    stream = agent(AGAIN[:1], paying(World())).stream(GO, THREAD, stream_mode="updates")
    assert [next(iter(next(stream))) for _ in range(2)][1] == "tools"
    stream.close()
    assert guard.ledger.counts()[State.COMPLETED] == 1


def test_a_thread_that_ends_after_its_run_has_died_delivers_to_nobody(guarded: Install) -> None:
    guard, begun, go, world = guarded(), threading.Event(), threading.Event(), World()

    def pay(order: str) -> str:
        begun.set()
        go.wait(10)
        return world.commit(order)

    async def story() -> None:
        run = asyncio.ensure_future(agent(AGAIN, tool(pay)).ainvoke(GO, THREAD))
        assert await asyncio.to_thread(begun.wait, 10)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        go.set()

    asyncio.run(story())
    assert world.effects == ["o1"]
    assert guard.ledger.counts()[State.UNDELIVERED] == 1


def test_a_tool_that_had_another_one_pay_before_it_asked_is_not_begun_again(guarded: Install) -> None:
    guard, world = guarded(), World()

    def pay_and_ask(order: str) -> str:
        paying(world).invoke({"order": order})
        interrupt("and now?")
        return "done"

    made = agent(AGAIN[:1], tool(pay_and_ask), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_a1")
    assert (entry.state, entry.reason) == (State.QUARANTINED, "effect_before_pause")
    made.invoke(Command(resume=True), THREAD)
    assert world.effects == ["o1"]


def test_nor_is_one_that_had_another_agent_pay_beside_the_one_that_asks(guarded: Install) -> None:
    guard, world = guarded(), World()

    def ask(order: str) -> str:
        return str(interrupt("sure?"))

    def delegate(order: str) -> str:
        agent(AGAIN[:1], paying(world)).invoke(GO)
        return str(agent(AGAIN[1:], tool(ask, "refund")).invoke(GO))

    made = agent([[("toolu_d1", "delegate", {"order": "o1"})]], tool(delegate, "delegate"), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_d1")
    assert (entry.state, entry.reason) == (State.QUARANTINED, "effect_before_pause")


def test_not_even_if_both_agents_are_at_work_at_once(guarded: Install) -> None:
    guard, world = guarded(), World()
    paid = asyncio.Event()

    async def pay(order: str) -> str:
        world.commit(order)
        paid.set()
        await asyncio.Event().wait()
        return "never"

    async def ask(order: str) -> str:
        await paid.wait()
        return str(interrupt("sure?"))

    async def delegate(order: str) -> str:
        pays, asks = agent([[refund("toolu_i1", "o9")]], tool(pay)), agent(AGAIN[:1], tool(ask, "refund"))
        await asyncio.gather(asks.ainvoke(GO), pays.ainvoke(GO))
        return "done"

    calls = [("toolu_d1", "delegate", {"order": "o1"})]
    run_async(agent([calls], tool(delegate, "delegate"), checkpointer=InMemorySaver()))
    [entry] = guard.ledger.by_call("thread-1", "toolu_d1")
    assert (entry.state, entry.reason) == (State.QUARANTINED, "effect_before_pause")


def test_runs_may_begin_and_end_in_many_threads_inside_one_call(guarded: Install) -> None:
    """A tool's body may ask several agents at once."""
    attempt, errors = guarded().begin(Call("delegate", "toolu_1")), list[BaseException]()
    assert isinstance(attempt, Attempt)

    def work() -> None:
        try:
            with attempt.inside():
                for _ in range(2_000):
                    _GraphRun.within(None).over()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []


def test_a_stream_leaks_nothing_into_whoever_reads_it(guarded: Install) -> None:
    guarded()

    async def story() -> None:
        async for _ in agent(AGAIN, paying(World(), sync=False)).astream(GO, THREAD, stream_mode="updates"):
            assert current_run() is None
            assert current() is None

    asyncio.run(story())
    for _ in agent(AGAIN, paying(World())).stream(GO, THREAD, stream_mode="updates"):
        assert current_run() is None
        assert current() is None


# -- another process ----------------------------------------------------------------------------------------------------

_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt
from benchmarks.incidents.langgraph_agents import GO, THREAD, graph, agent, tool
from benchmarks.incidents.scripts import refund
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard

folder, story, given = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
hooks.install(Guard(f"sqlite:///{folder}/ledger.db"))

def pay(order):
    if story == "approval" and order == "o1" and not interrupt("sure?"):
        return "no"
    with (folder / "effects").open("a") as effects:
        effects.write(order + "\\n")
    if story == "death" and order == "o1":
        raise ConnectionError("502 Bad Gateway")
    return f"done: {order}"

with SqliteSaver.from_conn_string(f"{folder}/graph.db") as saver:
    turns = [[refund("toolu_9a", "o9"), refund("toolu_a1")]] if given == "go" else []
    made = graph(turns, tool(pay), checkpointer=saver)
    try:
        state = made.invoke({"go": GO, "none": None, "yes": Command(resume=True)}[given], THREAD)
    except ConnectionError:
        sys.exit("died")
    for message in state["messages"]:
        if message.type == "tool":
            print(message.status, message.content)
"""


def in_another_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _ANOTHER_PROCESS, str(folder), *arguments],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_run_that_died_goes_on_in_another_process_and_pays_nothing_twice(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.checkpoint.sqlite")
    assert in_another_process(tmp_path, "death", "go").stderr.endswith("died\n")
    after = in_another_process(tmp_path, "death", "none")
    assert sorted((tmp_path / "effects").read_text().split()) == ["o1", "o9"], after.stderr
    assert "this very call was made before, and may have committed" in after.stdout


def test_an_approval_in_another_process_runs_the_call_once(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.checkpoint.sqlite")
    in_another_process(tmp_path, "approval", "go")
    after = in_another_process(tmp_path, "approval", "yes")
    assert sorted((tmp_path / "effects").read_text().split()) == ["o1", "o9"], after.stderr
    assert "success done: o1" in after.stdout
