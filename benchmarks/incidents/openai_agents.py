# SPDX-License-Identifier: Apache-2.0
"""Incidents of the OpenAI Agents SDK, with a model that says what the story wants and no network."""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunHooks,
    Runner,
    RunState,
    Usage,
    function_tool,
    set_trace_processors,
)
from agents.mcp import MCPServerStdio
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from benchmarks.incidents.kit import Incident, Story, World

set_trace_processors([])  # nothing is sent anywhere

Tale = Callable[[World], Awaitable[object]]
_numbers = itertools.count()


class Script(Model):
    """Says one line after another, whatever it is told; an exception among them is raised."""

    def __init__(self, *lines: Any) -> None:
        self.lines = list(lines)
        self.told: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(output=self._next(input), usage=Usage(), response_id=f"resp_{next(_numbers):04d}x")

    async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        response = Response(
            id=f"resp_{next(_numbers):04d}x",
            created_at=0,
            model="script",
            object="response",
            output=self._next(input),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)

    def _next(self, told: Any) -> list[Any]:
        self.told = list(told) if isinstance(told, list) else [told]
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line if isinstance(line, list) else [line]

    def read(self) -> list[str]:
        """The texts of the tool results in what it was told last."""
        return [str(item["output"]) for item in self.told if isinstance(item, dict) and "output" in item]


def call(tool: str = "refund", arguments: str = '{"order": "o1"}', call_id: str | None = None) -> ResponseFunctionToolCall:
    """A proposal, under a new id unless one is given."""
    return ResponseFunctionToolCall(
        type="function_call", name=tool, arguments=arguments, call_id=call_id or f"call_{next(_numbers):04d}kqz"
    )


def text(words: str) -> ResponseOutputMessage:
    """The last word of a run."""
    part = ResponseOutputText(type="output_text", text=words, annotations=[])
    return ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[part])


def failing(world: World, **options: Any) -> FunctionTool:
    """A refund that lands, and whose answer is lost."""

    async def refund(order: str) -> str:
        return world.commit_then_fail(order)

    return function_tool(refund, **options)


def working(world: World, **options: Any) -> FunctionTool:
    """A refund that works."""

    async def refund(order: str) -> str:
        return world.commit(order)

    return function_tool(refund, **options)


async def run(world: World, agent: Agent[Any], input: Any = "refund o1", **options: Any) -> Any:
    """One run of an application that knows which order it is about."""
    with world.scope("order-1"):
        return await Runner.run(agent, input, **options)


def _told(story: Tale) -> Callable[[World], None]:
    def tell(world: World) -> None:
        asyncio.run(_ignore(story(world)))

    return tell


async def _ignore(told: Awaitable[object]) -> None:
    await told


# -- the stories ---------------------------------------------------------------------------------------------------------


async def new_id(world: World, tool: FunctionTool | None = None) -> Script:
    """The model asks again, under a new id."""
    script = Script(call(), call(), text("done"))
    await run(world, Agent("a", model=script, tools=[tool or failing(world)]))
    return script


async def new_id_sync_tool(world: World) -> Script:
    def refund(order: str) -> str:
        return world.commit_then_fail(order)

    return await new_id(world, function_tool(refund))


async def own_invoker(world: World) -> Script:
    """A tool whose invoker the application wrote: what it raises ends the run, and the application runs again."""

    async def invoke(context: Any, arguments: str) -> str:
        return world.commit_then_fail("o1")

    tool = FunctionTool("refund", "", {"type": "object", "properties": {}}, invoke, strict_json_schema=False)
    with suppress(Exception):
        await run(world, Agent("a", model=Script(call()), tools=[tool]))
    script = Script(call(), text("done"))
    await run(world, Agent("a", model=script, tools=[tool]))
    return script


async def handled_error(world: World) -> Script:
    return await new_id(world, failing(world, failure_error_function=lambda context, error: "the provider is busy"))


async def time_out(world: World, **options: Any) -> Script:
    """The SDK's own time-out fires after the refund has landed."""

    async def refund(order: str) -> str:
        world.commit(order)
        await asyncio.Event().wait()
        return ""

    return await new_id(world, function_tool(refund, timeout=0.5, **options))


async def worded_time_out(world: World) -> Script:
    return await time_out(world, timeout_error_function=lambda context, error: "no answer yet")


async def cancelled(world: World) -> Script:
    """The application gives up after the refund has landed, and runs again."""
    landed = asyncio.Event()

    async def refund(order: str) -> str:
        world.commit(order)
        landed.set()
        await asyncio.Event().wait()
        return ""

    tool = function_tool(refund)
    first = asyncio.create_task(run(world, Agent("a", model=Script(call()), tools=[tool])))
    await landed.wait()
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    script = Script(call(), text("done"))
    second = asyncio.create_task(run(world, Agent("a", model=script, tools=[tool])))
    landed.clear()
    await asyncio.wait({second, asyncio.create_task(landed.wait())}, return_when=asyncio.FIRST_COMPLETED)
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    return script


async def late_thread(world: World) -> Script:
    """The application gives up while a thread is still about to refund, and runs again."""
    began, go_on, turns = threading.Event(), threading.Event(), itertools.count()

    def refund(order: str) -> str:
        if next(turns) == 0:
            began.set()
            go_on.wait(10)
        return world.commit(order)

    tool, script = function_tool(refund), Script(call(), text("done"))
    first = asyncio.create_task(run(world, Agent("a", model=Script(call()), tools=[tool])))
    await asyncio.to_thread(began.wait, 10)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    await run(world, Agent("a", model=script, tools=[tool]))
    go_on.set()
    return script


async def streamed(world: World) -> Script:
    script = Script(call(), call(), text("done"))
    with world.scope("order-1"):
        result = Runner.run_streamed(Agent("a", model=script, tools=[failing(world)]), "refund o1")
        async for _ in result.stream_events():
            pass
    return script


async def three_parallel(world: World) -> Script:
    calls = [call(arguments=f'{{"order": "o{number}"}}') for number in range(3)]
    script = Script(calls, text("done"))
    await run(world, Agent("a", model=script, tools=[working(world)]))
    return script


async def twins(world: World) -> Script:
    script = Script([call(), call()], text("done"))
    await run(world, Agent("a", model=script, tools=[working(world)]))
    return script


async def later_turn(world: World) -> Script:
    script = Script(call(), call(), text("done"))
    await run(world, Agent("a", model=script, tools=[working(world)]))
    return script


class _Settled(RunHooks[Any]):
    """Says when the first tool is through."""

    def __init__(self) -> None:
        self.one = asyncio.Event()

    async def on_tool_end(self, *args: Any, **kwargs: Any) -> None:
        self.one.set()


async def dying_run(world: World, streaming: bool = False) -> Script:
    """Of two refunds of a turn one works and one kills the run; the application runs again."""

    async def attempt() -> Script:
        hooks = _Settled()

        async def refund(order: str) -> str:
            if order == "o1":
                return world.commit(order)
            world.commit(order)
            await hooks.one.wait()
            raise ConnectionError("502 Bad Gateway")

        tool = function_tool(refund, failure_error_function=None)
        script = Script([call(), call(arguments='{"order": "o2"}')], text("done"))
        agent = Agent("a", model=script, tools=[tool])
        with suppress(Exception):
            if streaming:
                with world.scope("order-1"):
                    result = Runner.run_streamed(agent, "refund both", hooks=hooks)
                    async for _ in result.stream_events():
                        pass
            else:
                await run(world, agent, hooks=hooks)
        return script

    await attempt()
    return await attempt()


async def dying_stream(world: World) -> Script:
    return await dying_run(world, streaming=True)


async def delegated_again(world: World) -> Script:
    """A manager has an agent refund, hears that it failed, and asks it again in other words."""
    inner = Script(call(), text("it failed"), call(), text("it failed again"))
    refunder = Agent("refunder", model=inner, tools=[failing(world)])
    outer = Script(
        call("refunder", '{"input": "refund o1"}'), call("refunder", '{"input": "try o1 once more"}'), text("done")
    )
    await run(world, Agent("manager", model=outer, tools=[refunder.as_tool("refunder", "refunds")]))
    return outer


async def approved(world: World) -> Script:
    script = Script(call(), text("done"))
    agent = Agent("a", model=script, tools=[working(world, needs_approval=True)])
    result = await run(world, agent)
    state = result.to_state()
    for item in result.interruptions:
        state.approve(item)
    await run(world, agent, state)
    return script


async def approved_in_agent_tool(world: World, meanwhile: Callable[[], object] = lambda: None) -> Script:
    """An agent inside a tool has done one refund, and waits for the approval of another."""
    inner = Script(call(), call("costly", '{"order": "o2"}'), text("both done"))

    async def costly(order: str) -> str:
        return world.commit(order)

    refunder = Agent("refunder", model=inner, tools=[working(world), function_tool(costly, needs_approval=True)])
    outer = Script(call("refunder", '{"input": "refund o1 and o2"}'), text("done"))
    agent = Agent("manager", model=outer, tools=[refunder.as_tool("refunder", "refunds")])
    result = await run(world, agent)
    meanwhile()
    state = result.to_state()
    for item in result.interruptions:
        state.approve(item)
    await run(world, agent, state)
    return outer


async def resumed_twice(world: World) -> Script:
    """An approved refund lands, the run dies, and the application resumes once more from the state that it had kept."""
    script = Script(call(), RuntimeError("the model is away"), text("done"))
    agent = Agent("a", model=script, tools=[working(world, needs_approval=True)])
    result = await run(world, agent)
    state = result.to_state()
    for item in result.interruptions:
        state.approve(item)
    kept = state.to_json()
    for _ in range(2):
        with suppress(Exception):
            await run(world, agent, await RunState.from_json(agent, kept))
    return script


async def bad_arguments(world: World) -> Script:
    """The model writes arguments that the SDK rejects, and repairs them."""
    script = Script(
        call(arguments='{"order": '), call(arguments='{"order": {"id": "o1"}}'), call(), call("refund"), text("done")
    )
    await run(world, Agent("a", model=script, tools=[working(world)]))
    return script


_SERVER = """
import logging, sys
try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer
logging.disable(logging.CRITICAL)
server = MCPServer("payments")

from mcp.types import ToolAnnotations

@server.tool(annotations=ToolAnnotations.model_validate({sys.argv[3]: True}) if sys.argv[3:] else None)
async def refund(order: str) -> str:
    with open(sys.argv[1], "a") as effects:
        effects.write(order + chr(10))
    if sys.argv[2] == "hang":
        import anyio
        await anyio.sleep_forever()
    raise ConnectionError("502 Bad Gateway")

server.run()
"""


async def over_stdio(world: World, conduct: str, retries: int, *hint: str, first: Any = None) -> Script:
    """An agent whose tool is on a server that refunds, and then hangs or says that it failed."""
    with tempfile.TemporaryDirectory() as directory:
        program, effects = Path(directory, "server.py"), Path(directory, "effects")
        program.write_text(_SERVER)
        effects.touch()
        script = Script(first or call(), call(), text("done"))
        server = MCPServerStdio(
            {"command": sys.executable, "args": [str(program), str(effects), conduct, *hint]},
            cache_tools_list=True,
            client_session_timeout_seconds=60,
            max_retry_attempts=retries,
            retry_backoff_seconds_base=0.01,
        )
        async with server:
            await server.list_tools()
            if conduct == "hang":
                server.session._session_read_timeout_seconds = _seconds(1)  # type: ignore[union-attr]
            await run(world, Agent("a", model=script, mcp_servers=[server]))
        for effect in effects.read_text().split():
            world.commit(effect)
        return script


def _seconds(number: float) -> Any:
    from importlib.metadata import version

    if version("mcp").startswith("1."):
        from datetime import timedelta

        return timedelta(seconds=number)
    return number


async def resending_session(world: World) -> Script:
    """The server refunds and hangs; the SDK's MCP session sends again, and so does the model."""
    return await over_stdio(world, "hang", 2)


async def mcp_tool_error(world: World) -> Script:
    """The server refunds and says that it failed; the model asks again."""
    return await over_stdio(world, "fail", 0)


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", _told(new_id), 2, 1),
    Incident(Story.NEW_ID, "sync tool", _told(new_id_sync_tool), 2, 1),
    Incident(Story.RUN_AGAIN, "a tool with an invoker of its own", _told(own_invoker), 2, 1),
    Incident(Story.HANDLED, "", _told(handled_error), 2, 1),
    Incident(Story.TIMED_OUT, "", _told(time_out), 2, 1),
    Incident(Story.TIMED_OUT, "in the user's words", _told(worded_time_out), 2, 1),
    Incident(Story.CANCELLED, "", _told(cancelled), 2, 1),
    Incident(Story.LATE, "", _told(late_thread), 2, 1),
    Incident(Story.STREAMED, "", _told(streamed), 2, 1),
    Incident(Story.PARALLEL, "", _told(three_parallel), 3, 3),
    Incident(Story.TWINS, "", _told(twins), 2, 2),
    Incident(Story.LATER_TURN, "", _told(later_turn), 2, 2),
    Incident(Story.DIES, "", _told(dying_run), 4, 2),
    Incident(Story.DIES, "streamed", _told(dying_stream), 4, 2),
    Incident(Story.DELEGATED, "", _told(delegated_again), 2, 1),
    Incident(Story.APPROVED, "", _told(approved), 1, 1),
    Incident(Story.APPROVED, "inside an agent as tool", _told(approved_in_agent_tool), 2, 2),
    Incident(Story.SAME_ID, "resumed twice", _told(resumed_twice), 2, 1),
    Incident(Story.BAD_ARGUMENTS, "then good ones twice", _told(bad_arguments), 2, 2),
    Incident(Story.TRIED_AGAIN, "by a session of MCP", _told(resending_session), 6, 1),
    Incident(Story.HANDLED, "of a tool of MCP", _told(mcp_tool_error), 2, 1),
)
