# SPDX-License-Identifier: Apache-2.0
"""Incidents of agno: agents and teams with scripted models, which need no network and no key."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.team import Team
from agno.tools import tool

from benchmarks.incidents.kit import Incident, Story, World, given_up, pays, pays_in_thread
from benchmarks.incidents.other_process import die, in_two_processes, land, main

logging.getLogger("agno").setLevel(logging.CRITICAL)


Step = str | Exception | list[tuple[str, str, dict[str, Any]]]
"""What a model answers: a text, an error, or calls with id, tool and arguments."""


class Scripted(Model):
    """Answers as it is told to, and keeps what tools have told it."""

    def __init__(self, *script: Step) -> None:
        super().__init__(id="scripted")
        self.script = list(script)
        self.heard: list[str] = []

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        messages = kwargs["messages"]
        self.heard = [str(message.content) for message in messages if message.role == "tool"]
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            return ModelResponse(role="assistant", content=step)
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for call_id, name, arguments in step
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


def refund(call_id: str, order: str = "o1") -> tuple[str, str, dict[str, Any]]:
    """A call of the tool `refund`."""
    return call_id, "refund", {"order": order}


def agent(model: Scripted, *tools: Any, **options: Any) -> Agent:
    """An agent that forgets nothing within its session."""
    return Agent(name="refunder", model=model, tools=list(tools), telemetry=False, session_id="conversation-1", **options)


def asked_again() -> Scripted:
    """A model that asks again when it hears of a failure."""
    return Scripted([refund("c1")], [refund("c2")], "done")


def _async_tool(world: World) -> None:
    asyncio.run(agent(asked_again(), pays(world, once=True)).arun("refund o1"))


def _sync_tool(world: World) -> None:
    agent(asked_again(), pays_in_thread(world, once=True)).run("refund o1")


def _sync_tool_async_run(world: World) -> None:
    asyncio.run(agent(asked_again(), pays_in_thread(world, once=True)).arun("refund o1"))


def _generator(world: World) -> None:
    def refund(order: str) -> Iterator[str]:
        yield "paying "
        yield world.commit_then_fail(order) if not world.effects else world.commit(order)

    agent(asked_again(), refund).run("refund o1")


def _async_generator(world: World) -> None:
    async def refund(order: str) -> AsyncIterator[str]:
        yield "paying "
        yield world.commit_then_fail(order) if not world.effects else world.commit(order)

    asyncio.run(agent(asked_again(), refund).arun("refund o1"))


def _streamed(world: World) -> None:
    async def consume() -> None:
        async for _ in agent(asked_again(), pays(world, once=True)).arun("refund o1", stream=True):
            pass

    asyncio.run(consume())


def _streamed_sync(world: World) -> None:
    for _ in agent(asked_again(), pays_in_thread(world, once=True)).run("refund o1", stream=True):
        pass


def _tool_hook(world: World) -> None:
    def twice(function_name: str, function_call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        try:
            return function_call(**arguments)
        except ConnectionError:
            return function_call(**arguments)

    agent(Scripted([refund("c1")], "done"), pays_in_thread(world, once=True), tool_hooks=[twice]).run("refund o1")


def _own_retries(world: World) -> None:
    model = Scripted([refund("c1")], ConnectionError("the model is down"), [refund("c2")], "done")
    agent(model, pays_in_thread(world), retries=1, delay_between_retries=0).run("refund o1")


def _timed_out(world: World) -> None:
    async def refund(order: str) -> str:
        world.commit(order)
        if len(world.effects) == 1:
            await asyncio.Event().wait()
        return "paid"

    async def story() -> None:
        try:
            await given_up(agent(Scripted([refund_("c1")]), refund).arun("refund o1"), world.effects)
        except TimeoutError:
            await agent(Scripted([refund_("c2")], "done"), refund).arun("refund o1")

    refund_ = globals()["refund"]
    asyncio.run(story())


def late(world: World, answers: bool = True) -> None:
    """The run is given up while its tool is still in a thread, which pays when another run has been."""
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
        first = asyncio.create_task(agent(Scripted([call("c1")]), refund).arun("refund o1"))
        await asyncio.to_thread(begun.wait)
        first.cancel()
        await asyncio.wait([first])
        await agent(Scripted([call("c2")], "done"), refund).arun("refund o1")
        go_on.set()
        await asyncio.to_thread(over.wait)

    asyncio.run(story())


def _late_and_later(world: World) -> None:
    late(world)
    agent(Scripted([refund("c3")], "done"), pays_in_thread(world)).run("refund o1")


def _parallel(world: World) -> None:
    model = Scripted([refund("c1", "o1"), refund("c2", "o2"), refund("c3", "o3")], "done")
    asyncio.run(agent(model, pays(world)).arun("refund all"))


def _parallel_sync(world: World) -> None:
    model = Scripted([refund("c1", "o1"), refund("c2", "o2"), refund("c3", "o3")], "done")
    agent(model, pays_in_thread(world)).run("refund all")


def _twins(world: World) -> None:
    asyncio.run(agent(Scripted([refund("c1"), refund("c2")], "done"), pays(world)).arun("refund o1 twice"))


def _twins_sync(world: World) -> None:
    agent(Scripted([refund("c1"), refund("c2")], "done"), pays_in_thread(world)).run("refund o1 twice")


def _later_turn(world: World) -> None:
    one = agent(Scripted([refund("c1")], "done", [refund("c2")], "done"), pays_in_thread(world))
    one.run("refund o1")
    one.run("once more")


def _run_dies(world: World) -> None:
    both = [refund("c1", "o9"), refund("c2", "oX")]
    model = Scripted(both, ConnectionError("the model is down"))
    asyncio.run(agent(model, pays(world)).arun("refund both"))
    again = Scripted([refund("c3", "o9"), refund("c4", "oX")], "done")
    asyncio.run(agent(again, pays(world)).arun("refund both"))


def team(world: World) -> tuple[Team, Scripted]:
    """A leader who delegates twice, in other words, to a member who pays and fails; returns the leader's model, too."""
    member = Agent(
        name="Payer", id="payer", model=Scripted([refund("m1")], "it failed", [refund("m2")], "done"), telemetry=False
    )
    member.tools = [pays_in_thread(world, once=True)]
    delegate = "delegate_task_to_member"
    leader = Scripted(
        [("d1", delegate, {"member_id": "payer", "task": "refund o1"})],
        [("d2", delegate, {"member_id": "payer", "task": "please do refund o1"})],
        "done",
    )
    return Team(name="t", members=[member], model=leader, telemetry=False, session_id="conversation-1"), leader


def _team(world: World) -> None:
    team(world)[0].run("refund o1")


def approval(world: World, times: int = 1) -> None:
    """A person confirms a call, and the run goes on: several times, where nobody is sure whether it did."""

    @tool(requires_confirmation=True)
    def refund(order: str) -> str:
        return world.commit(order)

    with tempfile.TemporaryDirectory() as folder:
        run_id = _pause(folder, refund)
        for _ in range(times):
            with tempfile.TemporaryDirectory() as copy:  # a crash loses what the first one would store
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                _go_on(copy, run_id, refund)


def _pause(folder: str, refund: Any) -> str:
    paused = agent(Scripted([globals()["refund"]("c1")]), refund, db=JsonDb(db_path=folder)).run("refund o1")
    return str(paused.run_id)


def _go_on(folder: str, run_id: str, refund: Any) -> None:
    one = agent(Scripted("done"), refund, db=JsonDb(db_path=folder))
    run = one.get_run_output(run_id=run_id, session_id="conversation-1")
    for requirement in run.requirements:
        requirement.confirm()
    one.continue_run(run_id=run_id, session_id="conversation-1", requirements=run.requirements)


def _approval(world: World) -> None:
    approval(world)


def _approval_repeated(world: World) -> None:
    approval(world, times=2)


def _bad_arguments(world: World) -> None:
    def refund(cents: int) -> str:
        return world.commit(str(cents))

    bad = ("c1", "refund", {"cents": "many"})
    agent(Scripted([bad], [("c2", *bad[1:])], "done"), refund).run("refund o1")


def _other_process(world: World) -> None:
    in_two_processes(world, "benchmarks.incidents.agno", "killed")


def _killed(step: str, folder: Path) -> None:
    """A call that was confirmed is paid by a process that dies of it, and gone on with by the next."""
    run_id, database = folder / "run_id", f"{folder}/db"

    @tool(requires_confirmation=True)
    def refund(order: str) -> str:
        land(folder, order)
        if step == "first":
            die()
        return "paid"

    if step == "first":
        run_id.write_text(_pause(database, refund))
    _go_on(database, run_id.read_text(), refund)


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", _async_tool, 2, 1),
    Incident(Story.NEW_ID, "sync tool", _sync_tool, 2, 1),
    Incident(Story.NEW_ID, "sync tool in an async run", _sync_tool_async_run, 2, 1),
    Incident(Story.NEW_ID, "generator", _generator, 2, 1),
    Incident(Story.NEW_ID, "async generator", _async_generator, 2, 1),
    Incident(Story.STREAMED, "", _streamed, 2, 1),
    Incident(Story.STREAMED, "sync run", _streamed_sync, 2, 1),
    Incident(Story.TRIED_AGAIN, "by a tool hook", _tool_hook, 2, 1, foretold=False),
    Incident(Story.TRIED_AGAIN, "by the agent, after its model failed", _own_retries, 2, 1),
    Incident(Story.TIMED_OUT, "", _timed_out, 2, 1),
    Incident(Story.LATE, "", late, 2, 1),
    Incident(Story.LATE, "and once more", _late_and_later, 3, 1),
    Incident(Story.PARALLEL, "async tool", _parallel, 3, 3),
    Incident(Story.PARALLEL, "sync tool", _parallel_sync, 3, 3),
    Incident(Story.TWINS, "async tool", _twins, 2, 2),
    Incident(Story.TWINS, "sync tool", _twins_sync, 2, 2),
    Incident(Story.LATER_TURN, "", _later_turn, 2, 2),
    Incident(Story.DIES, "", _run_dies, 4, 2),
    Incident(Story.DELEGATED, "team", _team, 2, 1),
    Incident(Story.APPROVED, "", _approval, 1, 1),
    Incident(Story.APPROVED, "gone on with twice", _approval_repeated, 2, 1),
    Incident(Story.OTHER_PROCESS, "confirmed by a person", _other_process, 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", _bad_arguments, 0, 0),
)

if __name__ == "__main__":
    main({"killed": _killed})
