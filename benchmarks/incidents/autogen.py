# SPDX-License-Identifier: Apache-2.0
"""Incidents of AutoGen's agentchat: agents with scripted models, which need no network and no key."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, FunctionExecutionResultMessage, RequestUsage
from autogen_core.tools import FunctionTool

from benchmarks.incidents.kit import Incident, Story, World, given_up, pays, pays_in_thread
from benchmarks.incidents.other_process import die, in_two_processes, land, main

logging.getLogger("autogen_core").setLevel(logging.CRITICAL)


Step = str | Exception | list[tuple[str, str, dict[str, Any]]]
"""What a model answers: a text, an error, or calls with id, tool and arguments."""


class Scripted(ChatCompletionClient):
    """Answers as it is told to, and keeps what tools have told it."""

    component_type = "model"

    def __init__(self, *script: Step) -> None:
        self.script = list(script)
        self.heard: list[str] = []

    async def create(self, messages: Any, **kwargs: Any) -> CreateResult:
        self.heard = [
            result.content
            for message in messages
            if isinstance(message, FunctionExecutionResultMessage)
            for result in message.content
        ]
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        content: Any = step
        if not isinstance(step, str):
            content = [FunctionCall(id=id_, name=name, arguments=json.dumps(given)) for id_, name, given in step]
        reason = "stop" if isinstance(step, str) else "function_calls"
        return CreateResult(finish_reason=reason, content=content, usage=RequestUsage(1, 1), cached=False)

    async def create_stream(self, messages: Any, **kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        yield await self.create(messages, **kwargs)

    async def close(self) -> None: ...

    def actual_usage(self) -> RequestUsage:
        return RequestUsage(1, 1)

    def total_usage(self) -> RequestUsage:
        return RequestUsage(1, 1)

    def count_tokens(self, messages: Any, **kwargs: Any) -> int:
        return 1

    def remaining_tokens(self, messages: Any, **kwargs: Any) -> int:
        return 1000

    @property
    def capabilities(self) -> Any:
        return self.model_info

    @property
    def model_info(self) -> Any:
        return {
            "vision": False,
            "function_calling": True,
            "json_output": False,
            "structured_output": False,
            "family": "unknown",
        }


def refund(call_id: str, order: str = "o1") -> tuple[str, str, dict[str, Any]]:
    """A call of the tool `refund`."""
    return call_id, "refund", {"order": order}


def agent(model: Scripted, *tools: Any, **options: Any) -> AssistantAgent:
    """An agent that goes on after its tools have answered."""
    return AssistantAgent("refunder", model, tools=list(tools), **{"max_tool_iterations": 5, **options})


def asked_again() -> Scripted:
    """A model that asks again when it hears of a failure."""
    return Scripted([refund("c1")], [refund("c2")], "done")


def run(world: World, *agents: AssistantAgent) -> None:
    """Run agents one after the other, whatever becomes of each, in one conversation."""

    async def story() -> None:
        for one in agents:
            try:
                await asyncio.wait_for(one.run(task="refund o1"), 20)
            except ConnectionError:
                continue

    with world.scope("conversation-1"):
        asyncio.run(story())


def _async_tool(world: World) -> None:
    run(world, agent(asked_again(), pays(world, once=True)))


def _sync_tool(world: World) -> None:
    run(world, agent(asked_again(), pays_in_thread(world, once=True)))


def _streamed(world: World) -> None:
    async def consume() -> None:
        streaming = agent(asked_again(), pays(world, once=True), model_client_stream=True)
        async for _ in streaming.run_stream(task="refund o1"):
            pass

    with world.scope("conversation-1"):
        asyncio.run(consume())


def _same_id(world: World) -> None:
    run(world, agent(Scripted([refund("c1")], [refund("c1")], "done"), pays(world, once=True)))


def _timed_out(world: World) -> None:
    call = globals()["refund"]

    async def refund(order: str) -> str:
        world.commit(order)
        if len(world.effects) == 1:
            await asyncio.Event().wait()
        return "paid"

    async def story() -> None:
        try:
            await given_up(agent(Scripted([call("c1")]), refund).run(task="refund o1"), world.effects)
        except TimeoutError:
            await agent(Scripted([call("c2")], "done"), refund).run(task="refund o1")

    with world.scope("conversation-1"):
        asyncio.run(story())


def _cancelled(world: World) -> None:
    """Through AutoGen's own token, on which the run hangs, so that it has to be given up, too."""
    call = globals()["refund"]
    token = CancellationToken()

    async def refund(order: str) -> str:
        world.commit(order)
        if len(world.effects) == 1:
            token.cancel()
            await asyncio.Event().wait()
        return "paid"

    async def story() -> None:
        first = agent(Scripted([call("c1")]), refund).run(task="refund o1", cancellation_token=token)
        try:
            await given_up(first, world.effects)
        except TimeoutError:
            await agent(Scripted([call("c2")], "done"), refund).run(task="refund o1")

    with world.scope("conversation-1"):
        asyncio.run(story())


def late(world: World, later: bool = False) -> None:
    """The run is given up while its tool is still in a thread, which pays when another run has been; or yet another."""
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()
    call = globals()["refund"]

    def refund(order: str) -> str:
        if begun.is_set():
            return world.commit(order)
        begun.set()
        go_on.wait()
        try:
            return world.commit(order)
        finally:
            over.set()

    async def story() -> None:
        before = asyncio.all_tasks()
        first = asyncio.create_task(agent(Scripted([call("c1")]), refund).run(task="refund o1"))
        await asyncio.to_thread(begun.wait)
        first.cancel()
        await asyncio.wait([first])
        left_behind = asyncio.all_tasks() - before
        await agent(Scripted([call("c2")], "done"), refund).run(task="refund o1")
        go_on.set()
        await asyncio.to_thread(over.wait)
        await asyncio.wait(left_behind)
        if later:
            await agent(Scripted([call("c3")], "done"), refund).run(task="refund o1")

    with world.scope("conversation-1"):
        asyncio.run(story())


def _late_and_later(world: World) -> None:
    late(world, later=True)


def _parallel(world: World) -> None:
    model = Scripted([refund("c1", "o1"), refund("c2", "o2"), refund("c3", "o3")], "done")
    run(world, agent(model, pays(world)))


def _parallel_sync(world: World) -> None:
    model = Scripted([refund("c1", "o1"), refund("c2", "o2"), refund("c3", "o3")], "done")
    run(world, agent(model, pays_in_thread(world)))


def _twins(world: World) -> None:
    run(world, agent(Scripted([refund("c1"), refund("c2")], "done"), pays(world)))


def _twins_sync(world: World) -> None:
    run(world, agent(Scripted([refund("c1"), refund("c2")], "done"), pays_in_thread(world)))


def _later_turn(world: World) -> None:
    one = agent(Scripted([refund("c1")], "done", [refund("c2")], "done"), pays(world))
    run(world, one, one)


def _run_dies(world: World) -> None:
    both = [refund("c1", "o9"), refund("c2", "oX")]
    first = agent(Scripted(both, ConnectionError("the model is down")), pays(world))
    again = agent(Scripted([refund("c3", "o9"), refund("c4", "oX")], "done"), pays(world))
    run(world, first, again)


def _agent_as_tool(world: World) -> None:
    script = Scripted([refund("m1")], "it failed", [refund("m2")], "done")
    payer = AssistantAgent(
        "payer", script, description="Pays.", tools=[pays_in_thread(world, once=True)], max_tool_iterations=5
    )
    model = Scripted([("d1", "payer", {"task": "refund o1"})], [("d2", "payer", {"task": "please do refund o1"})], "done")
    run(world, agent(model, AgentTool(payer)))


def _bad_arguments(world: World) -> None:
    def refund(cents: int) -> str:
        return world.commit(str(cents))

    bad = ("refund", {"cents": "many"})
    run(world, agent(Scripted([("c1", *bad)], [("c2", *bad)], "done"), refund))


def _by_hand(world: World) -> None:
    """A tool that the application runs itself, without a model: two that run at a time are two."""
    tool = FunctionTool(pays(world), description="Pays.", name="refund")

    async def story() -> None:
        arguments = {"order": "o1"}
        await asyncio.gather(*(tool.run_json(arguments, CancellationToken()) for _ in range(2)))

    with world.scope("conversation-1"):
        asyncio.run(story())


def _other_process(world: World) -> None:
    in_two_processes(world, "benchmarks.incidents.autogen", "killed")


def _killed(step: str, folder: Path) -> None:
    """The first process pays and dies of it, the second is run for the same conversation."""

    async def refund(order: str) -> str:
        land(folder, order)
        if step == "first":
            die()
        return "paid"

    run(World(), agent(Scripted([globals()["refund"](step)], "done"), refund))


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", _async_tool, 2, 1),
    Incident(Story.NEW_ID, "sync tool", _sync_tool, 2, 1),
    Incident(Story.STREAMED, "", _streamed, 2, 1),
    Incident(Story.SAME_ID, "", _same_id, 2, 1),
    Incident(Story.TIMED_OUT, "", _timed_out, 2, 1),
    Incident(Story.CANCELLED, "", _cancelled, 2, 1),
    Incident(Story.LATE, "", late, 2, 1),
    Incident(Story.LATE, "and once more", _late_and_later, 3, 1),
    Incident(Story.PARALLEL, "async tool", _parallel, 3, 3),
    Incident(Story.PARALLEL, "sync tool", _parallel_sync, 3, 3),
    Incident(Story.TWINS, "async tool", _twins, 2, 2),
    Incident(Story.TWINS, "sync tool", _twins_sync, 2, 2),
    Incident(Story.LATER_TURN, "", _later_turn, 2, 2),
    Incident(Story.DIES, "", _run_dies, 4, 2),
    Incident(Story.DELEGATED, "", _agent_as_tool, 2, 1),
    Incident(Story.OTHER_PROCESS, "", _other_process, 2, 1, elsewhere=True),
    Incident(Story.TWINS, "run by the application", _by_hand, 2, 2),
    Incident(Story.BAD_ARGUMENTS, "", _bad_arguments, 0, 0),
)

if __name__ == "__main__":
    main({"killed": _killed})
