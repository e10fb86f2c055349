# SPDX-License-Identifier: Apache-2.0
"""A guard with a ledger in a file, a processor, and a replay at once: nothing of the replay is an effect."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.plans import retrievals
from support.traps import Trap

from genai_processor import GenAISpanProcessor, Guard, Settings
from genai_processor.attributes import GENAI_REPLAY_RUN_ID
from genai_processor.errors import ReplayRefusedError
from genai_processor.guard import hooks
from genai_processor.ledger.sqlite import SQLiteLedger
from genai_processor.places import find
from genai_processor.replay import replaying
from genai_processor.replay.hooks import installing


class Run:
    """An agent of one framework, built anew each time."""

    def __init__(self, package: str, where: tuple[tuple[str, str], ...], answer: Callable[[Trap], str]) -> None:
        self.package = package
        self.where = where
        self.answer = answer

    def there(self) -> list[Any]:
        return [inspect.getattr_static(*find(module, name, ())) for module, name in self.where]


def pydantic_ai(trap: Trap) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    mine: Agent[Any, Any] = Agent(FunctionModel(lambda *_: trap.spring("the model")))

    @mine.tool_plain
    async def search(query: str) -> str:
        trap.spring("search")

    return str(asyncio.run(mine.run("compare them")).output)


def langgraph(trap: Trap) -> str:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import StructuredTool
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "trapped"

        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("the model")

    def search(query: str) -> str:
        """Look it up."""
        trap.spring("search")

    built, model = StateGraph(MessagesState), Model()
    built.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    built.add_node("tools", ToolNode([StructuredTool.from_function(search)]))
    built.add_edge(START, "ask")
    built.add_conditional_edges("ask", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    built.add_edge("tools", "ask")
    given: Any = {"messages": [("user", "compare them")]}
    return str(built.compile().invoke(given)["messages"][-1].content)


def openai_agents(trap: Trap) -> str:
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.models.interface import Model

    class TrappedModel(Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("the model")

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            trap.spring("the stream")

    async def search(query: str) -> str:
        """Look it up."""
        trap.spring("search")

    mine = Agent("a", model=TrappedModel(), tools=[function_tool(search)])
    running = Runner.run(mine, "compare them", run_config=RunConfig(tracing_disabled=True))
    return str(asyncio.run(running).final_output)


RUNS = [
    Run(
        "pydantic_ai",
        (("pydantic_ai.tool_manager", "ToolManager._raw_execute"), ("pydantic_ai.agent", "Agent.iter")),
        pydantic_ai,
    ),
    Run(
        "langgraph",
        (
            ("langgraph.prebuilt.tool_node", "ToolNode._execute_tool_sync"),
            ("langgraph.prebuilt.tool_node", "ToolNode._run_one"),
            ("langchain_core.tools.base", "BaseTool.run"),
            ("langgraph.pregel", "Pregel.stream"),
        ),
        langgraph,
    ),
    Run(
        "agents",
        (
            ("agents.tool", "_invoke_function_tool_with_metadata"),
            ("agents.run_internal.tool_execution", "_invoke_function_tool_with_metadata"),
            ("agents.run", "AgentRunner.run"),
        ),
        openai_agents,
    ),
]


@pytest.fixture(params=RUNS, ids=lambda run: run.package)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    pytest.importorskip(request.param.package)
    installing._installation.sweep()
    yield request.param
    hooks.uninstall()


@contextmanager
def guarded(path: Path) -> Iterator[Guard]:
    guard = Guard(SQLiteLedger(path), mode="enforce")
    hooks.install(guard)
    try:
        yield guard
    finally:
        hooks.uninstall()


def content(path: Path) -> dict[str, str]:
    """What each file of a ledger holds, as a digest; but for the marks of who reads it."""
    files = [one for one in sorted(path.parent.glob(f"{path.name}*")) if not one.name.endswith("-shm")]
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


def test_a_replay_leaves_a_ledger_in_a_file_as_it_is_byte_for_byte(run: Run, tmp_path: Path, trap: Trap) -> None:
    path = tmp_path / "ledger.db"
    with guarded(path) as guard:
        with guard.call("pay", "call_1", {"order": 1}):
            pass
        before, entries = content(path), guard.ledger.stats().entries
        assert before
        for _ in range(2):  # and what is replayed twice is no duplicate
            with replaying(retrievals().plan()) as replayed:
                assert run.answer(trap) == "the answer"
            assert replayed.not_reached == ()
        assert content(path) == before
        assert guard.ledger.stats().entries == entries == 1


def test_the_processor_counts_nothing_of_a_replay_and_marks_its_spans(run: Run, tmp_path: Path, trap: Trap) -> None:
    path, exporter = tmp_path / "ledger.db", InMemorySpanExporter()
    with guarded(path) as guard:
        processor = GenAISpanProcessor(SimpleSpanProcessor(exporter), ledger=guard.ledger, settings=Settings(metrics=False))
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(processor)
        before = guard.ledger.counts()
        with replaying(retrievals().plan(), run_id="r"), provider.get_tracer("app").start_as_current_span("request"):
            for failed in (False, True):
                attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"}
                with provider.get_tracer("app").start_as_current_span("execute_tool pay", attributes=attributes) as span:
                    if failed:
                        span.set_attribute("error.type", "RuntimeError")
            run.answer(trap)
        processor.force_flush()
        assert guard.ledger.counts() == before
    spans = exporter.get_finished_spans()
    assert len(spans) == 3
    assert {(span.attributes or {}).get(GENAI_REPLAY_RUN_ID) for span in spans} == {"r"}
    assert not any(key.startswith("genai.retry.") for span in spans for key in span.attributes or ())


def test_both_come_and_go_in_any_order_and_leave_the_framework_as_it_was(run: Run, trap: Trap) -> None:
    plan = retrievals().plan()
    original = run.there()

    def guard_first() -> None:
        hooks.install(Guard(mode="enforce"))
        with replaying(plan):
            assert run.answer(trap) == "the answer"
        hooks.uninstall()

    def guard_within() -> None:
        with replaying(plan):
            hooks.install(Guard(mode="enforce"))
            assert run.answer(trap) == "the answer"
            hooks.uninstall()

    def guard_goes_first() -> None:
        hooks.install(Guard(mode="enforce"))
        with replaying(plan):
            hooks.uninstall()
            assert run.answer(trap) == "the answer"

    def replay_goes_first() -> None:
        with replaying(plan):
            hooks.install(Guard(mode="enforce"))
            assert run.answer(trap) == "the answer"
        hooks.uninstall()

    for order in (guard_first, guard_within, guard_goes_first, replay_goes_first, guard_first):
        order()
        now = run.there()
        assert all(one is other for one, other in zip(now, original, strict=True)), order.__name__


def test_after_a_replay_calls_are_claimed_as_ever(trap: Trap) -> None:
    agents = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.test import TestModel

    guard = Guard(mode="enforce")
    hooks.install(guard)
    try:
        with replaying(retrievals().plan()):
            pydantic_ai(trap)
        assert guard.ledger.stats().entries == 0
        mine = agents.Agent(TestModel())
        mine.tool_plain(look)
        mine.run_sync("live")
        assert guard.ledger.stats().entries == 1
    finally:
        hooks.uninstall()


def look(query: str) -> str:
    return "seen"


@pytest.mark.parametrize("guards", [True, False])
def test_no_call_reaches_an_mcp_server_past_the_frameworks_that_are_answered(guards: bool, trap: Trap) -> None:
    pytest.importorskip("mcp")
    from benchmarks.incidents.kit import World
    from benchmarks.incidents.mcp import SDK, connect, working

    world = World()

    async def story() -> None:
        async with connect(working(world, SDK)) as client:
            with (
                pytest.raises(ReplayRefusedError, match="past the frameworks"),
                replaying(retrievals().plan(), whole=False),
            ):
                await client.call_tool("refund", {"order": "o1"})

    if guards:
        hooks.install(Guard(mode="enforce"))
    try:
        asyncio.run(story())
    finally:
        hooks.uninstall()
    assert world.effects == []
