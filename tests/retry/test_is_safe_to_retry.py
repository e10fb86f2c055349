# SPDX-License-Identifier: Apache-2.0
"""`is_safe_to_retry`: whether the run that an exception ended may be run again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, get_current_span
from support.agent_run import AgentRun
from support.spans import ARGS, ID

from genai_processor import Policy, is_safe_to_retry
from genai_processor.retry.recent import RecentRuns

STAGE = {"pydantic_ai.tool.failure_stage": "validation"}
POLICY = Policy(read_only=("get_*",), idempotent=("put_*",))


class Rejected(Exception):
    """What a framework raises for a call that it rejects."""


@pytest.fixture(autouse=True)
def _nothing_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other tests may have ended with the same kinds of exceptions, which would rightly count."""
    monkeypatch.setattr("genai_processor.retry.recent._OF_PROCESS", RecentRuns())


@pytest.fixture
def run() -> AgentRun:
    return AgentRun(POLICY)


def raised_in(run: AgentRun, name: str, text: str, *, rejects: bool = False) -> Exception:
    """A call that ends with an exception, in a run of its own if none is open."""
    attributes = STAGE if rejects else None
    with (
        pytest.raises(Rejected) as caught,
        contextlib.nullcontext() if get_current_span().is_recording() else run.agent(),
        run.tool(name, id=ID, args=ARGS, scope="pydantic-ai" if rejects else "app", attributes=attributes),
    ):
        raise Rejected(text)
    return caught.value


def test_a_read_only_call_may_be_tried_again(run: AgentRun) -> None:
    assert is_safe_to_retry(raised_in(run, "get_rate", "a1"))


def test_a_call_that_never_started_may_be(run: AgentRun) -> None:
    assert is_safe_to_retry(raised_in(run, "create_refund", "b1", rejects=True))


def test_a_call_that_may_have_committed_may_not(run: AgentRun) -> None:
    assert not is_safe_to_retry(raised_in(run, "create_refund", "c1"))


def test_an_idempotent_call_only_under_its_own_id(run: AgentRun) -> None:
    error = raised_in(run, "put_order", "d1")
    assert not is_safe_to_retry(error)
    assert is_safe_to_retry(error, same_call_id=True)


def test_an_exception_that_no_call_ended_is_unknown() -> None:
    assert not is_safe_to_retry(RuntimeError("e1"))
    assert not is_safe_to_retry(KeyboardInterrupt())


@pytest.mark.parametrize("name", ["get_rate", "create_refund"])
@pytest.mark.parametrize("how", ["from", "while handling"])
def test_what_it_was_raised_from_counts(run: AgentRun, name: str, how: str) -> None:
    inner = raised_in(run, name, f"f-{how}")

    def give_up() -> None:
        try:
            raise inner
        except Rejected as error:
            if how == "from":
                raise RuntimeError("the agent gave up") from error
            raise RuntimeError("the agent gave up")  # noqa: B904

    with pytest.raises(RuntimeError) as outer:
        give_up()
    # What was merely being handled may have ended an earlier run, of which this one is the retry.
    assert is_safe_to_retry(outer.value) is (name == "get_rate" and how == "from")


def test_every_member_of_a_group_counts(run: AgentRun) -> None:
    safe, other, bad = raised_in(run, "get_rate", "g1"), raised_in(run, "get_rate", "g2"), raised_in(run, "pay", "g3")
    assert is_safe_to_retry(ExceptionGroup("all", [safe, ExceptionGroup("inner", [other])]))
    assert not is_safe_to_retry(ExceptionGroup("all", [safe, ExceptionGroup("inner", [bad])]))


@pytest.mark.parametrize("other", ["succeeded", "failed", "read only"])
def test_every_other_call_of_the_run_counts(run: AgentRun, other: str) -> None:
    with run.agent():
        if other == "succeeded":
            run.succeed("pay", id="call_Other7Qw2zz", args='{"x":1}')
        elif other == "failed":
            run.fail("pay", id="call_Other7Qw2zz", args='{"x":1}')
        else:
            run.succeed("get_rate", id="call_Other7Qw2zz")
        error = raised_in(run, "get_rate", f"h-{other}")
    assert is_safe_to_retry(error) is (other == "read only")


def test_a_later_call_of_the_run_counts_too(run: AgentRun) -> None:
    with run.agent():
        error = raised_in(run, "get_rate", "i1")
        assert is_safe_to_retry(error)
        run.succeed("pay", id="call_Other7Qw2zz", args='{"x":1}')
    assert not is_safe_to_retry(error)


def test_another_run_does_not(run: AgentRun) -> None:
    run.succeed("pay", id=ID, args=ARGS)
    assert is_safe_to_retry(raised_in(run, "get_rate", "j1"))


def test_an_exception_like_that_of_a_worse_call_is_told_apart_by_what_it_is(run: AgentRun) -> None:
    bad, good = raised_in(run, "pay", "k1"), raised_in(run, "get_rate", "k1")
    assert is_safe_to_retry(good)
    assert not is_safe_to_retry(bad)
    assert not is_safe_to_retry(Rejected("k1")), "a copy of either may be the bad one's"


def test_an_answer_changes_when_late_evidence_comes(run: AgentRun) -> None:
    call = run.tool(id=ID, args=ARGS, scope="pydantic-ai", attributes=STAGE)
    with run.agent(), pytest.raises(Rejected) as caught, call as span:
        raise Rejected("l1")
    assert is_safe_to_retry(caught.value)
    run.begin("POST", kind=SpanKind.CLIENT, parent=span).end()
    assert not is_safe_to_retry(caught.value)


@pytest.mark.parametrize("name", ["get_approval", "pay", "put_order"])
def test_a_pause_is_no_obstacle_where_nothing_can_have_been_done_before_it(run: AgentRun, name: str) -> None:
    with run.agent():
        run.fail(name, id="call_Other7Qw2zz", args=ARGS, error="langgraph.errors.GraphInterrupt")
        error = raised_in(run, "get_rate", f"m-{name}")
    assert is_safe_to_retry(error, same_call_id=True) is (name == "get_approval")


def test_one_call_of_several_views_counts_once_as_its_outermost(run: AgentRun) -> None:
    sent = {"kind": SpanKind.CLIENT, "attributes": {"mcp.method.name": "tools/call"}}
    with run.agent(), pytest.raises(Rejected) as caught, run.tool("get_rate", id=ID), run.tool("get_rate", **sent):
        raise Rejected("n1")
    assert is_safe_to_retry(caught.value)


@pytest.mark.parametrize("rejects", [False, True])
def test_a_call_that_nothing_stands_above_tells_nothing_of_its_run(run: AgentRun, rejects: bool) -> None:
    """Frameworks without a span around a run: each call is a trace of its own, and `pay` stands in another one."""
    run.succeed("pay", id="call_Other7Qw2zz", args=ARGS)
    attributes = STAGE if rejects else None
    scope = "pydantic-ai" if rejects else "app"
    with pytest.raises(Rejected) as caught, run.tool("get_rate", id=ID, args=ARGS, scope=scope, attributes=attributes):
        raise Rejected(f"o-{rejects}")
    assert not is_safe_to_retry(caught.value)


@pytest.mark.parametrize("name", ["pay", "get_rate"])
def test_a_call_that_is_still_open_counts(run: AgentRun, name: str) -> None:
    with run.agent() as agent:
        parallel = run.begin(
            f"execute_tool {name}",
            parent=agent,
            attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name},
        )
        error = raised_in(run, "get_rate", f"p-{name}")
        assert is_safe_to_retry(error) is (name == "get_rate")
        parallel.end()


class Odd(Exception):
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> object:
        raise ValueError(name)


@pytest.mark.parametrize("make", [Odd, lambda: None, lambda: "TimeoutError", object, lambda: ValueError])
def test_it_never_raises(make: Callable[[], Any]) -> None:
    assert is_safe_to_retry(make()) is False


def test_it_never_raises_whatever_its_records_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("OrderedDict mutated during iteration")

    monkeypatch.setattr(RecentRuns, "verdicts", fail)
    assert is_safe_to_retry(ValueError("q1")) is False


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError


def test_an_exception_that_cannot_say_what_it_is(run: AgentRun) -> None:
    def handle() -> None:
        try:
            raise Mute
        except Mute:
            run.fail("pay", id=ID, args=ARGS, error="Mute")
            raise

    with pytest.raises(Mute) as caught:
        handle()
    assert not is_safe_to_retry(caught.value)
    assert not is_safe_to_retry(Mute())


def test_exceptions_that_are_each_others_cause_end() -> None:
    """In a process of its own: whoever follows them without end takes all the memory."""
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        from support.agent_run import AgentRun
        from genai_processor import is_safe_to_retry
        run = AgentRun()
        one, two = ValueError("one"), ValueError("two")
        one.__cause__, two.__cause__ = two, one
        assert not is_safe_to_retry(one)
        try:
            with run.tool("pay", id="call_Xk29LmQ8vTz4") as span:
                raise one
        except ValueError as error:
            assert not is_safe_to_retry(error)
        assert run.verdict(span)[0] == "quarantined_unknown"
    """
    tests = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=tests, timeout=10, check=True)
