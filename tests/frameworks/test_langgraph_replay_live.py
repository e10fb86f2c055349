# SPDX-License-Identifier: Apache-2.0
"""LangChain's models live, compared with the record, however they are asked; and what else reaches the world."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain_core", minversion="1.0")  # a replay refuses those before

from langchain_core.language_models import BaseChatModel, FakeListLLM
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from support.plans import Making, answered, calls, failure, retrievals, says, user
from support.traps import Trap

from genai_processor.errors import ReplayDivergence, ReplayRefusedError
from genai_processor.replay import replaying
from genai_processor.replay.decisions import Choice, Decision, Mode, Reason
from genai_processor.replay.digests import part_digest
from genai_processor.replay.parts import Part, PartKind, Role, part_list
from genai_processor.replay.records import Ending, Inputs, Node, Operation, OrderEvidence, Outcome, State, Structure


class LiveModel(BaseChatModel):
    """Says what it is told to, in pieces if it is streamed."""

    text: str
    streams: bool = True

    @property
    def _llm_type(self) -> str:
        return "live"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.text))])

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for piece in self.text.split("|"):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for piece in self.text.split("|"):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))


def invoked(model: BaseChatModel) -> list[str]:
    return [str(model.invoke("u").content)]


def ainvoked(model: BaseChatModel) -> list[str]:
    return [str(asyncio.run(model.ainvoke("u")).content)]


def streamed(model: BaseChatModel) -> list[str]:
    return [str(chunk.content) for chunk in model.stream("u") if chunk.content]


def astreamed(model: BaseChatModel) -> list[str]:
    async def main() -> list[str]:
        return [str(chunk.content) async for chunk in model.astream("u") if chunk.content]

    return asyncio.run(main())


def by_event(model: Any) -> list[str]:
    stream = model.stream_events("u", version="v3")
    return [str(piece) for piece in stream.text]


def by_async_event(model: Any) -> list[str]:
    async def main() -> list[str]:
        stream = await model.astream_events("u", version="v3")
        return [str(piece) async for piece in stream.text]

    return asyncio.run(main())


EVERY = [invoked, ainvoked, streamed, astreamed]
if hasattr(BaseChatModel, "_iter_v2_events"):
    EVERY += [by_event, by_async_event]


def one_answer(text: str = "one two") -> Making:
    made = Making()
    made.chat("01" * 8, [user("u")], [says(text)])
    return made


@pytest.mark.filterwarnings("ignore")  # the third version of events is a beta
@pytest.mark.parametrize("asks", EVERY)
def test_a_live_model_is_compared_however_it_is_asked(asks: Any) -> None:
    model = LiveModel(text="one| |two") if asks not in (invoked, ainvoked) else LiveModel(text="one two")
    with replaying(one_answer().plan(), models="live") as run:
        assert "".join(asks(model)) == "one two"
    assert len(run.answered) == 1
    if asks in (streamed, astreamed):
        with replaying(one_answer().plan(), models="live"):
            assert asks(model) == ["one", " ", "two"]
    with pytest.raises(ReplayDivergence) as caught, replaying(one_answer("another").plan(), models="live"):
        asks(model)
    assert caught.value.where == "output"
    with pytest.raises(ReplayDivergence) as caught, replaying(retrievals().plan(), models="live"):
        asks(model)
    assert caught.value.where == "input"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("asks", EVERY)
def test_an_answered_model_is_not_reached_however_it_is_asked(asks: Any, trap: Trap) -> None:
    class Trapped(LiveModel):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("the model")

        def _stream(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("the stream")

        def _astream(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("the stream")

    with replaying(one_answer().plan()) as run:
        assert "".join(asks(Trapped(text=""))) == "one two"
    assert len(run.answered) == 1


def test_a_live_stream_that_a_graph_makes_of_a_plain_call_is_compared_once() -> None:
    model = LiveModel(text="one| |two")
    built = StateGraph(MessagesState)
    built.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    built.add_edge(START, "ask")
    graph = built.compile()
    given: Any = {"messages": [("user", "u")]}
    with replaying(one_answer().plan(), models="live"):
        pieces = [chunk.content for chunk, _ in graph.stream(given, stream_mode="messages") if chunk.content]  # type: ignore[union-attr]
    assert "".join(map(str, pieces)).startswith("one two")


@pytest.mark.parametrize("models", ["answered", "live"])
def test_a_model_that_completes_texts_is_not_asked(models: Any) -> None:
    with pytest.raises(ReplayRefusedError, match="completes texts"), replaying(one_answer().plan(), models=models):
        FakeListLLM(responses=["live"]).invoke("u")


# -- retrievers ----------------------------------------------------------------------------------------------------------


def retrieval(span_id: str, query: str, *documents: str, error: Outcome | None = None) -> tuple[Node, Decision]:
    asked = part_list(
        [Part(Role.USER, PartKind.TEXT, None, part_digest(Role.USER, PartKind.TEXT, None, query), value=query)]
    )
    found = part_list(
        [
            Part(Role.TOOL, PartKind.DOCUMENT, None, part_digest(Role.TOOL, PartKind.DOCUMENT, None, one), value=one)
            for one in documents
        ]
    )
    outcome = error or Outcome(Ending.VALUE, State.WHOLE, found)
    given = Inputs(State.WHOLE, asked, OrderEvidence.NO_LIST)
    key = f"{'ab' * 16}:{span_id}"
    node = Node(
        key, Operation.RETRIEVAL, "retrieval", None, None, "ab" * 16, (span_id,), None, None, None, "test", None, None,
        given, outcome, False, Structure(),
    )  # fmt: skip
    return node, Decision(Choice.INJECT, (Reason.EXTERNAL,), (Mode.OUTPUT,), "", OrderEvidence.NO_LIST, True)


def looked_up(*retrieved: tuple[Node, Decision]) -> Any:
    made = one_answer()
    for node, decision in retrieved:
        made.nodes.append(node)
        made.decisions[node.key] = decision
    return made.plan()


def retriever(trap: Trap) -> BaseRetriever:
    class Index(BaseRetriever):
        def _get_relevant_documents(self, query: str, **kwargs: Any) -> Any:
            trap.spring("the index")

    return Index()


def test_a_retriever_is_answered_by_its_query(trap: Trap) -> None:
    plan = looked_up(retrieval("21" * 8, "a", "doc 1", "doc 2"), retrieval("22" * 8, "b", "doc 3"))
    index = retriever(trap)
    with replaying(plan, whole=False) as run:
        assert [document.page_content for document in index.invoke("b")] == ["doc 3"]
        assert [document.page_content for document in asyncio.run(index.ainvoke("a"))] == ["doc 1", "doc 2"]
    assert len(run.answered) == 2


def test_a_query_that_is_not_in_the_record_stops(trap: Trap) -> None:
    plan = looked_up(retrieval("21" * 8, "a", "doc 1"))
    with pytest.raises(ReplayDivergence, match="'b' is looked up, which is not in the record"), replaying(plan):
        retriever(trap).invoke("b")
    with pytest.raises(ReplayDivergence, match="once more than in the record"), replaying(plan):
        retriever(trap).invoke("a")
        retriever(trap).invoke("a")


def test_equal_queries_with_different_documents_are_not_guessed(trap: Trap) -> None:
    plan = looked_up(retrieval("21" * 8, "a", "doc 1"), retrieval("22" * 8, "a", "doc 2"))
    with pytest.raises(ReplayRefusedError, match="nothing tells which"), replaying(plan):
        retriever(trap).invoke("a")
    plan = looked_up(retrieval("21" * 8, "a", "doc"), retrieval("22" * 8, "a", "doc"))
    with replaying(plan, whole=False):
        for _ in range(2):
            assert [document.page_content for document in retriever(trap).invoke("a")] == ["doc"]


def test_a_retrieval_that_failed_fails_and_one_that_is_not_recorded_stops(trap: Trap) -> None:
    plan = looked_up(retrieval("21" * 8, "a", error=failure("ConnectionError", "down")))
    with pytest.raises(ConnectionError, match="down"), replaying(plan):
        retriever(trap).invoke("a")
    plan = looked_up(retrieval("21" * 8, "a", error=Outcome(Ending.UNKNOWN, State.WITHHELD, part_list([]))))
    with pytest.raises(ReplayRefusedError, match="is not recorded"), replaying(plan):
        retriever(trap).invoke("a")


# -- tools that change the course of a graph -----------------------------------------------------------------------------


def test_a_tool_that_hands_over_runs_if_it_is_named(trap: Trap) -> None:
    """What it returns is in no record: a text stands there for a command of the graph's."""

    def transfer(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Let the expert go on."""
        message = {"role": "tool", "content": "transferred", "tool_call_id": tool_call_id}
        return Command(goto="expert", update={"messages": [message]})

    made = Making()
    call = calls("transfer", {}, "c1")
    made.chat("01" * 8, [user("u")], [call])
    made.tool("02" * 8, call, "transferred")
    made.chat("03" * 8, [user("u"), call, answered(call, "transferred")], [says("the answer")])

    class Trapped(LiveModel):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("the model")

    model = Trapped(text="")
    built = StateGraph(MessagesState)
    for name in ("ask", "expert"):
        built.add_node(name, lambda state: {"messages": [model.invoke(state["messages"])]})
    built.add_node("tools", ToolNode([StructuredTool.from_function(transfer)]))
    built.add_edge(START, "ask")
    built.add_conditional_edges("ask", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph = built.compile()
    given: Any = {"messages": [("user", "u")]}
    with replaying(made.plan(), enter="transfer") as run:
        assert graph.invoke(given)["messages"][-1].content == "the answer"
    assert run.not_reached == ()
    with pytest.raises(ReplayDivergence, match="asked once more") as caught, replaying(made.plan()):
        graph.invoke(given)
    assert caught.value.where == "end"
