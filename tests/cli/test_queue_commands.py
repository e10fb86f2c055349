# SPDX-License-Identifier: Apache-2.0
"""A person at a terminal settles what a ledger in a file has in its queue."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from genai_processor.ledger import Entry, Resolution, Sighting, State, open_ledger

COMMAND = [sys.executable, "-m", "genai_processor"]


class Desk:
    """A ledger in a file, and whoever works on it."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/ledger.db"
        self.ledger = open_ledger(self.url)
        self.ledger.counts()  # makes the file

    def quarantine(self, number: int = 1, tool: str = "refund", **more: Any) -> Entry:
        seen = Sighting("conversation-1", tool, State.QUARANTINED, f"toolu_{number}x", f"d{number}", **more)
        entry = self.ledger.record(seen)
        assert entry is not None
        return entry

    def run(self, *arguments: str, code: int = 0, **environ: str) -> str:
        environ = {**os.environ, "GENAI_PROCESSOR_LEDGER": self.url, "COLUMNS": "200", **environ}
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=environ, timeout=60)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_an_empty_queue_says_so(desk: Desk) -> None:
    assert desk.run("queue") == "nothing waits for anybody\n"


def test_what_waits_is_listed_and_filtered(desk: Desk) -> None:
    first, second = desk.quarantine(1, reason="commitment_marker"), desk.quarantine(2, "mail")
    listed = desk.run("queue")
    assert first.entry_id in listed
    assert "commitment_marker" in listed
    assert second.entry_id in listed
    assert second.entry_id not in desk.run("queue", "--tool", "refund")
    assert desk.run("queue", "--scope", "elsewhere").startswith("nothing waits for anybody")
    assert desk.run("queue", "--state", "undelivered").startswith("nothing waits for anybody")
    assert desk.run("queue", "--older-than", "1h").startswith("nothing waits for anybody")
    assert first.entry_id in desk.run("queue", "--older-than", "0s")


def test_pages_follow_each_other(desk: Desk) -> None:
    made = [desk.quarantine(number).entry_id for number in range(5)]
    page = json.loads(desk.run("queue", "--limit", "3", "--format", "json"))
    rest = json.loads(desk.run("queue", "--limit", "3", "--format", "json", "--cursor", page["cursor"]))
    assert [entry["entry_id"] for entry in page["entries"] + rest["entries"]] == made
    assert rest["cursor"] is None
    assert f"--cursor {page['cursor']}" in desk.run("queue", "--limit", "3")


def test_digests_of_arguments_are_shown_to_those_who_ask(desk: Desk) -> None:
    entry = desk.ledger.record(Sighting("s", "refund", State.QUARANTINED, "toolu_h2Fq9x", "5d1e57", reason="r"))
    assert entry is not None
    for command in (
        ["queue", "--format", "json"],
        ["export"],
        ["show", entry.entry_id],
        ["show", entry.entry_id, "--format=json"],
    ):
        assert "5d1e57" not in desk.run(*command)
        assert "5d1e57" in desk.run(*command, "--digests")
    assert "5d1e57" not in desk.run("queue")


def test_a_program_gets_every_field(desk: Desk) -> None:
    entry = desk.quarantine(reason="commitment_marker")
    settled = desk.ledger.settle(entry.entry_id, Resolution.COMMITTED, who="ann", note="paid", version=1)
    found = json.loads(desk.run("show", entry.entry_id, "--format", "json", "--digests"))
    assert found == json.loads(json.dumps(asdict(settled)))


def test_what_a_trace_did_is_found_by_the_beginning_of_its_id(desk: Desk) -> None:
    made = [desk.quarantine(number, trace_id=f"{number % 3}bcd" + "0" * 28) for number in range(9)]
    wanted = [entry.entry_id for entry in made if entry.trace_id is not None and entry.trace_id.startswith("1bcd")]
    found, cursor = list[str](), list[str]()
    for _ in range(2):
        page = json.loads(desk.run("queue", "--trace", "1BCD", "--limit", "2", "--format", "json", *cursor))
        found += [entry["entry_id"] for entry in page["entries"]]
        cursor = ["--cursor", str(page["cursor"])]
    assert found == wanted
    assert page["cursor"] is None
    assert [json.loads(line)["entry_id"] for line in desk.run("export", "--trace", "1bcd").splitlines()] == wanted
    assert desk.run("queue", "--trace", "f").startswith("nothing waits for anybody")


def test_one_entry_is_shown_with_its_history(desk: Desk) -> None:
    entry = desk.quarantine(reason="commitment_marker", trace_id="ab" * 16)
    shown = desk.run("show", entry.entry_id)
    assert "commitment_marker" in shown
    assert "ab" * 16 in shown
    assert json.loads(desk.run("show", entry.entry_id, "--format", "json"))["call_id"] == "toolu_1x"
    assert "may have committed" in desk.run("show", "nobody", code=1)


def test_a_settlement_is_kept_with_its_ground(desk: Desk) -> None:
    entry = desk.quarantine()
    said = desk.run("settle", entry.entry_id, "committed", "--who", "ann", "--note", "provider says paid", "--version", "1")
    assert "is settled: committed (by ann)" in said
    settled = desk.ledger.get(entry.entry_id)
    assert settled is not None
    assert settled.settlement is not None
    assert (settled.settlement.resolution, settled.settlement.note) == (Resolution.COMMITTED, "provider says paid")
    assert "provider says paid" in desk.run("show", entry.entry_id)
    assert desk.run("queue") == "nothing waits for anybody\n"


def test_a_release_says_what_it_allows(desk: Desk) -> None:
    entry = desk.quarantine()
    said = desk.run("release", entry.entry_id, "--note", "provider has nothing", "--version", "1", "--who", "ann")
    assert "this call of refund did not commit. One new attempt of it is released, and no second" in said
    settled = desk.ledger.get(entry.entry_id)
    assert settled is not None
    assert settled.releases


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--version", "7", "--note", "n"], "read it again"),
        (["--version", "1", "--note", " "], "neither is blank"),
        (["--version", "1", "--note", "n", "--who", " "], "neither is blank"),
    ],
)
def test_what_cannot_be_settled_like_that_is_one_line(desk: Desk, arguments: list[str], says: str) -> None:
    entry = desk.quarantine()
    said = desk.run("settle", entry.entry_id, "committed", "--who", "ann", *arguments, code=1)
    assert says in said
    assert len(said.strip().splitlines()) == 1
    assert desk.run("queue") != "nothing waits for anybody\n"


@pytest.mark.parametrize("missing", ["--who", "--note", "--version"])
def test_what_is_missing_is_named_where_nobody_can_be_asked(desk: Desk, missing: str) -> None:
    entry = desk.quarantine()
    said = {"--who": "ann", "--note": "n", "--version": "1"}
    del said[missing]
    for command in (["settle", entry.entry_id, "committed"], ["release", entry.entry_id]):
        error = desk.run(*command, *(word for pair in said.items() for word in pair), code=2)
        assert f"{missing}: has to be said" in error
        assert len(error.strip().splitlines()) == 1
    assert desk.ledger.get(entry.entry_id) == entry


class Terminal:
    """A command in a terminal of its own, and a person who answers."""

    def __init__(self, desk: Desk, *arguments: str) -> None:
        self.mine, theirs = pty.openpty()
        environ = {**os.environ, "GENAI_PROCESSOR_LEDGER": desk.url, "COLUMNS": "120", "LOGNAME": "bob", "TERM": "dumb"}
        self.running = subprocess.Popen([*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
        os.close(theirs)
        self.said = ""

    def read_until(self, text: str) -> None:
        while text not in self.said:
            try:
                part = os.read(self.mine, 4096)
            except OSError:  # the other side is closed
                part = b""
            assert part, self.said
            self.said += part.decode()

    def write(self, line: str) -> None:
        os.write(self.mine, line.encode() + b"\n")

    def end(self) -> int:
        self.running.wait(60)
        os.close(self.mine)
        return self.running.returncode


def test_at_a_terminal_what_is_missing_is_asked_for(desk: Desk) -> None:
    entry = desk.quarantine(reason="commitment_marker")
    there = Terminal(desk, "release", entry.entry_id)
    there.read_until("Who settles it [bob]")
    assert "commitment_marker" in there.said, "the entry is shown first"
    assert "One new attempt of it is released" in there.said
    there.write("ann")
    there.read_until("On what ground")
    there.write("provider has nothing")
    there.read_until("is settled: not_committed (by ann)")
    assert there.end() == 0
    settled = desk.ledger.get(entry.entry_id)
    assert settled is not None
    assert settled.settlement is not None
    assert (settled.settlement.who, settled.settlement.note) == ("ann", "provider has nothing")


def test_at_a_terminal_the_version_that_was_shown_is_the_one_that_is_settled(desk: Desk) -> None:
    entry = desk.quarantine(reason="commitment_marker")
    there = Terminal(desk, "settle", entry.entry_id, "committed", "--who", "ann")
    there.read_until("On what ground")
    desk.ledger.settle(entry.entry_id, Resolution.NOT_COMMITTED, who="zoe", note="she was faster", version=1)
    there.write("paid")
    there.read_until("genai-processor: ")
    assert there.end() == 1
    settled = desk.ledger.get(entry.entry_id)
    assert settled is not None
    assert settled.settlement is not None
    assert settled.settlement.who == "zoe"


def test_an_export_has_every_entry_on_a_line(desk: Desk) -> None:
    made = {desk.quarantine(number).entry_id for number in range(30)}
    lines = desk.run("export").splitlines()
    assert {json.loads(line)["entry_id"] for line in lines} == made


def test_what_a_terminal_might_obey_is_escaped(desk: Desk) -> None:
    entry = desk.quarantine(tool="re\x1b[31mfund")
    for shown in (desk.run("queue"), desk.run("show", entry.entry_id)):
        assert "\x1b" not in shown


def test_a_ledger_in_memory_cannot_be_looked_at_from_here(desk: Desk) -> None:
    assert "ends with its process" in desk.run("queue", code=2, GENAI_PROCESSOR_LEDGER="memory:").replace("\n", " ")


def test_a_file_that_is_no_ledger_is_one_line(desk: Desk, tmp_path: Path) -> None:
    other = tmp_path / "letter.txt"
    other.write_text("Dear all, " * 1_000)
    said = desk.run("queue", "--ledger", f"sqlite:///{other}", code=4)
    assert str(other) in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("option", ["", "?timeout_seconds=2", "?create=true"])
@pytest.mark.parametrize(
    "command",
    [
        ["queue"],
        ["export"],
        ["show", "nobody"],
        ["settle", "nobody", "committed", "--version", "1", "--note", "n", "--who", "ann"],
        ["release", "nobody", "--version", "1", "--note", "n", "--who", "ann"],
    ],
)
def test_no_command_makes_a_ledger(tmp_path: Path, desk: Desk, command: list[str], option: str) -> None:
    missing = tmp_path / "typing-error.db"
    said = desk.run(*command, "--ledger", f"sqlite:///{missing}{option}", code=4)
    assert f"no ledger at {missing}" in said
    assert len(said.strip().splitlines()) == 1
    assert not list(tmp_path.glob("typing-error*"))


@pytest.mark.parametrize("resolution", list(Resolution))
def test_a_settlement_says_who_holds_callers_to_it(desk: Desk, resolution: Resolution) -> None:
    entry = desk.quarantine()
    said = desk.run("settle", entry.entry_id, resolution, "--note", "n", "--version", "1", "--who", "ann")
    assert "A guard in mode enforce on this ledger holds everybody to that; without one," in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--older-than", "99999999d"], "too long ago"),
        (["--older-than", "9" * 400 + "s"], "too long ago"),
        (["--older-than", "soon"], "is no age"),
        (["--older-than", "-1d"], "is no age"),
        (["--cursor", "99999999999999999999:x"], "not a cursor"),
        (["--cursor", "-99999999999999999999:x"], "not a cursor"),
        (["--cursor", "nonsense"], "not a cursor"),
        (["--trace", "1bcd", "--cursor", "nonsense"], "not a cursor"),
        (["--trace", "my trace"], "is no trace id"),
        (["--trace", ""], "is no trace id"),
        (["--trace", "a" * 33], "is no trace id"),
        (["--ledger", "ftp://somewhere"], "names no known ledger"),
        (["--ledger", "sqlite:///l.db?odd=1"], "'sqlite:///l.db?odd=1'"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_one_line(desk: Desk, arguments: list[str], says: str) -> None:
    desk.quarantine()
    said = desk.run("queue", *arguments, code=2)
    assert says in said
    assert len(said.strip().splitlines()) == 1


def test_what_is_not_utf8_is_no_traceback(desk: Desk) -> None:
    odd = os.fsdecode(b"\xff")
    entry = desk.quarantine()
    assert desk.run("queue", "--tool", odd).startswith("nothing waits for anybody")
    assert "no entry" in desk.run("show", odd, code=1)
    assert "begin again" in desk.run("queue", "--cursor", odd, code=2)
    desk.run("settle", entry.entry_id, "committed", "--who", odd, "--note", odd, "--version", "1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
@pytest.mark.parametrize("command", ["queue", "export", "queue --format json"])
def test_an_answer_that_cannot_be_written_is_status_3(desk: Desk, command: str) -> None:
    desk.quarantine()
    environ = {**os.environ, "GENAI_PROCESSOR_LEDGER": desk.url}
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, *command.split()], stdout=full, stderr=subprocess.PIPE, env=environ, timeout=60)
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["queue", "export", "show", "settle", "release"])
def test_the_help_of_every_command_says_its_exit_statuses(desk: Desk, command: str) -> None:
    assert "Exit status" in desk.run(command, "--help")


LONG = {"trace_id": "ab12cd34" * 4, "reason": "commitment_marker"}


@pytest.mark.parametrize("columns", [70, 80, 120, 200])
def test_what_is_needed_to_settle_is_never_cut(desk: Desk, columns: int) -> None:
    entries = [desk.quarantine(number, "transfer_money_" * 10, **LONG) for number in range(2)]
    listed = desk.run("queue", COLUMNS=str(columns))
    lines = listed.splitlines()
    assert max(map(len, lines)) <= columns
    assert len(lines) == 3 * (1 if columns >= 120 else 2)
    for entry in entries:
        line = next(line for line in lines if line.startswith(entry.entry_id))
        assert line.split()[:4] == [entry.entry_id, "1", "quarantined", "ab12cd34"]
        assert "toolu_" in listed
    assert "made" in lines[0] + lines[1]


def test_a_terminal_that_is_too_narrow_cuts_no_id(desk: Desk) -> None:
    entry = desk.quarantine(**LONG)
    assert entry.entry_id in desk.run("queue", COLUMNS="20")


def test_of_a_call_id_the_end_is_kept(desk: Desk) -> None:
    desk.quarantine(1234567890123456789, "t" * 50, **LONG)
    assert "…456789x" in desk.run("queue", COLUMNS="120", PYTHONIOENCODING="utf-8")


def test_times_are_marked_as_utc(desk: Desk) -> None:
    entry = desk.quarantine()
    made = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(entry.created_ns // 10**9))
    assert made in desk.run("queue", TZ="Asia/Tokyo")
    assert made in desk.run("show", entry.entry_id, TZ="Asia/Tokyo")


def test_wide_characters_keep_the_columns(desk: Desk) -> None:
    desk.quarantine(1, "返金" * 40)
    lines = desk.run("queue", COLUMNS="120", PYTHONIOENCODING="utf-8").splitlines()
    assert max(map(cell_len, lines)) <= 120
    assert len(lines) == 2


def test_who_settles_what_is_settled_already_hears_by_whom_and_as_what(desk: Desk) -> None:
    entry = desk.quarantine()
    desk.run("release", entry.entry_id, "--who", "ann", "--note", "asked the provider", "--version", str(entry.version))
    for version in (entry.version, entry.version + 1):
        said = desk.run(
            "settle", entry.entry_id, "committed", "--who", "bob", "--note", "n", "--version", str(version), code=1
        )
        assert "ann settled it as not_committed on 20" in said
        assert said.endswith("Z: asked the provider\n")


def test_a_fault_of_the_url_names_where_it_was_said(desk: Desk) -> None:
    assert "GENAI_PROCESSOR_LEDGER: " in desk.run("queue", code=2, GENAI_PROCESSOR_LEDGER="nowhere://x")
    assert "GENAI_PROCESSOR_LEDGER: " in desk.run("queue", code=2, GENAI_PROCESSOR_LEDGER="memory:")
    said = desk.run("queue", "--ledger", "nowhere://x", code=2)
    assert said.startswith("genai-processor: --ledger: ")


def test_a_bad_setting_is_warned_of_in_the_commands_own_voice(desk: Desk) -> None:
    done = subprocess.run(
        [*COMMAND, "queue"],
        capture_output=True,
        text=True,
        env={**os.environ, "GENAI_PROCESSOR_LEDGER": desk.url, "GENAI_PROCESSOR_EVENTS": "treu"},
        timeout=60,
    )
    assert done.stderr == (
        "genai-processor: GENAI_PROCESSOR_EVENTS must be true or false, but is 'treu'; using true instead\n"
    )


def test_a_person_is_shown_times_and_a_program_gets_the_fields(desk: Desk) -> None:
    entry = desk.quarantine()
    said = desk.run("show", entry.entry_id)
    assert "_ns" not in said
    assert any(line.startswith("made ") and line.endswith(" s ago)") for line in said.splitlines())
    assert "no proof that it did, and none that it did not" in said
    row = json.loads(desk.run("show", entry.entry_id, "--format", "json"))
    assert (row["created_ns"], row["started_ns"]) == (entry.created_ns, None)


def test_of_a_call_that_is_proven_to_have_begun_the_latest_time_is_shown(desk: Desk) -> None:
    said = desk.run("show", desk.quarantine(started=True).entry_id)
    assert "begun by" in said
    assert "no proof" not in said


@pytest.mark.parametrize("command", ["scan", "queue", "settle", "release", "reconcile", "replay plan"])
@pytest.mark.parametrize("columns", [80, 120])
def test_help_is_wrapped_only_where_the_terminal_ends(desk: Desk, command: str, columns: int) -> None:
    text = desk.run(*command.split(), "--help", COLUMNS=str(columns)).partition("╭")[0]
    for paragraph in text.split("\n" + " " * columns + "\n"):
        lines = [line.strip() for line in paragraph.splitlines() if line.strip()]
        for line, following in pairwise(lines):
            assert len(line) + 1 + len(following.split()[0]) > columns - 3, line
