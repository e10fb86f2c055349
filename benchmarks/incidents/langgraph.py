# SPDX-License-Identifier: Apache-2.0
"""Incidents on LangChain and LangGraph, before and from 1.0 on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

from benchmarks.incidents.kit import Incident, Story, World, given_up

try:  # from LangChain 1 on
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolRetryMiddleware
except ImportError:
    from langgraph.prebuilt import create_react_agent as create_agent

    ToolRetryMiddleware = None

Turn = str | Sequence[tuple[str, dict[str, Any], str]] | BaseException
"""What the model answers: a text, or calls as (tool, arguments, id); or what it raises."""

THREAD: Any = {"configurable": {"thread_id": "thread-1"}}
GO: Any = {"messages": [("user", "go")]}


class Scripted(BaseChatModel):
    """A model that answers what it is told to, in order; past the end, that it is done."""

    turns: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        turn: Turn = self.turns.pop(0) if self.turns else "done"
        if isinstance(turn, BaseException):
            raise turn
        return ChatResult(generations=[ChatGeneration(message=response(turn))])


def response(turn: Any) -> AIMessage:
    """A response of the model."""
    if isinstance(turn, str):
        return AIMessage(turn)
    return AIMessage("", tool_calls=[{"name": tool, "args": given, "id": call_id} for tool, given, call_id in turn])


def graph(turns: Sequence[Turn], *tools: BaseTool, handle: bool = False, retry: Any = None, checkpointer: Any = None) -> Any:
    """A graph of one's own: a model, and a `ToolNode`."""
    model = Scripted(turns=list(turns))
    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    made.add_node("tools", ToolNode(list(tools), handle_tool_errors=handle), retry_policy=retry)
    made.add_edge(START, "model")
    made.add_conditional_edges("model", tools_condition)
    made.add_edge("tools", "model")
    return made.compile(checkpointer=checkpointer)


def agent(turns: Sequence[Turn], *tools: BaseTool, **options: Any) -> Any:
    """The agent of the framework, which makes a task of its own of each call. What a tool raises ends the run."""
    given: Any = list(tools) if ToolRetryMiddleware else ToolNode(list(tools), handle_tool_errors=False)
    return create_agent(Scripted(turns=list(turns)), given, **options)


def refund(order: str, call_id: str) -> tuple[str, dict[str, Any], str]:
    """One proposed call."""
    return "refund", {"order": order}, call_id


AGAIN: tuple[list[tuple[str, dict[str, Any], str]], ...] = ([refund("o1", "toolu_a1")], [refund("o1", "toolu_b2")])


def tool(body: Callable[..., Any], name: str = "refund", **options: Any) -> BaseTool:
    """A function as a tool."""
    how = {"coroutine": body} if asyncio.iscoroutinefunction(body) else {"func": body}
    return StructuredTool.from_function(**how, name=name, description="Pay back.", **options)


def paying(world: World, *, sync: bool = True) -> BaseTool:
    """A tool that works."""

    def pay(order: str) -> str:
        return world.commit(order)

    async def pay_async(order: str) -> str:
        return world.commit(order)

    return tool(pay if sync else pay_async)


def losing(world: World, *, sync: bool = True, error: type[Exception] | None = None, **options: Any) -> BaseTool:
    """A tool whose answer gets lost."""

    def pay(order: str) -> str:
        try:
            return world.commit_then_fail(order)
        except ConnectionError as lost:
            raise lost if error is None else error(str(lost)) from lost

    async def pay_async(order: str) -> str:
        return pay(order)

    return tool(pay if sync else pay_async, **options)


def one_of_two(world: World) -> BaseTool:
    """A tool that works for one order only."""

    async def pay(order: str) -> str:
        if order == "o9":
            return world.commit(order)
        await asyncio.sleep(0)
        return world.commit_then_fail(order)

    return tool(pay)


def run_async(made: Any, given: Any = GO, config: Any = THREAD) -> Any:
    """Run it asynchronously."""
    return asyncio.run(made.ainvoke(given, config))


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


def run_again(world: World) -> None:
    """The run dies with the tool, and the application runs it again: new ids, one thread."""
    for turn in AGAIN:
        with suppress(ConnectionError):
            agent([turn], losing(world)).invoke(GO, THREAD)


def same_id(world: World) -> None:
    """The run dies, and goes on from its checkpoint: the same call id."""
    made = agent(AGAIN[:1], losing(world), checkpointer=InMemorySaver())
    for given in (GO, None):
        with suppress(ConnectionError):
            made.invoke(given, THREAD)


def retry_policy(world: World, *, sync: bool) -> None:
    """The stock retry policy takes a lost connection for one that may be tried again."""
    made = graph(AGAIN[:1], losing(world, sync=sync), retry=RetryPolicy(initial_interval=0.01, jitter=False))
    made.invoke(GO, THREAD) if sync else run_async(made)


def retry_policy_of_all(world: World) -> None:
    """A retry policy that takes every exception for one."""
    everything = RetryPolicy(initial_interval=0.01, jitter=False, max_attempts=2, retry_on=lambda error: True)
    graph(AGAIN[:1], losing(world, error=RuntimeError), retry=everything).invoke(GO, THREAD)


def retry_policy_of_two(world: World) -> None:
    """A retry policy around two calls, one of which went well."""
    calls = [refund("o9", "toolu_9a1"), refund("oX", "toolu_xa1")]
    run_async(graph([calls], one_of_two(world), retry=RetryPolicy(initial_interval=0.01, jitter=False)))


def retry_middleware(world: World) -> None:
    """The agent's own middleware for retries."""
    tries_again = ToolRetryMiddleware(max_retries=1, initial_delay=0.0)
    agent(AGAIN[:1], losing(world), middleware=[tries_again]).invoke(GO, THREAD)


def cancelled(world: World) -> None:
    """A time-out ends the run after the commit; the application runs it again."""

    async def slow(order: str) -> str:
        world.commit(order)
        await asyncio.Event().wait()
        return "never"

    async def story() -> None:
        for turn in AGAIN:
            with suppress(TimeoutError):
                await given_up(agent([turn], tool(slow)).ainvoke(GO, THREAD), world.effects)

    asyncio.run(story())


def late(world: World, *, again_at_once: bool) -> None:
    """A tool in a thread commits after the time-out: when the application has begun again, or before it does."""
    go = threading.Event()

    begun: list[str] = []

    def in_thread(order: str) -> str:
        begun.append(order)
        go.wait(10)
        return world.commit(order)

    async def run(*turns: Any) -> None:
        try:
            for turn in turns:
                with suppress(TimeoutError):
                    await given_up(agent([turn], tool(in_thread)).ainvoke(GO, THREAD), begun)
        finally:
            go.set()

    for turns in [AGAIN] if again_at_once else [(turn,) for turn in AGAIN]:
        asyncio.run(run(*turns))  # which does not end before its threads do


def dies_with_one_paid(world: World, make: Callable[..., Any]) -> None:
    """Of two calls one goes well, and the other one ends the run; the application runs it again."""
    for run in ("a1", "b2"):
        calls = [refund("o9", f"toolu_9{run}"), refund("oX", f"toolu_x{run}")]
        with suppress(ConnectionError):
            run_async(make([calls], one_of_two(world)))


def sub_agent(world: World) -> None:
    """A tool that is an agent: its inner call fails, and the model delegates again, in other words."""
    inner_ids = iter(("toolu_i1", "toolu_i2"))

    def delegate(request: str) -> str:
        inner = agent([[refund("o1", next(inner_ids))]], losing(world))
        try:
            inner.invoke(GO, {"configurable": {"thread_id": request}})
        except ConnectionError as error:
            raise ToolException("no answer") from error
        return "done"

    words = (
        [("delegate", {"request": "refund o1"}, "toolu_a1")],
        [("delegate", {"request": "please refund o1"}, "toolu_b2")],
    )
    agent(words, tool(delegate, "delegate", handle_tool_error=True)).invoke(GO, THREAD)


def without_graph(world: World) -> None:
    """No graph: the application calls the tool with what the model said, and again."""
    with world.scope("order o1"):
        for turn in AGAIN:
            with suppress(ConnectionError):
                losing(world).invoke(response(turn).tool_calls[0])


# -- nothing to refuse ---------------------------------------------------------------------------------------------------


def three_orders(world: World, *, sync: bool, make: Callable[..., Any]) -> None:
    """Three calls in one turn, each of its own."""
    calls = [refund(f"o{number}", f"toolu_{number}a") for number in range(3)]
    made = make([calls], paying(world, sync=sync))
    made.invoke(GO, THREAD) if sync else run_async(made)


def twins(world: World, *, sync: bool, make: Callable[..., Any]) -> None:
    """Two identical calls in one turn, both meant."""
    made = make([[refund("o1", "toolu_a1"), refund("o1", "toolu_b2")]], paying(world, sync=sync))
    made.invoke(GO, THREAD) if sync else run_async(made)


def twins_without_graph(world: World) -> None:
    """The same, without a graph."""
    with world.scope("order o1"):
        for call in response([refund("o1", "toolu_a1"), refund("o1", "toolu_b2")]).tool_calls:
            paying(world).invoke(call)


def later_turn(world: World) -> None:
    """The same again, after the model has seen that it went well."""
    agent(AGAIN, paying(world)).invoke(GO, THREAD)


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

    made = make(AGAIN[:1], tool(ask_first), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    made.invoke(Command(resume=True), THREAD)


def approval_beside_a_paid_one(world: World) -> None:
    """Of two calls of a `ToolNode` one goes well and one asks a person first: both are run again, to go on."""

    def ask_first(order: str) -> str:
        if order == "o1":
            interrupt(f"refund {order}?")
        return world.commit(order)

    made = graph([[refund("o9", "toolu_9a"), refund("o1", "toolu_a1")]], tool(ask_first), checkpointer=InMemorySaver())
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
        return [[refund("o9", f"toolu_9{next(ids)}")], [refund("o1", f"toolu_1{next(ids)}")]]

    going_on = agent(turns(), tool(ask_first))

    def delegate(request: str) -> str:
        inner = going_on if saved else agent(turns(), tool(ask_first), checkpointer=False)
        return str(inner.invoke({"messages": [("user", request)]})["messages"][-1].content)

    outer = [[("delegate", {"request": "refund o9 and o1"}, "toolu_a1")]]
    made = agent(outer, tool(delegate, "delegate"), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    made.invoke(Command(resume=True), THREAD)


def approval_by_middleware(world: World) -> None:
    """The agent's own middleware asks a person first."""
    asks = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    made = agent(AGAIN[:1], paying(world), middleware=[asks], checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    made.invoke(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)


def bad_arguments(world: World) -> None:
    """The model's arguments do not fit, twice."""
    calls = ([("refund", {"number": "o1"}, "toolu_a1")], [("refund", {"number": "o1"}, "toolu_b2")])
    graph(calls, paying(world), handle=True).invoke(GO, THREAD)


_OF_LANGCHAIN_1: tuple[Incident, ...] = (
    Incident(Story.TRIED_AGAIN, "by ToolRetryMiddleware", retry_middleware, 2, 1),
    Incident(Story.APPROVED, "middleware", approval_by_middleware, 1, 1),
)

INCIDENTS: tuple[Incident, ...] = (
    Incident(Story.NEW_ID, "async tool", lambda world: new_id(world, sync=False), 2, 1),
    Incident(Story.NEW_ID, "sync tool", lambda world: new_id(world, sync=True), 2, 1),
    Incident(Story.HANDLED, "by the tool, agent", new_id_of_agent, 2, 1),
    Incident(Story.HANDLED, "as a message", error_message, 2, 1),
    Incident(Story.STREAMED, "async tool", lambda world: streamed(world, sync=False), 2, 1),
    Incident(Story.STREAMED, "sync tool", lambda world: streamed(world, sync=True), 2, 1),
    Incident(Story.STREAMED, "as events", events, 2, 1),
    Incident(Story.RUN_AGAIN, "", run_again, 2, 1),
    Incident(Story.SAME_ID, "", same_id, 2, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, async tool", lambda world: retry_policy(world, sync=False), 3, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, sync tool", lambda world: retry_policy(world, sync=True), 3, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, whatever is raised", retry_policy_of_all, 2, 1),
    Incident(Story.TRIED_AGAIN, "by RetryPolicy, two calls", retry_policy_of_two, 6, 2),
    Incident(Story.TIMED_OUT, "", cancelled, 2, 1),
    Incident(Story.LATE, "", lambda world: late(world, again_at_once=True), 2, 1),
    Incident(Story.LATE, "before it is run again", lambda world: late(world, again_at_once=False), 2, 1),
    Incident(Story.DIES, "graph", lambda world: dies_with_one_paid(world, graph), 4, 2),
    Incident(Story.DIES, "agent", lambda world: dies_with_one_paid(world, agent), 4, 2),
    Incident(Story.DELEGATED, "", sub_agent, 2, 1),
    Incident(Story.RUN_AGAIN, "without a graph", without_graph, 2, 1),
    Incident(Story.PARALLEL, "async tool, graph", lambda world: three_orders(world, sync=False, make=graph), 3, 3),
    Incident(Story.PARALLEL, "sync tool, graph", lambda world: three_orders(world, sync=True, make=graph), 3, 3),
    Incident(Story.PARALLEL, "async tool, agent", lambda world: three_orders(world, sync=False, make=agent), 3, 3),
    Incident(Story.TWINS, "async tool, graph", lambda world: twins(world, sync=False, make=graph), 2, 2),
    Incident(Story.TWINS, "sync tool, graph", lambda world: twins(world, sync=True, make=graph), 2, 2),
    Incident(Story.TWINS, "async tool, agent", lambda world: twins(world, sync=False, make=agent), 2, 2),
    Incident(Story.TWINS, "sync tool, agent", lambda world: twins(world, sync=True, make=agent), 2, 2),
    Incident(Story.TWINS, "without a graph", twins_without_graph, 2, 2),
    Incident(Story.LATER_TURN, "", later_turn, 2, 2),
    Incident(Story.LATER_TURN, "though the model failed between", model_fails_between, 2, 2),
    Incident(Story.APPROVED, "graph", lambda world: approval(world, graph), 1, 1),
    Incident(Story.APPROVED, "agent", lambda world: approval(world, agent), 1, 1),
    Incident(Story.APPROVED, "in a sub-agent", lambda world: approval_in_sub_agent(world, saved=True), 2, 2),
    Incident(Story.APPROVED, "in a sub-agent that forgets", lambda world: approval_in_sub_agent(world, saved=False), 3, 1),
    Incident(Story.APPROVED, "beside a paid call", approval_beside_a_paid_one, 3, 2),
    Incident(Story.BAD_ARGUMENTS, "", bad_arguments, 0, 0),
    *(() if ToolRetryMiddleware is None else _OF_LANGCHAIN_1),
)
