# SPDX-License-Identifier: Apache-2.0
"""A ledger in a SQLite file says the same as the one in memory, and survives what that one does not."""

from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Status, StatusCode
from test_ledger_properties import call_ids, claims, digests, outcomes, scopes, tools
from test_noted import sightings

from genai_processor import GenAISpanProcessor, Settings
from genai_processor.errors import LedgerError, LedgerUnavailableError, LedgerURLError, UnknownEntryError
from genai_processor.ledger import Claim, Granted, MemoryLedger, Outcome, Refusal, Resolution, Sighting, State, open_ledger
from genai_processor.ledger.sqlite import SQLiteLedger


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


class SQLiteAgainstMemory(RuleBasedStateMachine):
    """Whatever is done to the two, they say the same."""

    @initialize()
    def begin(self) -> None:
        self.now = 0
        self.folder = tempfile.TemporaryDirectory()
        self.memory = MemoryLedger(clock=self.clock, new_id=self.ids())
        self.file = SQLiteLedger(f"{self.folder.name}/ledger.db", clock=self.clock, new_id=self.ids())

    def teardown(self) -> None:
        self.file.close()
        self.folder.cleanup()

    def clock(self) -> int:
        self.now += 1  # so that no two entries are of one age
        return self.now // 2

    def ids(self) -> Callable[[], str]:
        numbers = itertools.count(1)
        return lambda: f"e{next(numbers):06d}"

    def both(self, what: Callable[[Any], Any]) -> None:
        answers: list[Any] = []
        for ledger in (self.memory, self.file):
            self.now += self.now % 2
            began = self.now
            try:
                answers.append(what(ledger))
            except LedgerError as error:
                answers.append(str(error))
            ended, self.now = self.now, began
        self.now = ended
        assert answers[0] == answers[1]

    @rule(seen=sightings)
    def record(self, seen: Sighting) -> None:
        self.both(lambda ledger: ledger.record(seen))

    @rule(claim=claims, parent=st.sampled_from([None, "e000001", "e000002"]), observe=st.booleans())
    def claim(self, claim: Claim, parent: str | None, observe: bool) -> None:
        self.both(lambda ledger: ledger.claim(replace(claim, parent=parent, lease_ns=3), observe=observe))

    @rule(number=st.integers(1, 12), outcome=outcomes)
    def finish(self, number: int, outcome: Outcome) -> None:
        entry = self.memory.get(f"e{number:06d}")
        if entry is not None:
            self.both(lambda ledger: ledger.finish(entry, outcome))
            self.both(lambda ledger: ledger.start(entry))

    @rule(number=st.integers(1, 12))
    def undeliver(self, number: int) -> None:
        entry = self.memory.get(f"e{number:06d}")
        if entry is not None:
            self.both(lambda ledger: ledger.undeliver(entry))

    @rule(number=st.integers(1, 12), resolution=st.sampled_from(Resolution))
    def settle(self, number: int, resolution: Resolution) -> None:
        entry = self.memory.get(f"e{number:06d}")
        if entry is not None:
            self.both(lambda ledger: ledger.settle(entry.entry_id, resolution, who="ann", note="n", version=entry.version))

    @rule(number=st.integers(1, 12), digest=digests)
    def set_digest(self, number: int, digest: Any) -> None:
        self.both(lambda ledger: ledger.set_digest(f"e{number:06d}", digest))

    @rule()
    def expire(self) -> None:
        self.both(lambda ledger: set(ledger.expire()))

    @rule(scope=scopes, tool=tools, digest=digests, call_id=call_ids)
    def look(self, scope: str, tool: str, digest: str | None, call_id: str | None) -> None:
        self.both(lambda ledger: set(ledger.by_action(scope, tool, digest)))
        self.both(lambda ledger: set(ledger.by_call(scope, call_id or "")))
        self.both(lambda ledger: ledger.is_unknown(scope, tool))

    @invariant()
    def the_two_agree(self) -> None:
        self.both(lambda ledger: ledger.counts())
        self.both(lambda ledger: ledger.stats().entries)
        self.both(lambda ledger: ledger.pending(limit=2))
        for held in self.memory._shelf.everything():
            entry_id = held[0] if isinstance(held, tuple) else held.entry_id
            self.both(lambda ledger, entry_id=entry_id: ledger.get(entry_id))


TestSQLiteAgainstMemory = SQLiteAgainstMemory.TestCase
TestSQLiteAgainstMemory.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


# -- what a file has to bear -----------------------------------------------------------------------------------------


def in_processes(script: str, *arguments: str, count: int = 1) -> list[str]:
    """Run a script in so many processes at once; what each printed."""
    code = "import os, sys\nfrom genai_processor.ledger import *\n" + textwrap.dedent(script)
    running = [
        subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * count
    return outputs


def test_of_many_processes_one_gets_each_call(path: str) -> None:
    script = """
        ledger = open_ledger("sqlite:///" + sys.argv[1])
        for number in range(100):
            answer = ledger.claim(Claim("s", "pay", f"toolu_{number}x", f"d{number}", "t1"))
            if isinstance(answer, Granted):
                print(number)
                ledger.finish(answer.entry, Outcome.RETURNED)
    """
    granted = [int(line) for output in in_processes(script, path, count=4) for line in output.split()]
    assert sorted(granted) == list(range(100))


def test_a_process_that_is_killed_leaves_what_it_claimed_and_no_call_runs_twice(path: str, tmp_path: Path) -> None:
    """Killed anywhere: before the claim, before or after the effect, while the end is noted."""
    script = """
        import random, signal, threading, time
        ledger = open_ledger("sqlite:///" + sys.argv[1])
        effects = open(sys.argv[2], "a", buffering=1)
        killer = threading.Timer(random.uniform(0.0, 0.1), os.kill, [os.getpid(), signal.SIGKILL])
        killer.start()
        for number in range(10_000):
            answer = ledger.claim(Claim("s", "pay", f"toolu_{number}x", f"d{number}", "t1", lease_ns=1))
            if isinstance(answer, Granted):
                ledger.start(answer.entry)
                effects.write(f"{number}\\n")
                ledger.finish(answer.entry, Outcome.RETURNED)
    """
    code = "import os, sys\nfrom genai_processor.ledger import *\n" + textwrap.dedent(script)
    effects = tmp_path / "effects"
    for _ in range(25):
        assert subprocess.run([sys.executable, "-c", code, path, str(effects)], check=False).returncode == -9
    ran = effects.read_text().split()
    assert len(ran) == len(set(ran)) > 0
    ledger = SQLiteLedger(path)
    ledger.expire()
    waiting = ledger.pending(limit=1_000).entries
    done = ledger.counts()[State.COMPLETED]
    assert {entry.reason for entry in waiting} <= {"no_end_recorded"}
    assert done <= len(ran) <= done + len(waiting)


def test_an_expired_call_is_unknown_not_new(path: str) -> None:
    now = [10**18]
    ledger = SQLiteLedger(path, max_age_days=7, clock=lambda: now[0])

    def claim(call_id: str, turn: str) -> Granted | Refusal:
        return ledger.claim(Claim("s", "pay", call_id, f"d{call_id}", turn))

    done, failed = claim("toolu_done", "t1"), claim("toolu_fail", "t2")
    assert isinstance(done, Granted)
    assert isinstance(failed, Granted)
    ledger.finish(done.entry, Outcome.RETURNED)
    ledger.finish(failed.entry, Outcome.FAILED)
    now[0] += 8 * 24 * 3600 * 10**9
    assert isinstance(claim("toolu_other", "t3"), Granted)
    assert ledger.get(done.entry.entry_id) is None
    again = claim("toolu_done", "t1")
    assert isinstance(again, Refusal)
    assert again.reason == "ledger_unknown"
    assert [entry.entry_id for entry in ledger.pending().entries] == [failed.entry.entry_id]


def test_an_expired_call_whose_arguments_were_never_known_may_be_any_of_its_turn(path: str) -> None:
    now = [10**18]
    ledger = SQLiteLedger(path, max_age_days=7, clock=lambda: now[0])
    ledger.record(Sighting("s", "pay", State.COMPLETED, turn="t1"))
    now[0] += 8 * 24 * 3600 * 10**9
    ledger.record(Sighting("s", "mail", State.COMPLETED))
    again = ledger.claim(Claim("s", "pay", "toolu_new1", "d1", "t1"))
    assert isinstance(again, Refusal)
    assert again.reason == "ledger_unknown"
    assert isinstance(ledger.claim(Claim("s", "pay", "toolu_new1", "d1", "t2")), Granted)


def test_news_of_an_entry_that_expired_makes_its_tool_unknown(path: str) -> None:
    now = [10**18]
    ledger = SQLiteLedger(path, max_age_days=7, clock=lambda: now[0])
    done = ledger.claim(Claim("s", "pay", "toolu_1x", "d1", "t1"))
    assert isinstance(done, Granted)
    ledger.finish(done.entry, Outcome.RETURNED)
    now[0] += 8 * 24 * 3600 * 10**9
    ledger.claim(Claim("s", "mail", "toolu_2x", "d2", "t2"))
    with pytest.raises(UnknownEntryError):
        ledger.start(done.entry)
    assert SQLiteLedger(path).is_unknown("s", "pay")
    answer = ledger.claim(Claim("s", "pay", "toolu_3x", "d3", "t3"))
    assert isinstance(answer, Refusal)
    assert answer.reason == "ledger_unknown"


def test_a_file_of_a_later_version_is_left_alone(path: str) -> None:
    SQLiteLedger(path).counts()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(LedgerUnavailableError, match="later version"):
        SQLiteLedger(path).counts()


def test_a_file_that_somebody_holds_for_too_long_is_unavailable(path: str) -> None:
    ledger = SQLiteLedger(path, timeout_seconds=0.05)
    ledger.counts()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailableError, match="locked"):
        ledger.claim(Claim("s", "pay"))
    holder.execute("ROLLBACK")
    assert isinstance(ledger.claim(Claim("s", "pay")), Granted)


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite:///", "sqlite://host/x.db", "sqlite:///x.db?colour=red", "sqlite:///x#1.db"]
)
def test_a_url_that_is_not_understood(url: str) -> None:
    with pytest.raises(LedgerURLError, match="sqlite"):
        open_ledger(url)


def test_a_url_has_options(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/a%20b%231.db?max_age_days=1.5&timeout_seconds=2")
    assert ledger.counts()[State.COMPLETED] == 0
    assert (tmp_path / "a b#1.db").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_opens_the_file_anew(path: str) -> None:
    ledger = SQLiteLedger(path)
    ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_parent"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_child"))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_later"))
    assert len(ledger.pending().entries) == 3


def test_threads_share_it(path: str) -> None:
    ledger = SQLiteLedger(path)
    answers: list[Any] = []

    def work() -> None:
        wishes = (Claim("s", "pay", f"toolu_{number}x", f"d{number}", "t1") for number in range(25))
        answers.extend(ledger.claim(wish) for wish in wishes)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(answer, Granted) for answer in answers) == 25


def test_what_a_processor_quarantines_is_in_the_queue_of_the_file(path: str) -> None:
    processor = GenAISpanProcessor(SpanProcessor(), settings=Settings(ledger=f"sqlite:///{path}", metrics=False))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "toolu_1a2b"}
    span = provider.get_tracer("app").start_span("execute_tool pay", attributes=attributes)
    span.set_status(Status(StatusCode.ERROR))
    span.end()
    assert processor.force_flush(10_000)
    (entry,) = SQLiteLedger(path).pending().entries
    assert (entry.tool, entry.call_id, entry.state) == ("pay", "toolu_1a2b", State.QUARANTINED)
