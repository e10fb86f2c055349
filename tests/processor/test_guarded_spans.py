# SPDX-License-Identifier: Apache-2.0
"""What a span says of a call in front of which the guard stood."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from genai_processor import GenAIProcessorInstrumentor, Guard, not_executed
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.bindings import BOUND
from genai_processor.ledger import State


class Desk:
    """A provider whose spans are judged, and a guard on the same ledger."""

    def __init__(self, mode: str) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.guard = Guard(mode=mode, scope="s")
        GenAIProcessorInstrumentor().instrument(
            tracer_provider=self.provider, meter_provider=MeterProvider([self.reader]), guard=self.guard
        )
        self.tracer = self.provider.get_tracer("agent")

    def span(self, tool: str = "pay", **attributes: Any) -> Any:
        values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, **attributes}
        return self.tracer.start_as_current_span(f"execute_tool {tool}", attributes=values)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def tags(self, index: int = -1) -> dict[str, Any]:
        return {
            name.removeprefix("genai."): value
            for name, value in (self.spans[index].attributes or {}).items()
            if name.startswith("genai.")
        }

    def entry_id(self) -> str:
        [entry] = self.guard.ledger.pending().entries
        return entry.entry_id


@pytest.fixture
def desk() -> Iterator[Desk]:
    yield Desk("enforce")
    GenAIProcessorInstrumentor().uninstrument()


@pytest.fixture
def observing() -> Iterator[Desk]:
    yield Desk("observe")
    GenAIProcessorInstrumentor().uninstrument()


def lose(desk: Desk, call_id: str = "toolu_a1", order: int = 1) -> None:
    """A call fails, whose span was there before the guard was asked, and records neither its id nor its arguments."""
    with (
        pytest.raises(TimeoutError),
        desk.span(),
        desk.guard.call("pay", call_id, {"order": order}, turn=f"turn of {call_id}"),
    ):
        raise TimeoutError


def test_the_guard_knows_what_the_span_does_not_say(desk: Desk) -> None:
    lose(desk)
    tags = desk.tags()
    assert (tags["retry.verdict"], tags["retry.reason"]) == ("quarantined", "commitment_marker")
    assert (tags["retry.arguments.state"], tags["retry.execution"]) == ("complete", "started")
    assert (tags["retry.call_id.source"], tags["retry.call_id"]) == ("guard", "toolu_a1")
    assert tags["retry.entry_id"] == desk.entry_id()
    assert (tags["guard.mode"], tags["guard.outcome"]) == ("enforce", "granted")
    assert BOUND == {}


@pytest.mark.parametrize("outer", ["cancel_refund", "cancel-refund", "orders.refund", "admin__refund", "tools/refund"])
def test_what_a_call_inside_a_tool_never_did_proves_nothing_of_that_tool(desk: Desk, outer: str) -> None:
    with pytest.raises(TimeoutError), desk.span(outer):
        with pytest.raises(LookupError), desk.guard.call("refund", "toolu_a1", {"order": 1}):
            not_executed()
            raise LookupError
        raise TimeoutError
    assert desk.tags()["retry.verdict"] == "quarantined_unknown"
    assert "guard.outcome" not in desk.tags()


@pytest.mark.parametrize("inner", ["refund", "look.up.cancel_refund"])
def test_what_a_tool_never_did_proves_nothing_of_another_tools_span_inside_it(desk: Desk, inner: str) -> None:
    with pytest.raises(LookupError), desk.guard.call("cancel_refund", "toolu_a1", {"order": 1}):
        with pytest.raises(TimeoutError), desk.span(inner):
            raise TimeoutError
        not_executed()
        raise LookupError
    assert desk.tags()["retry.verdict"] == "quarantined_unknown"
    assert "guard.outcome" not in desk.tags()


@pytest.mark.parametrize("name", ["execute_tool pay", "tools/call pay", "pay"])
def test_a_current_span_without_a_tools_name_may_have_it_in_its_own(desk: Desk, name: str) -> None:
    attributes = {"gen_ai.operation.name": "execute_tool"}
    with desk.tracer.start_as_current_span(name, attributes=attributes), desk.guard.call("pay", "toolu_a1"):
        pass
    assert desk.tags()["guard.outcome"] == "granted"


def test_a_span_that_begins_inside_the_claim_is_its_span_and_only_the_first(desk: Desk) -> None:
    with desk.guard.call("pay", "toolu_a1", {"order": 1}):
        with desk.span("other"):
            pass
        with desk.span(), desk.span("pay"):
            pass
    other, inner, outer = desk.tags(0), desk.tags(1), desk.tags(2)
    assert "guard.outcome" not in other
    assert "guard.outcome" not in inner
    assert outer["guard.outcome"] == "granted"
    assert outer["retry.verdict"] == "no_retry_needed"
    assert BOUND == {}


def test_a_refused_call_is_quarantined_on_its_span_and_makes_no_entry(desk: Desk) -> None:
    lose(desk)
    with desk.span(), pytest.raises(ToolSpanCommitmentError), desk.guard.call("pay", "toolu_b2", {"order": 1}, turn="t2"):
        raise AssertionError("it ran twice")
    tags = desk.tags()
    assert (tags["retry.verdict"], tags["retry.reason"]) == ("quarantined", "refused_by_guard")
    assert tags["retry.execution"] == "not_started"
    assert tags["retry.entry_id"] == desk.entry_id()
    assert tags["guard.outcome"] == "refused"
    assert desk.guard.ledger.stats().entries == 1
    assert BOUND == {}


def test_a_call_that_is_answered_with_its_result_needs_no_retry(desk: Desk) -> None:
    with desk.span(), desk.guard.call("pay", "toolu_a1", {"order": 1}, turn="t1") as attempt:
        attempt.returned("paid")
    with desk.span(), pytest.raises(ToolSpanCommitmentError), desk.guard.call("pay", "toolu_a1", {"order": 1}, turn="t1"):
        raise AssertionError("it ran twice")
    tags = desk.tags()
    assert (tags["retry.verdict"], tags["guard.outcome"]) == ("no_retry_needed", "handed_back")
    assert "retry.duplicate_of" not in tags
    assert desk.guard.ledger.counts()[State.COMPLETED] == 1


def test_a_tool_that_says_that_it_did_nothing_may_be_called_again(desk: Desk) -> None:
    with pytest.raises(ValueError, match="no such order"), desk.span(), desk.guard.call("pay", "toolu_a1", {"order": 1}):
        not_executed()
        raise ValueError("no such order")
    tags = desk.tags()
    assert (tags["retry.verdict"], tags["retry.execution"]) == ("retryable_pre_execution", "not_started")
    assert desk.guard.ledger.counts()[State.NOT_STARTED] == 1


def test_a_span_below_it_outweighs_what_the_tool_says(desk: Desk) -> None:
    from opentelemetry.trace import SpanKind

    with pytest.raises(ValueError, match="late"), desk.span(), desk.guard.call("pay", "toolu_a1", {"order": 1}):
        with desk.tracer.start_as_current_span("POST /payments", kind=SpanKind.CLIENT):
            pass
        not_executed()
        raise ValueError("late")
    assert desk.tags()["retry.verdict"] == "quarantined"
    assert desk.guard.ledger.counts()[State.QUARANTINED] == 1


def test_what_would_have_been_refused_is_said_and_both_attempts_wait(observing: Desk) -> None:
    lose(observing)
    lose(observing, "toolu_b2")
    assert observing.tags()["guard.outcome"] == "would_refuse"
    assert len(observing.guard.ledger.pending().entries) == 2


def test_a_failure_that_a_runtime_turned_into_a_result_is_not_lifted_by_that_result(desk: Desk) -> None:
    from genai_processor.guard.calls import Call
    from genai_processor.guard.running import Manners, run

    def runtime() -> str:
        try:
            with desk.span():
                raise TimeoutError
        except TimeoutError:
            return "An error occurred."

    assert run(desk.guard, Call("pay", "toolu_a1", {"order": 1}, turn="t1"), runtime, Manners()) == "An error occurred."
    assert desk.guard.ledger.counts()[State.QUARANTINED] == 1


def test_calls_at_the_same_time_keep_their_spans_apart(desk: Desk) -> None:
    begin = threading.Barrier(8)

    def pay(order: int) -> None:
        with desk.guard.call("pay", f"toolu_{order}x", {"order": order}):
            begin.wait(10)
            with desk.span():
                begin.wait(10)

    threads = [threading.Thread(target=pay, args=(order,)) for order in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    entries = {entry.entry_id for order in range(8) for entry in desk.guard.ledger.by_call("s", f"toolu_{order}x")}
    assert {desk.tags(index)["retry.entry_id"] for index in range(8)} == entries
    assert BOUND == {}


def test_decisions_are_counted(desk: Desk) -> None:
    lose(desk)
    with pytest.raises(ToolSpanCommitmentError), desk.guard.call("pay", "toolu_b2", {"order": 1}, turn="t2"):
        raise AssertionError("it ran twice")
    data: Any = desk.reader.get_metrics_data()
    [metric] = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "genai.guard.calls"
    ]
    found = {(point.attributes["genai.guard.outcome"], point.value) for point in metric.data.data_points}
    assert found == {("granted", 1), ("refused", 1)}


def test_a_refusal_inside_a_tool_of_a_similar_name_says_nothing_of_that_tool(desk: Desk) -> None:
    lose(desk)
    with (
        pytest.raises(ToolSpanCommitmentError),
        desk.span("repay"),
        desk.guard.call("pay", "toolu_b2", {"order": 1}, turn="t2"),
    ):
        raise AssertionError("it ran twice")
    assert desk.tags()["retry.verdict"].startswith("quarantined")
    assert "guard.outcome" not in desk.tags()


def test_a_span_that_fails_though_a_result_was_handed_back_is_judged_as_any_other(desk: Desk) -> None:
    with desk.span(), desk.guard.call("pay", "toolu_a1", {"order": 1}, turn="t1") as attempt:
        attempt.returned("paid")
    with pytest.raises(ToolSpanCommitmentError), desk.span(), desk.guard.call("pay", "toolu_a1", {"order": 1}, turn="t1"):
        raise AssertionError("it ran twice")
    assert desk.tags()["retry.verdict"].startswith("quarantined")
