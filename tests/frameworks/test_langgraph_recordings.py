# SPDX-License-Identifier: Apache-2.0
"""Recorded LangChain and LangGraph runs (tests/data) are replayed by real graphs to the recorded end, booby-trapped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain", minversion="1.0")  # a replay refuses those before

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy
from support.recordings import Recorded, each
from support.trapped_langgraph import TrappedModel
from support.traps import Trap

from genai_processor.errors import ReplayRefusedError
from genai_processor.replay import Operation, replaying

FAILED = "502 Bad Gateway on response leg"
GENAI, OPENINFERENCE, TRACELOOP, LANGSMITH = (
    f"langchain__{name}" for name in ("genai", "openinference", "traceloop", "langsmith")
)
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


def tools(trap: Trap) -> list[StructuredTool]:
    def create_refund(order_id: str, amount_cents: int) -> str:
        """Pay back."""
        trap.spring("create_refund")

    def search_docs(query: str) -> str:
        """Look it up."""
        trap.spring("search_docs")

    def get_rate(currency: str) -> str:
        """Ask the bank."""
        trap.spring("get_rate")

    return [StructuredTool.from_function(one) for one in (create_refund, search_docs, get_rate)]


class Agent:
    """Model, tools, model: run either way."""

    def __init__(self, trap: Trap, sync: bool, given: Any = None, retry: Any = None, *, handle: Any = True) -> None:
        model = TrappedModel(trap=trap)

        def ask(state: MessagesState) -> Any:
            return {"messages": [model.invoke(state["messages"])]}

        async def aask(state: MessagesState) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        built = StateGraph(MessagesState)
        built.add_node("ask", ask if sync else aask)
        built.add_node("tools", ToolNode(given or tools(trap), handle_tool_errors=handle), retry_policy=retry)
        built.add_edge(START, "ask")
        built.add_conditional_edges("ask", lambda state: "tools" if state["messages"][-1].tool_calls else END)
        built.add_edge("tools", "ask")
        self.graph: Any = built.compile(checkpointer=InMemorySaver())
        self.sync = sync

    def run(self, given: Any, thread: str = "1") -> Any:
        config = {"configurable": {"thread_id": thread}}
        return self.graph.invoke(given, config) if self.sync else asyncio.run(self.graph.ainvoke(given, config))

    def end(self, question: Any) -> str:
        try:
            return str(self.run(question if isinstance(question, Command) else asked(question))["messages"][-1].content)
        except Exception as error:  # noqa: BLE001 - whatever a run ends with
            return str(error) or type(error).__name__


def asked(question: str) -> Any:
    return {"messages": [("user", question)]}


@sync_and_async
@each(
    (GENAI, "s01_ok", "done"),
    (GENAI, "s03b_truncated_stream", "done"),
    (GENAI, "s05_unknown_tool", "done"),
    (GENAI, "s06_retry_new_id", "done"),
    (GENAI, "s08_fanout", "refunded at 1.25 per docs"),
    (OPENINFERENCE, "s03b_truncated_stream", "done"),
    (TRACELOOP, "s05_unknown_tool", "done"),
)
def test_a_recorded_run_reaches_its_end(recorded: Recorded, sync: bool, trap: Trap) -> None:
    with replaying(recorded.plan) as run:
        assert Agent(trap, sync).end(recorded.question) == recorded.end
    assert run.not_reached == ()


@sync_and_async
@each(
    (LANGSMITH, "s02_commit_then_502", FAILED),
    (OPENINFERENCE, "s11_child_http", "502 Server Error"),
)
def test_a_failure_that_ended_the_run_ends_it_again(recorded: Recorded, sync: bool, trap: Trap) -> None:
    with replaying(recorded.plan):
        assert Agent(trap, sync, handle=False).end(recorded.question).startswith(recorded.end)


@sync_and_async
@each((GENAI, "s07_retry_same_id", "done"), (LANGSMITH, "s07_retry_same_id", "done"))
def test_attempts_under_one_id_are_handed_out_with_the_delivered_one_last(
    recorded: Recorded, sync: bool, trap: Trap
) -> None:
    retry = RetryPolicy(max_attempts=2, initial_interval=0.001, retry_on=lambda error: FAILED in str(error))
    with replaying(recorded.plan) as run:
        assert Agent(trap, sync, retry=retry, handle=False).end(recorded.question) == recorded.end
    assert run.not_reached == ()


@each((OPENINFERENCE, "s07b_retry_same_id_middleware", "done"))
def test_attempts_of_a_middleware_are_attempts_too(recorded: Recorded, trap: Trap) -> None:
    mine: Any = create_agent(
        TrappedModel(trap=trap), tools(trap), middleware=[ToolRetryMiddleware(max_retries=2, initial_delay=0.001)]
    )
    with replaying(recorded.plan) as run:
        assert mine.invoke(asked(recorded.question))["messages"][-1].content == recorded.end
    assert run.not_reached == ()


@each((GENAI, "s08b_fanout_one_fails", FAILED), (LANGSMITH, "s08b_fanout_one_fails", FAILED))
def test_siblings_that_were_cancelled_are_cancelled_again(recorded: Recorded, trap: Trap) -> None:
    with replaying(recorded.plan) as run:
        assert Agent(trap, False, handle=False).end(recorded.question) == recorded.end
    assert run.not_reached == ()


@each((TRACELOOP, "s09_timeout", "create_refund"))
def test_a_cancelled_call_can_be_replayed_in_asynchronous_code_only(recorded: Recorded, trap: Trap) -> None:
    with pytest.raises(ReplayRefusedError, match=f"{recorded.end}.*asynchronous code only"), replaying(recorded.plan):
        Agent(trap, True).end(recorded.question)


@sync_and_async
@pytest.mark.parametrize("enter", [(), ("delegate",)])
@each(
    (GENAI, "s12b_subagent_fails", FAILED),
    (TRACELOOP, "s12_subagent", "done"),
    (LANGSMITH, "s12_subagent", "done"),
)
def test_a_graph_inside_a_tool_is_answered_whole_or_entered(recorded: Recorded, enter: Any, sync: bool, trap: Trap) -> None:
    inner = Agent(trap, sync, handle=False)

    def delegate(task: str) -> str:
        """Have somebody else do it."""
        return str(inner.run(asked(task), "2")["messages"][-1].content)

    async def adelegate(task: str) -> str:
        """Have somebody else do it."""
        config = {"configurable": {"thread_id": "2"}}
        return str((await inner.graph.ainvoke(asked(task), config))["messages"][-1].content)

    plan = recorded.plan
    boss = Agent(trap, sync, [StructuredTool.from_function(delegate, coroutine=adelegate)], handle=False)
    with replaying(plan, enter=enter) as run:
        assert boss.end(recorded.question) == recorded.end
    assert run.not_reached == ()
    inside = [node for node in plan.nodes if plan.decisions[node.key].covered_by is not None]
    assert len(inside) > 1
    assert all((node.key in run.answered) is bool(enter) for node in inside)


@sync_and_async
@each(
    (GENAI, "s14b_interrupt_resumed", "done"),
    (OPENINFERENCE, "s14b_interrupt_resumed", "done"),
    (TRACELOOP, "s14b_interrupt_resumed", "done"),
    (LANGSMITH, "s14b_interrupt_resumed", "done"),
)
def test_an_interrupt_pauses_the_graph_and_is_resumed_by_its_id(recorded: Recorded, sync: bool, trap: Trap) -> None:
    mine = Agent(trap, sync)
    with replaying(recorded.plan) as run:
        (interrupt,) = mine.run(asked(recorded.question))["__interrupt__"]
        assert interrupt.value == {"confirm": "refunded o1 500"}
        assert mine.end(Command(resume={interrupt.id: "yes"})) == recorded.end
    assert run.not_reached == ()
    assert {node.key for node in recorded.plan.nodes if node.operation is Operation.TOOL} <= run.answered
