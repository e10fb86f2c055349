# SPDX-License-Identifier: Apache-2.0
"""How the tests find the servers that they need."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.servers import ServerMissing, find_program, program


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
