# SPDX-License-Identifier: Apache-2.0
"""How many effects land in each framework's incidents: bare, with a guard that observes, with one that enforces.

    python -m benchmarks.incidents [FRAMEWORK ...] [--ledger URL]

Each framework that is installed here tells its incidents in a process of its own for each mode. Exits with 1 if anything
else landed than should have.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from benchmarks.incidents.kit import count

MODES = ("bare", "observe", "enforce")
REQUIRED = {
    "pydantic_ai": "pydantic_ai",
    "langgraph": "langgraph",
    "openai_agents": "agents",
    "mcp": "mcp",
    "fastmcp": "fastmcp",
    "google_adk": "google.adk",
    "strands": "strands",
    "agent_framework": "agent_framework",
    "smolagents": "smolagents",
    "llama_index": "llama_index.core",
    "crewai": "crewai",
    "agno": "agno",
    "autogen": "autogen_agentchat",
    "semantic_kernel": "semantic_kernel",
}
"""Module of this package -> what it needs to import."""


def tell(framework: str, mode: str, ledger: str) -> dict[str, tuple[int, int, int]]:
    """Tell all incidents of a framework; return for each how many effects landed, and how many should bare and enforced."""
    from genai_processor.guard import hooks
    from genai_processor.guard.guard import Guard

    told: dict[str, tuple[int, int, int]] = {}
    for incident in import_module(f"benchmarks.incidents.{framework}").INCIDENTS:
        if mode != "bare":
            hooks.install(Guard(ledger, mode=mode, scope=None))
        told[incident.name] = (count(incident), incident.bare, incident.enforced)
        hooks.uninstall()
    return told


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def name_of(framework: str) -> str:
    module = REQUIRED.get(framework, framework)
    for distribution in packages_distributions().get(module.partition(".")[0], []):
        if distribution.replace("-", "_").startswith(framework.split("_")[0]):
            try:
                return f"{distribution} {version(distribution)}"
            except PackageNotFoundError:
                continue
    return framework


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("frameworks", nargs="*")
    parser.add_argument("--ledger", default="memory:", help="where the guard claims")
    parser.add_argument("--tell", choices=MODES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.tell:
        print("\n" + json.dumps(tell(given.frameworks[0], given.tell, given.ledger)))
        return 0
    wrong = 0
    for framework in given.frameworks or [name for name in sorted(REQUIRED) if installed(REQUIRED[name])]:
        found: dict[str, dict[str, list[int]]] = {}
        for mode in MODES:
            command = [sys.executable, "-m", "benchmarks.incidents", framework, "--tell", mode, "--ledger", given.ledger]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{framework}: {done.stderr.strip().splitlines()[-1]}")
                return 1
            found[mode] = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"{name_of(framework)}\n  {'effects that landed':<74} {'bare':>7} {'observe':>8} {'enforce':>8}")
        for name, (_, bare, enforced) in found["bare"].items():
            landed = [found[mode][name][0] for mode in MODES]
            mark = "" if landed == [bare, bare, enforced] else f"   <- expected {bare}, {bare}, {enforced}"
            wrong += bool(mark)
            print(f"  {name:<74} {landed[0]:>7} {landed[1]:>8} {landed[2]:>8}{mark}")
        print()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
