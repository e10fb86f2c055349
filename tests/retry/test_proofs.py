# SPDX-License-Identifier: Apache-2.0
"""What proves that a tool's body never began, and what only looks like a proof."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.spans import (
    ARGS,
    ID,
    LANGCHAIN,
    SCHEMA,
    Read,
    agent,
    chat,
    failed_tool,
    span,
    tool,
    verdict,
)

from genai_processor.retry.policy import Policy
from genai_processor.spans.records import Event, Span, SpanKind

NEVER = "retryable_pre_execution"
ADK, STRANDS = "gcp.vertex.agent", "strands.telemetry.tracer"
AGENTS = "opentelemetry.instrumentation.genai.openai_agents"
PYDANTIC = "pydantic_core._pydantic_core.ValidationError"
BROKEN = '{"order_id": "o1", "amount'
MISSING = '{"order_id": "o1"}'
MISTYPED = '{"order_id": "o1", "amount_cents": "lots"}'
OFFERS = {"create_refund": {**SCHEMA, "title": "create_refund_args"}}


def in_agent(call: Span, *more: Span, offers: Any = None) -> list[Span]:
    """A call below an agent whose only turn proposed it."""
    top = agent()
    turn = chat((ID, "create_refund", {}), offers=OFFERS if offers is None else offers, parent=top)
    return [top, turn, call._replace(parent_span_id=top.span_id), *more]


def judge(call: Span, *more: Span, offers: Any = None, **options: Any) -> tuple[str, str]:
    return Read(in_agent(call, *more, offers=offers), **options).verdict(call)


# -- marks and types that a framework owns ---------------------------------------------------------------------------


def test_pydantic_ai_says_that_validation_failed() -> None:
    stage = {"pydantic_ai.tool.failure_stage": "validation"}
    call = failed_tool(scope="pydantic-ai", id=ID, args=ARGS, error=PYDANTIC, attributes=stage)
    assert verdict(call) == (NEVER, "malformed_arguments")
    later = {"pydantic_ai.tool.failure_stage": "execution"}
    assert verdict(call._replace(attributes={**call.attributes, **later}))[0] == "quarantined"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("fastmcp.exceptions.ValidationError", "malformed_arguments"),
        ("fastmcp.exceptions.NotFoundError", "unknown_tool"),
    ],
)
def test_fastmcps_own_types_on_the_servers_span(error: str, reason: str) -> None:
    call = failed_tool(scope="fastmcp", kind=SpanKind.SERVER, raised=error, attributes={"mcp.method.name": "tools/call"})
    assert verdict(call) == (NEVER, reason)
    assert verdict(call._replace(kind=SpanKind.CLIENT))[0] == "quarantined_unknown"


def test_not_found_by_a_provider_that_was_found_is_the_bodys_own() -> None:
    attributes = {"mcp.method.name": "tools/call", "fastmcp.provider.type": "LocalProvider"}
    raised = "fastmcp.exceptions.NotFoundError"
    call = failed_tool(scope="fastmcp", kind=SpanKind.SERVER, raised=raised, attributes=attributes)
    assert verdict(call)[0] == "quarantined_unknown"


def test_model_behavior_error_is_the_sdks_own_unless_a_call_is_nested() -> None:
    call = failed_tool(scope=AGENTS, args=MISTYPED, raised="agents.exceptions.ModelBehaviorError")
    assert judge(call) == (NEVER, "rejected_before_execution")
    assert judge(call, tool("lookup", parent=call))[0].startswith("quarantined")
    sound = failed_tool(scope=AGENTS, args=ARGS, raised="agents.exceptions.ModelBehaviorError")
    assert judge(sound)[0].startswith("quarantined"), "the body may have run another agent, which is not traced"


def test_a_mark_counts_though_attributes_were_dropped() -> None:
    stage = {"pydantic_ai.tool.failure_stage": "validation"}
    call = failed_tool(scope="pydantic-ai", error=PYDANTIC, attributes=stage, dropped=2)
    assert verdict(call) == (NEVER, "malformed_arguments")


# -- arguments that a runtime is known to reject ---------------------------------------------------------------------


@pytest.mark.parametrize("args", [MISSING, MISTYPED])
@pytest.mark.parametrize("scope", [LANGCHAIN, STRANDS])
def test_arguments_against_the_schema_in_a_runtime_that_checks(args: str, scope: str) -> None:
    error = PYDANTIC if scope == LANGCHAIN else "ValueError"
    call = failed_tool(scope=scope, id=ID, args=args, error=error)
    assert judge(call) == (NEVER, "malformed_arguments")


def test_broken_json_where_the_runtime_rejects_it() -> None:
    call = failed_tool(scope=AGENTS, args=BROKEN, error="_OTHER")
    assert judge(call) == (NEVER, "malformed_arguments")


@pytest.mark.parametrize(
    "error",
    [
        "requests.exceptions.JSONDecodeError",
        "json.decoder.JSONDecodeError",  # httpx raises it on the provider's answer
        "JSONDecodeError",
        "ValueError",
        PYDANTIC,
    ],
)
@pytest.mark.parametrize("scope", ["app", "opentelemetry.instrumentation.genai.new", "openinference.instrumentation.new"])
def test_broken_json_in_a_runtime_that_nobody_knows_proves_nothing(error: str, scope: str) -> None:
    assert judge(failed_tool(args=BROKEN, scope=scope, error=error))[0] == "quarantined_unknown"
    assert judge(failed_tool(args=MISSING, scope=scope, error=error))[0] == "quarantined_unknown"


@pytest.mark.parametrize("error", ["stripe.ValidationError", "marshmallow.exceptions.ValidationError", "app.Exception"])
def test_a_type_of_another_module_is_not_the_runtimes(error: str) -> None:
    own = {"gen_ai.tool.json_schema": json.dumps(SCHEMA)}
    call = failed_tool(scope=LANGCHAIN, id=ID, args=MISSING, error=error, attributes=own)
    assert verdict(call)[0] == "quarantined_unknown"
    for known in (PYDANTIC, "ValidationError"):
        again = call._replace(attributes={**call.attributes, "error.type": known})
        assert verdict(again) == (NEVER, "malformed_arguments")


def test_a_type_that_proves_something_only_with_nothing_below_needs_everything_below() -> None:
    call = failed_tool(scope=AGENTS, id=ID, args=BROKEN, raised="agents.exceptions.ModelBehaviorError", error=None)
    assert verdict(call, length_limit=0) == (NEVER, "rejected_before_execution")
    assert verdict(call, length_limit=0, partial=True)[0].startswith("quarantined")
    stage = {"pydantic_ai.tool.failure_stage": "validation"}
    says_so = failed_tool(scope="pydantic-ai", id=ID, args=ARGS, error=PYDANTIC, attributes=stage)
    assert verdict(says_so, partial=True) == (NEVER, "malformed_arguments")


def test_a_dropped_event_may_have_been_the_error_that_counts() -> None:
    call = failed_tool(scope=AGENTS, args=BROKEN, error="_OTHER")
    assert judge(call) == (NEVER, "malformed_arguments")
    assert judge(call._replace(dropped_events=1))[0] == "quarantined_unknown"


@pytest.mark.parametrize(
    ("scope", "args", "error"),
    [
        (ADK, MISTYPED, "TOOL_ERROR"),  # ran "lots"
        (ADK, BROKEN, "TOOL_ERROR"),
        (STRANDS, BROKEN, "ValueError"),  # turned into `{}`, and ran on the defaults
        (LANGCHAIN, BROKEN, PYDANTIC),  # a stream was repaired, and 50 were paid for 500
        ("opentelemetry.instrumentation.genai.llama_index", MISTYPED, "TypeError"),
        ("openinference.instrumentation.crewai", MISSING, "ValueError"),
        ("my.own.framework", MISSING, PYDANTIC),
        ("my.own.framework", MISTYPED, PYDANTIC),
    ],
)
def test_malformed_arguments_prove_nothing_where_the_runtime_was_seen_to_run_them(scope: str, args: str, error: str) -> None:
    attributes = {"openinference.span.kind": "TOOL"} if scope.startswith("openinference") else {}
    call = failed_tool(scope=scope, id=ID, args=args, error=error, attributes=attributes)
    assert judge(call)[0].startswith("quarantined")


@pytest.mark.parametrize("error", ["RuntimeError", "ValueError", "httpx.HTTPStatusError"])
def test_nor_where_the_error_is_none_by_which_that_runtime_rejects(error: str) -> None:
    assert judge(failed_tool(scope=LANGCHAIN, id=ID, args=MISSING, error=error))[0] == "quarantined_unknown"
    both = failed_tool(scope=LANGCHAIN, id=ID, args=MISSING, error=PYDANTIC, raised=error)
    assert judge(both)[0] == "quarantined_unknown"


@pytest.mark.parametrize("error", [PYDANTIC, "TypeError", "ValueError", "json.decoder.JSONDecodeError"])
@pytest.mark.parametrize("scope", [LANGCHAIN, STRANDS, ADK, AGENTS, "my.own.framework"])
def test_an_error_that_looks_like_a_rejection_proves_nothing_with_good_arguments(scope: str, error: str) -> None:
    """Tools raise them on their provider's answer, after the money moved."""
    assert judge(failed_tool(scope=scope, id=ID, args=ARGS, error=error))[0].startswith("quarantined")


@pytest.mark.parametrize("text", ["1 validation error for create_refund", "Unknown tool: create_refund", "rejected"])
def test_message_text_proves_nothing(text: str) -> None:
    exception = Event("exception", {"exception.type": "Exception", "exception.message": text})
    call = tool(id=ID, args=ARGS, failed=True, events=[exception])._replace(status_message=text)
    assert judge(call)[0] == "quarantined"


@pytest.mark.parametrize("code", ["-32601", "-32602", "tool_error"])
def test_a_json_rpc_code_on_the_clients_span_proves_nothing(code: str) -> None:
    call = failed_tool(
        scope="mcp-python-sdk", kind=SpanKind.CLIENT, error=code, attributes={"mcp.method.name": "tools/call"}
    )
    assert verdict(call)[0] == "quarantined_unknown"


def test_extra_parameters_and_digits_are_no_violation() -> None:
    for args in ('{"order_id": "o1", "amount_cents": "500"}', '{"order_id": "o1", "amount_cents": 1, "x": 2}'):
        assert judge(failed_tool(scope=LANGCHAIN, id=ID, args=args, error=PYDANTIC)) == (
            "quarantined",
            "commitment_marker",
        )


def test_a_text_that_telemetry_may_have_cut_is_not_the_models() -> None:
    call = failed_tool(scope=AGENTS, args=BROKEN, error="_OTHER")
    other = span("other", attributes={"text": "x" * len(BROKEN)})
    assert judge(call, length_limit=len(BROKEN))[0].startswith("quarantined")
    assert verdict(call, length_limit=None)[0].startswith("quarantined"), "it is the longest text of its trace"
    assert verdict(call, other, length_limit=None)[0].startswith("quarantined")
    assert verdict(call, span("o", attributes={"text": "x" * 500}), length_limit=None)[0] == NEVER
    assert verdict(call, length_limit=0)[0] == NEVER, "nothing is ever cut here"


def test_what_parses_was_not_cut_however_long() -> None:
    own = {"gen_ai.tool.json_schema": json.dumps(SCHEMA), "pad": ""}
    args = json.dumps({"order_id": "o" * 500})
    call = failed_tool(scope=LANGCHAIN, id=ID, args=args, error=PYDANTIC, attributes=own)
    assert verdict(call, length_limit=None) == (NEVER, "malformed_arguments")


def test_arguments_that_only_the_proposal_shows_count_too() -> None:
    turn = chat((ID, "create_refund", BROKEN))
    call = failed_tool(scope=AGENTS, id=ID, error="_OTHER")
    assert verdict(call, turn, length_limit=None) == (NEVER, "malformed_arguments")


def test_what_an_mcp_server_checks_is_not_the_frameworks_to_reject() -> None:
    call = failed_tool(scope=AGENTS, args=MISTYPED, error="_OTHER")
    answer = json.dumps({"tools": [{"name": "create_refund", "inputSchema": SCHEMA}]})
    attributes = {"rpc.method": "tools/list", "response": answer}
    listing = span("MCP request: tools/list", scope="logfire.mcp", attributes=attributes)
    assert judge(call) == (NEVER, "malformed_arguments")
    assert judge(call, listing)[0].startswith("quarantined")


@pytest.mark.parametrize("args", [MISSING, MISTYPED])
def test_a_servers_span_of_a_dialect_that_checks_is_a_proof(args: str) -> None:
    call = tool(scope=AGENTS, args=args, result="x")
    attributes = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "create_refund"}
    served = span(
        "tools/call create_refund",
        parent=call,
        kind=SpanKind.SERVER,
        scope="mcp-python-sdk",
        attributes=attributes,
        error="tool_error",
    )
    made = {"create_refund": {**SCHEMA, "title": "create_refundArguments"}}
    assert judge(call, served, offers=made) == (NEVER, "malformed_arguments")
    assert judge(call, served)[0].startswith("quarantined"), "a low-level server's schema binds nobody"


@pytest.mark.parametrize("error", ["_OTHER", "ModelBehaviorError"])
def test_what_strict_mode_lists_as_required_may_have_a_default(error: str) -> None:
    call = failed_tool(scope=AGENTS, id=ID, args=MISSING, error=error)
    assert (judge(call)[0] == NEVER) is (error == "ModelBehaviorError")


def test_a_schema_that_no_runtime_made_proves_nothing_where_any_failure_looks_alike() -> None:
    call = failed_tool(scope=AGENTS, id=ID, args=MISTYPED, error="_OTHER")
    assert judge(call)[0] == NEVER
    assert judge(call, offers={"create_refund": SCHEMA})[0].startswith("quarantined")


@pytest.mark.parametrize("lost", ["dropped", "partial"])
def test_what_is_lost_voids_a_proof_by_arguments_or_by_a_list(lost: str) -> None:
    options: dict[str, Any] = {"partial": True} if lost == "partial" else {}
    dropped = 1 if lost == "dropped" else 0
    malformed = failed_tool(scope=LANGCHAIN, id=ID, args=MISSING, error=PYDANTIC, dropped=dropped)
    unknown = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}", dropped=dropped)
    assert judge(malformed, **options)[0].startswith("quarantined")
    assert judge(unknown, **options)[0].startswith("quarantined")


# -- a tool that does not exist --------------------------------------------------------------------------------------


def test_a_name_missing_from_the_models_whole_list_is_unknown() -> None:
    assert judge(failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}")) == (NEVER, "unknown_tool")


@pytest.mark.parametrize("scope", [LANGCHAIN, AGENTS, "my.own"])
def test_a_span_of_a_runtime_that_writes_none_for_an_unknown_tool_shows_one_that_exists(scope: str) -> None:
    """LangGraph's tools may be more than those that its model was given."""
    call = failed_tool("delete_all", scope=scope, error="Exception", id=ID, args="{}")
    assert judge(call)[0].startswith("quarantined")


def test_another_error_is_not_that_of_an_unknown_tool() -> None:
    call = failed_tool("delete_all", scope=STRANDS, error="ConnectionError", id=ID, args="{}")
    assert judge(call)[0] == "quarantined"


@pytest.mark.parametrize("name", ["[REDACTED]", "****", "[Scrubbed due to 'session']"])
def test_a_name_that_was_redacted_is_no_name(name: str) -> None:
    call = failed_tool(name, scope=STRANDS, error="Exception", id=ID, args="{}")
    assert judge(call)[0].startswith("quarantined")
    unknown = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}")
    assert judge(unknown, offers={name: SCHEMA, "mail": SCHEMA})[0].startswith("quarantined")


def test_a_turn_that_records_no_list_may_have_offered_anything() -> None:
    top = agent()
    silent = chat((ID, "delete_all", {}), parent=top, at=(2, 3))
    other = chat(("call_Other7Qw2", "create_refund", {}), offers=OFFERS, parent=top, at=(4, 5))
    call = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}", parent=top)
    assert verdict(call, top, silent, other)[0].startswith("quarantined")
    assert verdict(call, top, other)[0] == NEVER


def test_a_tools_own_schema_is_not_that_of_another_whose_name_ends_alike() -> None:
    other = {**SCHEMA, "required": ["order_id", "amount_cents", "approver"]}
    call = failed_tool(scope=LANGCHAIN, id=ID, args=ARGS, error=PYDANTIC)
    offers = {"admin_create_refund": other, "create_refund": SCHEMA}
    assert judge(call, offers=offers)[0] == "quarantined"
    assert judge(call, offers={"a.create_refund": other, "b.create_refund": SCHEMA})[0] == "quarantined"
    assert judge(call, offers={"a.create_refund": other})[0] == NEVER


def test_arguments_cut_in_bytes_are_shorter_than_they_look() -> None:
    """A collector's limit of 60 bytes: other values of the trace have 60 characters."""
    cut = '{"order_id": "' + "ü" * 23
    call = failed_tool(scope=AGENTS, id=ID, args=cut, error="_OTHER", attributes={"note": "x" * 200})
    assert judge(call, length_limit=None)[0].startswith("quarantined")


@pytest.mark.parametrize("listed", ["create_refund", "shop.create_refund", "shop-create_refund", "mcp__shop__create_refund"])
def test_a_name_on_the_list_is_not_though_servers_and_plugins_prefix_it(listed: str) -> None:
    assert judge(failed_tool(id=ID, args=ARGS), offers={listed: SCHEMA})[0] == "quarantined"
    called = failed_tool(listed, id=ID, args=ARGS)
    assert judge(called, offers={"create_refund": SCHEMA})[0] == "quarantined"


def test_only_a_failed_call_can_be_of_an_unknown_tool() -> None:
    assert judge(tool("delete_all", id=ID, args="{}", at=(10, None)))[0].startswith("quarantined")
    assert judge(tool("delete_all", id=ID, args="{}"))[0] == "no_retry_needed"


@pytest.mark.parametrize(
    "listing",
    [
        '[{"name": "create_refund", "parameters": {"ty',
        json.dumps({"tools": [{"name": "create_refund"}], "nextCursor": "2"}),
        "create_refund, mail",
    ],
)
def test_a_list_that_is_not_whole_proves_nothing(listing: str) -> None:
    top = agent()
    turn = chat((ID, "delete_all", {}), parent=top, attributes={"gen_ai.tool.definitions": listing})
    call = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}", parent=top)
    assert verdict(call, top, turn)[0] == "quarantined"
    whole = turn._replace(attributes={**turn.attributes, "gen_ai.tool.definitions": '[{"name": "create_refund"}]'})
    assert verdict(call, top, whole)[0] == NEVER
    assert verdict(call, top, whole._replace(dropped_attributes=1))[0] == "quarantined"


def test_a_list_beyond_the_nearest_agent_proves_nothing() -> None:
    outer = agent()
    turn = chat(("call_of_outer_1x", "ask", {}), offers={"ask": None}, parent=outer)
    inner = agent(parent=outer, at=(5, 50))
    call = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}", parent=inner)
    assert verdict(call, outer, turn, inner)[0] == "quarantined"


def test_a_tool_that_ever_worked_exists() -> None:
    call = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}")
    worked = tool("delete_all", id="call_Other7Qw2", args='{"x":1}', at=(1, 2))
    assert judge(call, worked)[0] == "quarantined"


def test_what_the_user_declared_decides_where_no_list_is_recorded() -> None:
    call = failed_tool("delete_all", scope=STRANDS, error="Exception", id=ID, args="{}")
    assert verdict(call)[0] == "quarantined"
    assert verdict(call, policy=Policy(known=("create_*",))) == (NEVER, "unknown_tool")
    assert verdict(call, policy=Policy(known=("create_*", "delete_all")))[0] == "quarantined"
    prefixed = failed_tool("shop-create_refund", id=ID, args=ARGS)
    assert verdict(prefixed, policy=Policy(known=("create_refund",)))[0] == "quarantined"


def test_a_call_without_a_name_is_not_unknown() -> None:
    assert verdict(failed_tool(None, id=ID, args="{}"), policy=Policy(known=("pay",)))[0] == "quarantined"


def test_a_name_that_telemetry_cut_is_not_unknown() -> None:
    call = failed_tool("create_ref", id=ID, args=ARGS)
    assert judge(call, length_limit=10)[0].startswith("quarantined")


@pytest.mark.parametrize("seen", ["offered", "came back"])
def test_a_list_of_the_users_from_which_a_tool_is_missing_is_not_believed(seen: str) -> None:
    policy = Policy(known=("get_*",))
    call = failed_tool(id=ID, args=ARGS)
    worked = tool(id="call_Other7Qw2", args='{"x":1}', at=(1, 2))
    assert verdict(call, policy=policy) == (NEVER, "unknown_tool")
    found = judge(call, policy=policy) if seen == "offered" else verdict(call, worked, policy=policy)
    assert found[0] == "quarantined"
