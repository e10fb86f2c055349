# SPDX-License-Identifier: Apache-2.0
"""What may be wrong with a file, with what is written to it, and with whoever writes."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from genai_processor.errors import LedgerUnavailableError
from genai_processor.ledger import Claim, Granted, Outcome, Refusal, Resolution, Sighting, State, open_ledger
from genai_processor.ledger.ids import random_id
from genai_processor.ledger.sqlite import SQLiteLedger
from genai_processor.ledger.tables import Tables


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


def granted(ledger: SQLiteLedger, number: int = 1, **more: Any) -> Granted:
    answer = ledger.claim(Claim("s", "pay", f"toolu_{number}x", f"d{number}", f"t{number}", **more))
    assert isinstance(answer, Granted)
    return answer


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [lambda ledger: ledger.pending(), lambda ledger: ledger.claim(Claim("s", "pay"))])
def test_who_only_looks_makes_no_file(path: str, look: Callable[[SQLiteLedger], object]) -> None:
    with pytest.raises(LedgerUnavailableError, match="no ledger at"):
        look(open_ledger(f"sqlite:///{path}?create=false"))  # type: ignore[arg-type]
    assert not Path(path).exists()
    Path(path).touch()
    with pytest.raises(LedgerUnavailableError, match="no ledger at"):
        look(SQLiteLedger(path, create=False))
    assert Path(path).read_bytes() == b""


@pytest.mark.parametrize("version", [0, 1, 7])
def test_the_database_of_another_application_is_left_alone(path: str, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.execute(f"PRAGMA user_version={version}")
    connection.commit()
    connection.close()
    before = Path(path).read_bytes()
    for ledger in (SQLiteLedger(path), SQLiteLedger(path, create=False)):
        with pytest.raises(LedgerUnavailableError, match="something else"):
            ledger.record(Sighting("s", "pay", State.QUARANTINED))
    assert Path(path).read_bytes() == before


def test_what_is_no_database_is_left_alone(path: str) -> None:
    Path(path).write_text("Dear all, " * 1_000)
    with pytest.raises(LedgerUnavailableError, match="cannot be used"):
        SQLiteLedger(path).counts()
    assert Path(path).read_text().startswith("Dear all")


# -- whatever is written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["half a pair \ud800", "nul \0 inside", "ünïcode 🦊", "x" * 1_000_000])
def test_any_text_is_recorded_and_found_again(path: str, text: str) -> None:
    ledger = SQLiteLedger(path)
    entry = ledger.record(Sighting(text, text, State.QUARANTINED, text, text, text, reason=text))
    assert entry is not None
    assert [found.entry_id for found in ledger.by_call(text, text)] == [entry.entry_id]
    assert [found.entry_id for found in ledger.by_action(text, text, text)] == [entry.entry_id]
    answer = ledger.claim(Claim(text, text, "toolu_new", text, "another turn"))
    assert isinstance(answer, Refusal)


@pytest.mark.parametrize("odd", [{"trace_id": ["ab"]}, {"effect": None}, {"span_id": 7}, {"reason": b"x"}, {"scope": None}])
def test_an_odd_sighting_is_counted(path: str, odd: dict[str, Any]) -> None:
    ledger = SQLiteLedger(path)
    assert ledger.record(Sighting(**{"scope": "s", "tool": "pay", "state": State.QUARANTINED, **odd})) is None
    assert ledger.stats().rejected == 1
    ledger.close()
    assert ledger.stats().rejected == 1


def test_a_lease_without_an_end_in_sight(path: str) -> None:
    ledger = SQLiteLedger(path)
    granted(ledger, lease_ns=2**80)
    assert ledger.expire() == ()


# -- whoever writes --------------------------------------------------------------------------------------------------


class Interrupted(sqlite3.Connection):
    """A connection during one of whose statements Ctrl-C is pressed, before or after it is carried out."""

    at, after = "", False

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor:
        hit = bool(Interrupted.at) and statement.startswith(Interrupted.at)
        if hit and not Interrupted.after:
            raise KeyboardInterrupt
        done = super().execute(statement, parameters)
        if hit:
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("statement", ["BEGIN", "SELECT", "INSERT", "COMMIT"])
def test_an_interrupt_leaves_no_transaction_open(
    path: str, statement: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, factory=Interrupted, **more))
    ledger, other = SQLiteLedger(path, timeout_seconds=0.2), SQLiteLedger(path, timeout_seconds=0.2)
    granted(ledger, 1)
    Interrupted.at, Interrupted.after = statement, after
    with pytest.raises(KeyboardInterrupt):
        granted(ledger, 2)
    Interrupted.at = ""
    granted(other, 3)
    granted(ledger, 4)
    committed = statement == "COMMIT" and after
    assert bool(ledger.by_call("s", "toolu_2x")) is committed


def test_a_finalizer_inside_an_operation_is_heard_after_it(path: str) -> None:
    class Finalized:
        def __init__(self, last: Callable[[], object]) -> None:
            self.last = last

        def __del__(self) -> None:
            self.last()

    ledger = SQLiteLedger(path)
    running = granted(ledger, 1)
    seen: list[object] = []

    def last() -> None:
        seen.append(ledger.finish(running.entry, Outcome.FAILED).state)
        seen.append(ledger.record(Sighting("s", "mail", State.QUARANTINED, "toolu_mail")))
        with pytest.raises(LedgerUnavailableError, match="finalizer"):
            ledger.claim(Claim("s", "mail"))

    def new_id() -> str:
        Finalized(last)
        gc.collect()
        ledger._transactions._writing.opened.books._new_id = ledger_id  # type: ignore[union-attr]
        return ledger_id()

    ledger_id = random_id
    assert ledger._transactions._writing.opened is not None
    assert ledger._transactions._writing.opened.books is not None
    ledger._transactions._writing.opened.books._new_id = new_id
    granted(ledger, 2)
    assert seen == [State.CLAIMED, None]
    assert {entry.tool for entry in ledger.pending().entries} == {"pay", "mail"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("parent", ["closes it", "goes on", "uses it"])
def test_what_a_child_records_stays_whatever_its_parent_does(path: str, parent: str) -> None:
    """SQLite would believe in the child that it holds its parent's locks, and others would take the log from under it."""
    ledger = SQLiteLedger(path)
    granted(ledger, 1)
    ledger.counts()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.read(reads, 1)
            granted(ledger, 2)
            ledger.record(Sighting("s", "mail", State.QUARANTINED, "toolu_child"))
            SQLiteLedger(path).counts()
            granted(ledger, 3)
            code = 0 if ledger.counts()[State.CLAIMED] >= 3 else 2
        finally:
            os._exit(code)
    if parent == "closes it":
        ledger.close()
    elif parent == "uses it":
        granted(ledger, 4)
    SQLiteLedger(path).counts()
    os.write(writes, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = SQLiteLedger(path)
    assert [isinstance(other.claim(Claim("s", "pay", f"toolu_{n}x", f"d{n}", f"t{n}")), Refusal) for n in (1, 2, 3)] == [
        True
    ] * 3
    assert [entry.tool for entry in other.pending().entries] == ["mail"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_forked_inside_an_operation_is_refused(path: str) -> None:
    ledger = SQLiteLedger(path)
    granted(ledger, 1)
    assert ledger._transactions._writing.opened is not None
    assert ledger._transactions._writing.opened.books is not None
    usual, children = ledger._transactions._writing.opened.books._new_id, list[int]()

    def new_id() -> str:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ledger._transactions._busy = False
                with pytest.raises(LedgerUnavailableError, match="at the moment of a fork"):
                    ledger.counts()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
        return usual()

    ledger._transactions._writing.opened.books._new_id = new_id
    granted(ledger, 2)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0
    assert ledger.counts()[State.CLAIMED] == 2


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("statement", ["BEGIN", "SELECT", "ROLLBACK"])
def test_an_interrupted_question_leaves_no_old_answers(
    path: str, statement: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, factory=Interrupted, **more))
    ledger, other = SQLiteLedger(path), SQLiteLedger(path)
    granted(ledger, 1)
    ledger.pending()
    Interrupted.at, Interrupted.after = statement, after
    with pytest.raises(KeyboardInterrupt):
        ledger.pending()
    Interrupted.at = ""
    other.record(Sighting("s", "mail", State.QUARANTINED, "toolu_new"))
    assert [entry.tool for entry in ledger.pending().entries] == ["mail"]
    assert ledger.counts()[State.QUARANTINED] == 1


def test_who_looks_does_not_wait_for_who_writes(path: str) -> None:
    ledger = SQLiteLedger(path, timeout_seconds=20)
    granted(ledger)
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    writer = threading.Thread(target=lambda: granted(ledger, 2))
    writer.start()
    assert ledger.counts()[State.CLAIMED] == 1  # would wait as long as the writer does, if it waited
    assert writer.is_alive()
    holder.execute("ROLLBACK")
    writer.join(20)
    assert ledger.counts()[State.CLAIMED] == 2


# -- in the long run -------------------------------------------------------------------------------------------------


def test_a_release_that_nobody_has_used_does_not_expire(path: str) -> None:
    now = [10**18]
    ledger = SQLiteLedger(path, max_age_days=1, clock=lambda: now[0])
    for number in range(150):
        failed = ledger.finish(granted(ledger, number).entry, Outcome.FAILED)
        ledger.settle(failed.entry_id, Resolution.NOT_COMMITTED, who="ann", note="n", version=failed.version)
    done = ledger.finish(granted(ledger, 1_000).entry, Outcome.RETURNED)
    for _ in range(5):
        now[0] += 10**15
        ledger.record(Sighting("s", "mail", State.COMPLETED))
    assert ledger.get(done.entry_id) is None
    assert ledger.counts()[State.SETTLED] == 150
    assert granted(ledger, 7).entry.released_by is not None
    assert ledger.stats().evicted >= 1


def test_nothing_is_looked_for_row_by_row(path: str) -> None:
    ledger = SQLiteLedger(path, max_age_days=1)
    granted(ledger)
    plans: list[str] = []
    assert ledger._transactions._writing.opened is not None
    connection = ledger._transactions._writing.opened.connection

    def explained(statement: str) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")) and "GROUP BY" not in statement:
            rows = sqlite3.connect(path).execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            plans.extend(f"{row[3]}: {statement}" for row in rows)

    connection.set_trace_callback(explained)
    assert ledger._transactions._reading.opened is None
    ledger.record(Sighting("s", "pay", State.COMPLETED, "toolu_2x", "d2"))
    ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_2x", "d2"))
    ledger.finish(granted(ledger, 3, lease_ns=10**12).entry, Outcome.FAILED)
    ledger.expire()
    connection.set_trace_callback(None)
    ledger.counts()
    assert ledger._transactions._reading.opened is not None
    ledger._transactions._reading.opened.connection.set_trace_callback(explained)
    ledger.pending()
    ledger.by_call("s", "toolu_2x")
    ledger.by_action("s", "pay", "d2")
    ledger.by_action("s", "pay", None)
    ledger._transactions._reading.opened.connection.set_trace_callback(None)
    scans = [plan for plan in plans if plan.startswith("SCAN genai") and "USING INDEX" not in plan]
    sorts = [plan for plan in plans if "TEMP B-TREE FOR ORDER BY" in plan]
    assert plans
    assert not scans
    assert not sorts


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_waits_for_an_open_transaction(path: str) -> None:
    """Else the child would inherit a write lock that nobody ever gives back."""
    ledger = SQLiteLedger(path)
    granted(ledger, 1)
    inside, go_on = threading.Event(), threading.Event()
    assert ledger._transactions._writing.opened is not None
    assert ledger._transactions._writing.opened.books is not None
    usual = ledger._transactions._writing.opened.books._new_id

    def new_id() -> str:
        inside.set()
        go_on.wait(10)
        return usual()

    ledger._transactions._writing.opened.books._new_id = new_id
    writer = threading.Thread(target=lambda: granted(ledger, 2))
    writer.start()
    assert inside.wait(10)
    threading.Timer(0.05, go_on.set).start()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            answer = SQLiteLedger.claim(ledger, Claim("s", "pay", "toolu_3x", "d3", "t3"))
            code = 0 if isinstance(answer, Granted) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.join(10)
    assert ledger.counts()[State.CLAIMED] == 3


def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    for number in range(15):
        path, failed = str(tmp_path / f"{number}.db"), list[Exception]()
        barrier = threading.Barrier(6)

        def first(path: str = path, barrier: threading.Barrier = barrier, failed: list[Exception] = failed) -> None:
            ledger = SQLiteLedger(path)
            barrier.wait(10)
            try:
                ledger.record(Sighting("s", "pay", State.QUARANTINED))
            except LedgerUnavailableError as error:
                failed.append(error)

        threads = [threading.Thread(target=first) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("how", ["removed", "emptied", "replaced"])
def test_a_file_that_has_lost_what_ran_is_not_taken_for_one_in_which_nothing_ran(path: str, how: str, closed: bool) -> None:
    ledger = SQLiteLedger(path)
    ledger.finish(granted(ledger, 1).entry, Outcome.FAILED)
    if closed or how == "emptied":  # what is open is still all there in the file beside it
        ledger.close()
    if how == "emptied":
        Path(path).write_bytes(b"")
    else:
        kept = Path(f"{path}-kept")  # so that no other file can be this one
        Path(path).rename(kept)
        for name in (f"{path}-wal", f"{path}-shm"):
            Path(name).unlink(missing_ok=True)
    if how == "replaced":
        granted(SQLiteLedger(path), 2)
    for _ in range(2):
        with pytest.raises(LedgerUnavailableError, match="start this process again"):
            ledger.claim(Claim("s", "pay", "toolu_new1", "d1", "t2"))
    with pytest.raises(LedgerUnavailableError, match="start this process again"):
        ledger.counts()
    assert how == "replaced" or not Path(path).exists() or Path(path).stat().st_size == 0


@pytest.mark.parametrize("through", ["", "a link"])
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("look_first", [False, True])
@pytest.mark.parametrize("removed", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_who_writes_what_nobody_else_will_see_is_told_so(
    tmp_path: Path, path: str, removed: tuple[str, ...], look_first: bool, settled: bool, through: str
) -> None:
    if through:
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "ledger.db").symlink_to(path)
    ledger = SQLiteLedger(tmp_path / "links" / "ledger.db" if through else path)
    entry = granted(ledger, 1).entry
    ledger.counts()
    if settled:  # nothing has come or gone there for long, so that one look at the folder is enough
        os.utime(Path(path).parent, (1_600_000_000, 1_600_000_000))
        ledger.counts()
    for suffix in removed:
        Path(path + suffix).unlink()
    if "-wal" not in removed:  # where another process writes, too, from now on, it and this one write over each other
        assert SQLiteLedger(path).get(entry.entry_id) is not None
    calls: list[Callable[[], object]] = [
        lambda: ledger.claim(Claim("s", "pay", "toolu_new1", "d2", "t2")),
        lambda: ledger.finish(entry, Outcome.RETURNED),
        ledger.counts,
    ]
    for call in [*reversed(calls), *calls] if look_first else [*calls, *calls]:
        with pytest.raises(LedgerUnavailableError, match="start this process again"):
            call()


def test_processes_that_come_and_go_take_no_file_from_one_that_stays(path: str) -> None:
    stays = SQLiteLedger(path)
    for number in range(1, 6):
        goes = SQLiteLedger(path)
        granted(goes, 2 * number)
        granted(stays, 2 * number + 1)
        assert stays.counts() == goes.counts()
        goes.close()
    stays.close()
    granted(stays, 20)


def test_what_ended_well_in_other_turns_is_not_looked_at(path: str) -> None:
    ledger = SQLiteLedger(path)
    for number in range(3):
        claim = Claim("s", "pay", f"toolu_{number}x", "d", f"t{number}")
        answer = ledger.claim(claim)
        assert isinstance(answer, Granted)
        ledger.finish(answer.entry, Outcome.RETURNED)
    opened = ledger._transactions._writing.opened
    assert opened is not None
    tables = Tables(opened.execute, 10**18)
    assert list(tables.bearing_on(Claim("s", "pay", "toolu_9x", "d", "t9"))) == []
    assert [entry.turn for entry in tables.bearing_on(claim)] == ["t2"]


class Text(str):
    """A text of somebody else's class."""


def test_values_of_other_classes_are_written_as_what_they_are(path: str) -> None:
    ledger = SQLiteLedger(path)
    answer = ledger.claim(Claim(Text("s"), Text("pay"), Text("toolu_1x"), lease_ns=1e9))  # type: ignore[arg-type]
    assert isinstance(answer, Granted)
    assert ledger.get(answer.entry.entry_id) is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forks_get_their_turn_between_busy_ledgers(path: str) -> None:
    ledgers, stop = [SQLiteLedger(path), SQLiteLedger(path)], threading.Event()

    def work(ledger: SQLiteLedger) -> None:
        while not stop.is_set():
            ledger.record(Sighting("s", "pay", State.COMPLETED))
            ledger.pending()

    threads = [threading.Thread(target=work, args=[ledger]) for ledger in ledgers * 2]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ledgers[0].counts()  # refused, if the fork had met an operation
                code = 0
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("used", [False, True])
def test_a_fork_that_could_not_wait_leaves_no_ledger_to_its_child(
    path: str, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forked as things stand, while a thread opens or writes: only a ledger that was never opened is sound then."""
    monkeypatch.setattr("genai_processor.forks._ATTEMPTS", 0)
    ledger = SQLiteLedger(path)
    if used:
        granted(ledger, 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if used:
                with pytest.raises(LedgerUnavailableError, match="at the moment of a fork"):
                    granted(ledger, 2)
            else:
                granted(ledger, 2)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(ledger.claim(Claim("s", "pay", "toolu_3x", "d3", "t3")), Granted)


def test_threads_wait_for_a_locked_file_beside_each_other(path: str) -> None:
    """Each after the other would keep the last of them waiting for as many time-outs as there are threads."""
    ledger = SQLiteLedger(path, timeout_seconds=0.3)
    granted(ledger)
    attempts: list[str] = []
    opened = ledger._transactions._writing.opened
    assert opened is not None
    opened.connection.set_trace_callback(lambda statement: attempts.append(statement))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    together = threading.Barrier(16)
    refused: list[str] = []

    def claim(number: int) -> None:
        together.wait(10)
        try:
            ledger.claim(Claim("s", "mail", f"toolu_{number}x"))
        except LedgerUnavailableError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    other.execute("ROLLBACK")
    assert len(refused) == 16
    assert attempts.count("BEGIN IMMEDIATE") <= 4
    assert sum("busy with other calls of this process" in text for text in refused) >= 12
    assert isinstance(ledger.claim(Claim("s", "mail", "toolu_1x")), Granted)
