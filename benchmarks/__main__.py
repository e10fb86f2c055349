# SPDX-License-Identifier: Apache-2.0
"""`make bench`: everything, one table after the other. About fifteen minutes on two cores; `--quick` for less."""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> None:
    """Run every benchmark in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer processes and smaller files")
    quick = parser.parse_args().quick
    runs = [
        ("Cost per span", ["benchmarks.spans", "--others", *(["--processes", "3", "--seconds", "0.7"] if quick else [])]),
        ("Threads and open spans", ["benchmarks.scaling"]),
        ("Import", ["benchmarks.imports"]),
        ("The ledger in memory", ["benchmarks.ledger"]),
        ("A ledger in a SQLite file", ["benchmarks.sqlite"]),
        ("The queue", ["benchmarks.queue", *(["--entries", "50000"] if quick else [])]),
        ("Ledgers on servers", ["benchmarks.shared", *(["--calls", "30"] if quick else [])]),
        ("What else runs a call once", ["benchmarks.peers", *(["--calls", "20"] if quick else [])]),
        ("Incidents of agent frameworks", ["benchmarks.incidents"]),
        ("Runs killed in the middle", ["benchmarks.crashes", *(["--runs", "20"] if quick else [])]),
        ("Races for calls", ["benchmarks.races", *(["--calls", "20"] if quick else [])]),
        ("Planning a replay", ["benchmarks.replay", "--spans", "10000", *(["--deep", "0"] if quick else ["100000"])]),
        ("The incident of silent replays", ["benchmarks.replay_incident"]),
        ("Scan", ["benchmarks.scan", *(["--size", "30"] if quick else ["--memory"])]),
    ]
    for title, command in runs:
        print(f"\n== {title}", flush=True)
        subprocess.run([sys.executable, "-m", *command], check=True)


if __name__ == "__main__":
    main()
