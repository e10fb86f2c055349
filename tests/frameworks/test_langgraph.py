# SPDX-License-Identifier: Apache-2.0
"""The guard in front of LangChain and LangGraph."""

from __future__ import annotations

import asyncio
import gc
import logging
import operator
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langchain_core.tools import base as tools_base
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.pregel import Pregel
from langgraph.types import Command, RetryPolicy, interrupt

from benchmarks.incidents.kit import Incident, World, count
from benchmarks.incidents.langgraph import (
    AGAIN,
    GO,
    INCIDENTS,
    THREAD,
    ToolRetryMiddleware,
    agent,
    graph,
    losing,
    one_of_two,
    paying,
    refund,
    response,
    run_async,
    tool,
)
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard import hooks
from genai_processor.guard.bindings import current
from genai_processor.guard.context import idempotency_key, not_executed
from genai_processor.guard.guard import Guard
from genai_processor.guard.runs import current_run
from genai_processor.ledger import Resolution, State

Install = Callable[..., Guard]
each_incident = pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
sync_and_async = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


@each_incident
def test_bare(incident: Incident) -> None:
    assert count(incident) == incident.bare


@each_incident
def test_observed(incident: Incident, guarded: Install, caplog: pytest.LogCaptureFixture) -> None:
    guarded(mode="observe")
    with caplog.at_level(logging.WARNING, "genai_processor"):
        assert count(incident) == incident.bare
    assert ("The guard only observes" in caplog.text) is (incident.bare != incident.enforced)


@each_incident
def test_enforced(incident: Incident, guarded: Install) -> None:
    guarded()
    assert count(incident) == incident.enforced


@each_incident
def test_enforced_on_a_ledger_in_a_file(incident: Incident, guarded: Install, tmp_path: Any) -> None:
    guarded(f"sqlite:///{tmp_path}/ledger.db")
    assert count(incident) == incident.enforced


@each_incident
def test_enforced_by_stopping(incident: Incident, guarded: Install) -> None:
    guarded(on_refusal="raise")
    assert count(incident) == incident.enforced


def told(state: Any) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def run(made: Any, *, sync: bool) -> Any:
    return made.invoke(GO, THREAD) if sync else run_async(made)


# -- what the model is told ----------------------------------------------------------------------------------------------


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

    async def pay_async(order: str) -> str:
        return pay(order)

    turns = ([refund("o1", "toolu_a1")], [refund("o1", "toolu_b2"), refund("o2", "toolu_c3")])
    one = tool(pay if sync else pay_async, handle_tool_error=True)
    failed, refused, paid = told(run(make(turns, one), sync=sync))
    [entry] = guard.ledger.pending().entries
    assert refused.content == (
        "refund was not run: an earlier attempt at the same action may have committed. Do not call it again with these "
        f"arguments; report this instead. A person has to settle entry {entry.entry_id} first."
    )
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
    calls = [refund("o9", "toolu_9a"), refund("oX", "toolu_xa")]
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


# -- what the ledger holds -----------------------------------------------------------------------------------------------


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

    def pay(order: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        return world.commit_then_fail(order)

    graph(AGAIN, tool(pay), handle=True).invoke(GO, THREAD)
    [entry] = guard.ledger.pending().entries
    assert entry.digest is not None
    assert world.effects == ["o1"]


def test_bad_arguments_leave_nothing_to_settle(guarded: Install) -> None:
    guard = guarded()
    graph([[("refund", {"number": "o1"}, "toolu_a1")]], paying(World()), handle=True).invoke(GO, THREAD)
    assert guard.ledger.stats().entries == 0


def test_an_interrupt_is_a_pause_and_no_death(guarded: Install) -> None:
    guard, world = guarded(), World()

    def ask_first(order: str) -> str:
        return world.commit(order) if interrupt("sure?") else "no"

    made = agent(AGAIN, tool(ask_first), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_a1")
    assert entry.state is State.PAUSED
    made.invoke(Command(resume=True), THREAD)
    assert guard.ledger.by_call("thread-1", "toolu_a1")[0].state is State.COMPLETED
    made.invoke(Command(resume=True), THREAD)
    assert world.effects == ["o1", "o1"]
    assert not guard.ledger.pending().entries


def test_what_died_with_its_run_is_handed_back_once_and_then_counts_as_delivered(guarded: Install) -> None:
    guard, world = guarded(), World()

    def again(number: int, handle: bool) -> Any:
        calls = [refund("o9", f"toolu_9{number}z"), refund("oX", f"toolu_x{number}z")]
        return run_async(graph([calls], one_of_two(world), handle=handle))

    with pytest.raises(ConnectionError):
        again(1, False)
    assert guard.ledger.counts()[State.UNDELIVERED] == 1
    assert told(again(2, False))[0].content == "done: o9"
    assert guard.ledger.counts()[State.UNDELIVERED] == 0
    assert world.effects == ["o9", "oX"]


def test_a_handed_back_command_answers_the_call_that_got_it(guarded: Install) -> None:
    guarded()
    world = World()

    def pay(order: str, call_id: Annotated[str, InjectedToolCallId]) -> Any:
        if order == "oX":
            return world.commit_then_fail(order)
        return Command(update={"messages": [ToolMessage(world.commit(order), tool_call_id=call_id)]})

    for number in (1, 2):
        calls = [refund("o9", f"toolu_9{number}z"), refund("oX", f"toolu_x{number}z")]
        try:
            state = graph([calls], tool(pay)).invoke(GO, THREAD)
        except ConnectionError:
            assert number == 1
    back = next(message for message in told(state) if message.content == "done: o9")
    assert back.tool_call_id == "toolu_92z"
    assert world.effects == ["o9", "oX"]


@sync_and_async
def test_what_the_thread_has_saved_is_not_lost_with_the_run(guarded: Install, sync: bool) -> None:
    guard = guarded()
    turns = [AGAIN[0], OSError("model overloaded")]
    with pytest.raises(OSError, match="overloaded"):
        run(agent(turns, paying(World(), sync=sync), checkpointer=InMemorySaver()), sync=sync)
    assert guard.ledger.counts()[State.COMPLETED] == 1


@sync_and_async
def test_what_no_thread_has_saved_is_lost_with_the_run(guarded: Install, sync: bool) -> None:
    guard = guarded()
    for made, scope in ((agent, None), (lambda *a: agent(*a, checkpointer=InMemorySaver()), "order o1")):
        with pytest.raises(OSError, match="overloaded"), guard.run(scope):
            run(made([AGAIN[0], OSError("model overloaded")], paying(World(), sync=sync)), sync=sync)
    assert guard.ledger.counts()[State.UNDELIVERED] == 2


def test_who_stops_listening_to_a_stream_kills_no_run(guarded: Install) -> None:
    guard = guarded()
    stream = agent(AGAIN[:1], paying(World())).stream(GO, THREAD, stream_mode="updates")
    assert [next(iter(next(stream))) for _ in range(2)][1] == "tools"
    stream.close()
    assert guard.ledger.counts()[State.COMPLETED] == 1


def test_a_thread_that_ends_after_its_run_has_died_delivers_to_nobody(guarded: Install) -> None:
    guard, go, world = guarded(), threading.Event(), World()

    def pay(order: str) -> str:
        go.wait(10)
        return world.commit(order)

    async def story() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent(AGAIN, tool(pay)).ainvoke(GO, THREAD), 0.3)
        go.set()

    asyncio.run(story())
    assert world.effects == ["o1"]
    assert guard.ledger.counts()[State.UNDELIVERED] == 1


def test_a_tool_that_had_another_one_pay_before_it_asked_is_not_begun_again(guarded: Install) -> None:
    guard, world = guarded(), World()

    def pay_and_ask(order: str) -> str:
        paying(world).invoke({"order": order})
        interrupt("and now?")
        return "done"

    made = agent(AGAIN[:1], tool(pay_and_ask), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_a1")
    assert (entry.state, entry.reason) == (State.QUARANTINED, "effect_before_pause")
    made.invoke(Command(resume=True), THREAD)
    assert world.effects == ["o1"]


def test_nor_is_one_that_had_another_agent_pay_beside_the_one_that_asks(guarded: Install) -> None:
    guard, world = guarded(), World()

    def ask(order: str) -> str:
        return str(interrupt("sure?"))

    def delegate(order: str) -> str:
        agent(AGAIN[:1], paying(world)).invoke(GO)
        return str(agent(AGAIN[1:], tool(ask, "refund")).invoke(GO))

    made = agent([[("delegate", {"order": "o1"}, "toolu_d1")]], tool(delegate, "delegate"), checkpointer=InMemorySaver())
    made.invoke(GO, THREAD)
    [entry] = guard.ledger.by_call("thread-1", "toolu_d1")
    assert (entry.state, entry.reason) == (State.QUARANTINED, "effect_before_pause")


# -- in the body ---------------------------------------------------------------------------------------------------------


@sync_and_async
def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install, sync: bool) -> None:
    guard, keys = guarded(), list[str | None]()

    def pay(order: str) -> str:
        keys.append(idempotency_key())
        raise ConnectionError

    async def pay_async(order: str) -> str:
        return pay(order)

    for turn in AGAIN:
        with pytest.raises(ConnectionError):
            run(agent([turn], tool(pay if sync else pay_async)), sync=sync)
        for entry in guard.ledger.pending().entries:
            note = "the provider has no such key"
            guard.ledger.settle(entry.entry_id, Resolution.NOT_COMMITTED, who="ann", note=note, version=entry.version)
    assert len(keys) == 2
    assert keys[0] is not None
    assert keys[0] == keys[1]


def test_the_body_of_a_synchronous_tool_in_an_asynchronous_run_knows_its_key(guarded: Install) -> None:
    guarded()
    world = World()

    class Pay(BaseTool):
        name: str = "refund"
        description: str = "Pay back."

        def _run(self, order: str) -> str:
            return world.commit(order)

    for one in (paying(world), Pay()):
        run_async(agent([[refund(f"o{len(world.keys)}", f"toolu_{len(world.keys)}z")]], one))
    assert len({key for key in world.keys if key is not None}) == 2


def test_a_tool_that_did_nothing_may_be_called_again(guarded: Install) -> None:
    guard, world = guarded(), World()

    def pay(order: str) -> str:
        if not world.keys:
            world.keys.append(None)
            not_executed()
            raise ValueError("no such order yet")
        return world.commit(order)

    graph(AGAIN, tool(pay), handle=True).invoke(GO, THREAD)
    assert world.effects == ["o1"]
    assert guard.ledger.counts()[State.NOT_STARTED] == 1


def test_a_stream_leaks_nothing_into_whoever_reads_it(guarded: Install) -> None:
    guarded()

    async def story() -> None:
        async for _ in agent(AGAIN, paying(World(), sync=False)).astream(GO, THREAD, stream_mode="updates"):
            assert current_run() is None
            assert current() is None

    asyncio.run(story())
    for _ in agent(AGAIN, paying(World())).stream(GO, THREAD, stream_mode="updates"):
        assert current_run() is None
        assert current() is None


def test_a_tool_called_in_a_node_of_ones_own_knows_its_turn(guarded: Install) -> None:
    guard = guarded()
    one = paying(World())

    async def call_them(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await one.ainvoke(call) for call in state["messages"][-1].tool_calls]}

    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [response([refund("o1", "toolu_a1"), refund("o1", "toolu_b2")])]})
    made.add_node("calls", call_them)
    made.add_edge(START, "model")
    made.add_edge("model", "calls")
    state = run_async(made.compile())
    entries = [*guard.ledger.by_call("thread-1", "toolu_a1"), *guard.ledger.by_call("thread-1", "toolu_b2")]
    assert [entry.turn for entry in entries] == [state["messages"][1].id] * 2


def test_not_even_if_both_agents_are_at_work_at_once(guarded: Install) -> None:
    guard, world = guarded(), World()
    paid = asyncio.Event()

    async def pay(order: str) -> str:
        world.commit(order)
        paid.set()
        await asyncio.Event().wait()
        return "never"

    async def ask(order: str) -> str:
        await paid.wait()
        return str(interrupt("sure?"))

    async def delegate(order: str) -> str:
        pays, asks = agent([[refund("o9", "toolu_i1")]], tool(pay)), agent(AGAIN[:1], tool(ask, "refund"))
        await asyncio.gather(asks.ainvoke(GO), pays.ainvoke(GO))
        return "done"

    calls = [("delegate", {"order": "o1"}, "toolu_d1")]
    run_async(agent([calls], tool(delegate, "delegate"), checkpointer=InMemorySaver()))
    [entry] = guard.ledger.by_call("thread-1", "toolu_d1")
    assert (entry.state, entry.reason) == (State.QUARANTINED, "effect_before_pause")


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
    made.add_node("model", lambda state: {"chat": [response([refund("o1", "toolu_a1"), refund("o1", "toolu_b2")])]})
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
    turns = [[refund("o1", "toolu_a1"), refund("o1", "toolu_b2")], [refund("o1", "toolu_c3")]]
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


# -- another process -----------------------------------------------------------------------------------------------------

_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt
from benchmarks.incidents.langgraph import GO, THREAD, graph, agent, refund, tool
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard

folder, story, given = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
hooks.install(Guard(f"sqlite:///{folder}/ledger.db"))

def pay(order):
    if story == "approval" and order == "o1" and not interrupt("sure?"):
        return "no"
    with (folder / "effects").open("a") as effects:
        effects.write(order + "\\n")
    if story == "death" and order == "o1":
        raise ConnectionError("502 Bad Gateway")
    return f"done: {order}"

with SqliteSaver.from_conn_string(f"{folder}/graph.db") as saver:
    turns = [[refund("o9", "toolu_9a"), refund("o1", "toolu_a1")]] if given == "go" else []
    made = graph(turns, tool(pay), checkpointer=saver)
    try:
        state = made.invoke({"go": GO, "none": None, "yes": Command(resume=True)}[given], THREAD)
    except ConnectionError:
        sys.exit("died")
    for message in state["messages"]:
        if message.type == "tool":
            print(message.status, message.content)
"""


def in_another_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _ANOTHER_PROCESS, str(folder), *arguments],
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_run_that_died_goes_on_in_another_process_and_pays_nothing_twice(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.checkpoint.sqlite")
    assert in_another_process(tmp_path, "death", "go").stderr.endswith("died\n")
    after = in_another_process(tmp_path, "death", "none")
    assert sorted((tmp_path / "effects").read_text().split()) == ["o1", "o9"], after.stderr
    assert "this very call was made before, and may have committed" in after.stdout


def test_an_approval_in_another_process_runs_the_call_once(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.checkpoint.sqlite")
    in_another_process(tmp_path, "approval", "go")
    after = in_another_process(tmp_path, "approval", "yes")
    assert sorted((tmp_path / "effects").read_text().split()) == ["o1", "o9"], after.stderr
    assert "success done: o1" in after.stdout


# -- installing ----------------------------------------------------------------------------------------------------------

_TARGETS = (
    (BaseTool, "run"),
    (BaseTool, "arun"),
    (tools_base, "set_config_context"),
    (tools_base, "coro_with_context"),
    (Pregel, "stream"),
    (Pregel, "astream"),
    (ToolNode, "_run_one"),
    (ToolNode, "_arun_one"),
)


def _now() -> list[Any]:
    return [owner.__dict__[name] for owner, name in _TARGETS]


def test_uninstalling_restores_the_framework(guarded: Install) -> None:
    before = _now()
    guarded()
    assert not any(now is then for now, then in zip(_now(), before, strict=True))
    hooks.uninstall()
    assert all(now is then for now, then in zip(_now(), before, strict=True))


def test_nothing_else_of_the_framework_is_replaced(guarded: Install) -> None:
    from langchain_core.runnables import base, config, utils

    before = base.set_config_context, config.set_config_context, base.coro_with_context, utils.coro_with_context
    guarded()
    now = base.set_config_context, config.set_config_context, base.coro_with_context, utils.coro_with_context
    assert now == before


def test_installing_twice_guards_once(guarded: Install) -> None:
    guarded()
    guard, world = guarded(), World()
    agent(AGAIN[:1], paying(world)).invoke(GO, THREAD)
    assert guard.ledger.stats().entries == 1


def test_a_version_that_it_does_not_know_is_left_alone(
    guarded: Install, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def other(coro: Any, somewhere: Any) -> Any: ...

    before = _now()
    monkeypatch.setattr(tools_base, "coro_with_context", other)
    guarded()
    assert [now is then for now, then in zip(_now(), before, strict=True)][:4] == [True, True, True, False]
    assert tools_base.coro_with_context is other
    assert caplog.text.count("is not laid out as the guard knows it") == 1


_LATE_IMPORT = """
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard
hooks.install(Guard())
import sys
assert not any(name.partition(".")[0] in ("langchain_core", "langgraph") for name in sys.modules)
import langchain_core.tools
assert "langgraph.pregel" not in sys.modules
from langchain_core.tools.base import BaseTool
assert type(BaseTool.__dict__["run"]).__name__ == "FunctionWrapper"
from langgraph.pregel import Pregel
assert type(Pregel.__dict__["stream"]).__name__ == "FunctionWrapper"
from langgraph.prebuilt import ToolNode
assert type(ToolNode.__dict__["_run_one"]).__name__ == "FunctionWrapper"
"""


_NO_GRAPH = """
import sys
from langchain_core.tools import StructuredTool
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard import hooks
from genai_processor.guard.guard import Guard
hooks.install(Guard(on_refusal="raise"))

def pay(order: str) -> str:
    raise ConnectionError

one = StructuredTool.from_function(pay, description="Pay back.")
for call_id, expected in (("toolu_a1", ConnectionError), ("toolu_b2", ToolSpanCommitmentError)):
    try:
        one.invoke({"name": "pay", "args": {"order": "o1"}, "id": call_id, "type": "tool_call"})
    except expected as error:
        assert type(error) is expected, type(error)
    else:
        raise AssertionError(expected)
assert "langgraph" not in sys.modules
"""


def test_langchain_alone_is_guarded() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "ignore", "-c", _NO_GRAPH]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_is_imported_after_the_guard_is_guarded() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "ignore", "-c", _LATE_IMPORT]
    done = subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
