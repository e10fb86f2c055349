# SPDX-License-Identifier: Apache-2.0
"""How the tests find the servers that they need."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.servers import ServerMissing, find_program, program

TESTS = Path(__file__).parent.parent


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_on_the_path_goes_before_those_of_the_distribution(tmp_path: Path) -> None:
    on_path = executable(tmp_path / "bin/postgres")
    executable(tmp_path / "lib/15/bin/postgres")
    folders = [f"{tmp_path}/lib/*/bin"]
    assert find_program("postgres", str(tmp_path / "bin"), folders) == on_path


def test_else_the_newest_version_of_the_distribution_is_taken(tmp_path: Path) -> None:
    newest = executable(tmp_path / "lib/15/bin/postgres")
    executable(tmp_path / "lib/9/bin/postgres")
    (tmp_path / "lib/16/bin").mkdir(parents=True)
    assert find_program("postgres", str(tmp_path), [f"{tmp_path}/lib/*/bin"]) == newest


def test_a_program_that_cannot_be_had_is_named_with_its_packages() -> None:
    with pytest.raises(ServerMissing, match=r"no-such-server.*apt-get install redis-server postgresql.*only root"):
        program("no-such-server", "no-such-package", install=lambda package: "only root may, with apt-get")


@pytest.mark.parametrize("kind", ["RedisServer", "PostgreSQLServer"])
def test_no_server_outlives_tests_that_are_killed(kind: str) -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(TESTS)!r})
from support.servers import {kind}
server = {kind}()
server.start()
print(server._process.pid, server.folder, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False, timeout=120)
    pid, folder = done.stdout.split()
    deadline = time.monotonic() + 30
    while (is_alive(int(pid)) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(pid))
    assert not Path(folder).exists()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"  # nobody may have waited for it
