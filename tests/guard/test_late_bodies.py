# SPDX-License-Identifier: Apache-2.0
"""Decorated functions that return before their body has run, and calls of one name inside each other."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections import abc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from genai_processor import Guard, ToolSpanCommitmentError, idempotency_key, not_executed
from genai_processor.guard.attempt import Attempt
from genai_processor.guard.calls import Call
from genai_processor.guard.hooks import install, uninstall
from genai_processor.guard.hooks.agno_bodies import marking
from genai_processor.ledger import State


class Payments:
    """Pays, and fails after that if it is told to."""

    def __init__(self) -> None:
        self.paid: list[str | None] = []
        self.fails = True

    def pay(self) -> str:
        self.paid.append(idempotency_key())
        if self.fails:
            raise ConnectionError("502")
        return "paid"


def coroutine(payments: Payments) -> Callable[[str], Any]:
    async def body() -> str:
        await asyncio.sleep(0)
        return payments.pay()

    return lambda order: body()


def task(payments: Payments) -> Callable[[str], Any]:
    return lambda order: asyncio.ensure_future(coroutine(payments)(order))


def awaitable(payments: Payments) -> Callable[[str], Any]:
    class Later:
        def __await__(self) -> Any:
            return coroutine(payments)("").__await__()

    return lambda order: Later()


def object_that_is_awaited(payments: Payments) -> Callable[[str], Any]:
    class Pays:
        async def __call__(self, order: str) -> str:
            return payments.pay()

    return Pays()


def future(payments: Payments) -> Callable[[str], Any]:
    def submitted(order: str) -> Future[str]:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(payments.pay)

    return submitted


def generator(payments: Payments) -> Callable[[str], Any]:
    def body() -> Iterator[str]:
        yield "begun"
        yield payments.pay()

    return lambda order: body()


def async_generator(payments: Payments) -> Callable[[str], Any]:
    async def body() -> AsyncIterator[str]:
        yield "begun"
        yield payments.pay()

    return lambda order: body()


def mapped(payments: Payments) -> Callable[[str], Any]:
    def paid(order: str) -> str:
        return payments.pay()

    return lambda order: map(paid, [order])


def filtered(payments: Payments) -> Callable[[str], Any]:
    return lambda order: filter(lambda _: payments.pay(), ["paid"])


def chained(payments: Payments) -> Callable[[str], Any]:
    return lambda order: itertools.chain(["begun"], mapped(payments)(order))


def generator_of_another_kind(payments: Payments) -> Callable[[str], Any]:
    class Pays(abc.Generator[str, None, None]):
        def __init__(self) -> None:
            self.inner = generator(payments)("o1")

        def send(self, value: None) -> str:
            return str(self.inner.send(value))

        def throw(self, *error: Any) -> str:
            return str(self.inner.throw(*error))

    return lambda order: Pays()


def coroutine_of_async_generator(payments: Payments) -> Callable[[str], Any]:
    async def body(order: str) -> Any:
        return async_generator(payments)(order)

    return body


async def ran(value: Any) -> Any:
    """What somebody who calls a tool of some kind gets out of it."""
    while isinstance(value, Awaitable):
        value = await value
    if isinstance(value, Future):
        return value.result()
    if hasattr(value, "__aiter__"):
        return [item async for item in value]
    return list(value) if hasattr(value, "__next__") else value


KINDS = [
    coroutine,
    task,
    awaitable,
    object_that_is_awaited,
    future,
    generator,
    async_generator,
    mapped,
    filtered,
    chained,
    generator_of_another_kind,
    coroutine_of_async_generator,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [False, True])
def test_a_call_lasts_until_what_its_function_returned_has_run(
    kind: Callable[[Payments], Callable[[str], Any]], shared: bool, tmp_path: Path
) -> None:
    payments = Payments()
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db" if shared else "memory:", mode="enforce", scope="c1")
    pay = guard.tool("pay")(kind(payments))

    async def call(order: str) -> Any:
        return await ran(pay(order))

    with pytest.raises(ConnectionError):
        asyncio.run(call("o1"))
    with pytest.raises(ToolSpanCommitmentError):
        asyncio.run(call("o1"))
    payments.fails = False
    assert "paid" in asyncio.run(call("o2"))
    assert len(payments.paid) == 2
    assert {state: number for state, number in guard.ledger.counts().items() if number} == {
        State.QUARANTINED: 1,
        State.COMPLETED: 1,
    }


def test_a_future_that_is_cancelled_before_its_body_began_cancels_what_it_stands_for() -> None:
    guard, inner = Guard("memory:", mode="enforce", scope="c1"), Future[str]()
    outer = guard.tool("pay")(lambda order: inner)("o1")
    assert outer.cancel()
    assert inner.cancelled()
    assert guard.ledger.counts()[State.QUARANTINED] == 1


def test_a_future_that_is_cancelled_while_its_body_runs_has_delivered_nothing() -> None:
    """A running body cannot be cancelled, and pays; whoever asked has no result."""
    guard, inner = Guard("memory:", mode="enforce", scope="c1"), Future[str]()
    outer = guard.tool("pay")(lambda order: inner)("o1")
    assert inner.set_running_or_notify_cancel()
    assert outer.cancel()
    inner.set_result("paid")
    assert guard.ledger.counts()[State.UNDELIVERED] == 1


def test_an_object_that_could_be_awaited_is_a_result_where_nobody_awaits() -> None:
    """Such as the reference to a remote task, which code without an event loop asks in another way."""
    guard = Guard("memory:", mode="enforce", scope="c1")
    reference = awaitable(Payments())("o1")
    assert guard.tool("pay")(lambda order: reference)("o1") is reference
    assert guard.ledger.counts()[State.COMPLETED] == 1


def test_a_file_is_a_result_though_it_can_be_iterated(tmp_path: Path) -> None:
    guard = Guard("memory:", mode="enforce", scope="c1")
    with (tmp_path / "receipt").open("w") as file:
        assert guard.tool("pay")(lambda order: file)("o1") is file
    assert guard.ledger.counts()[State.COMPLETED] == 1


def test_what_was_never_run_may_have_run() -> None:
    guard = Guard("memory:", mode="enforce", scope="c1")
    pay = guard.tool("pay")(generator(Payments()))
    pay("o1").close()
    assert guard.ledger.counts()[State.QUARANTINED] == 1


def test_the_body_that_runs_later_has_the_key_of_its_call() -> None:
    payments = Payments()
    payments.fails = False
    guard = Guard("memory:", mode="enforce", scope="c1")
    for kind in (coroutine, generator, async_generator):
        asyncio.run(ran(guard.tool("pay")(kind(payments))("o1")))
    assert None not in payments.paid
    assert len(set(payments.paid)) == 3


# -- calls of one name inside each other -----------------------------------------------------------------------------


def test_a_function_that_calls_itself_makes_calls_of_their_own() -> None:
    guard, payments = Guard("memory:", mode="enforce", scope="c1"), Payments()

    @guard.tool()
    def pay(cents: int) -> str:
        if cents <= 100:
            return payments.pay()
        try:
            return pay(100)
        except ConnectionError:
            return "could not pay"

    assert pay(150) == "could not pay"
    for cents in (100, 150):
        with pytest.raises(ToolSpanCommitmentError):
            pay(cents)
    assert len(payments.paid) == 1
    assert guard.ledger.counts()[State.QUARANTINED] == 2


def test_a_function_that_is_decorated_twice_is_one_call() -> None:
    guard = Guard("memory:", mode="enforce", scope="c1")
    payments = Payments()

    def pay(order: str) -> str:
        return payments.pay()

    inner = guard.tool("pay")(pay)

    @functools.wraps(inner)
    def between(order: str) -> str:
        return inner(order)

    with pytest.raises(ConnectionError):
        guard.tool("pay")(between)("o1")
    assert guard.ledger.counts()[State.QUARANTINED] == 1


def test_a_body_that_failed_has_failed_whatever_is_made_of_it() -> None:
    """A framework's own function stands around the decorated one, has its name, and turns what it raises into an answer."""
    guard, payments = Guard("memory:", mode="enforce", scope="c1"), Payments()
    pay = guard.tool("pay")(lambda order: payments.pay())
    attempt = guard.begin(Call("pay", "toolu_1", {"order": "o1"}, turn="turn 1"))
    assert isinstance(attempt, Attempt)
    with attempt.inside(), pytest.raises(ConnectionError):
        pay("o1")
    attempt.returned("sorry, try again")
    assert guard.ledger.counts()[State.QUARANTINED] == 1


def test_what_one_execution_of_a_body_says_of_itself_is_not_said_of_the_next() -> None:
    """agno runs a function again, within one call, if a hook of the user's asks for that."""
    guard, payments = Guard("memory:", mode="enforce", scope="c1"), Payments()
    closed = True

    def pay(order: str) -> str:
        if closed:
            not_executed()
            raise BlockingIOError
        return payments.pay()

    install(guard)
    try:
        body = marking(pay)
        attempt = guard.begin(Call("pay", "toolu_1", {"order": "o1"}, turn="turn 1"))
        assert isinstance(attempt, Attempt)
        with attempt.inside():
            with pytest.raises(BlockingIOError):
                body("o1")
            closed = False
            with pytest.raises(ConnectionError):
                body("o1")
        attempt.failed("failure", awaits_start=True)
    finally:
        uninstall()
    assert guard.ledger.counts()[State.QUARANTINED] == 1


class Request:
    """Can be awaited, and entered: as the requests of HTTP clients are."""

    def __init__(self, payments: Payments) -> None:
        self.payments = payments

    def __await__(self) -> Any:
        return coroutine(self.payments)("").__await__()

    async def __aenter__(self) -> str:
        return self.payments.pay()

    async def __aexit__(self, *error: object) -> None:
        await asyncio.sleep(0)


@pytest.mark.parametrize(("fails", "in_block", "state"), [(True, False, "quarantined"), (False, True, "quarantined")])
def test_what_can_be_entered_is_a_call_as_long_as_its_block(fails: bool, in_block: bool, state: str) -> None:
    payments, guard = Payments(), Guard("memory:", mode="enforce", scope="s")
    payments.fails = fails

    @guard.tool()
    def pay(order: str) -> Any:
        return Request(payments)

    async def enter() -> None:
        async with pay("o1") as answer:
            assert answer == "paid"
            if in_block:
                raise ConnectionError("reading the answer")

    with pytest.raises(ConnectionError):
        asyncio.run(enter())
    assert [entry.state for entry in guard.ledger.pending().entries] == [state]
    with pytest.raises(ToolSpanCommitmentError):
        asyncio.run(enter())
    assert len(payments.paid) == 1


@pytest.mark.parametrize("effect", ["read_only", "non_idempotent"])
def test_what_can_be_entered_works_as_before(effect: str) -> None:
    payments, guard = Payments(), Guard("memory:", mode="enforce", scope="s")
    payments.fails = False

    @guard.tool(effect=effect)
    def pay(order: str) -> Any:
        return Request(payments)

    async def both() -> tuple[str, str]:
        async with pay("o1") as answer:
            pass
        return answer, await pay("o2")

    assert asyncio.run(both()) == ("paid", "paid")
    assert not guard.ledger.pending().entries


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    ("mode", "effect", "paid"),
    [
        ("enforce", "non_idempotent", 1),
        ("enforce", "idempotent", 4),
        ("enforce", "read_only", 4),
        ("observe", "non_idempotent", 4),
    ],
)
def test_what_can_be_awaited_twice_is_one_call(mode: str, effect: str, paid: int, fails: bool) -> None:
    payments, guard = Payments(), Guard("memory:", mode=mode, scope="s")
    payments.fails = fails

    @guard.tool(effect=effect)
    def pay(order: str) -> Any:
        return Request(payments)

    async def main() -> None:
        request = pay("o1")
        for again in (False, True):
            with contextlib.suppress(ConnectionError), refusing(again and paid == 1):
                await request
            with contextlib.suppress(ConnectionError), refusing(paid == 1):
                async with request:
                    pass

    asyncio.run(main())
    assert len(payments.paid) == paid


def refusing(is_refused: bool) -> contextlib.AbstractContextManager[object]:
    return pytest.raises(ToolSpanCommitmentError, match="made before") if is_refused else contextlib.nullcontext()


def test_a_task_that_a_body_has_left_behind_repeats_no_call_that_may_have_committed() -> None:
    guard = Guard(mode="enforce", scope="s")
    mailed: list[str] = []
    left: list[asyncio.Task[None]] = []
    go_on = asyncio.Event()

    @guard.tool()
    async def book(order: str) -> None:
        raise ConnectionError("502")

    @guard.tool()
    async def mail(order: str) -> None:
        mailed.append(order)
        if not left:
            left.append(asyncio.create_task(again(order)))  # which is in the context of this call
        with contextlib.suppress(ConnectionError):
            await book(order)

    async def again(order: str) -> None:
        await go_on.wait()
        with pytest.raises(ToolSpanCommitmentError) as refusal:
            await mail(order)
        assert refusal.value.reason == "action_quarantined"

    async def main() -> None:
        await mail("o1")
        go_on.set()
        await left[0]

    asyncio.run(main())
    assert mailed == ["o1"]
