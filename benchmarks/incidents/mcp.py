# SPDX-License-Identifier: Apache-2.0
"""Incidents of clients of the MCP Python SDK 1 and 2, with a server in the same process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any

from benchmarks.incidents import kit
from benchmarks.incidents.bodies import loses, on_the_loop, pays
from benchmarks.incidents.kit import Incident, Story, World

try:
    from mcp import Client
    from mcp.server.mcpserver import MCPServer as Server

    TWO = True
except ImportError:  # version 1
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[no-redef]

    TWO = False

Connect = Callable[[Any], AbstractAsyncContextManager[Any]]
Tale = Callable[[World, "Wiring"], Awaitable[object]]


def connect(server: Any) -> AbstractAsyncContextManager[Any]:
    """A client of a server in this process."""
    if TWO:
        return Client(server)
    from mcp.shared.memory import create_connected_server_and_client_session

    return create_connected_server_and_client_session(server)


class Wiring:
    """How to make a server, and to be its client."""

    def __init__(self, server: Callable[[str], Any], connect: Connect, seconds: Callable[[float], dict[str, Any]]) -> None:
        self.server = server
        self.connect = connect
        self.seconds = seconds


def _seconds(number: float) -> dict[str, Any]:
    return {"read_timeout_seconds": number if TWO else timedelta(seconds=number)}


SDK = Wiring(Server, connect, _seconds)


async def attempts(world: World, wiring: Wiring, server: Any, times: int, **options: Any) -> list[Any]:
    """An application that calls, hears of a failure, and calls again."""
    answers: list[Any] = []
    async with wiring.connect(server) as client:
        for _ in range(times):
            with world.scope("order-1"):
                try:
                    answers.append(await client.call_tool("refund", {"order": "o1"}, **options))
                except Exception as error:  # noqa: BLE001 - what a retry loop hears
                    answers.append(error)
    return answers


def failing(world: World, wiring: Wiring, sync: bool = False) -> Any:
    """A server whose refunds land, and that says that they failed."""
    server = wiring.server("payments")
    server.tool()(loses(world) if sync else on_the_loop(loses(world)))
    return server


def working(world: World, wiring: Wiring) -> Any:
    """A server whose refunds work."""
    server = wiring.server("payments")
    server.tool()(pays(world))
    return server


def hanging(world: World, wiring: Wiring, landed: asyncio.Event | None = None) -> Any:
    """A server whose refunds land, and that never answers."""
    server = wiring.server("payments")

    @server.tool()
    async def refund(order: str) -> str:
        world.commit(order)
        if landed is not None:
            landed.set()
        await asyncio.Event().wait()
        return ""

    return server


# -- the stories ---------------------------------------------------------------------------------------------------------


async def tool_error(world: World, wiring: Wiring) -> list[Any]:
    """The refund lands, the answer is `isError`, and the application tries again."""
    return await attempts(world, wiring, failing(world, wiring), 2)


async def tool_error_sync(world: World, wiring: Wiring) -> list[Any]:
    return await attempts(world, wiring, failing(world, wiring, sync=True), 2)


async def time_out(world: World, wiring: Wiring) -> list[Any]:
    return await attempts(world, wiring, hanging(world, wiring), 3, **wiring.seconds(0.5))


async def cancelled(world: World, wiring: Wiring) -> None:
    landed = asyncio.Event()
    async with wiring.connect(hanging(world, wiring, landed)) as client:
        for _ in range(2):
            with world.scope("order-1"):
                call = asyncio.create_task(client.call_tool("refund", {"order": "o1"}))
                waits = asyncio.create_task(landed.wait())
                await asyncio.wait({call, waits}, return_when=asyncio.FIRST_COMPLETED)
                for task in (call, waits):
                    task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await call
                landed.clear()


async def three_parallel(world: World, wiring: Wiring) -> None:
    async with wiring.connect(working(world, wiring)) as client:
        with world.scope("order-1"):
            await asyncio.gather(*(client.call_tool("refund", {"order": f"o{number}"}) for number in range(3)))


async def twins(world: World, wiring: Wiring) -> None:
    """Two identical calls at one time."""
    async with wiring.connect(working(world, wiring)) as client:
        with world.scope("order-1"):
            await asyncio.gather(*(client.call_tool("refund", {"order": "o1"}) for _ in range(2)))


async def again(world: World, wiring: Wiring) -> list[Any]:
    return await attempts(world, wiring, working(world, wiring), 2)


async def bad_arguments(world: World, wiring: Wiring) -> None:
    """Arguments that the client itself rejects, then good ones, twice."""
    async with wiring.connect(working(world, wiring)) as client:
        for arguments in ("o1", "o1", {"order": "o1"}, {"order": "o1"}):
            with world.scope("order-1"), contextlib.suppress(Exception):
                await client.call_tool("refund", arguments)


def asking(world: World, lose: bool = False) -> tuple[Any, Any]:
    """A server that asks before it refunds, and what answers it (from version 2 on)."""
    from typing import Annotated

    from mcp.server.mcpserver.resolve import Elicit, Resolve
    from mcp_types import ElicitResult
    from pydantic import BaseModel

    class Sure(BaseModel):
        sure: bool

    async def ask() -> Any:
        return Elicit("Refund o1?", Sure)

    ask.__annotations__ = {"return": Elicit[Sure]}
    server = Server("payments")

    async def refund(order: str, sure: Any) -> str:
        return world.commit_then_fail(order) if lose else world.commit(order)

    refund.__annotations__ = {"order": str, "sure": Annotated[Sure, Resolve(ask)], "return": str}
    server.tool()(refund)

    async def answer(context: Any, params: Any) -> Any:
        return ElicitResult(action="accept", content={"sure": True})

    return server, answer


async def asked(world: World, wiring: Wiring, lose: bool = False, times: int = 1) -> list[Any]:
    server, answer = asking(world, lose)
    again = Wiring(wiring.server, lambda server: Client(server, elicitation_callback=answer), wiring.seconds)
    return await attempts(world, again, server, times)


async def asked_and_lost(world: World, wiring: Wiring) -> list[Any]:
    return await asked(world, wiring, lose=True, times=2)


def incidents(wiring: Wiring) -> tuple[Incident, ...]:
    """The stories that any client can tell."""

    def told(story: Tale) -> Callable[[World], None]:
        return kit.told(lambda world: story(world, wiring))

    return (
        Incident(Story.RUN_AGAIN, "async tool", told(tool_error), 2, 1),
        Incident(Story.RUN_AGAIN, "sync tool", told(tool_error_sync), 2, 1),
        Incident(Story.TIMED_OUT, "twice", told(time_out), 3, 1),
        Incident(Story.CANCELLED, "", told(cancelled), 2, 1),
        Incident(Story.PARALLEL, "", told(three_parallel), 3, 3),
        Incident(Story.TWINS, "", told(twins), 2, 2),
        Incident(Story.LATER_TURN, "", told(again), 2, 2),
        Incident(Story.BAD_ARGUMENTS, "then good ones twice", told(bad_arguments), 2, 2),
        *(
            (
                Incident(Story.APPROVED, "", told(asked), 1, 1),
                Incident(Story.APPROVED, "then the answer is lost", told(asked_and_lost), 2, 1),
            )
            if TWO and wiring is SDK
            else ()
        ),
    )


INCIDENTS: tuple[Incident, ...] = incidents(SDK)
