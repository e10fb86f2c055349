# SPDX-License-Identifier: Apache-2.0
"""Incidents of agno: agents and teams with scripted models, which need no network and no key."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.team import Team
from agno.tools import tool

from benchmarks.incidents import scripts
from benchmarks.incidents.bodies import Late, hangs_first, pays, pays_cents, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World, run_again
from benchmarks.incidents.other_process import dies_unseen, in_two_processes, main, pays_and_dies, pays_there
from benchmarks.incidents.scripts import FIRST, SECOND, THIRD, Script, Turn, next_turn, once

logging.getLogger("agno").setLevel(logging.CRITICAL)


class Scripted(Model):
    """Answers as it is told to, and keeps what tools have told it."""

    def __init__(self, *script: Turn) -> None:
        super().__init__(id="scripted")
        self.script = list(script)
        self.heard: list[str] = []

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        messages = kwargs["messages"]
        self.heard = [str(message.content) for message in messages if message.role == "tool"]
        turn = next_turn(self.script)
        if isinstance(turn, str):
            return ModelResponse(role="assistant", content=turn)
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for call_id, name, arguments in turn
        ]
        return ModelResponse(role="assistant", content="", tool_calls=calls)

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.invoke(*args, **kwargs)

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        yield self.invoke(*args, **kwargs)

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        yield self.invoke(*args, **kwargs)

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def agent(model: Scripted, *tools: Any, **options: Any) -> Agent:
    """An agent that forgets nothing within its session."""
    return Agent(name="refunder", model=model, tools=list(tools), telemetry=False, session_id="conversation-1", **options)


def told(body: Callable[[World], Any], *runs: Script) -> Callable[[World], None]:
    """Runs of an agent whose tool has that body, one for each script of its model."""

    def tell(world: World) -> None:
        for script in runs:
            agent(Scripted(*script), body(world)).run("refund o1")

    return tell


def told_async(body: Callable[[World], Any], *runs: Script) -> Callable[[World], None]:
    """As `told`, with asynchronous runs."""

    def tell(world: World) -> None:
        for script in runs:
            asyncio.run(agent(Scripted(*script), body(world)).arun("refund o1"))

    return tell


def asks(call_id: str, tool: Any) -> Any:
    """Begin an asynchronous run of an agent whose model asks for one refund."""
    return agent(Scripted(*once(call_id)), tool).arun("refund o1")


def _generates(world: World) -> Callable[..., Any]:
    def refund(order: str) -> Iterator[str]:
        yield "paying "
        yield world.commit_then_fail(order) if not world.effects else world.commit(order)

    return refund


def _generates_async(world: World) -> Callable[..., Any]:
    async def refund(order: str) -> AsyncIterator[str]:
        yield "paying "
        yield world.commit_then_fail(order) if not world.effects else world.commit(order)

    return refund


def _streamed(world: World) -> None:
    async def consume() -> None:
        async for _ in agent(Scripted(*scripts.AGAIN), pays(world, once=True)).arun("refund o1", stream=True):
            pass

    asyncio.run(consume())


def _streamed_sync(world: World) -> None:
    for _ in agent(Scripted(*scripts.AGAIN), pays_in_thread(world, once=True)).run("refund o1", stream=True):
        pass


def _tool_hook(world: World) -> None:
    def twice(function_name: str, function_call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        try:
            return function_call(**arguments)
        except ConnectionError:
            return function_call(**arguments)

    agent(Scripted(*once()), pays_in_thread(world, once=True), tool_hooks=[twice]).run("refund o1")


def _own_retries(world: World) -> None:
    model = Scripted(once(FIRST)[0], ConnectionError("the model is down"), *once(SECOND))
    agent(model, pays_in_thread(world), retries=1, delay_between_retries=0).run("refund o1")


def _timed_out(world: World) -> None:
    refund = hangs_first(world)
    asyncio.run(run_again(world.effects, lambda: asks(FIRST, refund), lambda: asks(SECOND, refund)))


def late(world: World) -> None:
    """The run is given up while its tool is still in a thread, which pays when another run has been."""
    tool = Late(world)
    asyncio.run(tool.is_run_again(lambda: asks(FIRST, tool.refund), lambda: asks(SECOND, tool.refund)))


def _late_and_later(world: World) -> None:
    late(world)
    agent(Scripted(*once(THIRD)), pays_in_thread(world)).run("refund o1")


def _later_turn(world: World) -> None:
    one = agent(Scripted(*once(FIRST), *once(SECOND)), pays_in_thread(world))
    one.run("refund o1")
    one.run("once more")


def team(world: World) -> tuple[Team, Scripted]:
    """A leader who delegates twice, in other words, to a member who pays and fails; returns the leader's model, too."""
    member = Agent(name="Payer", id="payer", model=Scripted(*scripts.INNER), telemetry=False)
    member.tools = [pays_in_thread(world, once=True)]
    leader = Scripted(*scripts.delegations("delegate_task_to_member", "task", member_id="payer"))
    return Team(name="t", members=[member], model=leader, telemetry=False, session_id="conversation-1"), leader


def _team(world: World) -> None:
    team(world)[0].run("refund o1")


def approval(world: World, times: int = 1) -> None:
    """A person confirms a call, and the run goes on: several times, where nobody is sure whether it did."""
    refund = tool(requires_confirmation=True)(pays_in_thread(world))
    with tempfile.TemporaryDirectory() as folder:
        run_id = _pause(folder, refund)
        for _ in range(times):
            with tempfile.TemporaryDirectory() as copy:  # a crash loses what the first one would store
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                _go_on(copy, run_id, refund)


def _pause(folder: str, refund: Any) -> str:
    paused = agent(Scripted(*once()), refund, db=JsonDb(db_path=folder)).run("refund o1")
    return str(paused.run_id)


def _go_on(folder: str, run_id: str, refund: Any) -> None:
    one = agent(Scripted("done"), refund, db=JsonDb(db_path=folder))
    run = one.get_run_output(run_id=run_id, session_id="conversation-1")
    for requirement in run.requirements:
        requirement.confirm()
    one.continue_run(run_id=run_id, session_id="conversation-1", requirements=run.requirements)


def _killed(step: str, folder: Path) -> None:
    """A call that was confirmed is paid by a process that dies of it, and gone on with by the next."""
    run_id, database = folder / "run_id", f"{folder}/db"
    refund = tool(requires_confirmation=True)(pays_and_dies(step, folder))
    if step == "first":
        run_id.write_text(_pause(database, refund))
    _go_on(database, run_id.read_text(), refund)


def _killed_later(step: str, folder: Path) -> None:
    """Both are run for one session, of which nothing was stored."""
    agent(Scripted(*dies_unseen(step)), pays_there(folder)).run("refund o9")


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", told_async(partial(pays, once=True), scripts.AGAIN), 2, 1),
    Incident(Story.NEW_ID, "sync tool", told(partial(pays_in_thread, once=True), scripts.AGAIN), 2, 1),
    Incident(Story.NEW_ID, "sync tool in an async run", told_async(partial(pays_in_thread, once=True), scripts.AGAIN), 2, 1),
    Incident(Story.NEW_ID, "generator", told(_generates, scripts.AGAIN), 2, 1),
    Incident(Story.NEW_ID, "async generator", told_async(_generates_async, scripts.AGAIN), 2, 1),
    Incident(Story.STREAMED, "", _streamed, 2, 1),
    Incident(Story.STREAMED, "sync run", _streamed_sync, 2, 1),
    Incident(Story.TRIED_AGAIN, "by a tool hook", _tool_hook, 2, 1, foretold=False),
    Incident(Story.TRIED_AGAIN, "by the agent, after its model failed", _own_retries, 2, 1),
    Incident(Story.TIMED_OUT, "", _timed_out, 2, 1),
    Incident(Story.LATE, "", late, 2, 1),
    Incident(Story.LATE, "and once more", _late_and_later, 3, 1),
    Incident(Story.PARALLEL, "async tool", told_async(pays, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.PARALLEL, "sync tool", told(pays_in_thread, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.TWINS, "async tool", told_async(pays, scripts.TWINS), 2, 2),
    Incident(Story.TWINS, "sync tool", told(pays_in_thread, scripts.TWINS), 2, 2),
    Incident(Story.LATER_TURN, "", _later_turn, 2, 2),
    Incident(Story.DIES, "", told_async(pays, *scripts.dies()), 4, 2),
    Incident(Story.DELEGATED, "team", _team, 2, 1),
    Incident(Story.APPROVED, "", approval, 1, 1),
    Incident(Story.APPROVED, "gone on with twice", partial(approval, times=2), 2, 1),
    Incident(Story.OTHER_PROCESS, "confirmed by a person", in_two_processes("agno"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("agno", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", told(pays_cents, scripts.BAD_CENTS), 0, 0),
)

if __name__ == "__main__":
    main({"killed": _killed, "killed_later": _killed_later})
