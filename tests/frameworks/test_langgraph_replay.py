# SPDX-License-Identifier: Apache-2.0
"""A real LangGraph agent on the record, its model and its tools booby-trapped."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_core", minversion="1.0")  # a replay refuses those before

from langchain_core.messages import BaseMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from support.plans import Making, calls, failure, one_call, retrievals, user
from support.trapped_langgraph import TrappedStream
from support.traps import Trap

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay.block import replaying
from genai_processor.replay.records import Ending

QUESTION: Any = {"messages": [("user", "compare them")]}


def graph(trap: Trap, arrange: Any = None, **of_tools: Any) -> Any:
    """Model, tools, model, as one builds it; `arrange` is the application's own order of the messages."""
    model = TrappedStream(trap=trap)

    def search(query: str, limit: int = 10) -> str:
        """Look it up."""
        trap.spring("search")

    tools = ToolNode([StructuredTool.from_function(search)], **of_tools)

    def ask(state: MessagesState) -> Any:
        return {"messages": [model.invoke(arrange(state["messages"]) if arrange else state["messages"])]}

    async def aask(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(arrange(state["messages"]) if arrange else state["messages"])]}

    from langchain_core.runnables import RunnableLambda

    built = StateGraph(MessagesState)
    built.add_node("ask", RunnableLambda(ask, aask))
    built.add_node("tools", tools)
    built.add_edge(START, "ask")
    built.add_conditional_edges("ask", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    built.add_edge("tools", "ask")
    return built.compile()


def test_the_recorded_end_is_reached_and_nothing_of_the_users_runs(trap: Trap) -> None:
    plan = retrievals().plan()
    with replaying(plan) as run:
        state = graph(trap).invoke(QUESTION)
    assert state["messages"][-1].content == "the answer"
    assert run.not_reached == ()
    with replaying(plan) as run:
        state = asyncio.run(graph(trap).ainvoke(QUESTION))
    assert state["messages"][-1].content == "the answer"
    assert run.not_reached == ()


def test_a_stream_is_answered(trap: Trap) -> None:
    with replaying(retrievals().plan()):
        *_, last = graph(trap).stream(QUESTION, stream_mode="values")
    assert last["messages"][-1].content == "the answer"
    with replaying(retrievals().plan(), whole=False):
        chunks = list(TrappedStream(trap=trap).stream("compare them"))
    assert sum(len(chunk.tool_calls) for chunk in chunks) == 3


def test_glue_that_orders_results_otherwise_is_found_at_the_synthesis(trap: Trap) -> None:
    plan = retrievals().plan()

    def arrange(messages: list[BaseMessage]) -> list[BaseMessage]:
        return [*messages[:2], *reversed(messages[2:])]

    with pytest.raises(ReplayDivergence) as caught, replaying(plan):
        graph(trap, arrange).invoke(QUESTION)
    assert (caught.value.node, caught.value.where) == (plan.nodes[-1].key, "input")
    assert caught.value.difference.startswith("the same parts in another order")


@pytest.mark.parametrize("handle", [True, False])
def test_no_framework_swallows_a_stop(trap: Trap, handle: bool) -> None:
    made = Making()
    made.chat("01" * 8, [user("compare them")], [calls("search", {"query": "q"}, "c1")])
    with (
        pytest.raises(ReplayRefusedError, match="recorded nowhere"),
        replaying(made.plan()),
        contextlib.suppress(BaseException),
    ):  # as badly as it gets
        graph(trap, handle_tool_errors=handle).invoke(QUESTION)


def test_a_recorded_failure_is_worded_by_the_framework(trap: Trap) -> None:
    worded = "Error: BadGateway('502')\n Please fix your mistakes."
    made = one_call("compare them", failure("acme.errors.BadGateway", "502"), worded)
    with replaying(made.plan()):
        state = graph(trap, handle_tool_errors=True).invoke(QUESTION)
    assert state["messages"][-1].content == "end"
    assert state["messages"][-2].status == "error"
    with pytest.raises(Exception, match="502") as caught, replaying(made.plan()):
        graph(trap, handle_tool_errors=False).invoke(QUESTION)
    assert type(caught.value).__name__ == "BadGateway"


def test_a_cancelled_call_waits_until_the_framework_cancels_it(trap: Trap) -> None:
    made = retrievals()
    made.nodes[1] = made.nodes[1]._replace(outcome=failure("RuntimeError", "down"))
    made.nodes[2] = made.nodes[2]._replace(outcome=failure("asyncio.CancelledError", "", Ending.WAITS))
    with pytest.raises(RuntimeError, match="down"), replaying(made.plan()):
        asyncio.run(graph(trap, handle_tool_errors=False).ainvoke(QUESTION))


def test_a_tool_that_runs_by_itself_is_matched_by_its_action(trap: Trap) -> None:
    made = one_call("compare them", "x", "x")

    def search(query: str) -> str:
        """Look it up."""
        trap.spring("search")

    with replaying(made.plan(), whole=False):
        TrappedStream(trap=trap).invoke("compare them")
        assert StructuredTool.from_function(search).invoke({"query": "q"}) == "x"
    with pytest.raises(ReplayDivergence, match="no recorded response proposed"), replaying(made.plan()):
        StructuredTool.from_function(search).invoke({"query": "q"})
