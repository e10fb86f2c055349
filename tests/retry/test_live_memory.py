# SPDX-License-Identifier: Apache-2.0
"""What was forgotten, lost or comes late live: absence permits nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags
from support.agent_run import AgentRun
from support.spans import ARGS, ID, SCHEMA

from genai_processor import GenAISpanProcessor, Policy, Settings, is_safe_to_retry
from genai_processor.ledger import State
from genai_processor.retry import open_traces, undecided
from genai_processor.retry.evidence import Evidence
from genai_processor.retry.execution import Execution
from genai_processor.retry.history import History, Scope
from genai_processor.retry.open_traces import Limits, OpenTraces
from genai_processor.retry.verdict import Ended

REJECTED = {"pydantic_ai.tool.failure_stage": "validation", "error.type": "pydantic_core.ValidationError"}
OFFERS = {"get_rate": SCHEMA}
NO_SUCH: dict[str, Any] = {"scope": "strands.telemetry.tracer", "error": "Exception"}
UNKNOWN = ("retryable_pre_execution", "unknown_tool")


@pytest.fixture
def run() -> AgentRun:
    return AgentRun()


def rejected(run: AgentRun, **more: Any) -> Any:
    return run.tool(scope="pydantic-ai", id=ID, args="{}", attributes=REJECTED, **more)


def offered(run: AgentRun, *tools: str) -> None:
    run.chat((ID, "pay", {}), offers=dict.fromkeys(tools, SCHEMA))


# -- turns that were dropped -------------------------------------------------------------------------------------------


def test_a_tool_offered_in_a_turn_that_was_dropped_may_exist(run: AgentRun) -> None:
    with run.agent():
        offered(run, "get_rate", "pay")
        for _ in range(140):
            run.chat(offers=OFFERS)
        call = run.fail("pay", **NO_SUCH, args="{}")
    assert run.verdict(call)[0].startswith("quarantined")


def test_a_trace_that_goes_on_after_its_root_has_lost_its_turns(run: AgentRun) -> None:
    with run.agent() as root:
        offered(run, "get_rate", "pay")
        with run.agent(parent=root) as kept:
            pass
    late = run.begin("invoke_agent b", parent=kept, attributes={"gen_ai.operation.name": "invoke_agent"})
    run.chat(offers=OFFERS, parent=late)
    call = run.fail("pay", **NO_SUCH, args="{}", parent=late)
    assert run.verdict(call)[0].startswith("quarantined")
    late.end()


@pytest.mark.parametrize("why", ["count", "age", "bytes"])
def test_an_open_trace_that_was_dropped_and_goes_on_is_partial(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(open_traces, "_MAX_TRACES", 5)
    limits = Limits(max_bytes=10_000 if why == "bytes" else 10**9, max_age=60)
    traces = OpenTraces(limits, lambda: now[0])
    run = AgentRun()

    def keep(trace_id: int, size: int = 1) -> None:
        context = SpanContext(trace_id, trace_id, False, TraceFlags(1))
        span = run.begin("chat", parent=NonRecordingSpan(context))
        traces.keep(span, {"gen_ai.input.messages": "x" * size})

    keep(1)
    first = traces.get(1)
    assert first is not None
    assert not first.partial
    if why == "age":
        now[0] = 61.0
        keep(2)
    elif why == "bytes":
        keep(2, 6_000)
    else:
        for trace_id in range(2, 7):
            keep(trace_id)
    assert traces.get(1) is None
    assert first.partial
    assert not first.spans
    keep(1)
    again = traces.get(1)
    assert again is not None
    assert again.partial
    assert not any(held.partial for key in range(2, 9) if (held := traces.get(key)) is not None and key != 1)


def beyond(trace_id: int) -> Span:
    """A span in another process."""
    return NonRecordingSpan(SpanContext(trace_id, 7, True, TraceFlags(1)))


def test_a_trace_that_came_in_is_closed_when_it_leaves(run: AgentRun) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    for trace_id in range(1, 20):
        with run.agent(parent=beyond(trace_id)):
            offered(run, "get_rate")
    assert not witness._traces._traces
    assert not witness._traces._entered


def test_one_part_of_a_trace_that_leaves_does_not_close_another(run: AgentRun) -> None:
    first = run.begin("invoke_agent a", parent=beyond(3), attributes={"gen_ai.operation.name": "invoke_agent"})
    run.chat((ID, "pay", {}), offers=OFFERS, parent=first)
    with run.agent(parent=beyond(3)):
        pass
    call = run.fail("pay", **NO_SUCH, id=ID, args="{}", parent=first)
    assert run.verdict(call) == UNKNOWN, "its turn is still known"
    first.end()


def test_closed_traces_are_let_go(run: AgentRun) -> None:
    kept = []
    for _ in range(50):
        with run.agent():
            turn = run.chat((ID, "pay", {}), offers=OFFERS)
            kept.append(weakref.ref(turn))
            run.succeed("pay", id=ID, args="{}")
        del turn
    run.exporter.clear()
    gc.collect()
    assert not any(ref() is not None for ref in kept)


# -- spans that could not be read --------------------------------------------------------------------------------------


def test_a_span_that_cannot_be_judged_is_quarantined(run: AgentRun, monkeypatch: pytest.MonkeyPatch) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]

    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    with rejected(run) as outer:
        monkeypatch.setattr(witness, "_read", broken)
        inner = run.fail("pay", id="call_Third9Kd1", args=ARGS)
        monkeypatch.undo()
    assert run.verdict(inner)[0] == "quarantined_unknown"
    assert run.tags(inner)["evidence"] == ("the span could not be read",)
    assert run.entry(inner).state is State.QUARANTINED
    assert run.verdict(outer)[0] == "quarantined", "something ran below it of which nothing is known"


# -- what ends late ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["well", "failed"])
def test_a_call_that_ends_after_the_one_above_it_belies_that_one(run: AgentRun, end: str) -> None:
    with rejected(run) as call:
        pass
    late = run.succeed if end == "well" else run.fail
    nested = late("charge", id="call_Third9Kd1", args=ARGS, parent=call)
    assert run.entry(call).state is State.QUARANTINED
    assert run.tags(nested)["verdict"] == ("no_retry_needed" if end == "well" else "quarantined")
    assert [event["genai.retry.late"] for event in run.events()].count(True) == 1


def test_a_late_call_that_never_started_itself_belies_nothing(run: AgentRun) -> None:
    with rejected(run) as call:
        pass
    with run.tool("charge", scope="pydantic-ai", id="call_Third9Kd1", args="{}", attributes=REJECTED, parent=call):
        pass
    assert run.entry(call).state is State.NOT_STARTED


@pytest.mark.parametrize("through", ["a server", "nothing"])
def test_a_context_that_went_through_a_carrier_of_this_process_still_leads_to_its_parent(
    run: AgentRun, through: str
) -> None:
    """An MCP server or a web application in memory: the API calls the parent remote."""
    with rejected(run) as call:
        context = call.get_span_context()
        carried = NonRecordingSpan(SpanContext(context.trace_id, context.span_id, True, context.trace_flags))
        if through == "a server":
            with run.span("handle", kind=SpanKind.SERVER, parent=carried):
                run.begin("POST", kind=SpanKind.CLIENT).end()
        else:
            run.begin("POST", kind=SpanKind.CLIENT, parent=carried).end()
    assert run.verdict(call)[0] == "quarantined"


def test_a_call_that_ends_after_what_ran_it_did_not_plainly_come_back(run: AgentRun) -> None:
    agent = run.begin("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"})
    with run.tool(id=ID, args=ARGS, parent=agent) as call:
        agent.end()
    assert run.verdict(call) == ("quarantined", "commitment_marker")
    assert "ended after its parent" in run.tags(call)["evidence"]


def test_a_parent_that_ends_while_its_child_does_finds_it_open_or_told(run: AgentRun) -> None:
    """The parent may end between any two steps of its child's end."""

    class Steps(dict[int, Any]):
        """A table before whose every change the parent's view is taken."""

        check: Callable[[], None] | None = None

        def pop(self, *args: Any) -> Any:
            if self.check is not None:
                self.check()
            return super().pop(*args)

        def setdefault(self, *args: Any) -> Any:
            if self.check is not None:
                self.check()
            return super().setdefault(*args)

    evidence = Evidence()
    seen = []
    tool = run.begin("execute_tool pay")
    evidence.started(tool, True)
    child = run.begin("POST", kind=SpanKind.CLIENT, parent=tool)
    evidence.started(child, False)
    own = tool.get_span_context().span_id

    def check() -> None:
        seen.append(bool(evidence._open.get(own) or evidence._below.get(own)))

    evidence._below, evidence.watched = Steps(evidence._below), Steps(evidence.watched)
    evidence._below.check = evidence.watched.check = check
    evidence.ended(child)
    assert len(seen) >= 3
    assert all(seen)


# -- what is being handled ---------------------------------------------------------------------------------------------


def test_a_call_made_to_clean_up_after_a_cancellation_is_judged_by_itself(run: AgentRun) -> None:
    try:
        raise asyncio.CancelledError
    except asyncio.CancelledError:
        call = run.succeed("release", id=ID, args=ARGS, result="ok")
    assert run.verdict(call) == ("no_retry_needed", "succeeded")
    try:
        raise asyncio.CancelledError
    except asyncio.CancelledError:
        with pytest.raises(KeyboardInterrupt), run.tool("release", id=ID, args=ARGS) as call:
            raise KeyboardInterrupt from None
    assert run.verdict(call)[0] == "quarantined"


# -- a glance sees no less than the full reading -----------------------------------------------------------------------


@pytest.mark.parametrize("key", ["tool_response", "output.value"])
def test_a_failure_in_a_result_under_another_key(run: AgentRun, key: str) -> None:
    failed = '{"isError": true, "content": []}'
    call = run.succeed("pay", scope="pydantic-ai", id=ID, attributes={"tool_arguments": "{}", key: failed})
    assert run.verdict(call)[0] != "no_retry_needed"


# -- threads -----------------------------------------------------------------------------------------------------------


def test_a_scope_made_while_another_thread_notes_its_first_call_keeps_both() -> None:
    def execution(number: int) -> Execution:
        return Execution(
            span_id=f"{number:016x}",
            trace_id="t",
            tool="pay",
            call_id=f"call_{number}aB",
            start_ns=number,
            end_ns=number,
            ended=Ended.WELL,
            uncertain=False,
            arguments=None,
        )

    history = History()
    first = execution(1)

    class Racing(type(history._scopes)):  # type: ignore[misc]
        def get(self, name: str, default: Any = None) -> Any:
            found = super().get(name, default)
            if found is None:
                history.is_first("s", first)  # another thread, right after the look
            return found

    history._scopes = Racing()
    scope = history.scope("s")
    assert isinstance(scope, Scope)
    assert scope.ids == {first.call_id: first}


# -- evidence that comes at an awkward moment --------------------------------------------------------------------------


def test_a_child_that_ends_while_its_tool_is_judged_belies_it(run: AgentRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's request below the tool begins and ends between any two steps of the judging."""
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    failed = witness._calls.failed
    with rejected(run) as call:

        def meanwhile(*args: Any) -> Any:
            judgement = failed(*args)
            run.begin("POST", kind=SpanKind.CLIENT, parent=call).end()
            return judgement

        monkeypatch.setattr(witness._calls, "failed", meanwhile)
    assert run.verdict(call)[0] == "quarantined"
    assert not witness._evidence._below


def test_a_child_that_was_open_ends_between_two_looks_at_it(run: AgentRun) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    with rejected(run) as call:
        child = run.begin("POST", kind=SpanKind.CLIENT)

        class Racing(dict[int, Any]):
            def pop(self, key: int, *default: Any) -> Any:
                if child.is_recording():
                    child.end()
                return super().pop(key, *default)

        witness._evidence._tools = Racing(witness._evidence._tools)
        witness._evidence._below = Racing(witness._evidence._below)
    assert run.verdict(call)[0] == "quarantined"


@pytest.mark.parametrize("when", ["before the outer ends", "after it"])
def test_what_ends_late_below_an_inner_view_speaks_against_the_outer(run: AgentRun, when: str) -> None:
    with run.tool(scope="pydantic-ai", id=ID) as outer:
        with rejected(run) as inner:
            pass
        if when == "before the outer ends":
            run.begin("POST", kind=SpanKind.CLIENT, parent=inner).end()
        outer.set_attribute("error.type", "RuntimeError")
    if when == "after it":
        assert run.verdict(outer)[0] == "retryable_pre_execution"
        run.begin("POST", kind=SpanKind.CLIENT, parent=inner).end()
    else:
        assert run.verdict(outer)[0].startswith("quarantined")
    assert run.entry(outer).state is State.QUARANTINED


def test_a_tool_that_says_so_only_at_its_end_has_no_proof_that_it_never_started(run: AgentRun) -> None:
    with run.span("create_refund", scope="pydantic-ai") as call:
        open_child = run.begin("POST", kind=SpanKind.CLIENT)
        call.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "create_refund", **REJECTED})
    assert run.verdict(call)[0].startswith("quarantined")
    open_child.end()


def test_a_servers_list_of_tools_is_known_live(run: AgentRun) -> None:
    """Whose arguments the server checks, the framework does not."""
    answer = json.dumps({"tools": [{"name": "create_refund", "inputSchema": SCHEMA}]})
    llama = {
        "openinference.span.kind": "TOOL",
        "tool.name": "create_refund",
        "tool.parameters": json.dumps(SCHEMA),
        "input.value": '{"kwargs": {"order_id": "o1"}}',
        "error.type": "TypeError",
    }
    with run.agent():
        scope = "openinference.instrumentation.llama_index"
        with run.span("FunctionTool.acall", scope=scope, attributes=llama) as before:
            pass
        listing = {"rpc.method": "tools/list", "response": answer}
        with run.span("MCP request: tools/list", scope="logfire.mcp", kind=SpanKind.CLIENT, attributes=listing):
            pass
        with run.span("FunctionTool.acall", scope=scope, attributes=llama) as call:
            pass
    assert run.verdict(before)[0] == "retryable_pre_execution"
    assert run.verdict(call)[0].startswith("quarantined")


def test_a_call_that_began_when_its_parent_had_ended_came_back_all_the_same(run: AgentRun) -> None:
    """Sent in the background, after the answer to the request: nobody ever waited for it."""
    root = run.begin("GET /", kind=SpanKind.SERVER)
    root.end()
    call = run.succeed("send_mail", id=ID, args=ARGS, result="ok", parent=root)
    assert run.verdict(call) == ("no_retry_needed", "succeeded")


def test_nested_calls_of_parents_that_never_end_are_bounded_in_bytes() -> None:
    run = AgentRun()
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    arguments = json.dumps({"text": "x" * 100_000})
    for number in range(1, 1_000):
        beyond = NonRecordingSpan(SpanContext(number, number, False, TraceFlags(1)))
        run.fail(id=ID, args=arguments, parent=beyond)
        run.exporter.clear()
    held = witness._evidence
    assert held._size == sum(held._sizes.values()) < 40_000_000
    assert set(held._sizes) == set(held._tools)
    assert len(held._tools) < 500


def test_a_span_below_two_calls_that_ended_belies_both(run: AgentRun) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    with rejected(run) as outer:
        pass
    with run.tool("charge", scope="pydantic-ai", id="call_Third9Kd1", args="{}", attributes=REJECTED) as other:
        pass
    above = tuple(call.get_span_context().span_id for call in (outer, other))
    first = witness._late.belie(above)
    assert {first.span_id, first.belies.span_id} == set(above)
    assert first.belies.belies is None
    assert witness._late.belie(above) is None


def test_a_call_that_awaits_late_evidence_and_is_forgotten_is_unknown(
    run: AgentRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undecided, "_MAX_UNDECIDED", 3)
    error = ValueError("rejected")
    with run.agent(), pytest.raises(ValueError, match="rejected"), rejected(run):
        raise error
    assert is_safe_to_retry(error)
    for _ in range(3):
        with run.agent(), rejected(run):
            pass
    assert not is_safe_to_retry(error), "nothing would notice a request that it still makes"


def test_what_begins_below_a_call_that_ended_counts_from_its_beginning(run: AgentRun) -> None:
    error = ValueError("rejected")
    with run.agent(), pytest.raises(ValueError, match="rejected"), rejected(run) as call:
        raise error
    assert is_safe_to_retry(error)
    request = run.begin("POST", kind=SpanKind.CLIENT, parent=call)
    assert not is_safe_to_retry(error)
    request.end()
    assert run.entry(call).state is State.QUARANTINED


def test_an_exception_raised_again_in_a_call_that_began_while_it_was_handled_ended_that_too(run: AgentRun) -> None:
    error = ValueError("rejected")
    with run.agent(), pytest.raises(ValueError, match="rejected"), rejected(run):
        raise error
    assert is_safe_to_retry(error)
    try:
        raise error
    except ValueError:
        with run.agent(), pytest.raises(ValueError, match="rejected"), run.tool(id="call_Third9Kd1", args=ARGS):
            raise error  # noqa: B904 - the same one
    assert not is_safe_to_retry(error)


def test_of_two_processors_the_one_that_knows_less_decides(run: AgentRun) -> None:
    run.provider.add_span_processor(
        GenAISpanProcessor(policy=Policy(read_only=("*",)), settings=Settings(metrics=False, events=False))
    )
    error = ValueError("declined")
    with run.agent(), pytest.raises(ValueError, match="declined"), run.tool(id=ID, args=ARGS):
        raise error
    assert not is_safe_to_retry(error)


# -- what an inner span of a call was told -----------------------------------------------------------------------------

CALLS = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "create_refund"}
REFUSED = {"exception.type": "fastmcp.exceptions.ValidationError", "exception.message": "x"}


def served(run: AgentRun, client: Span, **more: Any) -> Span:
    """The server's span of a call, which it refuses."""
    server = run.begin("tools/call create_refund", scope="fastmcp", kind=SpanKind.SERVER, parent=client, **more)
    server.add_event("exception", REFUSED)
    server.set_attribute("error.type", "fastmcp.exceptions.ValidationError")
    return server


@pytest.mark.parametrize("request_ends", ["before the client's span", "after it", "never"])
def test_what_goes_on_below_a_servers_span_speaks_against_the_clients(run: AgentRun, request_ends: str) -> None:
    with run.agent():
        client = run.begin("tools/call", scope="fastmcp", kind=SpanKind.CLIENT, attributes=CALLS)
        server = served(run, client, attributes=CALLS)
        server.end()
        request = run.begin("POST", kind=SpanKind.CLIENT, parent=server)
        if request_ends == "before the client's span":
            request.end()
        client.set_attribute("error.type", "ValueError")
        client.end()
        if request_ends == "after it":
            request.end()
    assert run.verdict(client)[0].startswith("quarantined")


def test_a_servers_span_that_is_known_only_at_its_end_proves_nothing_for_the_clients(run: AgentRun) -> None:
    with run.agent():
        client = run.begin("tools/call", scope="fastmcp", kind=SpanKind.CLIENT, attributes=CALLS)
        server = served(run, client)
        still_open = run.begin("POST", kind=SpanKind.CLIENT, parent=server)
        server.set_attributes(CALLS)
        server.end()
        client.set_attribute("error.type", "ValueError")
        client.end()
    assert run.verdict(client)[0].startswith("quarantined")
    still_open.end()


def test_a_request_seen_between_two_looks_counts_for_the_call_above_too(
    run: AgentRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    failed = witness._calls.failed
    with run.tool(scope="pydantic-ai", id=ID, args="{}", attributes=REJECTED) as outer:
        with rejected(run) as inner:

            def meanwhile(*args: Any) -> Any:
                judgement = failed(*args)
                run.begin("POST", kind=SpanKind.CLIENT, parent=inner).end()
                return judgement

            monkeypatch.setattr(witness._calls, "failed", meanwhile)
        monkeypatch.undo()
    assert run.verdict(inner)[0] == run.verdict(outer)[0] == "quarantined"


def test_a_child_that_begins_while_its_tool_is_judged_belies_it(run: AgentRun, monkeypatch: pytest.MonkeyPatch) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    failed = witness._calls.failed
    begun = []
    with rejected(run) as call:

        def meanwhile(*args: Any) -> Any:
            begun.append(run.begin("POST", kind=SpanKind.CLIENT, parent=call))
            return failed(*args)

        monkeypatch.setattr(witness._calls, "failed", meanwhile)
    assert run.verdict(call)[0] == "quarantined"
    begun[0].end()


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "resources/read", "ping"])
def test_a_request_of_a_server_to_its_client_is_something_below(run: AgentRun, method: str) -> None:
    with (
        rejected(run) as call,
        run.span(method, scope="fastmcp", kind=SpanKind.CLIENT, attributes={"mcp.method.name": method}),
    ):
        pass
    assert (run.verdict(call)[0] == "retryable_pre_execution") is (method == "ping")


# -- what is left behind -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["no mark", "an inference", "two processors", "a fault", "well", "rejected", "parent first"])
def test_nothing_is_left_of_what_has_ended(run: AgentRun, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    if how == "two processors":
        other = GenAISpanProcessor(run.processor, settings=Settings(metrics=False, events=False))
        run = AgentRun()
        run.provider = type(run.provider)(shutdown_on_exit=False)
        run.provider.add_span_processor(other)
    if how == "a fault":
        monkeypatch.setattr(witness, "_read", lambda *_: 1 / 0)
    for number in range(20):
        with run.agent() as root:
            if how in ("no mark", "an inference"):
                attributes = {"gen_ai.operation.name": "chat"} if how == "an inference" else None
                with run.span("execute_tool pay", attributes=attributes), run.span():
                    pass
            elif how == "parent first":
                tool = run.begin("execute_tool pay", attributes={"gen_ai.operation.name": "execute_tool"})
                inner = run.begin("work", parent=tool)
                tool.end()
                inner.end()
            else:
                context = run.tool(id=f"call_{number}aB", args=ARGS) if how != "rejected" else rejected(run)
                with context, run.span():
                    pass
    del root
    evidence = witness._evidence
    for table in (evidence.open_tools, evidence.watched, evidence._open, evidence._tools, evidence._sizes):
        assert not table
    assert not witness._around._open
    assert not evidence._suspects
    assert evidence._size == 0


def test_a_parent_that_ends_while_a_call_is_counted_in_leaves_no_bytes_behind(run: AgentRun) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    evidence = witness._evidence
    load = evidence._load
    for _ in range(5):
        agent = run.begin("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"})
        call = run.begin(
            "execute_tool pay", parent=agent, attributes={"gen_ai.operation.name": "execute_tool", "error.type": "X"}
        )

        def late(*args: Any, agent: Span = agent) -> None:
            agent.end()
            load(*args)

        evidence._load = late
        call.end()
        evidence._load = load
    assert evidence._size == 0
    assert not evidence._sizes


def test_the_bytes_of_nested_calls_that_were_let_go_do_not_count(run: AgentRun) -> None:
    witness: Any = run.processor._stamper.judge  # type: ignore[attr-defined]
    with run.agent():
        for number in range(300):
            run.fail("pay", id=f"call_{number}aB", args=json.dumps({"text": "x" * 10_000}))
        assert 64 * 10_000 < witness._evidence._size < 64 * 13_000
    assert witness._evidence._size == 0
