# SPDX-License-Identifier: Apache-2.0
"""Repetitions, told as they happen."""

from __future__ import annotations

import json

import pytest
from support.agent_run import AgentRun
from support.spans import ARGS, ID

from genai_processor import Policy

OTHER = "call_Other7Qw2zz"
VALUE = json.loads(ARGS)
TALK = {"gen_ai.conversation.id": "talk"}


@pytest.fixture
def run() -> AgentRun:
    return AgentRun()


def hex_id(span: object) -> str:
    return f"{span.get_span_context().span_id:016x}"  # type: ignore[attr-defined]


def test_one_id_twice(run: AgentRun) -> None:
    with run.agent():
        one, two = run.succeed(id=ID, args=ARGS), run.succeed(id=ID, args=ARGS)
    assert run.tags(two)["duplicate_of"] == hex_id(one)
    assert run.tags(two)["attempt"] == 2
    assert "duplicate_of" not in run.tags(one)


@pytest.mark.parametrize("failed", [True, False])
def test_an_action_again_after_a_failed_one_whatever_the_ids(run: AgentRun, failed: bool) -> None:
    with run.agent():
        one = run.fail(id=ID, args=ARGS)
        again = run.fail if failed else run.succeed
        two, three = again(id=OTHER, args=ARGS), again(id="call_Third9Kd1", args=ARGS)
    assert [run.tags(call)["duplicate_of"] for call in (two, three)] == [hex_id(one)] * 2
    assert [run.tags(call)["attempt"] for call in (two, three)] == [2, 3]


def test_intended_twins_of_one_turn_are_no_duplicates(run: AgentRun) -> None:
    with run.agent():
        run.chat((ID, "create_refund", VALUE), (OTHER, "create_refund", VALUE))
        twins = run.succeed(id=ID, args=ARGS), run.succeed(id=OTHER, args=ARGS)
    for twin in twins:
        assert "duplicate_of" not in run.tags(twin)
        assert "attempt" not in run.tags(twin)


def test_twins_without_ids_are_none_either_but_a_third_is(run: AgentRun) -> None:
    with run.agent():
        run.chat((None, "create_refund", VALUE), (None, "create_refund", VALUE))
        calls = [run.succeed(args=ARGS) for _ in range(3)]
    assert ["duplicate_of" in run.tags(call) for call in calls] == [False, False, True]


def test_the_same_action_in_a_later_turn_is_only_suspected(run: AgentRun) -> None:
    with run.agent():
        run.chat((ID, "create_refund", VALUE))
        run.succeed(id=ID, args=ARGS)
        run.chat((OTHER, "create_refund", VALUE))
        again = run.succeed(id=OTHER, args=ARGS)
    tags = run.tags(again)
    assert "duplicate_of" not in tags
    assert tags["attempt"] == 2


def test_a_conversation_reaches_across_traces(run: AgentRun) -> None:
    one = run.fail(id=ID, args=ARGS, attributes=TALK)
    two = run.succeed(id=OTHER, args=ARGS, attributes=TALK)
    assert run.tags(two)["duplicate_of"] == hex_id(one)
    other = run.succeed(id="call_Third9Kd1", args=ARGS, attributes={"gen_ai.conversation.id": "another"})
    assert "duplicate_of" not in run.tags(other)
    with run.agent():
        run.chat(attributes=TALK)
        told_by_its_turn = run.succeed(id="call_Fourth5Vb", args=ARGS)
    assert run.tags(told_by_its_turn)["duplicate_of"] == hex_id(one)


def test_an_id_that_counts_the_calls_of_a_run_says_nothing_across_traces(run: AgentRun) -> None:
    run.succeed(id="call_0", args=ARGS, attributes=TALK)
    again = run.succeed(id="call_0", args='{"order_id":"o2"}', attributes=TALK)
    assert "duplicate_of" not in run.tags(again)


def test_an_id_with_two_meanings_is_no_token() -> None:
    run = AgentRun(Policy(idempotent=("create_*",)))
    with run.agent():
        run.succeed(id=ID, args='{"order_id":"o2"}')
        call = run.fail(id=ID, args=ARGS)
    assert run.verdict(call)[0] == "quarantined_unknown"
    assert run.entry(call).call_id is None


def test_read_only_repeats_nothing_and_an_idempotent_retry_is_meant() -> None:
    run = AgentRun(Policy(read_only=("get_*",), idempotent=("put_*",)))
    with run.agent():
        calls = [run.fail("get_rate", id=ID, args=ARGS), run.succeed("get_rate", id=ID, args=ARGS)]
        calls += [run.fail("put_order", id=ID, args=ARGS), run.succeed("put_order", id=ID, args=ARGS)]
    assert not any("duplicate_of" in run.tags(call) for call in calls)


def test_what_never_started_and_what_came_from_a_cache_is_no_execution(run: AgentRun) -> None:
    stage = {"pydantic_ai.tool.failure_stage": "validation"}
    with run.agent():
        run.fail(scope="pydantic-ai", id=ID, args=ARGS, attributes=stage)
        first = run.succeed(scope="pydantic-ai", id=OTHER, args=ARGS, result="x")
        cached = run.succeed(id="call_Third9Kd1", args=ARGS, attributes={"crewai.tool.from_cache": True})
    assert "duplicate_of" not in run.tags(first)
    assert "duplicate_of" not in run.tags(cached)


def test_nested_views_are_one_execution(run: AgentRun) -> None:
    with run.tool(id=ID, args=ARGS) as outer:
        inner = run.succeed(id=ID, args=ARGS)
    assert "duplicate_of" not in run.tags(inner)
    assert "duplicate_of" not in run.tags(outer)


@pytest.mark.parametrize("key", ["gen_ai.conversation.id", "session.id"])
@pytest.mark.parametrize("where", ["agent", "chat"])
def test_the_conversation_that_an_agent_names_as_it_begins_links_two_runs(run: AgentRun, key: str, where: str) -> None:
    first = None
    for call_id in ("call_First7Qw2zz", "call_Second8Kd3"):
        with run.agent(attributes={key: "c1"} if where == "agent" else None):
            run.chat(attributes={key: "c1"} if where == "chat" else None)
            call = run.fail(id=call_id, args=ARGS)
        if first is None:
            first = call
    assert run.tags(call)["duplicate_of"] == f"{first.get_span_context().span_id:016x}"
