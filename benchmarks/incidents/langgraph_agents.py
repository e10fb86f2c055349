# SPDX-License-Identifier: Apache-2.0
"""How the agents and tools of the incidents on LangChain and LangGraph are made, before and from 1.0 on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from benchmarks.incidents.bodies import loses, o9_works_first, on_the_loop, pays, pays_in_thread
from benchmarks.incidents.kit import World
from benchmarks.incidents.scripts import Turn, next_turn

try:  # from LangChain 1 on
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolRetryMiddleware
except ImportError:
    from langgraph.prebuilt import create_react_agent as create_agent

    HumanInTheLoopMiddleware = ToolRetryMiddleware = None

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
        turn = next_turn(self.turns) if self.turns else "done"
        return ChatResult(generations=[ChatGeneration(message=response(turn))])


def response(turn: Any) -> AIMessage:
    """A response of the model."""
    if isinstance(turn, str):
        return AIMessage(turn)
    return AIMessage("", tool_calls=[{"name": tool, "args": given, "id": call_id} for call_id, tool, given in turn])


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


def tool(body: Callable[..., Any], name: str = "refund", **options: Any) -> BaseTool:
    """A function as a tool."""
    how = {"coroutine": body} if asyncio.iscoroutinefunction(body) else {"func": body}
    return StructuredTool.from_function(**how, name=name, description="Pay back.", **options)


def paying(world: World, *, sync: bool = True) -> BaseTool:
    """A tool that works."""
    return tool((pays_in_thread if sync else pays)(world))


def losing(world: World, *, sync: bool = True, error: type[Exception] = ConnectionError, **options: Any) -> BaseTool:
    """A tool whose answer gets lost."""
    lose = loses(world, error)
    return tool(lose if sync else on_the_loop(lose), **options)


def one_of_two(world: World) -> BaseTool:
    """A tool that works for one order only."""
    return tool(o9_works_first(world))


def run_async(made: Any, given: Any = GO, config: Any = THREAD) -> Any:
    """Run it asynchronously."""
    return asyncio.run(made.ainvoke(given, config))
