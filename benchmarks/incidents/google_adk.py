# SPDX-License-Identifier: Apache-2.0
"""Google ADK: real runners, sessions and tools; only the model is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import google.adk
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.plugins.reflect_retry_tool_plugin import ReflectAndRetryToolPlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import AgentTool, FunctionTool, ToolContext
from google.genai import types

from benchmarks.incidents.bodies import Late, hangs_first, on_the_loop, pays, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World, run_again, told
from benchmarks.incidents.other_process import dies_unseen_asks, in_two_processes, main, pays_and_dies, pays_there
from benchmarks.incidents.scripts import WRONG, Ask, Asks, ask, next_asks

APP = "shop"
IN_THREADS = int(google.adk.__version__.partition(".")[0]) > 1  # 1 has threads in live sessions only


class Scripted(BaseLlm):
    """Proposes the calls of a script, turn by turn, under new ids; then says that it is done."""

    model: str = "scripted"
    script: list[Any] = []
    same_ids: bool = False
    asked: list[str] = []

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        await self.before_turn()
        calls = next_asks(self.script)
        parts = [
            types.Part(function_call=types.FunctionCall(id=self._id(position), name=name, args=args))
            for position, (name, args) in enumerate(calls)
        ] or [types.Part(text="done")]
        if stream:
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="I ")]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=parts))

    async def before_turn(self) -> None:
        """Stories in which one model waits for something override this."""

    def _id(self, position: int) -> str:
        self.asked.append(f"refund-call-{position}" if self.same_ids else f"adk-{uuid4()}")
        return self.asked[-1]


class Shop:
    """An application: one agent, one conversation, which is run as often as somebody asks."""

    def __init__(self, tools: list[Any], script: Sequence[Asks], *, session: str | None = None, **more: Any) -> None:
        self.model = Scripted(script=list(script), asked=[], same_ids=more.pop("same_ids", False))
        self.config: RunConfig | None = more.pop("config", None)
        self.sessions = more.pop("sessions", None) or InMemorySessionService()
        self.responses: list[Any] = []
        self.session = session or f"conversation-{uuid4()}"
        plugins = more.pop("plugins", None)
        agent = LlmAgent(name="clerk", model=self.model, tools=tools, **more)
        self.runner = Runner(
            app_name=APP, agent=agent, session_service=self.sessions, auto_create_session=True, plugins=plugins
        )

    async def run(self, message: types.Content | None = None) -> list[Any]:
        message = message or types.Content(role="user", parts=[types.Part(text="refund")])
        stream = self.runner.run_async(user_id="u", session_id=self.session, new_message=message, run_config=self.config)
        events = [event async for event in stream]
        self.responses += [one.response for event in events for one in event.get_function_responses()]
        return events

    async def until_it_ends(self, times: int = 2) -> None:
        """As somebody does who is told that it failed."""
        for _ in range(times):
            try:
                await self.run()
            except Exception:  # noqa: BLE001 - whatever it is
                continue
            return


def failing(world: World, *, sync: bool = False) -> Callable[..., Any]:
    """A refund whose answer is lost the first time."""
    return (pays_in_thread if sync else pays)(world, once=True)


def paying(world: World, *, sync: bool = False) -> Callable[..., Any]:
    return (pays_in_thread if sync else pays)(world)


def new_id(*, sync: bool, **more: Any) -> Callable[[World], None]:
    async def story(world: World) -> None:
        await Shop([failing(world, sync=sync)], [[ask()], [ask()]], **more).until_it_ends()

    return told(story)


def with_plugin(world: World) -> Shop:
    plugins = [ReflectAndRetryToolPlugin(max_retries=3)]
    return Shop([failing(world)], [[ask()], [ask()]], plugins=plugins)


async def reflect_and_retry(world: World) -> None:
    await with_plugin(world).run()


def with_error_callback(world: World) -> Shop:
    def handled(tool: Any, args: dict[str, Any], tool_context: ToolContext, error: Exception) -> dict[str, Any]:
        return {"error": f"the payment service said {error}"}

    return Shop([failing(world)], [[ask()], [ask()]], on_tool_error_callback=handled)


async def handled_error(world: World) -> None:
    await with_error_callback(world).run()


async def cancelled(world: World) -> None:
    shop = Shop([hangs_first(world)], [[ask()], [ask()]])
    await run_again(world.effects, shop.run, shop.run)


async def late_on_the_loop(world: World) -> None:
    """ADK runs a sync tool on the loop: it is done when the time-out comes, and nobody gets its result."""
    running: list[asyncio.Task[Any]] = []

    def refund(order: str) -> str:
        done = world.commit(order)
        if running:
            running.pop().cancel()
        return done

    shop = Shop([refund], [[ask()], [ask()]])
    first = asyncio.create_task(shop.run())
    running.append(first)
    await asyncio.gather(first, return_exceptions=True)
    await shop.run()


async def late_in_a_thread(world: World) -> None:
    from google.adk.agents.run_config import ToolThreadPoolConfig

    late = Late(world)
    config = RunConfig(tool_thread_pool_config=ToolThreadPoolConfig())
    shop = Shop([late.refund], [[ask()], [ask()]], config=config)
    await late.is_run_again(shop.run, shop.run)


def in_one_run(script: list[list[Ask]], *, sync: bool) -> Callable[[World], None]:
    async def story(world: World) -> None:
        await Shop([paying(world, sync=sync)], script).run()

    return told(story)


async def dies_beside_a_sibling(world: World) -> None:
    failed: list[str] = []

    async def refund(order: str) -> str:
        if order == "o9" and not failed:
            failed.append(order)
            return world.commit_then_fail(order)
        return world.commit(order)

    both = [ask("o8"), ask("o9")]
    await Shop([refund], [both, both]).until_it_ends()


async def delegated_again(world: World) -> None:
    refunds = Scripted(script=[[ask()], [ask()]], asked=[])
    helper = LlmAgent(name="refunds", model=refunds, tools=[failing(world)])
    delegations: list[list[Ask]] = [
        [("refunds", {"request": "refund o9"})],
        [("refunds", {"request": "please give the money for o9 back"})],
    ]
    await Shop([AgentTool(helper)], delegations).until_it_ends()


async def parallel_agents_die(world: World) -> None:
    """One agent has paid, and its model has not seen that yet when the other one ends the run of both."""
    paid = asyncio.Event()
    runs: list[int] = []

    class Payer(Scripted):
        async def before_turn(self) -> None:
            if paid.is_set() and len(runs) == 1:
                await asyncio.Event().wait()

    class Shipper(Scripted):
        async def before_turn(self) -> None:
            if len(runs) == 1:
                await paid.wait()

    async def pay(order: str) -> str:
        paid.set()
        return world.commit(f"paid {order}")

    async def ship(order: str) -> str:
        if len(runs) == 1:
            raise ConnectionError("no van")
        return f"shipped {order}"

    for _ in range(2):
        runs.append(1)
        payer = Payer(script=[[ask(tool="pay")]], asked=[])
        shipper = Shipper(script=[[ask("o1", tool="ship")]], asked=[])
        both = ParallelAgent(
            name="both",
            sub_agents=[
                LlmAgent(name="payer", model=payer, tools=[pay]),
                LlmAgent(name="shipper", model=shipper, tools=[ship]),
            ],
        )
        runner = Runner(app_name=APP, agent=both, session_service=InMemorySessionService(), auto_create_session=True)
        message = types.Content(role="user", parts=[types.Part(text="go")])
        with world.scope("order o9"):
            try:
                async for _ in runner.run_async(user_id="u", session_id="s", new_message=message):
                    pass
            except Exception:  # noqa: BLE001 - it is run again
                continue


def _confirmations(events: list[Any]) -> list[types.Part]:
    asked = [call for event in events for call in event.get_function_calls() if call.name == "adk_request_confirmation"]
    return [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True}))
        for call in asked
    ]


async def approved_first(world: World) -> None:
    shop = Shop([FunctionTool(paying(world), require_confirmation=True)], [[ask()]])
    parts = _confirmations(await shop.run())
    await shop.run(types.Content(role="user", parts=parts))


async def approved_inside(world: World) -> None:
    async def refund(order: str, tool_context: ToolContext) -> dict[str, str]:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="really?")
            return {"status": "waits for a person"}
        return {"status": world.commit(order)}

    shop = Shop([refund], [[ask()]])
    parts = _confirmations(await shop.run())
    await shop.run(types.Content(role="user", parts=parts))


async def bad_arguments(world: World) -> None:
    await Shop([paying(world)], [WRONG, WRONG]).run()


def _goes_on(step: str, folder: Path) -> None:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    sessions = SqliteSessionService(str(folder / "sessions.db"))
    asyncio.run(Shop([on_the_loop(pays_and_dies(step, folder))], [[ask()]], session="c1", sessions=sessions).run())


def _killed_later(step: str, folder: Path) -> None:
    """Both are run for one conversation, which was kept in memory only."""
    asyncio.run(Shop([pays_there(folder)], dies_unseen_asks(step), session="c1").run())


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", new_id(sync=False), 2, 1),
    Incident(Story.NEW_ID, "sync tool", new_id(sync=True), 2, 1),
    Incident(Story.SAME_ID, "", new_id(sync=False, same_ids=True), 2, 1),
    Incident(Story.STREAMED, "", new_id(sync=False, config=RunConfig(streaming_mode=StreamingMode.SSE)), 2, 1),
    Incident(Story.TRIED_AGAIN, "by ReflectAndRetryToolPlugin", told(reflect_and_retry), 2, 1),
    Incident(Story.HANDLED, "by a callback", told(handled_error), 2, 1),
    Incident(Story.CANCELLED, "", told(cancelled), 2, 1),
    Incident(Story.CANCELLED, "as a sync tool returns", told(late_on_the_loop), 2, 1),
    *([Incident(Story.LATE, "", told(late_in_a_thread), 2, 1)] if IN_THREADS else []),
    Incident(Story.PARALLEL, "async tool", in_one_run([[ask("o1"), ask("o2"), ask("o3")]], sync=False), 3, 3),
    Incident(Story.PARALLEL, "sync tool", in_one_run([[ask("o1"), ask("o2"), ask("o3")]], sync=True), 3, 3),
    Incident(Story.TWINS, "async tool", in_one_run([[ask(), ask()]], sync=False), 2, 2),
    Incident(Story.TWINS, "sync tool", in_one_run([[ask(), ask()]], sync=True), 2, 2),
    Incident(Story.LATER_TURN, "", in_one_run([[ask()], [ask()]], sync=False), 2, 2),
    Incident(Story.DIES, "", told(dies_beside_a_sibling), 4, 2),
    Incident(Story.DIES, "parallel agents", told(parallel_agents_die), 2, 1),
    Incident(Story.DELEGATED, "", told(delegated_again), 2, 1),
    Incident(Story.APPROVED, "require_confirmation", told(approved_first), 1, 1),
    Incident(Story.APPROVED, "asked for inside the tool", told(approved_inside), 1, 1),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("google_adk"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("google_adk", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", told(bad_arguments), 0, 0),
)

if __name__ == "__main__":
    main({"killed": _goes_on, "killed_later": _killed_later})
