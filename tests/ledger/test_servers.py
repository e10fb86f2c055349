# SPDX-License-Identifier: Apache-2.0
"""What a ledger on a server has to bear: restarts, cuts, forks, clocks, texts, and servers that do not answer."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import redis
from shared_helpers import Shared
from support.servers import PASSWORD
from support.wire import Wire

from genai_processor.errors import LedgerUnavailableError, LedgerURLError, UnknownEntryError
from genai_processor.ledger import (
    Claim,
    Granted,
    Outcome,
    Query,
    Refusal,
    Resolution,
    Sighting,
    State,
    open_ledger,
    server_clock,
)
from genai_processor.ledger.shared import SharedLedger

DAY_NS = 24 * 3600 * 10**9


def wish(number: int = 1, **more: Any) -> Claim:
    return Claim(
        **{"scope": "s", "tool": "pay", "call_id": f"toolu_{number}x", "digest": f"d{number}", "turn": "t1", **more}
    )


def granted(ledger: SharedLedger, number: int = 1, **more: Any) -> Granted:
    answer = ledger.claim(wish(number, **more))
    assert isinstance(answer, Granted), answer
    return answer


# -- a store that has lost something ---------------------------------------------------------------------------------


def emptied(shared: Shared) -> None:
    """What an administrator may do to it by mistake."""
    if shared.option == "prefix":
        client = redis.Redis.from_url(shared.server.url())
        for key in client.scan_iter(f"{{{shared.name}}}:*"):
            client.delete(key)
    else:
        with psycopg.connect(shared.server.url(), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {shared.name} CASCADE")  # type: ignore[arg-type]


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_store_that_was_emptied_is_not_taken_for_one_in_which_nothing_ran(shared: Shared, made_anew: bool) -> None:
    ledger, idle = shared.open(), shared.open()
    ledger.finish(granted(ledger).entry, Outcome.FAILED)
    idle.counts()
    idle.close()
    emptied(shared)
    if made_anew:
        granted(shared.open(), 2)
    for _ in range(2):
        for one in (ledger, idle):
            with pytest.raises(LedgerUnavailableError):
                one.claim(wish(call_id="toolu_new1", turn="t2"))
    with pytest.raises(LedgerUnavailableError, match="start this process again"):
        ledger.claim(wish(call_id="toolu_new1", turn="t2"))


# -- round trips -----------------------------------------------------------------------------------------------------


def test_each_transition_is_one_round_trip(shared: Shared) -> None:
    with Wire(shared.server.port) as wire:
        ledger = shared.open(wire.port)
        granted(ledger, 0)

        def trips(what: Callable[[], Any]) -> tuple[Any, int]:
            before = wire.requests
            done = what()
            return done, wire.requests - before

        outer, one = trips(lambda: granted(ledger, 1, lease_ns=10**12).entry)
        _, two = trips(lambda: ledger.start(outer))
        inner, three = trips(lambda: granted(ledger, 2, parent=outer.entry_id).entry)
        _, four = trips(lambda: ledger.renew(outer, lease_ns=10**12))
        failed, five = trips(lambda: ledger.finish(inner, Outcome.FAILED))
        seen = Sighting("s", "pay", State.COMPLETED, "toolu_1x", entry_id=outer.entry_id)
        _, six = trips(lambda: ledger.record(seen))
        refused, seven = trips(lambda: ledger.claim(wish(2)))
        settled, eight = trips(
            lambda: ledger.settle(failed.entry_id, Resolution.COMMITTED, who="a", note="n", version=failed.version)
        )
        assert isinstance(refused, Refusal)
        assert settled.state is State.SETTLED
        assert [one, two, three, four, five, six, seven, eight] == [1] * 8


def test_what_ended_well_in_other_turns_is_not_looked_at(shared: Shared) -> None:
    other = shared.open()
    for number in range(3):
        other.finish(granted(other, number, digest="d", turn=f"t{number}").entry, Outcome.RETURNED)
    with Wire(shared.server.port) as wire:
        ledger = shared.open(wire.port)
        granted(ledger, 8)
        before = wire.requests
        granted(ledger, 9, digest="d", turn="t9")
        assert wire.requests - before == 1


def test_what_another_client_did_costs_one_more(shared: Shared) -> None:
    with Wire(shared.server.port) as wire:
        ledger, other = shared.open(wire.port), shared.open()
        entry = granted(ledger).entry
        other.start(entry)
        before = wire.requests
        assert ledger.finish(entry, Outcome.RETURNED).started_ns is not None
        assert wire.requests - before == 2


# -- connections that break ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_arrival", [False, True])
def test_a_claim_whose_connection_is_cut_is_granted_once(shared: Shared, after_arrival: bool) -> None:
    with Wire(shared.server.port) as wire:
        ledger, other = shared.open(wire.port), shared.open()
        granted(ledger, 0)
        wire.cut(after_arrival=after_arrival)
        entry = granted(ledger).entry
        assert wire.cuts == 1
        assert [found.entry_id for found in other.by_call("s", "toolu_1x")] == [entry.entry_id]
        assert isinstance(other.claim(wish()), Refusal)
        assert ledger.finish(entry, Outcome.RETURNED).state is State.COMPLETED


@pytest.mark.parametrize("after_arrival", [False, True])
def test_a_further_attempt_whose_connection_is_cut_is_granted_once(shared: Shared, after_arrival: bool) -> None:
    with Wire(shared.server.port) as wire:
        ledger, other = shared.open(wire.port), shared.open()
        ledger.finish(granted(ledger).entry, Outcome.PAUSED)
        wire.cut(after_arrival=after_arrival)
        entry = granted(ledger).entry
        assert wire.cuts == 1
        assert entry.attempt == 2
        assert isinstance(other.claim(wish()), Refusal)
        assert other.get(entry.entry_id) == entry


@pytest.mark.parametrize("after_arrival", [False, True])
@pytest.mark.parametrize("what", ["start", "finish", "settle", "record", "set_digest"])
def test_whatever_is_cut_is_done_once(shared: Shared, what: str, after_arrival: bool) -> None:
    with Wire(shared.server.port) as wire:
        ledger, other = shared.open(wire.port), shared.open()
        entry = granted(ledger, digest=None).entry
        if what == "settle":
            entry = ledger.finish(entry, Outcome.FAILED)
        wire.cut(after_arrival=after_arrival)
        if what == "start":
            ledger.start(entry)
        elif what == "finish":
            ledger.finish(entry, Outcome.RETURNED)
        elif what == "settle":
            ledger.settle(entry.entry_id, Resolution.COMMITTED, who="ann", note="n", version=entry.version)
        elif what == "record":
            ledger.record(Sighting("s", "mail", State.QUARANTINED))
        else:
            ledger.set_digest(entry.entry_id, "d")
        assert wire.cuts == 1
        found = other.get(entry.entry_id)
        assert found is not None
        assert found.version == entry.version + (what != "record")
        assert len(other.pending(Query(tool="mail")).entries) == (what == "record")


def test_a_server_that_starts_again_in_the_middle_is_waited_for_and_has_lost_nothing(shared: Shared) -> None:
    ledger = shared.open(timeout_seconds="30")
    entries = [granted(ledger, number).entry for number in range(20)]
    ledger.finish(entries[0], Outcome.RETURNED)
    shared.server.kill()
    back = threading.Thread(target=shared.server.start)
    back.start()
    try:
        with pytest.raises(LedgerUnavailableError):  # nothing was sent that would have to be cleared up
            shared.open(timeout_seconds="0.01").counts()
        ledger.finish(entries[1], Outcome.RETURNED)
    finally:
        back.join()
    assert ledger.counts()[State.COMPLETED] == 2
    assert ledger.counts()[State.CLAIMED] == 18
    assert isinstance(ledger.claim(wish(3)), Refusal)


def test_a_server_that_is_down_is_unavailable_and_comes_back(shared: Shared) -> None:
    ledger = shared.open()
    entry = granted(ledger).entry
    shared.server.stop()
    try:
        for what in (lambda: ledger.claim(wish(2)), lambda: ledger.finish(entry, Outcome.FAILED), ledger.counts):
            begin = time.monotonic()
            with pytest.raises(LedgerUnavailableError, match="cannot be asked") as caught:
                what()
            assert time.monotonic() - begin < 4
            assert caught.value.__cause__ is not None
            assert PASSWORD not in str(caught.value)
    finally:
        shared.server.start()
    assert ledger.finish(entry, Outcome.RETURNED).state is State.COMPLETED


def test_a_server_that_does_not_answer_is_given_up_in_time(shared: Shared) -> None:
    with Wire(shared.server.port) as wire:
        ledger = shared.open(wire.port, timeout_seconds="0.3")
        granted(ledger)
        for fresh in (ledger, shared.open(wire.port, timeout_seconds="0.3")):
            wire.silent = True
            begin = time.monotonic()
            with pytest.raises(LedgerUnavailableError, match="did not answer in time"):
                fresh.claim(wish(2))
            assert 0.2 < time.monotonic() - begin < 2
        wire.silent = False
        granted(ledger, 3)


def test_a_connection_that_does_not_stand_up_is_given_up_in_time(shared: Shared) -> None:
    url = shared.url().replace("127.0.0.1", "192.0.2.1")  # an address that nobody has
    ledger = open_ledger(f"{url}&timeout_seconds=0.3")
    begin = time.monotonic()
    with pytest.raises(LedgerUnavailableError) as caught:
        ledger.counts()
    assert time.monotonic() - begin < 2
    assert PASSWORD not in str(caught.value)


# -- processes, threads, clocks ----------------------------------------------------------------------------------------

SCRIPT = """
    import sys, threading
    from genai_processor.ledger import *
    ledger = open_ledger(sys.argv[1])
    lock = threading.Lock()
    def work():
        for number in range(25):
            answer = ledger.claim(Claim("s", "pay", f"toolu_{number}x", f"d{number}", "t1"))
            if isinstance(answer, Granted):
                with lock:
                    print(number, flush=True)
                ledger.finish(ledger.start(answer.entry), Outcome.RETURNED)
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


def test_of_eight_processes_that_open_it_first_and_at_once_each_call_is_granted_to_one(shared: Shared) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), shared.url(timeout_seconds="30")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    lines = [line for process in running for line in process.communicate(timeout=120)[0].split()]
    assert [process.returncode for process in running] == [0] * 8
    assert sorted(map(int, lines)) == list(range(25))
    assert shared.open().counts()[State.COMPLETED] == 25


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(shared: Shared) -> None:
    with Wire(shared.server.port) as wire:
        ledger = shared.open(wire.port)
        entry = granted(ledger).entry
        before = wire.connections
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for number in range(2, 30):
                    granted(ledger, number)
                ledger.close()
                code = 0
            finally:
                os._exit(code)
        for number in range(30, 60):
            granted(ledger, number)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ledger.finish(entry, Outcome.RETURNED).state is State.COMPLETED
        assert wire.connections == before + 1
    assert shared.open().counts()[State.CLAIMED] == 58


def test_two_hosts_whose_clocks_are_an_hour_apart_agree_on_leases(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    hour_ns = 3_600 * 10**9
    passed_ns, time_ns = server_clock.passed_ns, time.time_ns
    here = shared.open()
    held = granted(here, lease_ns=60 * 10**9).entry
    brief = granted(here, 2, lease_ns=1).entry
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: time_ns() + hour_ns)
        patch.setattr(time, "time", lambda: (time_ns() + hour_ns) / 1e9)
        for module in ("server_clock", *(("redis", "redis_server") if shared.option == "prefix" else ("postgresql",))):
            patch.setattr(f"genai_processor.ledger.{module}.passed_ns", lambda: passed_ns() + hour_ns)
        there = shared.open()
        assert [entry.entry_id for entry in there.expire()] == [brief.entry_id]
        other = granted(there, 3, lease_ns=60 * 10**9).entry
        assert isinstance(there.claim(wish(1, turn="t2", call_id="other-id")), Refusal)
    assert abs(other.created_ns - held.created_ns) < 30 * 10**9
    assert here.expire() == ()


def test_a_finalizer_inside_an_operation_is_heard(shared: Shared) -> None:
    ledger = shared.open()
    entry = granted(ledger, 1).entry
    answers: list[Any] = []

    def new_id() -> str:
        if not answers:
            answers.append(None)
            answers[0] = ledger.finish(entry, Outcome.FAILED)
        return f"id{len(answers)}{time.monotonic_ns()}"

    ledger._new_id = new_id
    granted(ledger, 2)
    assert answers[0].state is State.QUARANTINED


# -- texts, odd input, retention ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["half a pair \ud800", "nul \0 inside", "ünïcode 🦊", "a b:c", "x" * 300_000])
def test_any_text_is_recorded_and_found_again(shared: Shared, text: str) -> None:
    ledger = shared.open()
    entry = ledger.record(Sighting(text, text, State.QUARANTINED, text, text, text, reason=text))
    assert entry is not None
    assert ledger.get(entry.entry_id) == entry
    assert ledger.by_call(text, text) == ledger.by_action(text, text, text) == (entry,)
    for query in (Query(scope=text), Query(tool=text), Query(scope=text, tool=text, state=State.QUARANTINED)):
        assert ledger.pending(query).entries == (entry,)
    assert not ledger.pending(Query(scope="another")).entries
    assert isinstance(ledger.claim(Claim(text, text, "toolu_new", text, "another turn")), Refusal)
    settled = ledger.settle(entry.entry_id, Resolution.COMMITTED, who=text, note=text, version=1)
    assert ledger.get(entry.entry_id) == settled
    assert ledger.get(text) is None
    granted_there = ledger.claim(Claim(text, "mail", text, "d", "t"))
    assert isinstance(granted_there, Granted)
    failed = ledger.finish(granted_there.entry, Outcome.FAILED, reason=text)
    assert ledger.get(failed.entry_id) == failed


@pytest.mark.parametrize("odd", [{"trace_id": ["ab"]}, {"effect": None}, {"span_id": 7}, {"reason": b"x"}, {"scope": None}])
def test_an_odd_sighting_is_counted(shared: Shared, odd: dict[str, Any]) -> None:
    ledger = shared.open()
    assert ledger.record(Sighting(**{"scope": "s", "tool": "pay", "state": State.QUARANTINED, **odd})) is None
    assert ledger.record("nonsense") is None  # type: ignore[arg-type]
    assert ledger.set_digest(7, "d") is ledger.set_digest("nobody", 7) is None  # type: ignore[arg-type]
    assert ledger.stats().rejected == 2


def test_a_lease_without_an_end_in_sight(shared: Shared) -> None:
    ledger = shared.open()
    granted(ledger, lease_ns=2**80)
    assert ledger.expire() == ()


def test_an_expired_call_is_unknown_not_new_and_what_is_open_or_settled_stays(shared: Shared) -> None:
    now = [10**18]
    ledger = shared.make(max_age_days=7, clock=lambda: now[0])
    done, failed, running = (granted(ledger, number).entry for number in range(3))
    settled = ledger.finish(granted(ledger, 3).entry, Outcome.FAILED)
    ledger.settle(settled.entry_id, Resolution.NOT_COMMITTED, who="ann", note="n", version=settled.version)
    ledger.finish(done, Outcome.RETURNED)
    ledger.finish(failed, Outcome.FAILED)
    now[0] += 8 * DAY_NS
    granted(ledger, 9, turn="t9")
    assert ledger.get(done.entry_id) is None
    assert not ledger.by_call("s", "toolu_0x")
    again = ledger.claim(wish(0))
    assert isinstance(again, Refusal)
    assert again.reason == "ledger_unknown"
    assert [entry.entry_id for entry in ledger.pending().entries] == [failed.entry_id]
    assert ledger.get(running.entry_id) is not None
    assert ledger.get(settled.entry_id) is not None
    assert ledger.stats().evicted >= 1
    counts = ledger.counts()
    assert (counts[State.COMPLETED], counts[State.SETTLED], counts[State.CLAIMED]) == (0, 1, 2)


def test_an_expired_call_whose_arguments_were_never_known_may_be_any_of_its_turn(shared: Shared) -> None:
    now = [10**18]
    ledger = shared.make(max_age_days=7, clock=lambda: now[0])
    ledger.record(Sighting("s", "pay", State.COMPLETED, turn="t1"))
    now[0] += 8 * DAY_NS
    ledger.record(Sighting("s", "mail", State.COMPLETED))
    again = ledger.claim(wish())
    assert isinstance(again, Refusal)
    assert again.reason == "ledger_unknown"
    granted(ledger, turn="t2")


def test_news_of_an_entry_that_expired_makes_its_tool_unknown(shared: Shared) -> None:
    now = [10**18]
    ledger = shared.make(max_age_days=7, clock=lambda: now[0])
    done = granted(ledger).entry
    ledger.finish(done, Outcome.RETURNED)
    now[0] += 8 * DAY_NS
    granted(ledger, 9, turn="t9", tool="mail")
    with pytest.raises(UnknownEntryError):
        ledger.start(done)
    assert shared.open().is_unknown("s", "pay")
    assert not ledger.is_unknown("s", "mail")
    answer = ledger.claim(wish(7, turn="t7"))
    assert isinstance(answer, Refusal)
    assert answer.reason == "ledger_unknown"
    assert ledger.stats().unknown_tools == 1


def test_old_calls_that_stay_are_in_nobodys_way(shared: Shared) -> None:
    now = [10**18]
    ledger = shared.make(max_age_days=7, clock=lambda: now[0])
    for number in range(101):
        granted(ledger, number)
    now[0] += 10**9
    ledger.record(Sighting("s", "pay", State.COMPLETED, "toolu_done"))
    now[0] += 8 * DAY_NS
    ledger.record(Sighting("s", "mail", State.QUARANTINED))
    assert ledger.counts()[State.COMPLETED] == 0


def test_many_expire_a_hundred_at_a_time(shared: Shared) -> None:
    now = [10**18]
    ledger = shared.make(max_age_days=7, clock=lambda: now[0])
    for number in range(250):
        ledger.record(Sighting("s", "pay", State.COMPLETED, f"toolu_{number}x"))
    now[0] += 8 * DAY_NS
    counted = []
    for _ in range(4):
        ledger.record(Sighting("s", "pay", State.COMPLETED, "toolu_same"))
        counted.append(ledger.counts()[State.COMPLETED])
    assert counted == [151, 51, 1, 1]


# -- the queue -----------------------------------------------------------------------------------------------------------


def test_the_queue_is_walked_by_any_filter(shared: Shared) -> None:
    ticks = iter(range(10**15, 2 * 10**15, 1_000))
    ledger = shared.make(clock=lambda: next(ticks))
    made = [ledger.record(Sighting(f"s{n % 3}", f"tool{n % 5}", State.QUARANTINED, f"toolu_{n}x")) for n in range(60)]
    middle = made[30].created_ns  # type: ignore[union-attr]
    for query in (
        Query(),
        Query(scope="s1"),
        Query(tool="tool3"),
        Query(tool="tool3", scope="s2"),
        Query(tool="tool3", created_before_ns=middle),
        Query(created_after_ns=middle, state=State.QUARANTINED),
        Query(created_after_ns=-1, created_before_ns=2**80),
    ):
        expected = [
            one
            for one in made
            if one is not None
            and query.scope in (None, one.scope)
            and query.tool in (None, one.tool)
            and (query.created_before_ns is None or one.created_ns < query.created_before_ns)
            and (query.created_after_ns is None or one.created_ns >= query.created_after_ns)
        ]
        walked, cursor = [], None
        while True:
            page = ledger.pending(query, limit=7, cursor=cursor)
            walked += page.entries
            cursor = page.cursor
            if cursor is None:
                break
        assert walked == expected, query


# -- URLs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["timeout_seconds=0", "max_age_days=x", "create=perhaps", "{name}=a%22b", "{name}="])
def test_an_option_that_is_not_understood_is_named_and_no_password_is(shared: Shared, option: str) -> None:
    url = f"{shared.server.url()}?{option.format(name=shared.option)}".replace("://", "://bob:hunter2@", 1)
    with pytest.raises(LedgerURLError, match=option.partition("=")[0].format(name=shared.option)) as caught:
        open_ledger(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["redis://bob:hunter2@h:port/0", "redis://bob:hunter2@h/0?no_such=1", "postgresql://bob:hunter2@h/x?no_such=1",
     "postgresql://bob:hunter2%zz@h/x", "redis://bob:hunter2@[h/0",
     *(f"{scheme}://bob:{password}@127.0.0.1:1/0" for scheme in ("redis", "postgresql")
       for password in ("hunter2/x", "hunter2#", "hunter2?x", "hunter2#x"))],
)  # fmt: skip
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises((LedgerURLError, LedgerUnavailableError)) as caught:
        open_ledger(url).counts()
    assert "hunter2" not in str(caught.value)
    assert isinstance(caught.value, LedgerURLError)


def test_who_only_looks_makes_no_ledger(shared: Shared) -> None:
    for _ in range(2):
        with pytest.raises(LedgerUnavailableError, match="no ledger at"):
            shared.open(create="false").counts()
    shared.open().counts()
    assert shared.open(create="false").counts()[State.CLAIMED] == 0


@pytest.mark.parametrize(
    ("scheme", "module", "extra"), [("redis", "redis", "redis"), ("postgresql", "psycopg", "postgresql")]
)
def test_a_missing_client_is_named_with_its_extra(scheme: str, module: str, extra: str) -> None:
    code = f"""
        import sys
        sys.modules["{module}"] = None
        from genai_processor.errors import LedgerError
        from genai_processor.ledger import open_ledger
        try:
            open_ledger("{scheme}://localhost/0")
        except LedgerError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert f"otel-genai-processor[{extra}]" in done.stdout


def test_options_of_the_driver_are_left_as_they_are(shared: Shared) -> None:
    driver = {"redis": "client_name=a%2Bb", "postgresql": "application_name=a%2Bb%20c&connect_timeout=3"}
    kind = "redis" if shared.option == "prefix" else "postgresql"
    ledger = open_ledger(f"{shared.server.url()}?{driver[kind]}&{shared.option}={shared.name}&max_age_days=2")
    assert ledger.counts()[State.CLAIMED] == 0
    if kind == "redis":
        names = {one["name"] for one in redis.Redis.from_url(shared.server.url()).client_list()}
        assert "a+b" in names
    else:
        with psycopg.connect(shared.server.url()) as connection:
            found = connection.execute("SELECT application_name FROM pg_stat_activity").fetchall()
        assert ("a+b c",) in found


def test_what_no_ledger_wrote_is_told_as_such(shared: Shared) -> None:
    ledger = shared.open()
    entry = granted(ledger).entry
    if shared.option == "prefix":
        redis.Redis.from_url(shared.server.url()).set(f"{{{shared.name}}}:e:{entry.entry_id}", "7 somebody {}")
    else:
        with psycopg.connect(shared.server.url(), autocommit=True) as connection:
            connection.execute(f"UPDATE {shared.name}.genai_ledger_entries SET state = 'odd', version = 7")
    for what in (lambda: ledger.get(entry.entry_id), lambda: ledger.finish(entry, Outcome.RETURNED)):
        with pytest.raises(LedgerUnavailableError, match="no ledger wrote"):
            what()
