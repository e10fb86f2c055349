# SPDX-License-Identifier: Apache-2.0
"""Incidents of LlamaIndex: real agents and workflows, scripted models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.core.utils import get_tokenizer
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, JsonPickleSerializer

from benchmarks.incidents import scripts
from benchmarks.incidents.bodies import Body, Late, hangs_first, loses_first, on_the_loop, only_o9_works, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World
from benchmarks.incidents.llama_index_models import Scripted, Writer
from benchmarks.incidents.other_process import die, dies_unseen, in_two_processes, land, main, pays_there
from benchmarks.incidents.scripts import FIRST, SECOND, Turn, once, refund

ASKED = "Refund order o1"


def agent(turns: Sequence[Turn], *tools: Any, streaming: bool = False, **kwargs: Any) -> FunctionAgent:
    return FunctionAgent(llm=Scripted(turns=list(turns)), tools=list(tools), streaming=streaming, **kwargs)


def tool_of(body: Body, sync: bool = False) -> Any:
    """A tool of that body: in a thread, or asynchronous."""
    return body if sync else FunctionTool.from_defaults(async_fn=on_the_loop(body), name="refund")


def refund_that_fails(world: World, sync: bool = False) -> Any:
    return tool_of(loses_first(world), sync)


def refund_that_works(world: World, sync: bool = False) -> Any:
    return tool_of(pays_in_thread(world), sync)


def run(made: Any, **kwargs: Any) -> str:
    async def main() -> str:
        return str(await made.run(user_msg=ASKED, **kwargs))

    return asyncio.run(main())


def told(body: Callable[[World], Body], turns: Sequence[Turn], sync: bool = False) -> Callable[[World], None]:
    """One run of an agent whose tool has that body."""

    def tell(world: World) -> None:
        with world.scope("o1"):
            run(agent(turns, tool_of(body(world), sync)))

    return tell


new_id = told(loses_first, scripts.AGAIN)
twins = told(pays_in_thread, scripts.TWINS)
later_turn = told(pays_in_thread, scripts.AGAIN)


def workflow(world: World) -> None:
    with world.scope("o1"):
        run(AgentWorkflow(agents=[agent(scripts.AGAIN, refund_that_fails(world), name="a", description="a")]))


def handled_by_react(world: World) -> None:
    action = 'Thought: I need a tool.\nAction: refund\nAction Input: {"order": "o1"}'
    writer = Writer(texts=[action, action, "Thought: I can answer.\nAnswer: done"])
    with world.scope("o1"):
        run(ReActAgent(llm=writer, tools=[refund_that_fails(world)], streaming=False))


def app_runs_again(world: World) -> None:
    """Two runs with one memory, which knows the conversation."""
    memory = Memory.from_defaults(session_id="conversation-7")
    tool = refund_that_fails(world)
    for call_id in (FIRST, SECOND):
        run(agent(once(call_id), tool), memory=memory)


def cancelled(world: World) -> None:
    """The run is cancelled after the commit, and the application runs it again."""

    async def main() -> None:
        landed = asyncio.Event()
        tool = hangs_first(world, landed.set)
        handler = agent(once(FIRST), tool).run(user_msg=ASKED)
        await landed.wait()
        await handler.cancel_run()
        await agent(once(SECOND), tool).run(user_msg=ASKED)

    with world.scope("o1"):
        asyncio.run(main())


def timed_out(world: World) -> None:
    async def main() -> None:
        tool = hangs_first(world)
        with suppress(Exception):  # the time-out, whose class has moved
            await agent(once(FIRST), tool, timeout=1).run(user_msg=ASKED)
        await agent(once(SECOND), tool).run(user_msg=ASKED)

    with world.scope("o1"):
        asyncio.run(main())


def late_in_thread(world: World) -> None:
    """A sync tool goes on in its thread after its run was cancelled, and commits while the next run asks for the same."""
    late = Late(world)

    async def main() -> None:
        handler = agent(once(FIRST), late.refund).run(user_msg=ASKED)
        await late.has_begun()
        await handler.cancel_run()
        await agent(once(SECOND), late.refund).run(user_msg=ASKED)
        await late.pays()

    with world.scope("o1"):
        asyncio.run(main())


def streamed(world: World) -> None:
    async def main() -> None:
        handler = agent(scripts.AGAIN, refund_that_fails(world), streaming=True).run(user_msg=ASKED)
        async for _ in handler.stream_events():
            pass
        await handler

    with world.scope("o1"):
        asyncio.run(main())


def dies(world: World) -> None:
    """One of two parallel calls is paid, the other's answer is lost, the model cannot be reached; it is run again."""
    tool = tool_of(only_o9_works(world))
    with world.scope("o1"):
        for script in scripts.dies():
            with suppress(Exception):  # workflows 1 wraps it
                run(agent(script, tool))


def delegated_again(world: World) -> None:
    """An agent asks another one for the same thing in other words, as the first answer was an error."""
    inner = agent(scripts.INNER, refund_that_fails(world))

    async def ask_refunder(request: str) -> str:
        """Ask the agent that refunds."""
        return str(await inner.run(user_msg=request))

    with world.scope("o1"):
        run(agent(scripts.delegations("ask_refunder", "request"), ask_refunder))


def handed_over(world: World) -> None:
    """One agent hands over to another, which asks for the same again."""
    tool = refund_that_fails(world)
    handoff = {"to_agent": "second", "reason": "it failed"}
    turns = [[refund(FIRST)], [("call_h1x", "handoff", handoff)]]
    first = agent(turns, tool, name="first", description="first")
    second = agent(once(SECOND), tool, name="second", description="second")
    with world.scope("o1"):
        run(AgentWorkflow(agents=[first, second], root_agent="first"))


def approved(world: World) -> None:
    """A tool waits for a person before it does anything."""

    async def refund(ctx: Context, order: str) -> str:
        """Refund an order."""
        await ctx.wait_for_event(
            HumanResponseEvent, waiter_id="approval", waiter_event=InputRequiredEvent(prefix="Refund it?")
        )
        return world.commit(order)

    refund.__annotations__["ctx"] = Context  # by which the framework finds that parameter; a text would not do

    async def main() -> None:
        handler = agent(once(), refund).run(user_msg=ASKED)
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        await handler

    with world.scope("o1"):
        asyncio.run(main())


def _resumed(step: str, folder: Path) -> None:
    """A process dies in the middle of a call, and another one goes on from the context that it had persisted."""
    with World().scope("o1"):
        asyncio.run(_resumable(step, folder))


async def _resumable(step: str, folder: Path) -> None:
    saved = folder / "context.json"
    committed = asyncio.Event()

    async def refund(order: str) -> str:
        """Refund an order."""
        land(folder, order)
        committed.set()
        if step == "first":
            await asyncio.Event().wait()
        return "done"

    first = step == "first"
    made = agent(once() if first else ["done"], refund)
    if first:
        handler = made.run(user_msg=ASKED)
        await committed.wait()
        while True:
            context = handler.ctx.to_dict(serializer=JsonPickleSerializer())
            if not _is_in_progress("parse_agent_output", context):
                break
            await asyncio.sleep(0)  # the step that asked for the call has not quite ended
        saved.write_text(json.dumps(context))
        die()
    get_tokenizer()  # finds the one that ships with LlamaIndex, of which the context holds a reference
    saved_context = json.loads(saved.read_text())
    await made.run(ctx=Context.from_dict(made, saved_context, serializer=JsonPickleSerializer()))


def _is_in_progress(step: str, context: dict[str, Any]) -> bool:
    if "workers" in context:
        return bool(context["workers"][step]["in_progress"])
    return bool(context["in_progress"].get(step))  # workflows 1


def _killed_later(step: str, folder: Path) -> None:
    """Of the first run no context was persisted."""
    with World().scope("o9"):
        run(agent(dies_unseen(step), tool_of(pays_there(folder))))


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", new_id, 2, 1),
    Incident(Story.NEW_ID, "sync tool", told(loses_first, scripts.AGAIN, sync=True), 2, 1),
    Incident(Story.NEW_ID, "AgentWorkflow", workflow, 2, 1),
    Incident(Story.SAME_ID, "", told(loses_first, scripts.SAME_ID), 2, 1),
    Incident(Story.HANDLED, "ReActAgent", handled_by_react, 2, 1),
    Incident(Story.RUN_AGAIN, "", app_runs_again, 2, 1),
    Incident(Story.CANCELLED, "", cancelled, 2, 1),
    Incident(Story.TIMED_OUT, "", timed_out, 2, 1),
    Incident(Story.LATE, "", late_in_thread, 2, 1),
    Incident(Story.STREAMED, "", streamed, 2, 1),
    Incident(Story.PARALLEL, "async tool", told(pays_in_thread, scripts.THREE_ORDERS), 3, 3),
    Incident(Story.PARALLEL, "sync tool", told(pays_in_thread, scripts.THREE_ORDERS, sync=True), 3, 3),
    Incident(Story.TWINS, "async tool", twins, 2, 2),
    Incident(Story.TWINS, "sync tool", told(pays_in_thread, scripts.TWINS, sync=True), 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.DIES, "", dies, 4, 2),
    Incident(Story.DELEGATED, "", delegated_again, 2, 1),
    Incident(Story.DELEGATED, "handed over", handed_over, 2, 1),
    Incident(Story.APPROVED, "", approved, 1, 1),
    Incident(Story.OTHER_PROCESS, "", in_two_processes("llama_index", "resumed"), 2, 1, elsewhere=True),
    Incident(Story.KILLED_LATER, "", in_two_processes("llama_index", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", told(pays_in_thread, scripts.BAD_ARGUMENTS, sync=True), 0, 0),
)


if __name__ == "__main__":
    main({"resumed": _resumed, "killed_later": _killed_later})
