# SPDX-License-Identifier: Apache-2.0
"""Incidents of the OpenAI Agents SDK, with a model that says what the story wants and no network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from agents import Agent, FunctionTool, RunHooks, Runner, RunState, function_tool, set_trace_processors

from benchmarks.incidents.bodies import Late, hangs_first, loses, on_the_loop, pays
from benchmarks.incidents.kit import Incident, Story, World, run_again, told
from benchmarks.incidents.openai_agents_model import Script, call, text
from benchmarks.incidents.openai_agents_stdio import server_that_refunds
from benchmarks.incidents.other_process import all_is_told, die_unseen, in_two_processes, main, pays_there

set_trace_processors([])  # nothing is sent anywhere


def failing(world: World, **options: Any) -> FunctionTool:
    """A refund that lands, and whose answer is lost."""
    return function_tool(on_the_loop(loses(world)), **options)


def working(world: World, **options: Any) -> FunctionTool:
    """A refund that works."""
    return function_tool(pays(world), **options)


async def run(world: World, agent: Agent[Any], input: Any = "refund o1", **options: Any) -> Any:
    """One run of an application that knows which order it is about."""
    with world.scope("order-1"):
        return await Runner.run(agent, input, **options)


async def in_one_run(world: World, tool: FunctionTool, *lines: Any) -> Script:
    """One run of an agent with that tool; returns its model, which says that it is done in the end."""
    script = Script(*lines, text("done"))
    await run(world, Agent("a", model=script, tools=[tool]))
    return script


# -- the stories ---------------------------------------------------------------------------------------------------------


async def new_id(world: World, tool: FunctionTool | None = None) -> Script:
    """The model asks again, under a new id."""
    return await in_one_run(world, tool or failing(world), call(), call())


async def new_id_sync_tool(world: World) -> Script:
    return await new_id(world, function_tool(loses(world)))


async def own_invoker(world: World) -> Script:
    """A tool whose invoker the application wrote: what it raises ends the run, and the application runs again."""

    async def invoke(context: Any, arguments: str) -> str:
        return world.commit_then_fail("o1")

    tool = FunctionTool("refund", "", {"type": "object", "properties": {}}, invoke, strict_json_schema=False)
    with suppress(Exception):
        await run(world, Agent("a", model=Script(call()), tools=[tool]))
    return await in_one_run(world, tool, call())


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
    tool, script = function_tool(hangs_first(world)), Script(call(), text("done"))
    models = Script(call()), script
    await run_again(world.effects, *(partial(run, world, Agent("a", model=model, tools=[tool])) for model in models))
    return script


async def late_thread(world: World) -> Script:
    """The application gives up while a thread is still about to refund, and runs again."""
    late, script = Late(world), Script(call(), text("done"))
    tool, models = function_tool(late.refund), (Script(call()), script)
    await late.is_run_again(*(partial(run, world, Agent("a", model=model, tools=[tool])) for model in models))
    return script


async def streamed(world: World) -> Script:
    script = Script(call(), call(), text("done"))
    with world.scope("order-1"):
        result = Runner.run_streamed(Agent("a", model=script, tools=[failing(world)]), "refund o1")
        async for _ in result.stream_events():
            pass
    return script


async def three_parallel(world: World) -> Script:
    return await in_one_run(world, working(world), [call(arguments=f'{{"order": "o{number}"}}') for number in range(3)])


async def twins(world: World) -> Script:
    return await in_one_run(world, working(world), [call(), call()])


async def later_turn(world: World) -> Script:
    return await in_one_run(world, working(world), call(), call())


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


def approve(result: Any) -> RunState[Any]:
    """What a run goes on with when a person has approved all that it waits for."""
    state: RunState[Any] = result.to_state()
    for item in result.interruptions:
        state.approve(item)
    return state


async def approved(world: World) -> Script:
    script = Script(call(), text("done"))
    agent = Agent("a", model=script, tools=[working(world, needs_approval=True)])
    await run(world, agent, approve(await run(world, agent)))
    return script


async def approved_in_agent_tool(world: World, meanwhile: Callable[[], object] = lambda: None) -> Script:
    """An agent inside a tool has done one refund, and waits for the approval of another."""
    inner = Script(call(), call("costly", '{"order": "o2"}'), text("both done"))

    costly = working(world, name_override="costly", needs_approval=True)
    refunder = Agent("refunder", model=inner, tools=[working(world), costly])
    outer = Script(call("refunder", '{"input": "refund o1 and o2"}'), text("done"))
    agent = Agent("manager", model=outer, tools=[refunder.as_tool("refunder", "refunds")])
    result = await run(world, agent)
    meanwhile()
    await run(world, agent, approve(result))
    return outer


async def resumed_twice(world: World) -> Script:
    """An approved refund lands, the run dies, and the application resumes once more from the state that it had kept."""
    script = Script(call(), RuntimeError("the model is away"), text("done"))
    agent = Agent("a", model=script, tools=[working(world, needs_approval=True)])
    kept = approve(await run(world, agent)).to_json()
    for _ in range(2):
        with suppress(Exception):
            await run(world, agent, await RunState.from_json(agent, kept))
    return script


async def bad_arguments(world: World) -> Script:
    """The model writes arguments that the SDK rejects, and repairs them."""
    wrong = call(arguments='{"order": '), call(arguments='{"order": {"id": "o1"}}')
    return await in_one_run(world, working(world), *wrong, call(), call("refund"))


async def over_stdio(world: World, conduct: str, retries: int, *hint: str, first: Any = None) -> Script:
    """An agent whose tool is on a server that refunds, and then hangs or says that it failed."""
    script = Script(first or call(), call(), text("done"))
    async with server_that_refunds(world, conduct, retries, *hint) as server:
        await run(world, Agent("a", model=script, mcp_servers=[server]))
    return script


async def resending_session(world: World) -> Script:
    """The server refunds and hangs; the SDK's MCP session sends again, and so does the model."""
    return await over_stdio(world, "hang", 2)


async def mcp_tool_error(world: World) -> Script:
    """The server refunds and says that it failed; the model asks again."""
    return await over_stdio(world, "fail", 0)


def _killed_later(step: str, folder: Path) -> None:
    lines = [call(), die_unseen if step == "first" else text("done")]
    asyncio.run(run(World(), Agent("a", model=Script(*lines), tools=[function_tool(pays_there(folder))])))


def _later_run(step: str, folder: Path) -> None:
    """Each process ends right after its run."""
    all_is_told(step)
    asyncio.run(in_one_run(World(), function_tool(pays_there(folder)), call()))


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", told(new_id), 2, 1),
    Incident(Story.NEW_ID, "sync tool", told(new_id_sync_tool), 2, 1),
    Incident(Story.RUN_AGAIN, "a tool with an invoker of its own", told(own_invoker), 2, 1),
    Incident(Story.HANDLED, "", told(handled_error), 2, 1),
    Incident(Story.TIMED_OUT, "", told(time_out), 2, 1),
    Incident(Story.TIMED_OUT, "in the user's words", told(worded_time_out), 2, 1),
    Incident(Story.CANCELLED, "", told(cancelled), 2, 1),
    Incident(Story.LATE, "", told(late_thread), 2, 1),
    Incident(Story.STREAMED, "", told(streamed), 2, 1),
    Incident(Story.PARALLEL, "", told(three_parallel), 3, 3),
    Incident(Story.TWINS, "", told(twins), 2, 2),
    Incident(Story.LATER_TURN, "", told(later_turn), 2, 2),
    Incident(Story.DIES, "", told(dying_run), 4, 2),
    Incident(Story.DIES, "streamed", told(dying_stream), 4, 2),
    Incident(Story.DELEGATED, "", told(delegated_again), 2, 1),
    Incident(Story.APPROVED, "", told(approved), 1, 1),
    Incident(Story.APPROVED, "inside an agent as tool", told(approved_in_agent_tool), 2, 2),
    Incident(Story.SAME_ID, "resumed twice", told(resumed_twice), 2, 1),
    Incident(Story.KILLED_LATER, "", in_two_processes("openai_agents", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.LATER_RUN, "", in_two_processes("openai_agents", "later_run", ends_well=True), 2, 2, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "then good ones twice", told(bad_arguments), 2, 2),
    Incident(Story.TRIED_AGAIN, "by a session of MCP", told(resending_session), 6, 1),
    Incident(Story.HANDLED, "of a tool of MCP", told(mcp_tool_error), 2, 1),
)

if __name__ == "__main__":
    main({"killed_later": _killed_later, "later_run": _later_run})
