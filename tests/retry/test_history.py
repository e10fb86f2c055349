# SPDX-License-Identifier: Apache-2.0
"""What is remembered of executions stays within bounds, and what was forgotten is never taken for unseen."""

from __future__ import annotations

from genai_processor.retry.execution import Execution
from genai_processor.retry.history import History, Scope
from genai_processor.retry.seen import SeenNames
from genai_processor.retry.verdict import Ended
from genai_processor.spans.arguments import WITHHELD, Arguments, read_arguments


def arguments(n: int) -> Arguments:
    return read_arguments(f'{{"n": {n}}}')


def execution(n: int, tool: str = "pay", uncertain: bool = False) -> Execution:
    return Execution(
        span_id=f"{n:016x}",
        trace_id="t",
        tool=tool,
        call_id=f"id{n}x",
        start_ns=n,
        end_ns=n + 1,
        ended=Ended.FAILED if uncertain else Ended.WELL,
        uncertain=uncertain,
        arguments=arguments(n),
    )


def add(scope: Scope, one: Execution) -> None:
    scope.add(one, scope.action_before(one))


def test_an_id_has_one_meaning() -> None:
    scope = Scope()
    add(scope, execution(1))
    assert not scope.means_otherwise("id1x", "pay", arguments(1))
    assert scope.means_otherwise("id1x", "pay", arguments(2))
    assert scope.means_otherwise("id1x", "mail", arguments(1))
    assert not scope.means_otherwise("id1x", "pay", WITHHELD), "nothing to compare"
    assert not scope.means_otherwise("id9x", "pay", arguments(9))


def test_after_a_scope_forgot_any_id_may_have_been_seen() -> None:
    scope = Scope(limit=10)
    for n in range(11):
        add(scope, execution(n))
    assert scope.forgot
    assert scope.size <= 10
    assert scope.means_otherwise("id0x", "pay", arguments(0))
    assert scope.means_otherwise("never", "pay", arguments(0))
    assert not scope.means_otherwise("id10x", "pay", arguments(10)), "the newer half is still known"


def test_a_scope_is_bounded_whatever_it_holds() -> None:
    scope = Scope(limit=100)
    for n in range(2_000):
        add(scope, execution(n, tool=f"tool{n % 700}", uncertain=n % 3 == 0))
        scope.failed_at(n)
        scope.mark(f"trace{n}", n, n, False)
    assert len(scope.ids) <= 101
    assert len(scope.actions) <= 101
    assert len(scope.failed_tools) <= 101
    assert len(scope.failures) <= 100
    assert len(scope.traces) <= 1_000


def test_a_scope_that_was_dropped_and_returns_is_not_new() -> None:
    history = History(scopes=2, evicted=SeenNames(1_024))
    for name in ("a", "b", "c"):
        add(history.scope(name), execution(1))
    assert history.means_otherwise("a", "id9x", "pay", arguments(9))
    assert history.scope("a").forgot
    assert not history.means_otherwise("c", "id9x", "pay", arguments(9))
    assert not history.means_otherwise("never seen", "id9x", "pay", arguments(9))


def test_a_scope_that_returns_is_not_new_for_a_call_that_seems_its_first() -> None:
    history = History(scopes=2, evicted=SeenNames(1_024))
    for name in ("a", "b", "c"):
        assert history.is_first(name, execution(1))
    assert not history.is_first("a", execution(2))
    assert history.scope("a").forgot


def test_the_whole_is_bounded_and_the_quiet_go_first() -> None:
    history = History(scopes=1_000, executions=100, evicted=SeenNames(1_024))
    for name in ("quiet", "loud"):
        for n in range(60):
            add(history.scope(name), execution(n))
        history.weigh(name)
    assert history.means_otherwise("quiet", "id9x", "pay", arguments(9))
    assert not history.means_otherwise("loud", "id9x", "pay", arguments(9))


def test_failures_are_found_by_time_in_any_order() -> None:
    scope = Scope()
    for end in (50, 10, 30):
        scope.failed_at(end)
    assert scope.failed_between(5, 10)
    assert scope.failed_between(25, 31)
    assert not scope.failed_between(11, 29)
    assert not scope.failed_between(51, 99)


def test_seen_names_never_deny_one() -> None:
    seen = SeenNames(4_096)
    assert "x" not in seen
    names = [f"scope-{n}" for n in range(2_000)]
    for name in names:
        seen.add(name)
    assert all(name in seen for name in names)
    assert sum(f"other-{n}" in seen for n in range(2_000)) < 200
