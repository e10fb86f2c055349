# SPDX-License-Identifier: Apache-2.0
"""What is not in the record stops a LangGraph run for good, whatever the graph, its tools or the application do about it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_core", minversion="1.0")  # a replay refuses those before

from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from support.plans import Making, answered, calls, says, user
from support.trapped_langgraph import TrappedModel
from support.traps import Trap

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay import replaying
from genai_processor.replay.digests import part_digest
from genai_processor.replay.parts import PartKind, Role


def recorded() -> Making:
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    made.tool("02" * 8, call, "found")
    made.chat("03" * 8, [user("u"), call, answered(call, "found")], [says("end")])
    return made


def search_tool(trap: Trap) -> StructuredTool:
    def search(query: str) -> str:
        """Look it up."""
        trap.spring("search")

    return StructuredTool.from_function(search)


def tools_only(node: ToolNode) -> Any:
    """A graph whose model is the application's own code, which calls what it likes."""
    built = StateGraph(MessagesState)
    built.add_node("tools", node)
    built.add_edge(START, "tools")
    built.add_edge("tools", END)
    return built.compile()


def calling(query: str) -> Any:
    call = {"name": "search", "args": {"query": query}, "id": "c1", "type": "tool_call"}
    return {"messages": [("user", "u"), AIMessage("", tool_calls=[call])]}


def invoke(graph: Any) -> None:
    graph.invoke(calling("other"))


def swallow(graph: Any) -> None:
    for _ in range(3):
        with contextlib.suppress(BaseException):
            graph.invoke(calling("other"))


def in_thread(graph: Any) -> None:
    def run() -> None:
        with contextlib.suppress(BaseException):
            graph.invoke(calling("other"))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def gathered(graph: Any) -> None:
    async def main() -> None:
        await asyncio.gather(*(graph.ainvoke(calling("other")) for _ in range(3)), return_exceptions=True)

    asyncio.run(main())


def streamed(graph: Any) -> None:
    with contextlib.suppress(Exception):
        list(graph.stream(calling("other")))


@pytest.mark.parametrize("runs", [invoke, swallow, in_thread, gathered, streamed])
@pytest.mark.parametrize("handle", [True, False, "sorry"])
def test_a_call_with_other_arguments_stops_at_its_node(runs: Callable[[Any], None], handle: Any, trap: Trap) -> None:
    plan = recorded().plan()
    graph = tools_only(ToolNode([search_tool(trap)], handle_tool_errors=handle))
    with pytest.raises(ReplayDivergence) as caught, replaying(plan) as run:
        runs(graph)
    found = caught.value
    assert (found.node, found.where) == (None, "call")  # no model was asked, so nothing was proposed
    assert found.got == part_digest(Role.ASSISTANT, PartKind.CALL, "search", {"query": "other"}).hex()
    assert run.answered == frozenset()
    assert dict(found.last_valid_boundary.outcomes) == {}


@pytest.mark.parametrize("handle", [True, False])
def test_arguments_that_the_application_has_changed_on_the_way_are_shown_beside_the_recorded_ones(
    handle: bool, trap: Trap
) -> None:
    made = recorded()
    graph, model = tools_only(ToolNode([search_tool(trap)], handle_tool_errors=handle)), TrappedModel(trap=trap)
    with pytest.raises(ReplayDivergence) as caught, replaying(made.plan()), contextlib.suppress(BaseException):
        said: Any = model.invoke("u")
        said.tool_calls[0]["args"]["query"] = "other"
        graph.invoke({"messages": [("user", "u"), said]})
    found = caught.value
    assert (found.node, found.where) == (made.nodes[1].key, "call")
    assert found.expected == made.nodes[0].outcome.parts[0].digest.hex()
    assert found.got == part_digest(Role.ASSISTANT, PartKind.CALL, "search", {"query": "other"}).hex()
    assert '\'{"query": "q"}\', now' in found.difference
    assert set(found.last_valid_boundary.outcomes) == {made.nodes[0].key}


def test_a_call_is_answered_that_the_record_has_and_whose_response_is_in_the_history(trap: Trap) -> None:
    graph = tools_only(ToolNode([search_tool(trap)]))
    with replaying(recorded().plan(), whole=False):
        assert graph.invoke(calling("q"))["messages"][-1].content == "found"


def test_a_graph_that_no_longer_makes_the_last_recorded_call_has_diverged(trap: Trap) -> None:
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    tool = made.tool("02" * 8, call, "found")
    model, graph = TrappedModel(trap=trap), tools_only(ToolNode([search_tool(trap)]))
    with replaying(made.plan()):
        graph.invoke({"messages": [("user", "u"), model.invoke("u")]})
    with pytest.raises(ReplayDivergence) as caught, replaying(made.plan()):
        model.invoke("u")
    assert (caught.value.node, caught.value.where) == (tool.key, "end")


def nested(trap: Trap) -> Making:
    """A tool with a graph inside, in the record."""
    made = Making()
    call = calls("delegate", {"task": "t"}, "c0")
    made.chat("11" * 8, [user("u")], [call])
    tool = made.tool("12" * 8, call, "done", composite=True)
    made.chat("14" * 8, [user("u"), call, answered(call, "done")], [says("end")])
    inner = calls("search", {"query": "q"}, "c1")
    made.chat("15" * 8, [user("t")], [inner], agent=tool.key, covered_by=tool.key)
    made.tool("16" * 8, inner, "found", agent=tool.key, covered_by=tool.key)
    return made


@pytest.mark.parametrize("handle", [True, False])
def test_a_stop_inside_an_entered_tool_that_catches_everything_stops_the_run(handle: bool, trap: Trap) -> None:
    inner = tools_only(ToolNode([search_tool(trap)], handle_tool_errors=handle))
    after: list[str] = []

    def delegate(task: str) -> str:
        """Have somebody else do it."""
        try:
            return str(inner.invoke(calling("other"))["messages"][-1].content)
        except BaseException:  # noqa: BLE001 - as badly as it gets
            after.append("caught")
            return "never mind"

    made = nested(trap)
    boss = tools_only(ToolNode([StructuredTool.from_function(delegate)], handle_tool_errors=handle))
    call = {"name": "delegate", "args": {"task": "t"}, "id": "c0", "type": "tool_call"}
    given: Any = {"messages": [("user", "u"), AIMessage("", tool_calls=[call])]}
    with pytest.raises(ReplayDivergence, match="search"), replaying(made.plan(), enter=("delegate",), whole=False):
        boss.invoke(given)
    assert after == ["caught"]


def test_a_tool_that_an_entered_one_runs_by_itself_is_answered_and_not_run(trap: Trap) -> None:
    tool = search_tool(trap)

    def delegate(task: str) -> str:
        """Do it."""
        return str(tool.invoke({"name": "search", "args": {"query": "q"}, "id": "c1", "type": "tool_call"}).content)

    boss = tools_only(ToolNode([StructuredTool.from_function(delegate)]))
    call = {"name": "delegate", "args": {"task": "t"}, "id": "c0", "type": "tool_call"}
    given: Any = {"messages": [("user", "u"), AIMessage("", tool_calls=[call])]}
    made = nested(trap)
    with replaying(made.plan(), enter=("delegate",), whole=False) as run:
        assert boss.invoke(given)["messages"][-1].content == "found"
    assert made.nodes[4].key in run.answered


def test_a_version_without_what_the_hook_calls_is_refused_before_anything_runs(
    trap: Trap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ToolCallRequest, "override")
    with pytest.raises(ReplayRefusedError, match="override"), replaying(recorded().plan()):
        trap.spring("the block")
