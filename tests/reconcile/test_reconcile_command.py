# SPDX-License-Identifier: Apache-2.0
"""`genai-processor reconcile`, as an operator runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest
from reconcile_helpers import World

from genai_processor.ledger import Entry, Resolution, State
from genai_processor.ledger.sqlite import SQLiteLedger

COMMAND = [sys.executable, "-m", "genai_processor", "reconcile"]
ROOT = Path(__file__).parent.parent.parent

MODULE = """
import os, sys, time

def committed(question): return "committed"
def denied(question): return "not_committed"
def unknown(question): return "unknown"
def broken(question): raise OSError("password=hunter2")
def slow(question):
    print("asking", file=sys.stderr, flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    return "committed"

BY_TOOL = {"refund": committed, "mail": unknown}
DENIED, BROKEN, SLOW = {"refund": denied}, {"refund": broken}, {"refund": slow}
class Held:
    BY_TOOL = BY_TOOL
EMPTY = {}
NO_FUNCTION = {"refund": "committed"}
"""


class Desk(World):
    """A ledger in a file, in a directory with a module of reconcilers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda clock: SQLiteLedger(str(folder / "ledger.db"), clock=clock))
        self.folder = folder
        (folder / "shop.py").write_text(MODULE, encoding="utf-8")
        self.ledger.counts()  # makes the file
        self.environ = {**os.environ, "GENAI_PROCESSOR_LEDGER": f"sqlite:///{folder}/ledger.db", "COLUMNS": "200"}
        self.environ["PYTHONPATH"] = str(ROOT)

    def run(self, *arguments: str, code: int = 0) -> Any:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code in (0, 1) else done.stderr

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.now = os.stat(tmp_path / "shop.py").st_mtime_ns - 3600 * 10**9  # what is quarantined was so an hour ago
    return desk


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_what_is_proven_is_settled_and_what_is_not_is_listed(desk: Desk) -> None:
    paid, mailed, other = desk.quarantined(), desk.quarantined("mail"), desk.unguarded()
    out = desk.run("--with", "shop:BY_TOOL").splitlines()
    assert out == [
        f"{paid.entry_id}  refund: committed: settled",
        f"{mailed.entry_id}  mail: unknown: left for a person",
        "asked about 2: 1 settled; 1 left for a person",
        "  not asked about 1: not claimed by the guard, so no key was sent",
    ]
    assert desk.entry(paid).resolution is Resolution.COMMITTED
    assert [desk.entry(mailed), desk.entry(other)] == [mailed, other]


def test_lines_for_programs_have_every_question_and_every_pass(desk: Desk) -> None:
    paid = desk.quarantined()
    desk.quarantined("letter")
    rows = [json.loads(row) for row in desk.run("--with", "shop:BY_TOOL", "--format", "jsonl").splitlines()]
    assert rows == [
        {
            "kind": "asked",
            "entry_id": paid.entry_id,
            "tool": "refund",
            "reconciler": "refund",
            "answer": "committed",
            "outcome": "settled",
            "detail": None,
        },
        {
            "kind": "pass",
            "asked": 1,
            "settled": 1,
            "not_asked": {"no_reconciler": 1},
            "orphaned": 0,
            "complete": True,
        },
    ]


def test_a_single_run_asks_twice_before_it_releases(desk: Desk) -> None:
    entry = desk.quarantined()
    out = desk.run("--with", "shop:DENIED", "--settle-after", "1", "--once")
    assert out.count("refund: not_committed: ") == 2
    assert desk.entry(entry).resolution is Resolution.NOT_COMMITTED


def test_a_single_run_that_is_interrupted_while_it_waits_releases_nothing(desk: Desk) -> None:
    entry = desk.quarantined()
    process = desk.begin("--with", "shop:DENIED")
    assert "asking once more in 300 s" in line(process.stderr)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.communicate()
    assert desk.entry(entry) == entry


def test_a_dry_run_settles_nothing_and_does_not_wait(desk: Desk) -> None:
    entries = [desk.quarantined(), desk.quarantined("mail")]
    assert "would be settled" in desk.run("--with", "shop:BY_TOOL", "--dry-run")
    assert "to be asked once more" in desk.run("--with", "shop:DENIED", "--dry-run")
    assert [desk.entry(entry) for entry in entries] == entries


def test_a_reconciler_that_fails_is_status_1_and_its_text_is_not_printed(desk: Desk) -> None:
    entry = desk.quarantined()
    out = desk.run("--with", "shop:BROKEN", code=1)
    assert "failed, left for a person (raised OSError at shop.py:7)" in out
    assert "hunter2" not in out
    assert desk.entry(entry) == entry


def test_a_time_out_is_status_1_and_does_not_keep_the_process(desk: Desk) -> None:
    desk.quarantined()
    assert "no answer within 0.2 s" in desk.run("--with", "shop:SLOW", "--timeout", "0.2", code=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_repeated_run_after_the_question_that_is_being_asked(desk: Desk, number: signal.Signals) -> None:
    entries = [desk.quarantined(), desk.quarantined()]
    process = desk.begin("--with", "shop:SLOW", "--every", "0.1", "--timeout", "60")
    assert line(process.stderr) == "asking\n"
    process.send_signal(number)
    (desk.folder / "go").touch()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert "stopped before the end of the queue" in out
    assert [desk.entry(entry).state for entry in entries] == [State.SETTLED, State.QUARANTINED]


def test_a_signal_ends_the_rest_between_two_passes(desk: Desk) -> None:
    process = desk.begin("--with", "shop:BY_TOOL", "--every", "3600")
    assert line(process.stdout) == "asked about 0\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    process.communicate()


def test_a_second_signal_ends_it_at_once(desk: Desk) -> None:
    desk.quarantined()
    process = desk.begin("--with", "shop:SLOW", "--every", "1", "--timeout", "60")
    assert line(process.stderr) == "asking\n"
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:  # the first one may not have been noted yet, and two that wait are one
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    assert process.returncode == -signal.SIGTERM
    process.communicate()


def test_a_repeated_run_asks_about_what_comes_to_wait_later(desk: Desk) -> None:
    process = desk.begin("--with", "shop:BY_TOOL", "--every", "0.1")
    assert line(process.stdout) == "asked about 0\n"
    entry = desk.quarantined()
    while not line(process.stdout).startswith(entry.entry_id):
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert desk.entry(entry).state is State.SETTLED


def test_a_repeated_run_outlives_a_ledger_that_is_away_for_a_while(desk: Desk) -> None:
    process = desk.begin("--with", "shop:BY_TOOL", "--every", "0.1")
    assert line(process.stdout) == "asked about 0\n"
    for suffix in ("", "-wal", "-shm"):
        (desk.folder / f"ledger.db{suffix}").rename(desk.folder / f"away{suffix}")
    assert "asking again in 0.1 s" in line(process.stderr)
    for suffix in ("-wal", "-shm", ""):
        (desk.folder / f"away{suffix}").rename(desk.folder / f"ledger.db{suffix}")
    while not line(process.stdout):
        pass
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("shop", "'shop' is not of the form MODULE:NAME"),
        (":BY_TOOL", "is not of the form MODULE:NAME"),
        ("shop:", "is not of the form MODULE:NAME"),
        ("nowhere:BY_TOOL", "nowhere:BY_TOOL: cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("exits:BY_TOOL", "exits:BY_TOOL: cannot be imported: SystemExit: 0"),
        ("damaged:BY_TOOL", "damaged:BY_TOOL: cannot be imported: SyntaxError"),
        ("shop:ELSEWHERE", "shop:ELSEWHERE: the module shop has no ELSEWHERE"),
        ("shop:committed", "reconcilers must be a mapping"),
        ("shop:NO_FUNCTION", "shop:NO_FUNCTION: the reconciler of 'refund' must be a function, but is a str"),
        ("shop:EMPTY", "shop:EMPTY: no reconciler is registered in it"),
    ],
)
def test_a_module_that_cannot_be_used_is_one_line_that_says_why(desk: Desk, place: str, says: str) -> None:
    (desk.folder / "exits.py").write_text("raise SystemExit(0)")
    (desk.folder / "damaged.py").write_text("def f(:")
    said = desk.run("--with", place, code=2)
    assert says in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--once", "--every", "5"], "--once: it contradicts --every"),
        (["--every", "0"], "--every: 0 is no number of seconds from 0.1"),
        (["--settle-after", "-1"], "--settle-after: -1 is no number of seconds from 0"),
        (["--keys-live", "nan"], "--keys-live: nan is no number of seconds"),
        (["--timeout", "inf"], "--timeout: inf is no number of seconds"),
        (["--with", "shop:Held.BY_TOOL"], "'refund' has a reconciler already"),
        (["--ledger", "memory:"], "ends with its process"),
        (["--ledger", "ftp://somewhere"], "names no known ledger"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_one_line(desk: Desk, arguments: list[str], says: str) -> None:
    said = desk.run("--with", "shop:BY_TOOL", *arguments, code=2)
    assert says in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("options", [[], ["--every", "1"]])
def test_it_makes_no_ledger(desk: Desk, options: list[str]) -> None:
    missing = desk.folder / "typing-error.db"
    said = desk.run("--with", "shop:BY_TOOL", "--ledger", f"sqlite:///{missing}", *options, code=4)
    assert f"no ledger at {missing}" in said
    assert not missing.exists()


def test_the_command_that_is_installed_finds_modules_in_the_current_directory(desk: Desk) -> None:
    command = Path(sys.executable).parent / "genai-processor"
    done = subprocess.run(
        [command, "reconcile", "--with", "shop:BY_TOOL"], cwd=desk.folder, env=desk.environ, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_what_a_terminal_might_obey_is_escaped(desk: Desk) -> None:
    entry: Entry = desk.quarantined("mail")
    desk.quarantined("re\x1b[31mfund")
    (desk.folder / "any.py").write_text("BY_TOOL = {'*': lambda question: 'unknown'}")
    out = desk.run("--with", "any:BY_TOOL")
    assert "\x1b" not in out
    assert entry.entry_id in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_an_answer_that_cannot_be_written_is_status_3(desk: Desk) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "--with", "shop:BY_TOOL"],
            cwd=desk.folder,
            env=desk.environ,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_its_help_says_its_exit_statuses(desk: Desk) -> None:
    assert "Exit status" in desk.run("--help")
