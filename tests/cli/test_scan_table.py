# SPDX-License-Identifier: Apache-2.0
"""The table: what it shows, in which order, how wide, in which colours."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from pathlib import Path

import pytest
from cli_helpers import COMMAND, REFUND_TWICE, REJECTED, environment, run, tool_span, written
from rich.cells import cell_len
from rich.console import Console

from genai_processor.cli.scan import scan_rows
from genai_processor.cli.table import Table
from genai_processor.retry.policy import Policy

SHOWN = """\
quarantined (1)  may have committed: settle it before anyone tries again
  create_refund  commitment_marker  call_lab_c1  status=ERROR, error.type=_OTHER  s06_retry_new_id.jsonl:ebcbfeba

retryable_pre_execution (1)  never started: may be tried again
  create_refund  malformed_arguments  call_lab_c1  status=ERROR, error.type=_OTHER, agno (off…  …ong_type.jsonl:678705da

duplicates (1)  one action, run more than once
  create_refund  certain  by action  2 spans: fc2b35394f0d09ae 8e4e411ae23e837d  s06_retry_new_id.jsonl

3 calls: 1 quarantined, 1 retryable_pre_execution, 1 no_retry_needed; 1 duplicate
"""


def test_table_as_it_is_piped() -> None:
    assert run("scan", REFUND_TWICE, REJECTED).out.decode() == SHOWN


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    out = run("scan", "--all", REFUND_TWICE, REJECTED, COLUMNS=str(width)).out.decode()
    assert max(map(cell_len, out.splitlines())) <= width
    assert out.count("ebcbfeba") == 2  # the trace ids stay readable


def test_all_shows_what_ended_well_too() -> None:
    assert "no_retry_needed (1)" in run("scan", "--all", REFUND_TWICE).out.decode()
    assert "no_retry_needed (1)" not in run("scan", REFUND_TWICE).out.decode()


def test_errors_and_total(tmp_path: Path) -> None:
    done = run("scan", tmp_path / "none.jsonl", REFUND_TWICE)
    assert f"{tmp_path}/none.jsonl: cannot be opened" in done.out.decode()
    assert done.out.decode().rstrip().endswith("1 error")


def test_nothing_found() -> None:
    assert run("scan", "-").out == b"0 calls\n"


def test_what_a_terminal_would_obey_is_escaped(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", [tool_span("ab" * 16, "cd" * 8, status=2, name="refund\x1b[2J\ud800")])
    path.write_text(path.read_text(encoding="utf-8").replace("\\ud800", "\\u202e"), encoding="utf-8")
    out = run("scan", path).out.decode()
    assert "\x1b" not in out
    assert "refund\\x1b[2J\\u202e" in out


def _on_a_terminal(**variables: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "scan", str(REFUND_TWICE)],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment(TERM="xterm-256color", COLUMNS="100", **variables),
    )
    os.close(theirs)
    out = b""
    try:
        while data := os.read(ours, 4096):
            out += data
    except OSError:
        pass  # how a pseudo-terminal ends
    finally:
        os.close(ours)
    assert process.wait(60) == 0
    return out.decode()


def test_colours_only_on_a_terminal_that_wants_them() -> None:
    assert "\x1b[1;31mquarantined" in _on_a_terminal()
    assert "\x1b[1;31m" not in _on_a_terminal(NO_COLOR="1")
    assert "\x1b" not in run("scan", REFUND_TWICE, TERM="xterm-256color").out.decode()


def test_long_tables_say_that_they_are_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("genai_processor.cli.table.MAX_LINES", 5)
    documents = [tool_span(f"{at:032x}", f"{at:016x}", status=2) for at in range(1, 9)]
    path = written(tmp_path / "many.jsonl", documents)
    out = io.StringIO()
    Table(Console(file=out, width=100)).print(scan_rows([str(path)], Policy()))
    assert "quarantined (8)" in out.getvalue()
    assert "… and 3 more" in out.getvalue()
