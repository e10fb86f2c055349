# SPDX-License-Identifier: Apache-2.0
"""What happens in a replay is marked, judged by nobody, claimed nowhere, and never counted as an effect."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.agent_run import AgentRun
from support.plans import retrievals
from support.traps import Trap

from genai_processor import Guard, MemoryLedger, Policy
from genai_processor.attributes import GENAI_REPLAY_RUN_ID
from genai_processor.errors import ReplayRefusedError
from genai_processor.guard import hooks
from genai_processor.replay.asked import NodeRun
from genai_processor.replay.block import replaying
from genai_processor.replay.replayer import areplay, replay
from genai_processor.replays import REPLAYS


def calling(run: AgentRun) -> Any:
    """A recompute function that makes the span of a call, as an instrumented tool does."""

    def function(node: NodeRun) -> Any:
        run.fail("create_refund", id="call_1", args="{}")
        return node.node.outcome

    return function


def test_spans_made_in_a_replay_are_marked_and_not_judged() -> None:
    run, plan = AgentRun(), retrievals().plan()
    replay(plan, {"chat": calling(run)}, run_id="r1")
    asyncio.run(areplay(plan, {"chat": calling(run)}, run_id="r2"))
    marks = [(span.attributes or {}).get(GENAI_REPLAY_RUN_ID) for span in run.exported]
    assert marks == ["r1", "r1", "r2", "r2"]
    assert all("genai.retry.verdict" not in (span.attributes or {}) for span in run.exported)
    run.processor.force_flush()
    assert sum(run.ledger.counts().values()) == 0
    assert run.events() == []


def test_before_and_after_a_replay_calls_are_judged_as_ever() -> None:
    run, plan = AgentRun(), retrievals().plan()
    run.fail(id="call_0")
    replay(plan, {"chat": calling(run)})
    run.fail(id="call_2")
    assert ["genai.retry.verdict" in (span.attributes or {}) for span in run.exported] == [True, False, False, True]
    run.processor.force_flush()
    assert sum(run.ledger.counts().values()) == 2


def test_a_call_in_a_replay_is_no_first_execution_of_a_later_one() -> None:
    run = AgentRun()
    with REPLAYS.entered("r"), run.agent():
        run.succeed(id="call_1", args='{"order": 1}')
    with run.agent():
        span = run.succeed(id="call_1", args='{"order": 1}')
    assert "duplicate_of" not in run.tags(span)


def test_a_scan_passes_over_spans_of_a_replay() -> None:
    run = AgentRun()
    with REPLAYS.entered("r"):
        run.fail(id="call_1")
    run.fail(id="call_2")
    assert [row.call.facts.call_id for row in run.scanned().rows] == ["call_2"]


def test_threads_that_do_not_replay_are_left_alone() -> None:
    run = AgentRun()
    with REPLAYS.entered("r"):
        other = threading.Thread(target=run.fail)
        other.start()
        other.join()
    assert GENAI_REPLAY_RUN_ID not in (run.exported[0].attributes or {})
    assert "genai.retry.verdict" in (run.exported[0].attributes or {})


def test_a_guarded_function_with_an_effect_does_not_run_in_a_replay(trap: Trap) -> None:
    guard = Guard(MemoryLedger())

    @guard.tool()
    def refund() -> None:
        trap.spring("refund")

    with pytest.raises(ReplayRefusedError, match="refund is called in a replay"):
        replay(retrievals().plan(), {"chat": lambda run: refund()})
    assert sum(guard.ledger.counts().values()) == 0


def test_a_guarded_function_that_only_reads_runs() -> None:
    guard = Guard(MemoryLedger(), policy=Policy(read_only=("look",)))
    looked: list[int] = []

    @guard.tool()
    def look() -> str:
        looked.append(1)
        return "the answer"

    plan = retrievals().plan()
    replay(plan, {plan.nodes[-1].key: lambda run: look()})
    assert looked == [1]


def test_the_guard_stays_out_of_agents_that_are_replayed(trap: Trap) -> None:
    agents = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.test import TestModel

    guard = Guard(MemoryLedger())
    hooks.install(guard)
    try:
        mine = agents.Agent(TestModel())

        @mine.tool_plain
        def search(query: str) -> str:
            trap.spring("search")

        with replaying(retrievals().plan()):
            assert mine.run_sync("compare them").output == "the answer"
    finally:
        hooks.uninstall()
    assert sum(guard.ledger.counts().values()) == 0


def test_spans_of_a_replayed_agent_bear_its_run_id(trap: Trap) -> None:
    agents = pytest.importorskip("pydantic_ai")
    from pydantic_ai.models.test import TestModel

    run = AgentRun()
    mine = agents.Agent(TestModel())
    agents.Agent.instrument_all(agents.InstrumentationSettings(tracer_provider=run.provider))

    @mine.tool_plain
    def search(query: str) -> str:
        trap.spring("search")

    try:
        with replaying(retrievals().plan(), run_id="r7"):
            mine.run_sync("compare them")
    finally:
        agents.Agent.instrument_all(False)
    assert len(run.exported) > 4
    assert {(span.attributes or {}).get(GENAI_REPLAY_RUN_ID) for span in run.exported} == {"r7"}
    run.processor.force_flush()
    assert sum(run.ledger.counts().values()) == 0
