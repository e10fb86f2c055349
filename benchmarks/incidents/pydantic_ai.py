# SPDX-License-Identifier: Apache-2.0
"""Incidents on pydantic-ai, 1 and 2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from benchmarks.incidents import scripts
from benchmarks.incidents.bodies import Late, hangs_first, loses, o9_works_first, on_the_loop, pays, pays_in_thread
from benchmarks.incidents.kit import Incident, Story, World, run_again, told
from benchmarks.incidents.other_process import all_is_told, dies_unseen, in_two_processes, main, pays_there
from benchmarks.incidents.scripts import FIRST, SECOND, Call, Turn, once, refund


def scripted(*turns: Turn) -> FunctionModel:
    """A model that answers what it is told to, in order; past the end, that it is done."""
    left = list(turns)

    def next_turn() -> str | list[Call]:
        return scripts.next_turn(left) if left else "done"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = next_turn()
        if isinstance(turn, str):
            return ModelResponse(parts=[TextPart(turn)])
        return proposal(turn)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        turn = next_turn()
        if isinstance(turn, str):
            yield turn
            return
        for index, (call_id, tool, arguments) in enumerate(turn):
            text = "{" + ", ".join(f'"{key}": "{value}"' for key, value in arguments.items()) + "}"
            yield {index: DeltaToolCall(name=tool, json_args=text, tool_call_id=call_id)}

    return FunctionModel(answer, stream_function=stream)


def proposal(calls: list[Call]) -> ModelResponse:
    """A response of the model."""
    return ModelResponse(parts=[ToolCallPart(tool, given, tool_call_id=call_id) for call_id, tool, given in calls])


def agent(model: FunctionModel, tool: Callable[..., Any]) -> Agent[None, str]:
    """An agent with one tool named refund."""
    made: Agent[None, str] = Agent(model, retries=3)
    made.tool_plain(name="refund")(tool)
    return made


def asks(turn: list[Call], tool: Callable[..., Any]) -> Any:
    """Begin a run of an agent whose model answers so."""
    return agent(scripted(turn), tool).run("go", conversation_id="c1")


def in_one_run(body: Callable[[World], Callable[..., Any]], *turns: Turn) -> Callable[[World], None]:
    """One run of an agent whose tool has that body."""

    def tell(world: World) -> None:
        agent(scripted(*turns), body(world)).run_sync("go", conversation_id="c1")

    return tell


def new_id(world: World, *, sync: bool = False, stream: bool = False) -> None:
    """The tool commits and fails, and the model asks again."""
    fail = loses(world, ModelRetry)
    made = agent(scripted(*scripts.AGAIN), fail if sync else on_the_loop(fail))

    async def run() -> None:
        if not stream:
            await made.run("refund o1", conversation_id="c1")
            return
        async with made.run_stream("refund o1", conversation_id="c1") as result:
            await result.get_output()

    asyncio.run(run())


def run_again_by_the_application(world: World) -> None:
    """The run dies with the tool, and the application runs it again: new ids, one scope."""
    for call_id in (FIRST, SECOND):
        with suppress(ConnectionError), world.scope("order o1"):
            agent(scripted(*once(call_id)), loses(world)).run_sync("refund o1")


def same_id(world: World) -> None:
    """The run dies, and the application goes on from its messages: the same call id."""
    kept = [ModelRequest(parts=[UserPromptPart("refund o1")]), proposal([refund(FIRST)])]
    first: dict[str, Any] = {"user_prompt": "refund o1"}
    for given in (first, {"message_history": kept}):
        with suppress(ConnectionError):
            agent(scripted(*once()), loses(world)).run_sync(**given, conversation_id="c1")


async def cancelled(world: World) -> None:
    """A time-out ends the run after the commit; the application runs it again."""
    tool = hangs_first(world)
    await run_again(world.effects, *(partial(asks, [refund(call_id)], tool) for call_id in (FIRST, SECOND)))


async def late(world: World) -> None:
    """A tool in a thread commits after the time-out, when the application has begun again."""
    tool = Late(world)
    await tool.is_run_again(*(partial(asks, [refund(call_id)], tool.refund) for call_id in (FIRST, SECOND)))


def dies_with_one_paid(world: World) -> None:
    """Of two calls one goes well, and the other one ends the run; the application runs it again."""
    for run in ("a1", "b2"):
        with suppress(ConnectionError):
            asyncio.run(asks(scripts.both(run), o9_works_first(world)))


def sub_agent(world: World) -> None:
    """A tool that is an agent: its inner call fails, and the model delegates again, in other words."""
    inner_ids = iter(("toolu_i1", "toolu_i2"))

    async def delegate(request: str) -> str:
        try:
            await agent(scripted(*once(next(inner_ids))), loses(world)).run(request)
        except ConnectionError as error:
            raise ModelRetry("no answer") from error
        return "done"

    made: Agent[None, str] = Agent(scripted(*scripts.delegations("delegate", "request")), retries=3)
    made.tool_plain(delegate)
    made.run_sync("go", conversation_id="c1")


def approval(world: World) -> None:
    """A call that waits for approval, and then runs, once."""
    made: Any = Agent(scripted(*once()), output_type=[str, DeferredToolRequests])

    @made.tool(name="refund")
    def ask_first(context: RunContext[None], order: str) -> str:
        if not context.tool_call_approved:
            raise ApprovalRequired
        return world.commit(order)

    first = made.run_sync("go", conversation_id="c1")
    made.run_sync(
        message_history=first.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals={FIRST: True}),
        conversation_id="c1",
    )


def _killed_later(step: str, folder: Path) -> None:
    """Both processes are run for one conversation, of whose messages nothing was kept."""
    agent(scripted(*dies_unseen(step)), pays_there(folder)).run_sync("refund o9", conversation_id="c1")


def _later_run(step: str, folder: Path) -> None:
    """Each process ends right after its run."""
    all_is_told(step)
    asyncio.run(asks([refund(f"toolu_{step}")], pays_there(folder)))


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", new_id, 2, 1),
    Incident(Story.NEW_ID, "sync tool", partial(new_id, sync=True), 2, 1),
    Incident(Story.STREAMED, "", partial(new_id, stream=True), 2, 1),
    Incident(Story.RUN_AGAIN, "", run_again_by_the_application, 2, 1),
    Incident(Story.SAME_ID, "", same_id, 2, 1),
    Incident(Story.TIMED_OUT, "", told(cancelled), 2, 1),
    Incident(Story.LATE, "", told(late), 2, 1),
    Incident(Story.PARALLEL, "async tool", in_one_run(pays, *scripts.THREE_ORDERS), 3, 3),
    Incident(Story.PARALLEL, "sync tool", in_one_run(pays_in_thread, *scripts.THREE_ORDERS), 3, 3),
    Incident(Story.TWINS, "", in_one_run(pays_in_thread, *scripts.TWINS), 2, 2),
    Incident(Story.LATER_TURN, "", in_one_run(pays_in_thread, *scripts.AGAIN), 2, 2),
    Incident(Story.DIES, "", dies_with_one_paid, 4, 2),
    Incident(Story.DELEGATED, "", sub_agent, 2, 1),
    Incident(Story.APPROVED, "", approval, 1, 1),
    Incident(Story.KILLED_LATER, "", in_two_processes("pydantic_ai", "killed_later"), 2, 1, elsewhere=True),
    Incident(Story.LATER_RUN, "", in_two_processes("pydantic_ai", "later_run", ends_well=True), 2, 2, elsewhere=True),
    Incident(Story.BAD_ARGUMENTS, "", in_one_run(pays_in_thread, *scripts.BAD_ARGUMENTS), 0, 0),
)

if __name__ == "__main__":
    main({"killed_later": _killed_later, "later_run": _later_run})
