# SPDX-License-Identifier: Apache-2.0
"""Incidents of AutoGen's agentchat: agents with scripted models, which need no network and no key."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, FunctionExecutionResultMessage, RequestUsage
from autogen_core.tools import FunctionTool

from benchmarks.incidents import scripts
from benchmarks.incidents.bodies import Late, hangs_first, on_the_loop, pays, pays_cents, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World, one_by_one, run_again
from benchmarks.incidents.other_process import dies_unseen, in_two_processes, main, pays_and_dies, pays_there
from benchmarks.incidents.scripts import FIRST, SECOND, THIRD, Script, Turn, next_turn, once

logging.getLogger("autogen_core").setLevel(logging.CRITICAL)


class Scripted(ChatCompletionClient):
    """Answers as it is told to, and keeps what tools have told it."""

    component_type = "model"

    def __init__(self, *script: Turn) -> None:
        self.script = list(script)
        self.heard: list[str] = []

    async def create(self, messages: Any, **kwargs: Any) -> CreateResult:
        self.heard = [
            result.content
            for message in messages
            if isinstance(message, FunctionExecutionResultMessage)
            for result in message.content
        ]
        turn = next_turn(self.script)
        content: Any = turn
        if not isinstance(turn, str):
            content = [FunctionCall(id=id_, name=name, arguments=json.dumps(given)) for id_, name, given in turn]
        reason = "stop" if isinstance(turn, str) else "function_calls"
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


def agent(model: Scripted, *tools: Any, **options: Any) -> AssistantAgent:
    """An agent that goes on after its tools have answered."""
    return AssistantAgent("refunder", model, tools=list(tools), **{"max_tool_iterations": 5, **options})


def run(world: World, *agents: AssistantAgent) -> None:
    """Run agents one after the other, whatever becomes of each, in one conversation."""
    one_by_one(world, *(partial(one.run, task="refund o1") for one in agents))


def told(body: Callable[[World], Any], *runs: Script) -> Callable[[World], None]:
    """Runs of an agent whose tool has that body, one for each script of its model."""
    return lambda world: run(world, *(agent(Scripted(*script), body(world)) for script in runs))


def asks(call_id: str, tool: Any, **options: Any) -> Any:
    """Begin a run of an agent whose model asks for one refund."""
    return agent(Scripted(*once(call_id)), tool).run(task="refund o1", **options)


def _streamed(world: World) -> None:
    async def consume() -> None:
        streaming = agent(Scripted(*scripts.AGAIN), pays(world, once=True), model_client_stream=True)
        async for _ in streaming.run_stream(task="refund o1"):
            pass

    with world.scope("conversation-1"):
        asyncio.run(consume())


def _timed_out(world: World) -> None:
    refund = hangs_first(world)
    with world.scope("conversation-1"):
        asyncio.run(run_again(world.effects, lambda: asks(FIRST, refund), lambda: asks(SECOND, refund)))


def _cancelled(world: World) -> None:
    """Through AutoGen's own token, on which the run hangs, so that it has to be given up, too."""
    token = CancellationToken()
    refund = hangs_first(world, token.cancel)
    first = partial(asks, FIRST, refund, cancellation_token=token)
    with world.scope("conversation-1"):
        asyncio.run(run_again(world.effects, first, lambda: asks(SECOND, refund)))


def late(world: World, later: bool = False) -> None:
    """The run is given up while its tool is still in a thread, which pays when another run has been; or yet another."""
    tool = Late(world)

    async def story() -> None:
        before = asyncio.all_tasks()
        await tool.is_run_again(lambda: asks(FIRST, tool.refund), lambda: asks(SECOND, tool.refund))
        left_behind = asyncio.all_tasks() - before
        await asyncio.gather(*left_behind, return_exceptions=True)
        if later:
            await asks(THIRD, tool.refund)

    with world.scope("conversation-1"):
        asyncio.run(story())


def _later_turn(world: World) -> None:
    one = agent(Scripted(*once(FIRST), *once(SECOND)), pays(world))
    run(world, one, one)


def _agent_as_tool(world: World) -> None:
    tools: list[Any] = [pays_in_thread(world, once=True)]
    model = Scripted(*scripts.INNER)
    payer = AssistantAgent("payer", model, description="Pays.", tools=tools, max_tool_iterations=5)
    run(world, agent(Scripted(*scripts.delegations("payer", "task")), AgentTool(payer)))


def _by_hand(world: World) -> None:
    """A tool that the application runs itself, without a model: two that run at a time are two."""
    tool = FunctionTool(pays(world), description="Pays.", name="refund")

    async def story() -> None:
        arguments = {"order": "o1"}
        await asyncio.gather(*(tool.run_json(arguments, CancellationToken()) for _ in range(2)))

    with world.scope("conversation-1"):
        asyncio.run(story())


def _killed(step: str, folder: Path) -> None:
    """The first process pays and dies of it, the second is run for the same conversation."""
    run(World(), agent(Scripted(*once(f"toolu_{step}")), on_the_loop(pays_and_dies(step, folder))))


def _killed_later(step: str, folder: Path) -> None:
    run(World(), agent(Scripted(*dies_unseen(step)), on_the_loop(pays_there(folder))))


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", told(partial(pays, once=True), scripts.AGAIN), 2, 1),
    Incident(Story.NEW_ID, "sync tool", told(partial(pays_in_thread, once=True), scripts.AGAIN), 2, 1),
    Incident(Story.STREAMED, "", _streamed, 2, 1),
    Incident(Story.SAME_ID, "", told(partial(pays, once=True), scripts.SAME_ID), 2, 1),
    Incident(Story.TIMED_OUT, "", _timed_out, 2, 1),
    Incident(Story.CANCELLED, "", _cancelled, 2, 1),
    Incident(Story.LATE, "", late, 2, 1),
    Incident(Story.LATE, "and once more", partial(late, later=True), 3, 1),
    Incident(Story.PARALLEL, "async tool", told(pays, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.PARALLEL, "sync tool", told(pays_in_thread, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.TWINS, "async tool", told(pays, scripts.TWINS), 2, 2),
    Incident(Story.TWINS, "sync tool", told(pays_in_thread, scripts.TWINS), 2, 2),
    Incident(Story.LATER_TURN, "", _later_turn, 2, 2),
    Incident(Story.DIES, "", told(pays, *scripts.dies()), 4, 2),
    Incident(Story.DELEGATED, "", _agent_as_tool, 2, 1),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("autogen"), 2, 1, elsewhere=True),
    Incident(Story.TWINS, "run by the application", _by_hand, 2, 2),
    Incident(Story.KILLED_LATER, "", in_two_processes("autogen", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", told(pays_cents, scripts.BAD_CENTS), 0, 0),
)

if __name__ == "__main__":
    main({"killed": _killed, "killed_later": _killed_later})
