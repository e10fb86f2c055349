# SPDX-License-Identifier: Apache-2.0
"""Incidents on pydantic-ai, 1 and 2."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from benchmarks.incidents.kit import Incident, Story, World, given_up

Turn = str | Sequence[tuple[str, dict[str, Any], str]]
"""What the model answers: a text, or calls as (tool, arguments, id)."""


def scripted(*turns: Turn) -> FunctionModel:
    """A model that answers what it is told to, in order; past the end, that it is done."""
    left = list(turns)

    def next_turn() -> Turn:
        return left.pop(0) if left else "done"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = next_turn()
        if isinstance(turn, str):
            return ModelResponse(parts=[TextPart(turn)])
        return ModelResponse(
            parts=[ToolCallPart(tool, arguments, tool_call_id=call_id) for tool, arguments, call_id in turn]
        )

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        turn = next_turn()
        if isinstance(turn, str):
            yield turn
            return
        for index, (tool, arguments, call_id) in enumerate(turn):
            text = "{" + ", ".join(f'"{key}": "{value}"' for key, value in arguments.items()) + "}"
            yield {index: DeltaToolCall(name=tool, json_args=text, tool_call_id=call_id)}

    return FunctionModel(answer, stream_function=stream)


def refund(order: str, call_id: str) -> tuple[str, dict[str, Any], str]:
    """One proposed call."""
    return "refund", {"order": order}, call_id


def agent(model: FunctionModel, tool: Callable[..., Any]) -> Agent[None, str]:
    """An agent with one tool named refund."""
    made: Agent[None, str] = Agent(model, retries=3)
    made.tool_plain(name="refund")(tool)
    return made


def paying(world: World) -> Callable[[str], str]:
    """A tool that works."""

    def pay(order: str) -> str:
        return world.commit(order)

    return pay


def losing(world: World) -> Callable[[str], str]:
    """A tool whose answer gets lost."""

    def pay(order: str) -> str:
        return world.commit_then_fail(order)

    return pay


AGAIN = ([refund("o1", "toolu_a1")], [refund("o1", "toolu_b2")])


def new_id(world: World, *, sync: bool = False, stream: bool = False) -> None:
    """The tool commits and fails, and the model asks again."""

    def fail(order: str) -> str:
        try:
            return world.commit_then_fail(order)
        except ConnectionError as error:
            raise ModelRetry(str(error)) from error

    async def fail_async(order: str) -> str:
        return fail(order)

    made = agent(scripted(*AGAIN), fail if sync else fail_async)

    async def run() -> None:
        if not stream:
            await made.run("refund o1", conversation_id="c1")
            return
        async with made.run_stream("refund o1", conversation_id="c1") as result:
            await result.get_output()

    asyncio.run(run())


def run_again(world: World) -> None:
    """The run dies with the tool, and the application runs it again: new ids, one scope."""
    for call_id in ("toolu_a1", "toolu_b2"):
        made = agent(scripted([refund("o1", call_id)]), losing(world))
        try:
            with world.scope("order o1"):
                made.run_sync("refund o1")
        except ConnectionError:
            continue


def same_id(world: World) -> None:
    """The run dies, and the application goes on from its messages: the same call id."""
    history: list[ModelMessage] = []
    for _ in range(2):
        made = agent(scripted(*AGAIN[:1]), losing(world))
        try:
            made.run_sync("refund o1" if not history else None, message_history=history or None, conversation_id="c1")
        except ConnectionError:
            from pydantic_ai.messages import ModelRequest, UserPromptPart

            history = [
                ModelRequest(parts=[UserPromptPart("refund o1")]),
                ModelResponse(parts=[ToolCallPart(*AGAIN[0][0][:2], tool_call_id=AGAIN[0][0][2])]),
            ]


def cancelled(world: World) -> None:
    """A time-out ends the run after the commit; the application runs it again."""

    async def slow(order: str) -> str:
        world.commit(order)
        await asyncio.Event().wait()
        return "never"

    async def story() -> None:
        for call_id in ("toolu_a1", "toolu_b2"):
            run = agent(scripted([refund("o1", call_id)]), slow).run("go", conversation_id="c1")
            try:
                await given_up(run, world.effects)
            except TimeoutError:
                continue

    asyncio.run(story())


def late(world: World) -> None:
    """A tool in a thread commits after the time-out, when the application has begun again."""
    go = threading.Event()
    ended: list[threading.Event] = []

    def in_thread(order: str) -> str:
        mine = threading.Event()
        ended.append(mine)
        go.wait(10)
        done = world.commit(order)
        mine.set()
        return done

    async def story() -> None:
        for call_id in ("toolu_a1", "toolu_b2"):
            run = agent(scripted([refund("o1", call_id)]), in_thread).run("go", conversation_id="c1")
            try:
                await given_up(run, ended)
            except TimeoutError:
                continue
        go.set()

    asyncio.run(story())
    for one in ended:
        one.wait(10)


def three_orders(world: World, *, sync: bool = False) -> None:
    """Three calls in one turn, each of its own."""

    async def pay(order: str) -> str:
        return world.commit(order)

    calls = [refund(f"o{number}", f"toolu_{number}a") for number in range(3)]
    agent(scripted(calls), paying(world) if sync else pay).run_sync("go", conversation_id="c1")


def twins(world: World) -> None:
    """Two identical calls in one turn, both meant."""
    agent(scripted([refund("o1", "toolu_a1"), refund("o1", "toolu_b2")]), paying(world)).run_sync("go", conversation_id="c1")


def later_turn(world: World) -> None:
    """The same again, after the model has seen that it went well."""
    agent(scripted(*AGAIN), paying(world)).run_sync("go", conversation_id="c1")


def dies_with_one_paid(world: World) -> None:
    """Of two calls one goes well, and the other one ends the run; the application runs it again."""

    async def pay(order: str) -> str:
        if order == "o9":
            return world.commit(order)
        await asyncio.sleep(0)
        return world.commit_then_fail(order)

    for run in ("a1", "b2"):
        made = agent(scripted([refund("o9", f"toolu_9{run}"), refund("oX", f"toolu_x{run}")]), pay)
        try:
            made.run_sync("go", conversation_id="c1")
        except ConnectionError:
            continue


def sub_agent(world: World) -> None:
    """A tool that is an agent: its inner call fails, and the model delegates again, in other words."""
    inner_ids = iter(("toolu_i1", "toolu_i2"))

    async def delegate(request: str) -> str:
        try:
            await agent(scripted([refund("o1", next(inner_ids))]), losing(world)).run(request)
        except ConnectionError as error:
            raise ModelRetry("no answer") from error
        return "done"

    words = (
        [("delegate", {"request": "refund o1"}, "toolu_a1")],
        [("delegate", {"request": "please refund o1"}, "toolu_b2")],
    )
    made: Agent[None, str] = Agent(scripted(*words), retries=3)
    made.tool_plain(delegate)
    made.run_sync("go", conversation_id="c1")


def approval(world: World) -> None:
    """A call that waits for approval, and then runs, once."""
    made: Any = Agent(scripted([refund("o1", "toolu_a1")]), output_type=[str, DeferredToolRequests])

    @made.tool(name="refund")
    def ask_first(context: RunContext[None], order: str) -> str:
        from pydantic_ai import ApprovalRequired

        if not context.tool_call_approved:
            raise ApprovalRequired
        return world.commit(order)

    first = made.run_sync("go", conversation_id="c1")
    made.run_sync(
        message_history=first.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals={"toolu_a1": True}),
        conversation_id="c1",
    )


def bad_arguments(world: World) -> None:
    """The model's arguments do not fit, twice."""
    calls = ([("refund", {"number": "o1"}, "toolu_a1")], [("refund", {"number": "o1"}, "toolu_b2")])
    agent(scripted(*calls), paying(world)).run_sync("go", conversation_id="c1")


INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", new_id, 2, 1),
    Incident(Story.NEW_ID, "sync tool", lambda world: new_id(world, sync=True), 2, 1),
    Incident(Story.STREAMED, "", lambda world: new_id(world, stream=True), 2, 1),
    Incident(Story.RUN_AGAIN, "", run_again, 2, 1),
    Incident(Story.SAME_ID, "", same_id, 2, 1),
    Incident(Story.TIMED_OUT, "", cancelled, 2, 1),
    Incident(Story.LATE, "", late, 2, 1),
    Incident(Story.PARALLEL, "async tool", three_orders, 3, 3),
    Incident(Story.PARALLEL, "sync tool", lambda world: three_orders(world, sync=True), 3, 3),
    Incident(Story.TWINS, "", twins, 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.DIES, "", dies_with_one_paid, 4, 2),
    Incident(Story.DELEGATED, "", sub_agent, 2, 1),
    Incident(Story.APPROVED, "", approval, 1, 1),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
)
