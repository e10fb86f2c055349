# SPDX-License-Identifier: Apache-2.0
"""What a recompute function raises, how a replay is cancelled, and what nobody can change afterwards."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.plans import Making, answered, calls, failure, retrievals, says, user

from genai_processor.errors import ReplayDivergence
from genai_processor.replay.asked import NodeRun
from genai_processor.replay.decisions import Choice, Mode, Plan, Reason
from genai_processor.replay.records import Outcome
from genai_processor.replay.replayer import areplay, replay
from genai_processor.replay.results import Done
from genai_processor.replays import REPLAYS

SECONDS = 30


def branches(count: int, *outcomes: Any) -> Plan:
    """As many chats that depend on nothing."""
    made = Making()
    for n in range(count):
        came = outcomes[n] if n < len(outcomes) else [says(f"a{n}")]
        made.chat(f"{n + 1:016x}", [user(f"u{n}")], came, reasons=(Reason.CONSTANT_INPUTS,))
    return made.plan()


class Interrupting(BaseException):
    """What ends no run, but passes every `except Exception`."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, Interrupting])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_ends_the_program_passes_and_what_runs_beside_has_come_back(kind: type[BaseException], workers: int) -> None:
    plan = branches(2)
    begun, over = threading.Event(), threading.Event()

    def function(run: NodeRun) -> Outcome:
        if run.node.key == plan.nodes[1].key:
            if workers > 1:
                assert begun.wait(SECONDS)
            raise kind("now")
        begun.set()
        over.set()
        return run.node.outcome

    with pytest.raises(kind):
        replay(plan, function, workers=workers)
    assert over.is_set()
    assert REPLAYS.here() is None


@pytest.mark.parametrize("kind", [SystemExit, Interrupting])
def test_it_passes_out_of_threads_of_a_loop_too(kind: type[BaseException]) -> None:
    def function(run: NodeRun) -> Outcome:
        raise kind("now")

    with pytest.raises(kind):
        asyncio.run(areplay(branches(1), function))


def test_a_cancellation_inside_a_function_is_its_failure_and_not_the_replays() -> None:
    def function(run: NodeRun) -> Any:
        raise asyncio.CancelledError("mine")

    async def coroutine(run: NodeRun) -> Any:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel("mine")
        await task

    async def itself(run: NodeRun) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel("mine")
        await asyncio.sleep(0)

    plan = branches(1, failure("CancelledError", "mine"))
    assert asyncio.run(areplay(plan, itself)).count(Done.RECOMPUTED) == 1
    assert replay(plan, function).count(Done.RECOMPUTED) == 1
    assert asyncio.run(areplay(plan, function)).count(Done.RECOMPUTED) == 1
    assert asyncio.run(areplay(plan, coroutine)).count(Done.RECOMPUTED) == 1
    with pytest.raises(ReplayDivergence, match="CancelledError"):
        asyncio.run(areplay(branches(1), coroutine))


def test_a_cancelled_replay_cancels_its_coroutines_and_waits_for_its_threads() -> None:
    plan = branches(2)
    inside, go_on, ends = threading.Event(), threading.Event(), list[str]()

    def function(run: NodeRun) -> Outcome:
        inside.set()
        assert go_on.wait(SECONDS)
        ends.append(REPLAYS.here() or "outside")
        return run.node.outcome

    async def coroutine(run: NodeRun) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")
        raise AssertionError

    async def main() -> None:
        functions = {plan.nodes[0].key: function, plan.nodes[1].key: coroutine}
        task = asyncio.create_task(areplay(plan, functions, run_id="r"))
        while not inside.is_set():
            await asyncio.sleep(0)
        for _ in range(3):  # however often
            task.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ends == ["cancelled", "r"]

    asyncio.run(main())


def test_what_a_function_changes_in_its_input_changes_nothing_in_the_record() -> None:
    made = Making()
    call = calls("search", {"query": "q", "tags": ["a"]}, "c")
    made.chat("01" * 8, [user("u")], [call], reasons=(Reason.CONSTANT_INPUTS,))
    made.tool("02" * 8, call, {"found": [1]}, choice=Choice.RECOMPUTE, modes=(Mode.OUTPUT, Mode.INPUTS))
    made.chat("03" * 8, [user("u"), call, answered(call, {"found": [1]})], [says("end")])
    plan = made.plan()

    def search(run: NodeRun) -> Any:
        run.arguments["tags"].append("b")
        run.parts[0].value.clear()
        for part in run.parts:
            part.value.clear()
        for part in run.parts[:]:
            part.value.clear()
        return {"found": [1]}

    def chat(run: NodeRun) -> Outcome:
        for part in run.parts:
            if isinstance(part.value, dict):
                part.value.clear()
        return run.node.outcome

    for _ in range(2):
        assert replay(plan, {"search": search, "chat": chat}).count(Done.RECOMPUTED) == 3
    assert plan.nodes[1].inputs.parts[0].value == {"query": "q", "tags": ["a"]}
    assert plan.nodes[2].inputs.parts[2].value == {"found": [1]}


def test_a_result_cannot_be_changed() -> None:
    result: Any = replay(retrievals().plan())
    for mapping in (result.nodes, result.outcomes, result.boundary.outcomes):
        with pytest.raises(TypeError):
            mapping["x"] = 1
    with pytest.raises(AttributeError):
        result.run_id = "x"
