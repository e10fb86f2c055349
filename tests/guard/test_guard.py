# SPDX-License-Identifier: Apache-2.0
"""What an application gets from a guard: `call`, `tool` and `run`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from genai_processor import Guard, Policy, idempotency_key, not_executed
from genai_processor.errors import LedgerURLError, ToolSpanCommitmentError
from genai_processor.guard.refused import Recorded
from genai_processor.ledger import Resolution


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/ledger.db"


def states(guard: Guard) -> dict[str, int]:
    return {state.value: count for state, count in guard.ledger.counts().items() if count}


# -- call --------------------------------------------------------------------------------------------------------------


def test_a_block_that_ends_well_is_completed(url: str) -> None:
    guard = Guard(url)
    with guard.call("pay", "toolu_a1", {"order": 1}, scope="s") as attempt:
        assert attempt.idempotency_key == idempotency_key()
    assert states(guard) == {"completed": 1}
    assert idempotency_key() is None


@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_a_block_that_ends_otherwise_is_quarantined_whatever_ended_it(url: str, error: type[BaseException]) -> None:
    guard = Guard(url)
    with pytest.raises(error), guard.call("pay", "toolu_a1", {"order": 1}, scope="s"):
        raise error
    assert states(guard) == {"quarantined": 1}
    with pytest.raises(ToolSpanCommitmentError) as caught, guard.call("pay", "toolu_b2", {"order": 1}, scope="s"):
        raise AssertionError("it ran twice")
    [entry] = guard.ledger.pending().entries
    assert (caught.value.entry_id, caught.value.reason) == (entry.entry_id, "action_quarantined")
    assert isinstance(caught.value, RuntimeError)


def test_a_call_that_was_made_before_comes_with_its_result_within_its_turn(url: str) -> None:
    guard = Guard(url)
    with guard.call("pay", "toolu_a1", {"order": 1}, scope="s", turn="t1") as attempt:
        attempt.returned({"paid": True})
    for turn, recorded in (("t1", Recorded({"paid": True})), ("t2", None)):
        with (
            pytest.raises(ToolSpanCommitmentError) as caught,
            guard.call("pay", "toolu_a1", {"order": 1}, scope="s", turn=turn),
        ):
            raise AssertionError("it ran twice")
        assert caught.value.recorded == recorded


def test_arguments_are_compared_by_value_not_by_writing(url: str) -> None:
    guard = Guard(url)
    with pytest.raises(ConnectionError), guard.call("pay", None, '{"cents": 5.0, "order": "a"}', scope="s"):
        raise ConnectionError
    for arguments in ({"order": "a", "cents": 5}, '{"order":"a","cents":5}'):
        with pytest.raises(ToolSpanCommitmentError), guard.call("pay", None, arguments, scope="s"):
            raise AssertionError("it ran twice")
    with guard.call("pay", None, {"order": "b", "cents": 5}, scope="s"):
        pass


def test_arguments_that_nobody_can_compare_count_as_equal(url: str) -> None:
    guard = Guard(url)
    with pytest.raises(ConnectionError), guard.call("pay", None, {"order": 1}, scope="s"):
        raise ConnectionError
    with pytest.raises(ToolSpanCommitmentError), guard.call("pay", None, {"order": object()}, scope="s"):
        raise AssertionError("it may have been the same")


def test_what_went_on_in_another_scope_stands_in_nobodys_way(url: str) -> None:
    guard = Guard(url)
    with pytest.raises(ConnectionError), guard.call("pay", None, {"order": 1}, scope="s1"):
        raise ConnectionError
    with guard.call("pay", None, {"order": 1}, scope="s2"):
        pass


# -- tool --------------------------------------------------------------------------------------------------------------


def test_a_decorated_function_runs_once_and_is_answered_with_its_result(url: str) -> None:
    guard, ran = Guard(url), list[str]()

    @guard.tool(call_id=lambda arguments: f"refund of {arguments['order']}")
    def refund(order: str, cents: int = 5) -> str:
        """Docs."""
        ran.append(order)
        return f"refunded {order}"

    assert refund.__doc__ == "Docs."
    with guard.run("s"):
        assert refund("o1") == "refunded o1"
        with pytest.raises(ToolSpanCommitmentError):  # no turn is known, so it may be another wish
            refund(order="o1")
        with pytest.raises(TypeError):
            refund()  # type: ignore[call-arg]
    assert ran == ["o1"]
    assert states(guard) == {"completed": 1}


@pytest.mark.parametrize("scope", ["s", None])
@pytest.mark.parametrize("ends", ["well", "well, with an id", "badly"])
def test_the_same_arguments_again_outside_of_a_turn(url: str, scope: str | None, ends: str) -> None:
    """As docs/guard.md has it in a table."""
    guard, ran = Guard(url, scope=scope), 0
    tracer = TracerProvider().get_tracer("application")

    @guard.tool(call_id=lambda arguments: f"refund of {arguments['order']}" if "id" in ends else None)
    def refund(order: str) -> None:
        nonlocal ran
        ran += 1
        if ends == "badly":
            raise TimeoutError

    reasons = []
    for _ in range(2):
        with suppress(TimeoutError), tracer.start_as_current_span("request"):
            try:
                refund("o1")
            except ToolSpanCommitmentError as error:
                reasons.append(error.reason)
    expected = {"well": [], "well, with an id": ["call_repeated"], "badly": ["action_quarantined"]}[ends]
    assert reasons == ([] if scope is None else expected)
    assert ran == 2 - len(reasons)


def test_a_coroutine_function_that_is_cancelled_is_quarantined(url: str) -> None:
    guard, began = Guard(url), asyncio.Event()

    @guard.tool()
    async def refund(order: str) -> None:
        began.set()
        await asyncio.Event().wait()

    async def story() -> None:
        with guard.run("s"):
            task = asyncio.ensure_future(refund("o1"))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(ToolSpanCommitmentError):
                await refund("o1")

    asyncio.run(story())
    assert states(guard) == {"quarantined": 1}


def test_a_generator_is_one_call_and_one_that_is_given_up_may_have_committed(url: str) -> None:
    guard = Guard(url)

    @guard.tool()
    def pages(count: int) -> Iterator[int]:
        for number in range(count):
            assert idempotency_key() is not None
            yield number
        return None

    with guard.run("s"):
        found = []
        for number in pages(3):
            assert idempotency_key() is None  # whoever consumes is not inside
            found.append(number)
        assert found == [0, 1, 2]
        assert states(guard) == {"completed": 1}
        given_up = pages(5)
        assert next(given_up) == 0
        given_up.close()  # type: ignore[attr-defined]
        assert states(guard) == {"completed": 1, "quarantined": 1}


def test_a_generator_may_be_sent_values_and_exceptions() -> None:
    guard = Guard()

    @guard.tool()
    def echo() -> Any:
        got: list[Any] = []
        while len(got) < 3:
            try:
                got.append((yield len(got)))
            except ValueError as error:
                got.append(str(error))
        return got

    generator = echo()
    assert next(generator) == 0
    assert generator.send("a") == 1
    assert generator.throw(ValueError("b")) == 2
    with pytest.raises(StopIteration) as stopped:
        generator.send("c")
    assert stopped.value.value == ["a", "b", "c"]
    assert states(guard) == {"completed": 1}


def test_an_async_generator_is_one_call(url: str) -> None:
    guard = Guard(url)

    @guard.tool()
    async def pages(count: int) -> AsyncIterator[int]:
        for number in range(count):
            await asyncio.sleep(0)
            yield number

    async def story() -> None:
        with guard.run("s"):
            assert [number async for number in pages(3)] == [0, 1, 2]
            given_up = pages(5)
            assert await anext(given_up) == 0
            await given_up.aclose()  # type: ignore[attr-defined]

    asyncio.run(story())
    assert states(guard) == {"completed": 1, "quarantined": 1}


def test_exceptions_that_say_that_nothing_was_done_are_believed(url: str) -> None:
    class Rejected(Exception):
        pass

    guard = Guard(url, not_started_on={"pay*": (Rejected,)})

    @guard.tool("pay_out")
    def pay(order: str) -> None:
        raise Rejected

    @guard.tool(not_started_on=(Rejected,))
    def other(order: str) -> None:
        raise Rejected

    @guard.tool()
    def asks(order: str) -> None:
        not_executed()
        raise RuntimeError("no such order")

    with guard.run("s"):
        for tool in (pay, other, asks):
            for _ in range(2):
                with pytest.raises((Rejected, RuntimeError)):
                    tool("o1")
    assert states(guard) == {"not_started": 6}


@pytest.mark.parametrize("sign", ["key", "key of the attempt", "call", "read-only call"])
def test_that_nothing_was_done_is_not_believed_of_a_body_that_goes_on(sign: str, url: str) -> None:
    guard = Guard(url, policy=Policy(read_only="look_up"))

    @guard.tool()
    def look_up(order: str) -> str:
        return order

    with guard.run("s"), pytest.raises(TimeoutError), guard.call("pay", None, {"order": "o1"}) as attempt:
        with suppress(BlockingIOError):
            assert attempt.idempotency_key == idempotency_key()
            not_executed()
            raise BlockingIOError
        if sign == "key":
            idempotency_key()
        elif sign == "key of the attempt":
            assert attempt.idempotency_key
        elif sign == "call":
            with guard.call("notify"):
                pass
        else:
            look_up("o1")
        raise TimeoutError
    assert states(guard)["quarantined"] == 1


def test_who_has_called_other_tools_is_not_believed_to_have_done_nothing(url: str) -> None:
    guard = Guard(url)

    @guard.tool()
    def inner(order: str) -> None:
        return None

    @guard.tool()
    def outer(order: str) -> None:
        inner(order)
        not_executed()
        raise RuntimeError

    with guard.run("s"), pytest.raises(RuntimeError):
        outer("o1")
    assert states(guard) == {"completed": 1, "quarantined": 1}


def test_a_failed_inner_call_quarantines_the_outer_one_though_it_returned(url: str) -> None:
    guard = Guard(url)

    @guard.tool()
    def inner(order: str) -> None:
        raise TimeoutError

    @guard.tool()
    def outer(order: str) -> str:
        try:
            inner(order)
        except TimeoutError:
            return "sorry"
        return "done"

    with guard.run("s"):
        assert outer("o1") == "sorry"
    assert states(guard) == {"quarantined": 2}


def test_a_key_function_decides_what_is_the_same(url: str) -> None:
    guard = Guard(url)

    @guard.tool(key=lambda arguments: arguments["order"])
    def pay(order: str, note: str) -> None:
        raise TimeoutError

    with guard.run("s"):
        with pytest.raises(TimeoutError):
            pay("o1", "please")
        with pytest.raises(ToolSpanCommitmentError):
            pay("o1", "now")
        with pytest.raises(TimeoutError):
            pay("o2", "please")


def test_a_key_function_that_raises_makes_a_call_equal_to_every_other(url: str) -> None:
    guard = Guard(url, keys={"pay": lambda arguments: arguments["missing"]})
    with pytest.raises(ConnectionError), guard.call("pay", None, {"order": 1}, scope="s"):
        raise ConnectionError
    with pytest.raises(ToolSpanCommitmentError), guard.call("pay", None, {"order": 2}, scope="s"):
        raise AssertionError("it may have been the same")


def test_read_only_tools_are_not_claimed_and_idempotent_ones_may_repeat_their_id(url: str) -> None:
    guard = Guard(url, policy=Policy(read_only="get_*", idempotent="pay"))
    for _ in range(2):
        with pytest.raises(ConnectionError), guard.call("get_rate", "toolu_a1", {}, scope="s"):
            raise ConnectionError
    keys = []
    for _ in range(2):
        with pytest.raises(ConnectionError), guard.call("pay", "toolu_b2", {}, scope="s"):
            keys.append(idempotency_key())
            raise ConnectionError
    assert keys[0] == keys[1] is not None
    with pytest.raises(ToolSpanCommitmentError), guard.call("pay", "toolu_c3", {}, scope="s"):
        raise AssertionError("another id is another call")
    assert states(guard) == {"quarantined": 1}


# -- modes -------------------------------------------------------------------------------------------------------------


def test_who_observes_runs_and_is_told_and_keeps_the_key(caplog: pytest.LogCaptureFixture, url: str) -> None:
    guard, keys = Guard(url, mode="observe"), []
    for _ in range(2):
        with pytest.raises(ConnectionError), guard.call("pay", None, {"order": 1}, scope="s"):
            keys.append(idempotency_key())
            raise ConnectionError
    assert len(keys) == 2
    assert keys[0] == keys[1]
    assert caplog.text.count("In mode enforce: pay was not run") == 1


def test_who_is_off_claims_nothing(url: str) -> None:
    guard = Guard(url, mode="off")
    for _ in range(2):
        with pytest.raises(ConnectionError), guard.call("pay", None, {"order": 1}, scope="s"):
            raise ConnectionError
    assert states(guard) == {}


def test_what_makes_no_sense_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"^mode must be off or observe or enforce, but is 'sometimes'$"):
        Guard(mode="sometimes")
    with pytest.raises(ValueError, match=r"^on_refusal must be tell or raise, but is 'sing'$"):
        Guard(on_refusal="sing")
    with pytest.raises(ValueError, match=r"^effect must be read_only or idempotent or non_idempotent, but is 'none'$"):
        Guard().tool(effect="none")
    with pytest.raises(ValueError, match="lease_seconds"):
        Guard(lease_seconds=1e-10)
    with pytest.raises(LedgerURLError):
        Guard("nowhere://")
    with pytest.raises(TypeError, match=r"not_started_on\['pay'\] takes classes of exceptions"):
        Guard(not_started_on={"pay": "ValueError"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"a decorator without one is @guard\.tool\(\)$"):
        Guard().tool(states)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"has no name for its calls; give it one, as in guard\.tool\('refund'\)$"):
        Guard().tool()(partial(states))
    with pytest.raises(TypeError, match="not_started_on takes classes of exceptions"):
        Guard().tool(not_started_on=(ValueError(),))  # type: ignore[arg-type]


def test_one_exception_by_which_a_tool_says_that_it_did_nothing_may_stand_for_itself() -> None:
    guard = Guard(mode="enforce", scope="s", not_started_on={"pay": BlockingIOError})  # type: ignore[dict-item]

    @guard.tool(not_started_on=ValueError)  # type: ignore[arg-type]
    def pay(error: type[Exception]) -> None:
        raise error

    for error in (BlockingIOError, ValueError):
        for _ in range(2):
            with pytest.raises(error):
                pay(error)


def test_a_released_call_keeps_its_key_and_is_released_once(url: str) -> None:
    guard, keys = Guard(url), []
    for _ in range(2):
        with pytest.raises(ConnectionError), guard.call("pay", None, {"order": 1}, scope="s"):
            keys.append(idempotency_key())
            raise ConnectionError
        [entry] = guard.ledger.pending().entries
        if len(keys) == 1:
            guard.ledger.settle(entry.entry_id, Resolution.NOT_COMMITTED, who="ann", note="asked", version=entry.version)
    with pytest.raises(ToolSpanCommitmentError), guard.call("pay", None, {"order": 1}, scope="s"):
        raise AssertionError("one attempt was released, not two")
    assert keys[0] == keys[1] is not None


def test_calls_without_any_scope_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    for number in range(3):
        with guard.call("pay", None, {"order": number}):
            pass
    assert caplog.text.count("have no conversation") == 1
    caplog.clear()
    with Guard(scope="job 7").call("pay", None, {"order": 1}):
        pass
    with caplog.at_level(logging.WARNING):
        assert "have no conversation" not in caplog.text


def test_whoever_is_told_of_no_scope_is_told_what_is_one_instead(caplog: pytest.LogCaptureFixture) -> None:
    with Guard().call("pay", None, {"order": 1}):
        pass
    assert "in another process is not recognised" in caplog.text
    assert "in another trace" not in caplog.text
    caplog.clear()
    with TracerProvider().get_tracer("t").start_as_current_span("run"), Guard().call("pay", None, {"order": 1}):
        pass
    assert "in another trace is not recognised" in caplog.text


# -- results -----------------------------------------------------------------------------------------------------------


class Shelf:
    """A user's store of results."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.broken = False

    def save(self, entry_id: str, value: Any) -> None:
        if self.broken:
            raise OSError("disk full")
        self.kept[entry_id] = value

    def load(self, entry_id: str) -> Recorded | None:
        if self.broken:
            raise OSError("disk gone")
        return Recorded(self.kept[entry_id]) if entry_id in self.kept else None


def test_a_store_of_results_answers_another_process_and_later_turns(tmp_path: Path) -> None:
    shelf, url = Shelf(), f"sqlite:///{tmp_path}/ledger.db"
    with Guard(url, results=shelf).call("pay", "toolu_a1", {"order": 1}, scope="s", turn="t1") as attempt:
        attempt.returned("paid")
    for turn in ("t1", "t2"):
        again = Guard(url, results=shelf).call("pay", "toolu_a1", {"order": 1}, scope="s", turn=turn)
        with pytest.raises(ToolSpanCommitmentError) as caught, again:
            raise AssertionError("it ran twice")
        assert caught.value.recorded == Recorded("paid")
    other = Guard(url, results=shelf).call("pay", "toolu_a1", {"order": 2}, scope="s", turn="t2")
    with other:  # one id, other arguments: not that call
        pass


def test_a_store_that_fails_refuses_and_harms_nobody(tmp_path: Path) -> None:
    shelf, url = Shelf(), f"sqlite:///{tmp_path}/ledger.db"
    shelf.broken = True
    with Guard(url, results=shelf).call("pay", "toolu_a1", {"order": 1}, scope="s", turn="t1") as attempt:
        attempt.returned("paid")
    again = Guard(url, results=shelf)
    with pytest.raises(ToolSpanCommitmentError) as caught, again.call("pay", "toolu_a1", {"order": 1}, scope="s", turn="t1"):
        raise AssertionError("it ran twice")
    assert caught.value.recorded is None
    assert states(again) == {"completed": 1}
