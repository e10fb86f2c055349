# SPDX-License-Identifier: Apache-2.0
"""What `import genai_processor` costs beside `import opentelemetry.sdk.trace`: CPU time of fresh interpreters.

python -m benchmarks.imports
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

_RUNS = 15


def _cpu(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    statements = {
        "nothing": "",
        "opentelemetry.sdk.trace": "import opentelemetry.sdk.trace",
        "+ genai_processor": "import opentelemetry.sdk.trace, genai_processor",
        "+ GenAISpanProcessor": "import opentelemetry.sdk.trace; from genai_processor import GenAISpanProcessor",
    }
    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(_RUNS):
        for name, code in statements.items():
            times[name].append(_cpu(code))
    nothing = statistics.median(times["nothing"])
    sdk = statistics.median(times["opentelemetry.sdk.trace"]) - nothing
    print(f"{'import':26s} {'CPU ms':>8s} {'ratio':>6s}  target")
    for name in list(statements)[1:]:
        net = statistics.median(times[name]) - nothing
        target = "<= 1.3" if name == "+ genai_processor" else ""
        print(f"{name:26s} {net * 1e3:8.1f} {net / sdk:6.2f}  {target}", flush=True)


if __name__ == "__main__":
    main()
