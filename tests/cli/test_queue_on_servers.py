# SPDX-License-Identifier: Apache-2.0
"""The queue's commands on ledgers that are kept by servers."""

from __future__ import annotations

import json

import pytest
from cli_helpers import run
from support.servers import PASSWORD

from genai_processor.guard.guard import Guard
from genai_processor.ledger import State, open_ledger

OPTION = {"redis": "prefix", "postgresql": "schema"}


@pytest.fixture(params=OPTION)
def server(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The URL of a server, and which option names a ledger on it."""
    return request.getfixturevalue(f"{request.param}_server").url(), OPTION[request.param]


def test_a_call_that_was_released_on_a_server_runs_once_more(server: tuple[str, str]) -> None:
    url = f"{server[0]}?{server[1]}=queue_commands"
    with pytest.raises(TimeoutError), Guard(url).call("pay", None, {"order": 1}, scope="s"):
        raise TimeoutError
    listed = run("queue", "--ledger", url, "--format", "json")
    [row] = json.loads(listed.out)["entries"]
    who = ["--who", "ann", "--note", "asked the provider", "--version", str(row["version"])]
    assert run("release", row["entry_id"], *who, "--ledger", url).code == 0
    with Guard(url).call("pay", None, {"order": 1}, scope="s"):
        pass
    assert open_ledger(url).counts()[State.SETTLED] == 1


def test_no_ledger_is_made_on_a_server(server: tuple[str, str]) -> None:
    asked = run("queue", "--ledger", f"{server[0]}?{server[1]}=nobody_made_this")
    assert asked.code == 4
    assert "no ledger" in asked.err
    assert PASSWORD not in asked.err
