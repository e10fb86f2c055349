# SPDX-License-Identifier: Apache-2.0
"""Incidents on LangChain and LangGraph, before and from 1.0 on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, RetryPolicy, interrupt

from benchmarks.incidents import langgraph_elsewhere, scripts
from benchmarks.incidents.bodies import Late, hangs_first
from benchmarks.incidents.kit import Incident, Story, World, run_again
from benchmarks.incidents.langgraph_agents import (
    GO,
    THREAD,
    HumanInTheLoopMiddleware,
    ToolRetryMiddleware,
    agent,
    graph,
    losing,
    one_of_two,
    paying,
    response,
    run_async,
    tool,
)
from benchmarks.incidents.scripts import AGAIN, FIRST, SECOND, Turn, both, once, refund

# -- the answer is lost, and somebody tries again ------------------------------------------------------------------------


def new_id(world: World, *, sync: bool) -> None:
    """The tool commits and fails, the model reads of it, and asks again."""
    made = graph(AGAIN, losing(world, sync=sync), handle=True)
    made.invoke(GO, THREAD) if sync else run_async(made)


def new_id_of_agent(world: World) -> None:
    """The tool itself tells the model that it failed."""
    run_async(agent(AGAIN, losing(world, sync=False, error=ToolException, handle_tool_error=True)))


def error_message(world: World) -> None:
    """The tool returns its failure, as a message."""

    def pay(order: str) -> ToolMessage:
        world.commit(order)
        return ToolMessage(
            "502 Bad Gateway", tool_call_id="toolu_a1" if len(world.effects) == 1 else "toolu_b2", status="error"
        )

    agent(AGAIN, tool(pay)).invoke(GO, THREAD)


def streamed(world: World, *, sync: bool) -> None:
    """The same, streamed."""
    made = graph(AGAIN, losing(world, sync=sync), handle=True)

    async def story() -> None:
        async for _ in made.astream(GO, THREAD, stream_mode="messages"):
            pass

    list(made.stream(GO, THREAD)) if sync else asyncio.run(story())


def events(world: World) -> None:
    """The same, as events."""

    async def story() -> None:
        async for _ in graph(AGAIN, losing(world, sync=False), handle=True).astream_events(GO, THREAD, version="v2"):
            pass

    asyncio.run(story())


def run_again_by_the_application(world: World) -> None:
    """The run dies with the tool, and the application runs it again: new ids, one thread."""
    for call_id in (FIRST, SECOND):
        with suppress(ConnectionError):
            agent(once(call_id), losing(world)).invoke(GO, THREAD)


def same_id(world: World) -> None:
    """The run dies, and goes on from its checkpoint: the same call id."""
    made = agent(once(), losing(world), checkpointer=InMemorySaver())
    for given in (GO, None):
        with suppress(ConnectionError):
            made.invoke(given, THREAD)


def retry_policy(world: World, *, sync: bool) -> None:
    """The stock retry policy takes a lost connection for one that may be tried again."""
    made = graph(once(), losing(world, sync=sync), retry=RetryPolicy(initial_interval=0.01, jitter=False))
    made.invoke(GO, THREAD) if sync else run_async(made)


def retry_policy_of_all(world: World) -> None:
    """A retry policy that takes every exception for one."""
    everything = RetryPolicy(initial_interval=0.01, jitter=False, max_attempts=2, retry_on=lambda error: True)
    graph(once(), losing(world, error=RuntimeError), retry=everything).invoke(GO, THREAD)


def retry_policy_of_two(world: World) -> None:
    """A retry policy around two calls, one of which went well."""
    run_async(graph([both("a1")], one_of_two(world), retry=RetryPolicy(initial_interval=0.01, jitter=False)))


def retry_middleware(world: World) -> None:
    """The agent's own middleware for retries."""
    tries_again = ToolRetryMiddleware(max_retries=1, initial_delay=0.0)
    agent(once(), losing(world), middleware=[tries_again]).invoke(GO, THREAD)


def cancelled(world: World) -> None:
    """A time-out ends the run after the commit; the application runs it again."""
    slow = tool(hangs_first(world))
    runs = (partial(agent(once(call_id), slow).ainvoke, GO, THREAD) for call_id in (FIRST, SECOND))
    asyncio.run(run_again(world.effects, *runs))


def late(world: World, *, paid_before: bool) -> None:
    """A tool in a thread commits after the time-out: before the application runs it again, or when it has done so."""
    in_thread = Late(world)
    runs = (partial(agent(once(call_id), tool(in_thread.refund)).ainvoke, GO, THREAD) for call_id in (FIRST, SECOND))
    asyncio.run(in_thread.is_run_again(*runs, paid_before=paid_before))


def dies_with_one_paid(world: World, make: Callable[..., Any]) -> None:
    """Of two calls one goes well, and the other one ends the run; the application runs it again."""
    for run in ("a1", "b2"):
        with suppress(ConnectionError):
            run_async(make([both(run)], one_of_two(world)))


def sub_agent(world: World) -> None:
    """A tool that is an agent: its inner call fails, and the model delegates again, in other words."""
    inner_ids = iter(("toolu_i1", "toolu_i2"))

    def delegate(request: str) -> str:
        inner = agent(once(next(inner_ids)), losing(world))
        try:
            inner.invoke(GO, {"configurable": {"thread_id": request}})
        except ConnectionError as error:
            raise ToolException("no answer") from error
        return "done"

    agent(scripts.delegations("delegate", "request"), tool(delegate, "delegate", handle_tool_error=True)).invoke(GO, THREAD)


def without_graph(world: World) -> None:
    """No graph: the application calls the tool with what the model said, and again."""
    with world.scope("order o1"):
        for call_id in (FIRST, SECOND):
            with suppress(ConnectionError):
                losing(world).invoke(response([refund(call_id)]).tool_calls[0])


# -- nothing to refuse ---------------------------------------------------------------------------------------------------


def in_one_run(turns: Sequence[Turn], *, sync: bool, make: Callable[..., Any]) -> Callable[[World], None]:
    """A tool that works, in one run."""

    def tell(world: World) -> None:
        made = make(turns, paying(world, sync=sync))
        made.invoke(GO, THREAD) if sync else run_async(made)

    return tell


def twins_without_graph(world: World) -> None:
    """The same, without a graph."""
    with world.scope("order o1"):
        for call in response(scripts.TWINS[0]).tool_calls:
            paying(world).invoke(call)


def model_fails_between(world: World) -> None:
    """The run dies after the tool's result was saved, and goes on; later the model asks for the same once more."""
    made = agent([AGAIN[0], OSError("model overloaded"), AGAIN[1]], paying(world), checkpointer=InMemorySaver())
    with suppress(OSError):
        made.invoke(GO, THREAD)
    made.invoke(None, THREAD)


def approval(world: World, make: Callable[..., Any]) -> None:
    """A tool that asks a person first, and then runs, once."""

    def ask_first(order: str) -> str:
        return world.commit(order) if interrupt(f"refund {order}?") else "no"

    made = make(once(), tool(ask_first), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    made.invoke(Command(resume=True), THREAD)


def approval_beside_a_paid_one(world: World) -> None:
    """Of two calls of a `ToolNode` one goes well and one asks a person first: both are run again, to go on."""

    def ask_first(order: str) -> str:
        if order == "o1":
            interrupt(f"refund {order}?")
        return world.commit(order)

    made = graph([[refund("toolu_9a", "o9"), refund("toolu_a1")]], tool(ask_first), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    made.invoke(Command(resume=True), THREAD)


def approval_in_sub_agent(world: World, *, saved: bool) -> None:
    """A tool that is an agent: it pays, then asks a person, and goes on from there; or, unsaved, from the beginning."""

    def ask_first(order: str) -> str:
        if order == "o1":
            interrupt(f"refund {order}?")
        return world.commit(order)

    ids = iter(range(9))

    def turns() -> list[Any]:
        return [[refund(f"toolu_9{next(ids)}", "o9")], [refund(f"toolu_1{next(ids)}")]]

    going_on = agent(turns(), tool(ask_first))

    def delegate(request: str) -> str:
        inner = going_on if saved else agent(turns(), tool(ask_first), checkpointer=False)
        return str(inner.invoke({"messages": [("user", request)]})["messages"][-1].content)

    outer = [[("toolu_a1", "delegate", {"request": "refund o9 and o1"})]]
    made = agent(outer, tool(delegate, "delegate"), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    made.invoke(Command(resume=True), THREAD)


def approval_by_middleware(world: World) -> None:
    """The agent's own middleware asks a person first."""
    asks = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    made = agent(once(), paying(world), middleware=[asks], checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    made.invoke(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)


def bad_arguments(world: World) -> None:
    """The model's arguments do not fit, twice."""
    graph(scripts.BAD_ARGUMENTS, paying(world), handle=True).invoke(GO, THREAD)


_OF_LANGCHAIN_1: tuple[Incident, ...] = (
    Incident(Story.TRIED_AGAIN, "by ToolRetryMiddleware", retry_middleware, 2, 1),
    Incident(Story.APPROVED, "middleware", approval_by_middleware, 1, 1),
)

INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", partial(new_id, sync=False), 2, 1),
    Incident(Story.NEW_ID, "sync tool", partial(new_id, sync=True), 2, 1),
    Incident(Story.HANDLED, "by the tool, agent", new_id_of_agent, 2, 1),
    Incident(Story.HANDLED, "as a message", error_message, 2, 1),
    Incident(Story.STREAMED, "async tool", partial(streamed, sync=False), 2, 1),
    Incident(Story.STREAMED, "sync tool", partial(streamed, sync=True), 2, 1),
    Incident(Story.STREAMED, "as events", events, 2, 1),
    Incident(Story.RUN_AGAIN, "", run_again_by_the_application, 2, 1),
    Incident(Story.SAME_ID, "", same_id, 2, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, async tool", partial(retry_policy, sync=False), 3, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, sync tool", partial(retry_policy, sync=True), 3, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, whatever is raised", retry_policy_of_all, 2, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, two calls", retry_policy_of_two, 6, 2),
    Incident(Story.TIMED_OUT, "", cancelled, 2, 1),
    Incident(Story.LATE, "", partial(late, paid_before=False), 2, 1),
    Incident(Story.LATE, "before it is run again", partial(late, paid_before=True), 2, 1),
    Incident(Story.DIES, "graph", partial(dies_with_one_paid, make=graph), 4, 2),
    Incident(Story.DIES, "agent", partial(dies_with_one_paid, make=agent), 4, 2),
    Incident(Story.DELEGATED, "", sub_agent, 2, 1),
    Incident(Story.RUN_AGAIN, "without a graph", without_graph, 2, 1),
    Incident(Story.PARALLEL, "async tool, graph", in_one_run(scripts.THREE_ORDERS, sync=False, make=graph), 3, 3),
    Incident(Story.PARALLEL, "sync tool, graph", in_one_run(scripts.THREE_ORDERS, sync=True, make=graph), 3, 3),
    Incident(Story.PARALLEL, "async tool, agent", in_one_run(scripts.THREE_ORDERS, sync=False, make=agent), 3, 3),
    Incident(Story.TWINS, "async tool, graph", in_one_run(scripts.TWINS, sync=False, make=graph), 2, 2),
    Incident(Story.TWINS, "sync tool, graph", in_one_run(scripts.TWINS, sync=True, make=graph), 2, 2),
    Incident(Story.TWINS, "async tool, agent", in_one_run(scripts.TWINS, sync=False, make=agent), 2, 2),
    Incident(Story.TWINS, "sync tool, agent", in_one_run(scripts.TWINS, sync=True, make=agent), 2, 2),
    Incident(Story.TWINS, "without a graph", twins_without_graph, 2, 2),
    Incident(Story.LATER_TURN, "", in_one_run(AGAIN, sync=True, make=agent), 2, 2),
    Incident(Story.LATER_TURN, "though the model failed between", model_fails_between, 2, 2),
    Incident(Story.APPROVED, "graph", partial(approval, make=graph), 1, 1),
    Incident(Story.APPROVED, "agent", partial(approval, make=agent), 1, 1),
    Incident(Story.APPROVED, "in a sub-agent", partial(approval_in_sub_agent, saved=True), 2, 2),
    Incident(Story.APPROVED, "in a sub-agent that forgets", partial(approval_in_sub_agent, saved=False), 3, 1),
    Incident(Story.APPROVED, "beside a paid call", approval_beside_a_paid_one, 3, 2),
    *langgraph_elsewhere.INCIDENTS,
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
    *(() if ToolRetryMiddleware is None else _OF_LANGCHAIN_1),
)
