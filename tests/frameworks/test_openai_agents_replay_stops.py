# SPDX-License-Identifier: Apache-2.0
"""What is not in the record stops a run of the OpenAI Agents SDK for good, whatever the SDK or the application do then."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("agents")

from agents import Agent, Runner, function_tool
from support.plans import Making, answered, calls, says, user
from support.trapped_openai_agents import TrappedModel
from support.traps import Trap

from genai_processor.errors import ReplayDivergence
from genai_processor.replay import replaying

pytestmark = pytest.mark.usefixtures("untraced")


def agent(trap: Trap, *tools: Any, name: str = "a") -> Agent[Any]:
    async def search(query: str) -> str:
        """Look it up."""
        trap.spring("search")

    return Agent(name, model=TrappedModel(trap), tools=list(tools) or [function_tool(search)])


def recorded() -> Making:
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    made.tool("02" * 8, call, "found")
    made.chat("03" * 8, [user("u"), call, answered(call, "found")], [says("end")])
    return made


def run(mine: Agent[Any]) -> None:
    Runner.run_sync(mine, "v")


def swallow(mine: Agent[Any]) -> None:
    for _ in range(3):
        with contextlib.suppress(BaseException):
            Runner.run_sync(mine, "v")


def in_thread(mine: Agent[Any]) -> None:
    def body() -> None:
        with contextlib.suppress(BaseException):
            asyncio.run(Runner.run(mine, "v"))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def gathered(mine: Agent[Any]) -> None:
    async def main() -> None:
        await asyncio.gather(*(Runner.run(mine, "v") for _ in range(3)), return_exceptions=True)

    asyncio.run(main())


def streamed(mine: Agent[Any]) -> None:
    async def main() -> None:
        result = Runner.run_streamed(mine, "v")
        with contextlib.suppress(BaseException):
            async for _ in result.stream_events():
                pass

    asyncio.run(main())


def never_read(mine: Agent[Any]) -> None:
    async def main() -> None:
        result: Any = Runner.run_streamed(mine, "v")
        with contextlib.suppress(BaseException):
            await result.run_loop_task

    asyncio.run(main())


@pytest.mark.parametrize("runs", [run, swallow, in_thread, gathered, streamed, never_read])
def test_another_question_stops_at_the_model(runs: Callable[[Agent[Any]], None], trap: Trap) -> None:
    made = recorded()
    with pytest.raises(ReplayDivergence) as caught, replaying(made.plan()):
        runs(agent(trap))
    found = caught.value
    assert (found.node, found.where) == (made.nodes[0].key, "input")
    assert found.expected != found.got
    assert "recorded user text 'u', now user text 'v'" in found.difference
    assert dict(found.last_valid_boundary.outcomes) == {}


def nested() -> Making:
    made = Making()
    call = calls("expert", {"input": "why"}, "c0")
    made.chat("11" * 8, [user("u")], [call])
    tool = made.tool("12" * 8, call, "because", composite=True)
    made.chat("14" * 8, [user("u"), call, answered(call, "because")], [says("so")])
    inner = calls("search", {"query": "q"}, "c1")
    made.chat("15" * 8, [user("why")], [inner], agent=tool.key, covered_by=tool.key)
    made.tool("16" * 8, inner, "found", agent=tool.key, covered_by=tool.key)
    made.chat(
        "17" * 8, [user("why"), inner, answered(inner, "found")], [says("because")], agent=tool.key, covered_by=tool.key
    )
    return made


def test_a_stop_inside_an_entered_tool_that_catches_everything_stops_the_run(trap: Trap) -> None:
    after: list[str] = []

    async def expert(input: str) -> str:
        """Knows."""
        try:
            return str((await Runner.run(agent(trap, name="inner"), "why not")).final_output)
        except BaseException:  # noqa: BLE001 - as badly as it gets
            after.append("caught")
            return "because"

    made = nested()
    with pytest.raises(ReplayDivergence, match="why not") as caught, replaying(made.plan(), enter="expert"):
        asyncio.run(Runner.run(agent(trap, function_tool(expert)), "u"))
    assert caught.value.node == made.nodes[3].key
    assert after == ["caught"]


def test_an_entered_tool_with_an_agent_inside_is_replayed_to_the_end(trap: Trap) -> None:
    async def expert(input: str) -> str:
        """Knows."""
        return str((await Runner.run(agent(trap, name="inner"), input)).final_output)

    made = nested()
    with replaying(made.plan(), enter="expert") as run:
        assert asyncio.run(Runner.run(agent(trap, function_tool(expert)), "u")).final_output == "so"
    assert run.answered == {node.key for node in made.nodes}


def test_two_agents_inside_tools_that_are_asked_the_same_are_told_apart_by_the_tools_around_them(trap: Trap) -> None:
    """Which of them asks first is the schedule's."""
    made = Making()
    twins = [calls("expert", {"input": "why"}, f"c{n}") for n in range(2)]
    made.chat("11" * 8, [user("u")], twins)
    tools = [made.tool(f"{0x20 + n:016x}", call, f"because {n}", composite=True) for n, call in enumerate(twins)]
    answers = [answered(call, f"because {n}") for n, call in enumerate(twins)]
    made.chat("14" * 8, [user("u"), *twins, *answers], [says("so")])
    for n, tool in enumerate(tools):
        made.chat(f"{0x30 - n:016x}", [user("why")], [says(f"because {n}")], agent=tool.key, covered_by=tool.key)
    expert = agent(trap, name="inner").as_tool("expert", "knows")
    with replaying(made.plan(), enter="expert") as run:
        assert asyncio.run(Runner.run(agent(trap, expert), "u")).final_output == "so"
    assert run.answered == {node.key for node in made.nodes}
