# SPDX-License-Identifier: Apache-2.0
"""Where the answer goes: a full disk, a closed descriptor, a reader who leaves. No command ends in a traceback."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from cli_helpers import COMMAND, REFUND_TWICE, environment, spans_of, tool_span, written

FORMATS = ("table", "json", "jsonl")
COMMANDS = [
    *[f"scan --format {name} {shlex.quote(str(REFUND_TWICE))}" for name in FORMATS],
    "settings",
    "settings --markdown",
    "--help",
    "scan --help",
]


def shell(command: str, redirection: str) -> tuple[int, str]:
    line = f"{shlex.join(COMMAND)} {command} {redirection}"
    done = subprocess.run(["/bin/sh", "-c", line], env=environment(), capture_output=True, timeout=120, check=False)
    return done.returncode, done.stderr.decode()


def left(*arguments: str) -> tuple[int, bytes]:
    """How a command ends whose answer nobody reads any more."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    return process.wait(60), process.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
@pytest.mark.parametrize("command", COMMANDS)
def test_full_disk_is_said_in_one_line(command: str) -> None:
    expected = "genai-processor: standard output: cannot be written: No space left on device\n"
    assert shell(command, ">/dev/full") == (3, expected)
    assert shell(command, ">/dev/full 2>&1")[0] == 3


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("redirection", "reason"), [(">&-", "it is closed"), ("1</dev/null", "Bad file descriptor")])
def test_so_is_an_output_that_is_closed_or_only_to_be_read(command: str, redirection: str, reason: str) -> None:
    assert shell(command, redirection) == (3, f"genai-processor: standard output: cannot be written: {reason}\n")
    assert shell(command, f"{redirection} 2>&-") == (3, "")


@pytest.mark.parametrize("large", [False, True], ids=["less than a buffer", "more than a pipe holds"])
@pytest.mark.parametrize("format", FORMATS)
def test_reader_that_leaves_is_no_fault(tmp_path: Path, format: str, large: bool) -> None:
    path = REFUND_TWICE
    if large:
        calls = [tool_span(f"{number:032x}", f"{number:016x}", status=2) for number in range(1, 3_001)]
        path = written(tmp_path / "large.jsonl", [*spans_of(REFUND_TWICE), *calls])
    assert left("scan", "--all", "--format", format, str(path), "-") == (141, b"")


@pytest.mark.parametrize("options", [(), ("--markdown",)])
def test_nor_is_one_of_the_settings(options: tuple[str, ...]) -> None:
    assert left("settings", *options) == (141, b"")


def test_input_that_is_closed_is_an_error_and_the_others_are_read() -> None:
    assert shell(f"scan --format jsonl {shlex.quote(str(REFUND_TWICE))}", ">/dev/null <&-") == (0, "")
    assert shell(f"scan --format jsonl - {shlex.quote(str(REFUND_TWICE))}", ">/dev/null <&-") == (1, "")


@pytest.mark.parametrize("format", FORMATS)
def test_nobody_need_listen_to_warnings(format: str) -> None:
    assert shell(f"scan --format {format} {shlex.quote(str(REFUND_TWICE))}", ">/dev/null 2>&-") == (0, "")
