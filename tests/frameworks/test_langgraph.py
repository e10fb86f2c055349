# SPDX-License-Identifier: Apache-2.0
"""The guard in front of LangChain and LangGraph: what runs, what the model is told, what a body knows."""

from __future__ import annotations

import asyncio
import gc
import operator
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy
from support.graphs import run, sync_and_async, told
from support.incidents import Install, did_nothing_first, each, incident_tests, keeps_keys, refusal, release

from benchmarks.incidents.bodies import on_the_loop
from benchmarks.incidents.kit import Incident, World, count
from benchmarks.incidents.langgraph import INCIDENTS
from benchmarks.incidents.langgraph_agents import (
    GO,
    THREAD,
    ToolRetryMiddleware,
    agent,
    graph,
    losing,
    paying,
    response,
    run_async,
    tool,
)
from benchmarks.incidents.scripts import AGAIN, FIRST, SECOND, once, refund
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.actions import action_digest
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)
each_incident = each(INCIDENTS)


@each_incident
def test_enforced_by_stopping(incident: Incident, guarded: Install) -> None:
    guarded(on_refusal="raise")
    assert count(incident) == incident.enforced


# -- what the model is told ---------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("make", [lambda turns, one: graph(turns, one, handle=True), agent], ids=["graph", "agent"])
def test_the_model_is_told_and_the_other_calls_finish(guarded: Install, make: Any, sync: bool) -> None:
    guard, world = guarded(), World()

    def pay(order: str) -> str:
        if order == "o1":
            try:
                world.commit_then_fail(order)
            except ConnectionError as error:
                raise ToolException("502") from error
        return world.commit(order)

    turns = ([refund("toolu_a1")], [refund("toolu_b2"), refund("toolu_c3", "o2")])
    one = tool(pay if sync else on_the_loop(pay), handle_tool_error=True)
    failed, refused, paid = told(run(make(turns, one), sync=sync))
    [entry] = guard.ledger.pending().entries
    assert refused.content == refusal(entry)
    assert (refused.status, refused.tool_call_id, refused.name) == ("error", "toolu_b2", "refund")
    assert (failed.status, paid.status, paid.content) == ("error", "success", "done: o2")
    assert world.effects == ["o1", "o2"]


@sync_and_async
def test_a_tool_with_artifacts_is_refused_and_handed_back(guarded: Install, sync: bool) -> None:
    guarded()
    world = World()

    def pay(order: str) -> tuple[str, dict[str, str]]:
        return (world.commit if order == "o9" else world.commit_then_fail)(order), {"of": order}

    async def pay_async(order: str) -> tuple[str, dict[str, str]]:
        return pay(order)

    one = tool(pay if sync else pay_async, response_format="content_and_artifact")
    calls = [refund("toolu_9a", "o9"), refund("toolu_xa", "oX")]
    state = run(graph([calls], one, retry=RetryPolicy(initial_interval=0.01, jitter=False)), sync=sync)
    assert world.effects == ["o9", "oX"]
    back, refused = told(state)
    assert (back.content, back.artifact, back.status) == ("done: o9", {"of": "o9"}, "success")
    assert "was not run" in refused.content
    assert refused.artifact is None


@sync_and_async
@pytest.mark.parametrize("handle", [True, False])
def test_a_run_can_be_stopped_instead(guarded: Install, sync: bool, handle: bool) -> None:
    guarded(on_refusal="raise")
    world = World()
    one = losing(world, sync=sync, error=ToolException, handle_tool_error=True)
    retry = RetryPolicy(initial_interval=0.01, retry_on=lambda error: True)
    with pytest.raises(ToolSpanCommitmentError) as caught:
        run(graph(AGAIN, one, handle=handle, retry=retry), sync=sync)
    assert (caught.value.tool, caught.value.call_id, caught.value.reason) == ("refund", "toolu_b2", "action_quarantined")
    assert len(world.effects) == 1


@pytest.mark.skipif(ToolRetryMiddleware is None, reason="comes with LangChain 1")
def test_the_retry_middleware_neither_swallows_the_stop_nor_asks_again(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    again = ToolRetryMiddleware(max_retries=5, initial_delay=0.0)
    with pytest.raises(ToolSpanCommitmentError):
        agent(AGAIN, losing(world), middleware=[again]).invoke(GO, THREAD)
    assert len(world.effects) == 1


def test_a_call_without_an_id_comes_from_no_model_and_raises(guarded: Install) -> None:
    guard, world = guarded(), World()
    with guard.run("order o1"):
        with pytest.raises(ConnectionError):
            losing(world).invoke({"order": "o1"})
        with pytest.raises(ToolSpanCommitmentError, match="was not run"):
            losing(world).invoke({"order": "o1"})
        with pytest.raises(ToolSpanCommitmentError, match="was not run"):
            asyncio.run(losing(world, sync=False).ainvoke({"order": "o1"}))
    assert len(world.effects) == 1


def test_without_a_graph_the_model_is_told_too(guarded: Install) -> None:
    guard, world = guarded(), World()
    with guard.run("order o1"):
        with pytest.raises(ConnectionError):
            losing(world).invoke(response(AGAIN[0]).tool_calls[0])
        answer = losing(world).invoke(response(AGAIN[1]).tool_calls[0])
    assert isinstance(answer, ToolMessage)
    assert answer.status == "error"


# -- what is claimed ----------------------------------------------------------------------------------------------------


def test_what_is_claimed(guarded: Install) -> None:
    guard = guarded()
    state = agent(AGAIN[:1], paying(World())).invoke(GO, THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_a1")
    assert (entry.tool, entry.state, entry.turn) == ("refund", State.COMPLETED, state["messages"][1].id)


def test_the_scope_of_the_application_goes_before_the_thread(guarded: Install) -> None:
    guard = guarded()
    with guard.run("order o1"):
        agent(AGAIN[:1], paying(World())).invoke(GO, THREAD)
    assert guard.ledger.by_call("order o1", "toolu_a1")


def test_injected_arguments_do_not_make_another_action(guarded: Install) -> None:
    guard, world = guarded(), World()

    def pay(order: str, call_id: Annotated[str, InjectedToolCallId], state: Annotated[dict[str, Any], InjectedState]) -> str:
        assert state["messages"]
        return world.commit_then_fail(order)

    graph(AGAIN, tool(pay), handle=True).invoke(GO, THREAD)
    [entry] = guard.ledger.pending().entries
    assert entry.digest == action_digest({"order": "o1"})
    assert world.effects == ["o1"]


def test_without_a_graph_the_thread_of_the_configuration_is_the_scope(guarded: Install) -> None:
    guard = guarded()
    paying(World()).invoke(response(AGAIN[0]).tool_calls[0], THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_a1")
    assert entry.turn is None


def test_bad_arguments_leave_nothing_to_settle(guarded: Install) -> None:
    guard = guarded()
    graph([[("toolu_a1", "refund", {"number": "o1"})]], paying(World()), handle=True).invoke(GO, THREAD)
    assert guard.ledger.stats().entries == 0


def test_a_handed_back_command_answers_the_call_that_got_it(guarded: Install) -> None:
    guarded()
    world = World()

    def pay(order: str, call_id: Annotated[str, InjectedToolCallId]) -> Any:
        if order == "oX":
            return world.commit_then_fail(order)
        return Command(update={"messages": [ToolMessage(world.commit(order), tool_call_id=call_id)]})

    for number in (1, 2):
        calls = [refund(f"toolu_9{number}z", "o9"), refund(f"toolu_x{number}z", "oX")]
        try:
            state = graph([calls], tool(pay)).invoke(GO, THREAD)
        except ConnectionError:
            assert number == 1
    back = next(message for message in told(state) if message.content == "done: o9")
    assert back.tool_call_id == "toolu_92z"
    assert world.effects == ["o9", "oX"]


# -- in the body --------------------------------------------------------------------------------------------------------


@sync_and_async
def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install, sync: bool) -> None:
    guard, keys = guarded(), list[str | None]()
    pay = keeps_keys(keys)
    for call_id in (FIRST, SECOND):
        with pytest.raises(ConnectionError):
            run(agent(once(call_id), tool(pay if sync else on_the_loop(pay))), sync=sync)
        entry = release(guard)
    assert keys == [entry.intent] * 2


def test_the_body_of_a_synchronous_tool_in_an_asynchronous_run_knows_its_key(guarded: Install) -> None:
    guarded()
    world = World()

    class Pay(BaseTool):
        name: str = "refund"
        description: str = "Pay back."

        def _run(self, order: str) -> str:
            return world.commit(order)

    for one in (paying(world), Pay()):
        run_async(agent([[refund(f"toolu_{len(world.keys)}z", f"o{len(world.keys)}")]], one))
    assert len({key for key in world.keys if key is not None}) == 2


def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
    guard, world = guarded(), World()
    graph(AGAIN, tool(did_nothing_first(world, ValueError)), handle=True).invoke(GO, THREAD)
    assert world.effects == ["o1"]
    assert guard.ledger.counts()[State.NOT_STARTED] == 1


def test_a_tool_called_in_a_node_of_ones_own_knows_its_turn(guarded: Install) -> None:
    guard = guarded()
    one = paying(World())

    async def call_them(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await one.ainvoke(call) for call in state["messages"][-1].tool_calls]}

    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [response([refund("toolu_a1"), refund("toolu_b2")])]})
    made.add_node("calls", call_them)
    made.add_edge(START, "model")
    made.add_edge("model", "calls")
    state = run_async(made.compile())
    entries = [*guard.ledger.by_call("thread-1", "toolu_a1"), *guard.ledger.by_call("thread-1", "toolu_b2")]
    assert [entry.turn for entry in entries] == [state["messages"][1].id] * 2


@pytest.mark.parametrize("calls", [[SimpleNamespace(id="toolu_a1")], [{"function": {"name": "refund"}}], 7, "toolu_a1"])
@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_messages_that_are_not_langchains_tell_no_turn(guarded: Install, mode: str, calls: Any) -> None:
    """As where a node asks a provider's own client, and keeps what that returned."""

    class Chat(TypedDict):
        messages: list[Any]

    guard, world = guarded(mode=mode), World()
    [call], one = response([refund("toolu_a1")]).tool_calls, paying(world)
    made = StateGraph(Chat)
    made.add_node("calls", lambda state: {"messages": [one.invoke(call)]})
    made.add_edge(START, "calls")
    made.compile().invoke({"messages": [SimpleNamespace(tool_calls=calls)]}, THREAD)
    assert world.effects == ["o1"]
    assert [entry.turn for entry in guard.ledger.by_call("thread-1", "toolu_a1")] == [None]


def test_a_refused_coroutine_is_not_left_behind(guarded: Install, recwarn: pytest.WarningsRecorder) -> None:
    guarded()
    run_async(graph(AGAIN, losing(World(), sync=False), handle=True))
    gc.collect()
    assert not [one for one in recwarn if "never awaited" in str(one.message)]


def test_messages_under_another_name_tell_the_turn_too(guarded: Install) -> None:
    class Chat(TypedDict):
        chat: Annotated[list[Any], add_messages]

    guard, world = guarded(), World()
    made = StateGraph(Chat)
    made.add_node("model", lambda state: {"chat": [response([refund("toolu_a1"), refund("toolu_b2")])]})
    made.add_node("tools", ToolNode([paying(world)], messages_key="chat"))
    made.add_edge(START, "model")
    made.add_edge("model", "tools")
    state = made.compile().invoke({"chat": [("user", "go")]}, THREAD)
    entries = [*guard.ledger.by_call("thread-1", "toolu_a1"), *guard.ledger.by_call("thread-1", "toolu_b2")]
    assert [entry.turn for entry in entries] == [state["chat"][1].id] * 2
    assert world.effects == ["o1", "o1"]


def test_messages_without_ids_have_the_step_for_their_turn(guarded: Install) -> None:
    class Added(TypedDict):
        messages: Annotated[list[Any], operator.add]

    guard, world = guarded(), World()
    turns = [[refund("toolu_a1"), refund("toolu_b2")], [refund("toolu_c3")]]
    made = StateGraph(Added)
    made.add_node("model", lambda state: {"messages": [response(turns.pop(0) if turns else "done")]})
    made.add_node("tools", ToolNode([paying(world)]))
    made.add_edge(START, "model")
    made.add_conditional_edges("model", tools_condition)
    made.add_edge("tools", "model")
    made.compile().invoke({"messages": []}, THREAD)
    first, second, later = (
        guard.ledger.by_call("thread-1", call_id)[0].turn for call_id in ("toolu_a1", "toolu_b2", "toolu_c3")
    )
    assert first is not None
    assert first == second != later
    assert world.effects == ["o1"] * 3
