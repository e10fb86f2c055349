# SPDX-License-Identifier: Apache-2.0
"""What is remembered of recent runs: bounded, by any thread, and never so that something forgotten looks safe."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_processor import is_safe_to_retry
from genai_processor.retry import raised as exceptions
from genai_processor.retry import recent as module
from genai_processor.retry.nodes import Node
from genai_processor.retry.raised import chain
from genai_processor.retry.recent import RecentRuns
from genai_processor.retry.verdict import Effect, Reason, RetryVerdict, Verdict
from genai_processor.spans.records import Event, Span, StatusCode

SAFE = Verdict(RetryVerdict.RETRYABLE_READ_ONLY, Reason.READ_ONLY_TOOL, tool="get_rate", effect=Effect.READ_ONLY)
BAD = Verdict(RetryVerdict.QUARANTINED, Reason.COMMITMENT_MARKER, tool="pay")
PAYS = Effect.NON_IDEMPOTENT

numbers = itertools.count(1)


def failed(
    runs: RecentRuns,
    trace_id: int,
    verdict: Verdict = SAFE,
    error: BaseException | None = None,
    *,
    says: str | None = None,
    text: str | None = None,
    root: bool = False,
) -> int:
    """A call fails: its span tells of a type and a text, and `error` is being handled."""
    span_id = next(numbers)
    attributes: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": verdict.tool or "pay"}
    events = []
    if says is not None:
        attributes["error.type"] = says
        events = [Event("exception", {"exception.type": says} | ({"exception.message": text} if text is not None else {}))]
    parent = None if root else f"{1:016x}"
    name, status = "execute_tool", StatusCode.ERROR
    span = Span(f"{trace_id:032x}", f"{span_id:016x}", parent, name, 1, "app", 1, 2, status, "", attributes, events)
    runs.note(Node(span), trace_id, span_id, verdict, error)
    return span_id


@pytest.fixture
def runs() -> RecentRuns:
    return RecentRuns()


# -- what is forgotten -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", ["succeed", "fail", "both"])
@pytest.mark.parametrize("first", ["succeeded", "failed", "both"])
def test_a_run_that_was_evicted_stays_unknown(runs: RecentRuns, first: str, others: str) -> None:
    if first != "failed":
        runs.succeeded(7, PAYS)
    if first != "succeeded":
        failed(runs, 7, BAD)
    for other in range(1_000, 1_000 + module._MAX_RUNS + 1):
        if others != "fail":
            runs.succeeded(other, PAYS)
        if others != "succeed":
            failed(runs, other)
    error = TimeoutError("late")
    failed(runs, 7, SAFE, error)
    assert not all_safe(runs, error)


def all_safe(runs: RecentRuns, error: BaseException) -> bool:
    verdicts = runs.verdicts(chain(error))
    return verdicts is not None and set(verdicts) == {SAFE}


def test_what_was_used_lately_is_kept_and_new_runs_are_known_after_many(runs: RecentRuns) -> None:
    early, late = TimeoutError("early"), TimeoutError("late")
    failed(runs, 7, SAFE, early)
    for other in range(1_000, 1_000 + module._MAX_RUNS - 1):
        failed(runs, other)
    failed(runs, 7, SAFE)
    for other in range(9_000, 9_000 + module._MAX_RUNS - 2):
        failed(runs, other)
    failed(runs, 8, SAFE, late)
    assert all_safe(runs, early)
    assert all_safe(runs, late)
    failed(runs, 9)
    assert not all_safe(runs, early)
    assert len(runs._runs) <= module._MAX_RUNS


@given(st.lists(st.tuples(st.sampled_from(["succeed", "pay", "rate", "lost"]), st.integers(1, 6)), max_size=40))
def test_forgetting_never_makes_a_run_safe(steps: list[tuple[str, int]]) -> None:
    """With room for three runs of two calls, nothing is safe that is not safe with room for all."""
    small, large = RecentRuns(), RecentRuns()
    errors = []
    with pytest.MonkeyPatch.context() as patch:
        for step, trace_id in steps:
            error = TimeoutError("no answer")
            for runs, most in ((small, 3), (large, 2_000)):
                patch.setattr(module, "_MAX_RUNS", most)
                patch.setattr(module, "_MAX_CALLS", 2 if runs is small else 1_000)
                if step == "succeed":
                    runs.succeeded(trace_id, PAYS)
                elif step == "lost":
                    runs.lost(trace_id)
                else:
                    failed(runs, trace_id, BAD if step == "pay" else SAFE, error)
                    errors.append(error)
    for error in errors:
        assert all_safe(large, error) or not all_safe(small, error)
    assert len(small._runs) <= 3
    assert len(small._succeeded) <= 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_of_which_something_was_lost_is_unknown(runs: RecentRuns, when: str) -> None:
    error = TimeoutError("x")
    if when == "before":
        runs.lost(7)
    failed(runs, 7, SAFE, error)
    if when == "after":
        assert all_safe(runs, error)
        runs.lost(7)
    assert not all_safe(runs, error)


def test_a_run_with_too_many_calls_is_unknown(runs: RecentRuns) -> None:
    error = TimeoutError("x")
    failed(runs, 7, SAFE, error)
    for _ in range(module._MAX_CALLS):
        failed(runs, 7, SAFE)
    assert len(runs._runs[7]) <= module._MAX_CALLS
    assert not all_safe(runs, error)


def test_a_call_without_parent_is_unknown(runs: RecentRuns) -> None:
    error = TimeoutError("x")
    failed(runs, 7, SAFE, error, root=True)
    assert not all_safe(runs, error)


def test_large_texts_are_not_kept(runs: RecentRuns) -> None:
    error = ValueError("x" * 50_000)
    tracemalloc.start()
    try:
        for trace_id in range(1, 301):
            failed(runs, trace_id, SAFE, error, says="KeyError", text=f"{trace_id}" * 10_000)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()


# -- which run an exception ended --------------------------------------------------------------------------------------


def raised(text: str, kind: type[BaseException] = TimeoutError) -> BaseException:
    return kind(text) if text else kind()


@pytest.mark.parametrize("text", ["", "timed out"])
def test_an_exception_that_takes_the_place_of_another_in_memory_is_not_that_one(runs: RecentRuns, text: str) -> None:
    for _ in range(200):
        error = raised(text)
        failed(runs, 7, SAFE, error)
        assert all_safe(runs, error)
        del error
        assert not all_safe(runs, raised(text)), "some other exception"


class Slotted(Exception):
    __slots__ = ()


class Frozen(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("frozen")


class Closed(Exception):
    def __getattribute__(self, name: str) -> object:
        if name in ("__dict__", "_genai_processor_mark"):
            raise TypeError("closed")
        return super().__getattribute__(name)


@pytest.mark.parametrize("kind", [TimeoutError, KeyboardInterrupt, Slotted, Frozen, Closed])
def test_any_kind_of_exception_is_known_again(runs: RecentRuns, kind: type[BaseException]) -> None:
    one, other = kind("same"), kind("same")
    failed(runs, 7, SAFE, one)
    failed(runs, 8, BAD, other)
    assert all_safe(runs, one)
    assert not all_safe(runs, other)
    assert not all_safe(runs, kind("same"))


@pytest.mark.parametrize("text", ["timed out", ""])
def test_one_that_can_bear_no_mark_is_unknown(runs: RecentRuns, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Many runs end with the same words, and some of them in no trace."""
    monkeypatch.setattr(exceptions, "_mark_of", lambda error, *, make=False: None)
    error = TimeoutError(text)
    failed(runs, 7, SAFE, error)
    assert not all_safe(runs, error)


@pytest.mark.parametrize("how", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_mark_hinders_neither_copying_nor_pickling(runs: RecentRuns, how: Callable[[Any], Any]) -> None:
    error = TimeoutError("x")
    failed(runs, 7, SAFE, error)
    assert how(error).args == ("x",)
    assert all_safe(runs, how(error))


def test_every_run_that_one_exception_ended_counts(runs: RecentRuns) -> None:
    shared = TimeoutError("shared by all")
    failed(runs, 7, SAFE, shared)
    assert all_safe(runs, shared)
    failed(runs, 8, BAD, shared)
    assert not all_safe(runs, shared)


@pytest.mark.parametrize("told", ["type and text", "type"])
def test_an_error_is_not_left_to_a_call_that_fails_while_it_is_handled(runs: RecentRuns, told: str) -> None:
    """`pay` ended before its exception was being handled, so only its span tells of it."""
    error = TimeoutError("no answer")
    failed(runs, 7, BAD, says="TimeoutError", text="no answer" if told == "type and text" else None)
    failed(runs, 8, SAFE, error, says="TimeoutError", text="another")
    assert not all_safe(runs, error)


@pytest.mark.parametrize("says", ["TimeoutError", "_OTHER", None])
def test_what_was_handled_before_a_call_failed_is_not_what_ended_it(runs: RecentRuns, says: str | None) -> None:
    first = TimeoutError("first")

    def handle() -> None:
        try:
            raise first
        except TimeoutError:
            raise TimeoutError("second")  # noqa: B904 - as nobody's cause

    with pytest.raises(TimeoutError, match="second") as second:
        handle()
    failed(runs, 8, SAFE, second.value, says=says)
    assert all_safe(runs, second.value)
    assert not all_safe(runs, first)


def test_a_like_permits_nothing_and_may_forbid(runs: RecentRuns) -> None:
    error = TimeoutError("no answer")
    failed(runs, 7, SAFE, error)
    assert all_safe(runs, error)
    assert not all_safe(runs, TimeoutError("no answer"))
    failed(runs, 8, BAD, says="TimeoutError", text="no answer")
    assert not all_safe(runs, error), "its span may have told of this very one"


def test_a_retry_made_while_its_reason_is_handled_is_a_run_of_its_own() -> None:
    """The first attempt was rejected; the second paid, and then lost its model, outside any call."""
    runs = RecentRuns.of_process()
    first = ValueError("rejected, and tried again while that was handled")
    failed(runs, 0x5D8A9E1C44D20B7F3390C6AA17E2F4B1, SAFE, first)
    lost, chosen = ConnectionError("no model"), ConnectionError("no model")
    lost.__context__ = first
    chosen.__cause__ = first
    assert is_safe_to_retry(first)
    assert not is_safe_to_retry(lost)
    assert is_safe_to_retry(chosen)
    assert not is_safe_to_retry(ExceptionGroup("both", [first, lost]))
    assert is_safe_to_retry(ExceptionGroup("both", [first, chosen]))


def test_one_that_another_run_bore_before_does_not_stand_for_what_a_span_tells(runs: RecentRuns) -> None:
    """The bad call's own exception was recorded while that of another run was being handled, and ended a third later."""
    handled, own = TimeoutError("no answer"), TimeoutError("no answer")
    failed(runs, 7, SAFE, handled)
    failed(runs, 8, BAD, handled, says="TimeoutError", text="no answer")
    failed(runs, 9, SAFE, own)
    assert not all_safe(runs, own)


def test_an_exception_of_a_forgotten_call_is_not_left_to_its_likes(runs: RecentRuns) -> None:
    error = TimeoutError("no answer")
    failed(RecentRuns(), 7, BAD, error)
    failed(runs, 8, SAFE, says="TimeoutError", text="no answer")
    assert not all_safe(runs, error)


def test_what_an_inner_span_told_of_the_exception_stays(runs: RecentRuns) -> None:
    inner, outer = TimeoutError("inner"), ValueError("outer")
    within = failed(runs, 7, BAD, inner)
    attributes = {"gen_ai.operation.name": "execute_tool"}
    view, node = (
        Node(Span("07", f"{number:016x}", "01", "execute_tool", 1, "app", 1, 2, 2, "", attributes))
        for number in (within, next(numbers))
    )
    node.add_view(view)
    runs.note(node, 7, int(node.span.span_id, 16), SAFE, outer)
    assert all_safe(runs, inner)
    assert all_safe(runs, outer)


def test_more_exceptions_than_are_looked_at_are_unknown(runs: RecentRuns) -> None:
    good = [TimeoutError(f"{number}") for number in range(exceptions.MAX_CHAIN)]
    for error in good:
        failed(runs, 7, SAFE, error)
    bad = TimeoutError("bad")
    failed(runs, 8, BAD, bad)
    for at in (0, 50, len(good)):
        assert not all_safe(runs, ExceptionGroup("all", [*good[:at], bad, *good[at:]]))  # type: ignore[type-var]


calls = st.tuples(
    st.integers(1, 4),  # run
    st.booleans(),  # safe
    st.integers(0, 3) | st.none(),  # which exception is being handled
    st.sampled_from([None, "_OTHER", "TimeoutError", "OSError"]),
    st.sampled_from([None, "", "a", "b"]),
)


@given(st.lists(calls, max_size=10), st.permutations(range(10)))
def test_whatever_else_fails_an_answer_only_gets_worse(made: list[Any], order: list[int]) -> None:
    """Calls of other runs are added one by one; none of them makes an exception safe that a bad call has ended."""
    errors = [TimeoutError("a"), TimeoutError("a"), TimeoutError(), OSError("b")]
    runs = RecentRuns()
    for index, error in enumerate(errors):
        failed(runs, 100 + index, BAD, error)
    made = [made[at] for at in order if at < len(made)]
    for trace_id, good, handled, says, text in made:
        error = None if handled is None else errors[handled]
        failed(runs, trace_id, SAFE if good else BAD, error, says=says, text=text)
        assert not any(all_safe(runs, error) for error in errors)


# -- calls that are open -----------------------------------------------------------------------------------------------


class Source:
    def __init__(self, *calls: tuple[int, str]) -> None:
        self.calls = calls

    def open(self) -> Iterator[tuple[int, str]]:
        yield from self.calls

    def fail(self) -> Iterator[tuple[int, str]]:
        raise RuntimeError


def test_an_open_call_of_the_run_counts_from_any_source(runs: RecentRuns) -> None:
    error = TimeoutError("x")
    failed(runs, 7, SAFE, error)
    one, other = Source((8, "pay")), Source()
    runs.watch(one.open)
    runs.watch(other.open)
    assert all_safe(runs, error)
    other.calls = ((9, "pay"), (7, ""))
    assert not all_safe(runs, error)
    other.calls = ()
    assert all_safe(runs, error)


def test_a_source_that_cannot_tell_makes_it_unknown(runs: RecentRuns) -> None:
    error = TimeoutError("x")
    failed(runs, 7, SAFE, error)
    source = Source()
    runs.watch(source.fail)
    assert not all_safe(runs, error)


def test_sources_are_not_kept_alive(runs: RecentRuns) -> None:
    for _ in range(100):
        runs.watch(Source().open)
        gc.collect()
    assert len(runs._open_calls) <= 1


# -- threads -----------------------------------------------------------------------------------------------------------


def test_a_success_is_never_lost_wherever_in_a_failure_it_comes() -> None:
    """At each line that runs while a failed call is noted, another call of the run succeeds."""
    for line in itertools.count():
        runs, seen = RecentRuns(), 0

        def trace(frame: Any, event: str, arg: Any, at: int = line, into: RecentRuns = runs) -> Any:
            nonlocal seen
            if frame.f_code.co_filename != module.__file__ or frame.f_code.co_name == "succeeded":
                return None
            if event == "line":
                seen += 1
                if seen == at + 1:
                    into.succeeded(7, PAYS)
            return trace

        error = TimeoutError("x")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            failed(runs, 7, SAFE, error)
        finally:
            sys.settrace(before)
        if seen <= line:
            break
        assert not all_safe(runs, error), f"line event {line}"
    assert line > 20


def test_asking_while_others_write_never_raises(runs: RecentRuns) -> None:
    error, stop = TimeoutError("x"), threading.Event()
    failed(runs, 7, SAFE, error)

    def write() -> None:
        for trace_id in itertools.count(1_000):
            if stop.is_set():
                return
            runs.succeeded(trace_id, PAYS)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=write) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        assert all(all_safe(runs, error) for _ in range(300))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)


def test_many_threads_cannot_outgrow_the_bound(runs: RecentRuns) -> None:
    def write(first: int) -> None:
        for trace_id in range(first, first + 20_000):
            runs.succeeded(trace_id, PAYS)

    threads = [threading.Thread(target=write, args=[n * 10**6]) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for trace_id in range(6_000):  # each makes up for some that were added while one thread held the lock, and slept
        runs.succeeded(trace_id, PAYS)
    assert len(runs._succeeded) <= 2_001


def test_a_table_that_does_not_stand_still_is_unknown(runs: RecentRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    error = TimeoutError("x")
    failed(runs, 7, SAFE, error)

    class Restless:
        def items(self) -> Iterator[Any]:
            raise RuntimeError("OrderedDict mutated during iteration")

    runs._runs = Restless()  # type: ignore[assignment]
    assert runs.verdicts([error]) is None


def test_there_is_one_for_all_threads() -> None:
    found: list[RecentRuns] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        found.append(RecentRuns.of_process())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
