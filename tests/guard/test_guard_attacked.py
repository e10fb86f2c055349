# SPDX-License-Identifier: Apache-2.0
"""A guard under interrupts, crashes, ledgers that come and go, other guards, and arguments that fight back."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from genai_processor import GenAIProcessorInstrumentor, Guard
from genai_processor.errors import ToolSpanCommitmentError
from genai_processor.guard.hooks import active
from genai_processor.ledger import State

_LONGER_THAN_THE_RECORDER_RESTS = 1.5


def pay(guard: Guard, call_id: str | None = None, order: Any = 1, *, turn: str | None = None, fails: bool = True) -> bool:
    """Whether the call ran. It commits, and then fails."""
    try:
        with guard.call("pay", call_id, {"order": order}, scope="s", turn=turn):
            if fails:
                raise TimeoutError
    except TimeoutError:
        return True
    except ToolSpanCommitmentError:
        return False
    return True


def entries(guard: Guard, state: State) -> int:
    return guard.ledger.counts()[state]


# -- a claim whose end nobody has heard of, where no turn is known -------------------------------------------------------


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return str(request.getfixturevalue(f"{request.param}_server").url())


_KILLED_INSIDE = """
import os, signal, sys
from genai_processor import Guard
with Guard(sys.argv[1]).call("pay", None, {"order": sys.argv[2]}, scope="s"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_was_doing_is_not_done_again_before_its_lease_has_run_out(shared_url: str) -> None:
    order = uuid.uuid4().hex
    killed = subprocess.run([sys.executable, "-c", _KILLED_INSIDE, shared_url, order], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not pay(Guard(shared_url), order=order)


def test_what_could_not_be_told_of_a_failed_call_is_not_done_again_when_the_ledger_is_back(tmp_path: Path) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db?timeout_seconds=0.1")
    guard.ledger.counts()
    with ledger_away(tmp_path) as away, suppress(TimeoutError), guard.call("pay", None, {"order": 1}, scope="s"):
        away()
        raise TimeoutError
    assert entries(guard, State.CLAIMED) == 1
    assert not pay(guard)


def test_calls_that_run_beside_each_other_in_one_process_are_twins_still(tmp_path: Path) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db")
    with guard.call("pay", None, {"order": 1}, scope="s"):
        assert Context().run(pay, guard, fails=False)
    assert entries(guard, State.COMPLETED) == 2


def test_of_a_forked_process_the_parents_running_calls_are_no_twins(tmp_path: Path) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db")
    with guard.call("pay", None, {"order": 1}, scope="s"):
        child = os.fork()
        if child == 0:
            os._exit(10 + Context().run(pay, guard))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10


# -- interrupts ---------------------------------------------------------------------------------------------------------


class Interrupt:
    """Presses Ctrl-C where the n-th function of the package is entered, which is one of the places where Python looks."""

    def __init__(self, n: int) -> None:
        self._left = n
        self.done = False

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if not self.done and "genai_processor/" in frame.f_code.co_filename:
            self._left -= 1
            if self._left == 0:
                self.done = True
                raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may hit a finalizer, too
@pytest.mark.parametrize("turns", [(None, None), ("t1", "t2")])
@pytest.mark.parametrize("url", ["memory:", "sqlite"])
@pytest.mark.parametrize("decorated", [True, False])
def test_wherever_an_interrupt_hits_nothing_is_done_twice(
    tmp_path: Path, url: str, turns: tuple[str | None, str | None], decorated: bool
) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db" if url == "sqlite" else url)
    done = 0

    @guard.tool("pay")
    def function(order: int) -> None:
        nonlocal done
        done += 1
        raise TimeoutError

    def attempt(order: int, turn: str | None) -> None:
        nonlocal done
        with guard.run(scope="s"):
            if decorated:
                function(order)
            else:
                with guard.call("pay", None, {"order": order}, turn=turn):
                    done += 1
                    raise TimeoutError

    def twice(order: int, interrupt: Interrupt) -> None:
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            with suppress(TimeoutError, KeyboardInterrupt):
                attempt(order, turns[0])
        finally:
            sys.settrace(before)
        with suppress(TimeoutError, ToolSpanCommitmentError):
            attempt(order, turns[1])

    for n in range(1, 2_000):
        done, interrupt = 0, Interrupt(n)
        Context().run(twice, n, interrupt)
        assert done <= 1, f"done twice with an interrupt at call {n}"
        if not interrupt.done:
            return
    raise AssertionError("it never ended")


def test_a_call_whose_end_nobody_can_tell_any_more_is_quarantined() -> None:
    from genai_processor.guard.calls import Call

    guard = Guard()
    begun = guard.begin(Call("pay", None, {"order": 1}), scope="s")
    assert entries(guard, State.CLAIMED) == 1
    del begun
    gc.collect()
    assert entries(guard, State.QUARANTINED) == 1
    assert not pay(guard)


@pytest.mark.parametrize("moment", ["claim", "body"])
def test_a_coroutine_that_is_closed_leaves_no_claim_behind(tmp_path: Path, moment: str) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db")

    @guard.tool()
    async def wait() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        coroutine: Any = wait()
        claimed = coroutine.send(None)
        if moment == "body":
            while not claimed.done():
                await asyncio.sleep(0)
            coroutine.send(None)
        coroutine.close()

    asyncio.run(main())
    expected = State.NOT_STARTED if moment == "claim" else State.QUARANTINED
    deadline = time.monotonic() + 20
    while not entries(guard, expected):
        assert time.monotonic() < deadline
        time.sleep(0.005)


# -- a ledger that comes and goes -----------------------------------------------------------------------------------------


@contextmanager
def ledger_away(folder: Path) -> Iterator[Callable[[], object]]:
    """Somebody holds the file from when the yielded is called to the end."""
    other = sqlite3.connect(folder / "ledger.db", isolation_level=None)
    try:
        yield lambda: other.execute("BEGIN IMMEDIATE")
    finally:
        if other.in_transaction:
            other.execute("ROLLBACK")
        other.close()


@pytest.fixture(params=["alone", "with a processor"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guard]:
    url = f"sqlite:///{tmp_path}/ledger.db?timeout_seconds=0.1"
    if request.param == "alone":
        yield Guard(url)
        return
    instrumentor = GenAIProcessorInstrumentor()
    instrumentor.instrument(tracer_provider=TracerProvider(), ledger=url, guard="enforce")
    try:
        found = active()
        assert found is not None
        yield found
    finally:
        instrumentor.uninstrument()


def test_a_result_that_could_not_be_called_undelivered_is_not_bought_again(guard: Guard, tmp_path: Path) -> None:
    guard.ledger.counts()
    with ledger_away(tmp_path) as away, suppress(ConnectionError), guard.run("s"):
        with guard.call("pay", "toolu_1x", {"order": 1}, turn="t1"):
            pass
        away()
        raise ConnectionError
    assert not pay(guard, "toolu_2x", turn="t2", fails=False)


def test_a_result_whose_end_was_told_late_is_not_bought_again_after_its_run_has_died(guard: Guard, tmp_path: Path) -> None:
    guard.ledger.counts()
    with suppress(ConnectionError), guard.run("s"):
        with ledger_away(tmp_path) as away:
            with guard.call("pay", "toolu_1x", {"order": 1}, turn="t1"):
                away()
            time.sleep(_LONGER_THAN_THE_RECORDER_RESTS)  # so that it does not tell of the end just now
        raise ConnectionError
    deadline = time.monotonic() + 2 * _LONGER_THAN_THE_RECORDER_RESTS
    while entries(guard, State.CLAIMED) and time.monotonic() < deadline:  # a guard that stands alone never tells of it
        time.sleep(0.01)
    assert not pay(guard, "toolu_2x", turn="t2", fails=False)


# -- one guard inside another ---------------------------------------------------------------------------------------------


def test_who_enforces_claims_the_body_of_a_call_that_another_guard_only_observes() -> None:
    observing, enforcing = Guard(mode="observe"), Guard()
    done = []

    @enforcing.tool("pay")
    def function(order: int) -> None:
        done.append(order)
        raise TimeoutError

    for turn, expected in (("t1", TimeoutError), ("t2", ToolSpanCommitmentError)):
        with pytest.raises(expected), observing.call("pay", None, {"order": 1}, scope="s", turn=turn):
            function(1)
    assert done == [1]


@pytest.mark.parametrize("kinds", [("memory", "memory"), ("memory", "one"), ("one", "memory"), ("one", "other")])
def test_a_call_inside_one_of_another_ledger_makes_nothing_unknown(tmp_path: Path, kinds: tuple[str, str]) -> None:
    outer, inner = (Guard("memory:" if kind == "memory" else f"sqlite:///{tmp_path}/{kind}.db") for kind in kinds)
    for order in range(3):
        with outer.call("agent", None, {"order": order}, scope="s"):
            assert pay(inner, order=order, fails=False)


def test_a_failure_inside_a_call_is_the_calls_own_where_two_guards_have_one_file(tmp_path: Path) -> None:
    outer, inner = (Guard(f"sqlite:///{tmp_path}/ledger.db") for _ in range(2))
    with outer.call("agent", None, {"order": 1}, scope="s"):
        assert pay(inner)
    assert entries(outer, State.QUARANTINED) == 2


# -- arguments and names that fight back ------------------------------------------------------------------------------------


class Fights(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError


class Dumps:
    def model_dump(self) -> Any:
        raise KeyError


class Anything:
    def __getattr__(self, name: str) -> Any:
        raise OSError(name)


class Text(str):
    __slots__ = ()

    def strip(self, chars: str | None = None, /) -> str:
        raise RuntimeError


class Loops(list[int]):
    def __iter__(self) -> Any:
        raise ZeroDivisionError


@dataclasses.dataclass
class Unfinished:
    order: int = dataclasses.field(init=False)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Fights(order=1),
        Dumps,
        Anything,
        lambda: {"order": Anything()},
        lambda: Text("{"),
        lambda: Loops([1]),
        Unfinished,
        lambda: {"order": 10**5000},
    ],
)
def test_arguments_whose_own_code_fails_are_arguments_that_nobody_can_compare(mode: str, make: Callable[[], Any]) -> None:
    guard, arguments = Guard(mode=mode), make()
    ran = 0
    for _ in range(2):
        with suppress(TimeoutError, ToolSpanCommitmentError), guard.call("pay", None, arguments, scope="s"):
            ran += 1
            raise TimeoutError
    assert ran == (1 if mode == "enforce" else 2)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize("url", ["memory:", "sqlite"])
@pytest.mark.parametrize(
    "odd",
    [
        {"tool": 7},
        {"tool": b"pay"},
        {"scope": 7},
        {"scope": uuid.UUID(int=7)},
        {"scope": ("user", 7)},
        {"turn": 0},
        {"turn": 7},
        {"turn": uuid.UUID(int=7)},
        {"turn": ("run", 7)},
        {"call_id": 70_123},
        {"call_id": uuid.UUID(int=7)},
        {"proposed": None},
        {"proposed": "1"},
        {"proposed": -1},
        {"proposed": float("nan")},
        {"tool": "pay\0", "scope": "\ud800", "turn": "\udfff"},
    ],
)
def test_names_that_are_no_texts_are_told_apart_like_their_texts(
    tmp_path: Path, mode: str, url: str, odd: dict[str, Any]
) -> None:
    guard = Guard(f"sqlite:///{tmp_path}/ledger.db" if url == "sqlite" else url, mode=mode)
    ran = 0
    for _ in range(2):
        wish: dict[str, Any] = {"tool": "pay", "arguments": {"order": 1}, "scope": "s", "turn": "t1"} | odd
        with suppress(ToolSpanCommitmentError), guard.call(**wish):
            ran += 1
    assert ran == (1 if mode == "enforce" else 2)
    assert entries(guard, State.COMPLETED) == ran


class NoText:
    def __str__(self) -> str:
        raise OSError("no text")

    def __bool__(self) -> bool:
        raise OSError("no truth")


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
@pytest.mark.parametrize("name", ["tool", "scope", "turn", "call_id", "scope of the run", "scope of the guard"])
def test_a_name_without_a_text_is_none_or_refused_by_who_enforces(
    mode: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd: Any = NoText()
    guard = Guard("memory:", mode=mode, scope=odd if name == "scope of the guard" else None)
    wish: dict[str, Any] = {"tool": "pay", "arguments": {"order": 1}}
    if name in ("tool", "scope", "turn", "call_id"):
        wish[name] = odd
    ran, told = 0, f"{name.split()[0]} has to be a text, and str() of this NoText fails"
    refused = pytest.raises(TypeError, match=re.escape(told)) if mode == "enforce" else nullcontext()
    with guard.run(odd if name == "scope of the run" else None), refused, guard.call(**wish):
        ran += 1
    assert ran == (0 if mode == "enforce" else 1)
    if mode == "observe":
        assert told in caplog.text
        assert entries(guard, State.COMPLETED) == 1


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_who_refuses_nothing_does_not_fail_with_a_function_that_tells_the_id(mode: str) -> None:
    @Guard(mode=mode).tool(call_id=lambda arguments: str(arguments["missing"]))
    def function() -> int:
        return 1

    assert function() == 1
