# SPDX-License-Identifier: Apache-2.0
"""What an application calls beside a tool that is answered, in error handlers and callbacks, is answered too, or stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_core", minversion="1.0")  # a replay refuses those before

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from support.plans import Making, calls, failure, says, user
from support.traps import Trap

from genai_processor.errors import ReplayDivergence
from genai_processor.replay import replaying

CALL = {"name": "search", "args": {"query": "q"}, "id": "c1", "type": "tool_call"}


def recorded(outcome: Any, *, escalated: bool) -> Making:
    made = Making()
    call = calls("search", {"query": "q"}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    made.tool("02" * 8, call, outcome)
    if escalated:
        made.tool("03" * 8, calls("escalate", {"why": "it failed"}), "somebody comes")
    made.chat("04" * 8, [user("other")], [says("end")])
    return made


def trapped(trap: Trap, name: str) -> StructuredTool:
    def search(query: str) -> str:
        """Look it up."""
        trap.spring(name)

    def escalate(why: str) -> str:
        """Call somebody."""
        trap.spring(name)

    return StructuredTool.from_function(search if name == "search" else escalate)


class Escalating(BaseCallbackHandler):
    raise_error = True

    def __init__(self, escalate: BaseTool, when: str) -> None:
        self.escalate, self.when, self.said = escalate, when, list[Any]()

    def _told(self, when: str) -> None:
        if when == self.when and not self.said:
            self.said.append(None)
            self.said[0] = self.escalate.invoke({"why": "it failed"})

    def on_tool_start(self, *args: Any, **kwargs: Any) -> None:
        self._told("start")

    def on_tool_end(self, *args: Any, **kwargs: Any) -> None:
        self._told("end")

    def on_tool_error(self, *args: Any, **kwargs: Any) -> None:
        self._told("error")


def escalates(trap: Trap, where: str, outcome: Any, *, by_itself: bool, waits: bool) -> Any:
    """Run a tool whose application calls another one beside it; return what that said."""
    tool, escalate = trapped(trap, "search"), trapped(trap, "escalate")
    said: list[Any] = []

    def handler(error: Exception) -> str:
        said.append(escalate.invoke({"why": "it failed"}))
        return str(said[0])

    told = Escalating(escalate, where)
    if where == "tool's handler":
        tool.handle_tool_error = handler
    config: Any = {"callbacks": [told]}
    if by_itself:
        run: Any = (tool.ainvoke if waits else tool.invoke)(dict(CALL), config)
    else:
        built: Any = StateGraph(MessagesState)
        built.add_node("tools", ToolNode([tool], handle_tool_errors=handler if where == "handler" else True))
        built.add_edge(START, "tools")
        built.add_edge("tools", END)
        graph = built.compile()
        given: Any = {"messages": [("user", "u"), AIMessage("", tool_calls=[CALL])]}
        run = (graph.ainvoke if waits else graph.invoke)(given, config)
    if waits:

        async def main() -> None:
            await run

        asyncio.run(main())
    return (said or told.said)[0]


BESIDE = [
    ("handler", failure("ValueError", "bad"), False),
    ("tool's handler", failure("ToolException", "bad"), False),
    ("tool's handler", failure("ToolException", "bad"), True),
    *((when, "found", by_itself) for when in ("start", "end") for by_itself in (False, True)),
    ("error", failure("ValueError", "bad"), False),
]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("where", "outcome", "by_itself"), BESIDE)
def test_a_tool_that_is_called_beside_another_is_answered_and_not_run(
    where: str, outcome: Any, by_itself: bool, waits: bool, trap: Trap
) -> None:
    made = recorded(outcome, escalated=True)
    with replaying(made.plan(), whole=False) as run:
        assert escalates(trap, where, outcome, by_itself=by_itself, waits=waits) == "somebody comes"
    assert {made.nodes[1].key, made.nodes[2].key} <= run.answered


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("where", "outcome", "by_itself"), BESIDE)
def test_one_that_the_record_does_not_have_stops_the_run(
    where: str, outcome: Any, by_itself: bool, waits: bool, trap: Trap
) -> None:
    plan = recorded(outcome, escalated=False).plan()
    with pytest.raises(ReplayDivergence, match="escalate"), replaying(plan, whole=False):
        escalates(trap, where, outcome, by_itself=by_itself, waits=waits)
