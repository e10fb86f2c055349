# SPDX-License-Identifier: Apache-2.0
"""The guard in front of clients of the MCP Python SDK, 1 and 2."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from support.hooked import installing_tests
from support.incidents import Install, incident_tests, refusal, release, states

from benchmarks.incidents import mcp as told
from benchmarks.incidents.kit import World
from benchmarks.incidents.mcp import INCIDENTS, SDK, TWO, Server, connect, failing, hanging, working
from genai_processor import Policy
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.actions import action_digest
from genai_processor.guard.guard import Guard
from genai_processor.guard.hooks import mcp as hook
from genai_processor.guard.hooks.mcp import HOOK
from genai_processor.ledger import State

test_bare, test_observed, test_enforced, test_enforced_on_a_ledger_in_a_file = incident_tests(INCIDENTS)


def is_error(answer: Any) -> Any:
    return answer.is_error if TWO else answer.isError


def test_a_refusal_is_a_result_of_the_sdks(guarded: Install) -> None:
    guard, world = guarded(), World()
    _, refused = asyncio.run(told.attempts(world, SDK, failing(world, SDK), 2))
    [entry] = guard.ledger.pending().entries
    assert is_error(refused)
    assert [part.text for part in refused.content] == [refusal(entry)]
    assert (entry.scope, entry.call_id, entry.turn, entry.reason) == ("order-1", None, None, "tool_error")


def test_or_an_exception(guarded: Install) -> None:
    guarded(on_refusal="raise")
    world = World()
    _, refused = asyncio.run(told.attempts(world, SDK, failing(world, SDK), 2))
    assert isinstance(refused, ToolSpanCommitmentError)
    assert (refused.tool, refused.reason) == ("refund", "action_quarantined")


def test_calls_meanwhile_finish(guarded: Install) -> None:
    guarded()
    world = World()

    async def story() -> list[Any]:
        async with connect(failing(world, SDK)) as client:
            with world.scope("order-1"):
                await client.call_tool("refund", {"order": "o1"})
                return await asyncio.gather(*(client.call_tool("refund", {"order": order}) for order in ("o1", "o2")))

    refused, other = asyncio.run(story())
    assert "was not run" in refused.content[0].text
    assert "was not run" not in other.content[0].text
    assert world.effects == ["o1", "o2"]


def test_what_was_never_sent_never_began(guarded: Install) -> None:
    guard = guarded()
    asyncio.run(told.bad_arguments(World(), SDK))
    assert states(guard) == {State.NOT_STARTED: 2, State.COMPLETED: 2}


def test_what_the_server_rejects_may_have_begun(guarded: Install) -> None:
    guard, world = guarded(), World()

    async def story() -> None:
        async with connect(working(world, SDK)) as client:
            with world.scope("order-1"):
                await client.call_tool("refund", {"wrong": 1})

    asyncio.run(story())
    assert world.effects == []
    assert states(guard) == {State.QUARANTINED: 1}


def test_a_released_attempt_keeps_the_key_of_its_intent(guarded: Install) -> None:
    guard, world, intents = guarded(), World(), list[str]()
    for _ in range(2):
        asyncio.run(told.attempts(world, SDK, hanging(world, SDK), 1, **SDK.seconds(0.1)))
        intents.append(release(guard).intent)
    assert world.effects == ["o1", "o1"]
    assert intents[0] == intents[1]


# -- inside another call -------------------------------------------------------------------------------------------------


def test_a_child_in_doubt_puts_its_parent_in_doubt_and_no_second_one_is_sent(guarded: Install) -> None:
    guard, world = guarded(), World()

    @guard.tool()
    async def pay(order: str, session: Any) -> str:
        for _ in range(3):
            answer = await session.call_tool("refund", {"order": order})
        return str(answer.content[0].text)

    async def story() -> str:
        async with connect(failing(world, SDK)) as client:
            with world.scope("order-1"):
                return await pay("o1", client)

    assert "an earlier attempt within this call may have committed" in asyncio.run(story())
    assert world.effects == ["o1"]
    child, parent = sorted(guard.ledger.pending().entries, key=lambda entry: entry.parent is None)
    assert (child.tool, child.parent, child.scope) == ("refund", parent.entry_id, "order-1")
    assert parent.reason == "nested_uncertain"


# -- servers that the user trusts ----------------------------------------------------------------------------------------


def declared(world: World, **hints: bool) -> Any:
    server = Server("payments")
    if TWO:
        from mcp_types import ToolAnnotations
    else:
        from mcp.types import ToolAnnotations
    told_hints = ToolAnnotations.model_validate(hints)

    @server.tool(annotations=told_hints)
    async def refund(order: str) -> str:
        return world.commit_then_fail(order)

    return server


def within(guard: Guard, world: World, server: Any, calls: int, number: int = 1) -> None:
    """A guarded tool, which knows what the server has, sends one request several times."""

    async def story() -> None:
        async with connect(server) as client:
            session = getattr(client, "session", client)
            await session.list_tools()

            @guard.tool()
            async def pay(number: int) -> None:
                for _ in range(calls):
                    await session.call_tool("refund", {"order": "o1"})

            with world.scope("order-1"):
                await pay(number)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("trusted", "listed", "effects"),
    [("pay*", True, 3), ("other", True, 1), ("pay*", False, 1)],
    ids=["trusted", "not trusted", "never listed"],
)
def test_a_read_only_tool_of_a_trusted_server_is_not_claimed(
    trusted: str, listed: bool, effects: int, guarded: Install
) -> None:
    guard, world = guarded(trusted_mcp_servers=(trusted,)), World()

    async def story() -> None:
        async with connect(declared(world, readOnlyHint=True)) as client:
            session = getattr(client, "session", client)
            if listed:
                await session.list_tools()
            for _ in range(3):
                with world.scope("order-1"):
                    await session.call_tool("refund", {"order": "o1"})

    asyncio.run(story())
    assert len(world.effects) == effects
    assert guard.ledger.stats().entries == (0 if effects == 3 else 1)


def test_what_the_user_declares_goes_before_it(guarded: Install) -> None:
    guard, world = guarded(trusted_mcp_servers=("*",), policy=Policy(idempotent="refund")), World()
    within(guard, world, declared(world, readOnlyHint=True), 1)
    assert guard.ledger.counts()[State.QUARANTINED] == 2


def test_an_idempotent_tool_of_a_trusted_server_is_sent_again_within_one_call(guarded: Install) -> None:
    guard, world = guarded(trusted_mcp_servers=("payments",)), World()
    within(guard, world, declared(world, idempotentHint=True), 3)
    assert len(world.effects) == 3
    assert len(set(world.keys)) == 1


def test_but_not_outside_of_one_for_nothing_shows_what_it_belongs_to(guarded: Install) -> None:
    guarded(trusted_mcp_servers=("payments",))
    world = World()

    async def story() -> None:
        async with connect(declared(world, idempotentHint=True)) as client:
            session = getattr(client, "session", client)
            await session.list_tools()
            for _ in range(2):
                with world.scope("order-1"):
                    await session.call_tool("refund", {"order": "o1"})

    asyncio.run(story())
    assert len(world.effects) == 1


def test_nor_in_another_call(guarded: Install) -> None:
    guard, world = guarded(trusted_mcp_servers=("payments",)), World()
    server = declared(world, idempotentHint=True)
    within(guard, world, server, 1, number=1)
    within(guard, world, server, 1, number=2)
    assert len(world.effects) == 1


@pytest.mark.parametrize("hints", [{"destructiveHint": False}, {"readOnlyHint": False}, {"openWorldHint": False}, {}])
def test_no_other_hint_allows_anything(hints: dict[str, bool], guarded: Install) -> None:
    guard, world = guarded(trusted_mcp_servers=("*",)), World()
    within(guard, world, declared(world, **hints), 2)
    assert len(world.effects) == 1


def test_what_is_known_of_a_server_goes_with_its_session() -> None:
    class Session:
        """Nothing refers to it but this test: when a real one is collected is up to whatever event loop it was used in."""

    session = Session()
    hook._server_of(session).name = "payments"
    assert hook._server_of(session).name == "payments"
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
    assert "payments" not in {server.name for server in hook._servers.values()}


# -- from version 2 on ---------------------------------------------------------------------------------------------------

two = pytest.mark.skipif(not TWO, reason="from version 2 on")


@two
def test_a_call_that_waits_for_an_answer_is_one_call(guarded: Install) -> None:
    guard, world = guarded(), World()
    [answer] = asyncio.run(told.asked(world, SDK))
    assert answer.content[0].text == "done: o1"
    [entry] = guard.ledger.by_action("order-1", "refund", action_digest({"order": "o1"}))
    assert [change.after for change in entry.history] == [State.PAUSED, State.CLAIMED, State.COMPLETED]


@two
def test_an_answer_that_is_lost_leaves_the_call_in_doubt(guarded: Install) -> None:
    guard = guarded()
    asyncio.run(told.asked_and_lost(World(), SDK))
    assert states(guard) == {State.QUARANTINED: 1}


@two
def test_a_server_that_wants_other_headers_has_not_begun(guarded: Install) -> None:
    from mcp import MCPError
    from mcp_types import HEADER_MISMATCH

    guard, world = guarded(), World()
    server, asked = Server("payments"), list[int]()

    @server.tool()
    async def refund(order: str) -> str:
        asked.append(1)
        if len(asked) == 1:
            raise MCPError(HEADER_MISMATCH, "list the tools again")
        return world.commit(order)

    [answer] = asyncio.run(told.attempts(world, SDK, server, 1))
    assert answer.content[0].text == "done: o1"
    assert states(guard) == {State.NOT_STARTED: 1, State.COMPLETED: 1}


@two
def test_what_only_an_extension_can_read_has_not_ended_well() -> None:
    class Task:
        task_id = "t1"

    assert hook._failure(Task()) == "extension_result"


# -- the wrapping --------------------------------------------------------------------------------------------------------


(
    test_uninstalling_puts_back_what_was_there,
    test_installing_again_wraps_nothing_twice,
    test_an_unknown_version_is_left_alone,
    test_a_guard_may_be_there_before_the_framework,
) = installing_tests(HOOK, INCIDENTS)
