# SPDX-License-Identifier: Apache-2.0
"""The examples run as their readers run them: as programs of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run(*command: str, **variables: str) -> str:
    """The program's standard output; it has to succeed."""
    return finished(*command, **variables).stdout


def finished(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The program once it has succeeded."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "GENAI_"))}
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), environment["PATH"]])
    done = subprocess.run(
        command, cwd=ROOT, env=environment | variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("example", ["explicit", "reconcile", "retry_loop"])
def test_the_first_examples_that_a_reader_tries_warn_of_nothing(example: str) -> None:
    assert finished(sys.executable, f"examples/{example}.py").stderr == ""


def test_explicit_exports_the_verdict() -> None:
    attributes = json.loads(run(sys.executable, "examples/explicit.py"))["attributes"]
    assert attributes["gen_ai.tool.call.id"] == "call_h2Fq9x"
    assert attributes["genai.retry.verdict"] == "quarantined_unknown"
    assert attributes["genai.retry.reason"] == "arguments_withheld"


def test_retry_loop_repeats_what_is_declared_harmless() -> None:
    out = run(sys.executable, "examples/retry_loop.py", GENAI_PROCESSOR_READ_ONLY_TOOLS="get_*")
    assert out.splitlines() == ["create_refund: 1 attempt(s)", "get_rate: 3 attempt(s)"]


def test_retry_loop_repeats_nothing_undeclared() -> None:
    out = run(sys.executable, "examples/retry_loop.py")
    assert out.splitlines() == ["create_refund: 1 attempt(s)", "get_rate: 1 attempt(s)"]


def test_retry_libraries_repeat_what_is_declared_harmless_and_nothing_else() -> None:
    out = run(sys.executable, "examples/retry_libraries.py", GENAI_PROCESSOR_READ_ONLY_TOOLS="get_*")
    libraries = ("tenacity", "stamina", "backoff")
    expected = [(name, tool, times) for name in libraries for tool, times in (("create_refund", 1), ("get_rate", 3))]
    assert out.splitlines() == [f"{name}: {tool}: {times} run(s)" for name, tool, times in expected]


def test_langgraph_runs_a_node_again_only_where_that_is_safe() -> None:
    out = run(sys.executable, "examples/langgraph_retry.py", GENAI_PROCESSOR_READ_ONLY_TOOLS="get_*")
    expected = [
        ("stock", "create_refund", 3),
        ("stock", "get_rate", 3),
        ("asking", "create_refund", 1),
        ("asking", "get_rate", 3),
    ]
    assert out.splitlines() == [f"{policy}: {tool}: ran {times} time(s)" for policy, tool, times in expected]


def test_celery_runs_a_task_again_only_where_that_is_safe() -> None:
    out = run(sys.executable, "examples/celery_task.py", GENAI_PROCESSOR_READ_ONLY_TOOLS="get_*")
    assert out.splitlines() == [
        "create_refund: 1 run(s), then ToolSpanCommitmentError",
        "get_rate: 3 run(s), then TimeoutError",
    ]


def test_temporal_runs_an_activity_again_only_where_that_is_safe() -> None:
    out = run(sys.executable, "examples/temporal_activity.py", GENAI_PROCESSOR_READ_ONLY_TOOLS="get_*")
    lines = [line for line in out.splitlines() if line.startswith(("create_refund", "get_rate"))]
    assert lines[:2] == ["create_refund: for good", "get_rate: may be tried again"]
    if lines[2:]:  # there is a server's command to be found
        assert lines[2:] == ["create_refund: 1 run(s)", "get_rate: 3 run(s)"]


def test_reconcile_settles_once() -> None:
    waits, settled, refused, left = run(sys.executable, "examples/reconcile.py").splitlines()
    assert waits == "waits: create_refund call_h2Fq9x: quarantined (arguments_withheld)"
    assert settled == "settled: create_refund call_h2Fq9x: not_committed"
    assert refused.startswith("refused: ")
    assert left == "waiting now: 0"


def test_a_provider_is_asked_and_settles_what_it_can_prove() -> None:
    out = run(sys.executable, "examples/reconcile_provider.py")
    assert out.splitlines() == [
        "refund of order 1042: HTTPError: quarantined",
        "refund of order 1043: URLError: quarantined",
        "call_h2Fq9x: committed: settled",
        "call_m8Tz4c: not_committed: to_confirm",
        "call_m8Tz4c: not_committed: settled",
        "waiting now: 0; paid: 1",
    ]


def test_scan_reads_recorded_traces() -> None:
    out = run("examples/scan.sh")
    assert "create_refund" in out
    assert "quarantined" in out
    assert "retryable_pre_execution" in out


def test_demo_shows_what_it_promises_on_one_screen() -> None:
    out = run(sys.executable, "-m", "examples.demo", NO_COLOR="1")
    lines = out.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    assert "2 x 25.00 EUR paid" in out
    assert "1 x 25.00 EUR paid" in out
    assert "\x1b" not in out


def test_demo_picture_is_drawn_from_its_output(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    run(sys.executable, "-m", "examples.demo.picture", str(picture))
    assert "genai.retry.verdict" in picture.read_text(encoding="utf-8").replace("&#160;", " ")


def test_a_recorded_run_is_replayed_without_paying_again() -> None:
    lines = run(sys.executable, "examples/replay_run.py").splitlines()
    assert lines[:3] == [
        "live:     Done: refund 1 of order 1042",
        "replayed: Done: refund 1 of order 1042",
        "diverged: input",
    ]
    assert lines[-1] == "refunds:  1"
    assert any("2048" in line for line in lines)
