# SPDX-License-Identifier: Apache-2.0
"""What `scan` costs beside merely parsing the same file, and how much memory it takes.

    python -m benchmarks.scan [--size MB] [--memory] [--memory-size MB]

Two files of each format. One is made of the recorded traces in tests/data, in random order, each copy with trace, span,
conversation and call ids of its own: nearly every span of them is a GenAI span, messages are a few words long, and most
traces have a failed call, which is the worst case. The other is what `benchmarks.service` makes up.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import service

DATA = Path(__file__).parent.parent / "tests" / "data"
_HEX_ID = re.compile(rb'"(?:traceId|spanId|parentSpanId)":\s*"([0-9a-f]{16,32})"')
_OTHER_ID = re.compile(
    rb'"(?:gen_ai\.conversation\.id|session\.id|gen_ai\.tool\.call\.id|tool_call\.id|langsmith\.metadata\.thread_id|'
    rb'gcp\.vertex\.agent\.session_id)", "value": {"stringValue": "([^"\\]{3,})"'
)

_BARE_JSON = "import sys, orjson\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)"
_BARE_PROTOBUF = """
import sys
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
file = open(sys.argv[1], 'rb')
while size := file.read(4):
    TracesData.FromString(file.read(int.from_bytes(size, 'big')))
"""
_SCAN = "import sys; from genai_processor.__main__ import main; sys.argv[0] = 'genai-processor'; main()"


class Used(NamedTuple):
    """What a child process used."""

    cpu: float
    peak: int


def templates() -> list[tuple[list[bytes], dict[bytes, bytes]]]:
    """Each recorded file, cut at the ids that every copy has anew, with the kind of each id."""
    found = []
    for path in sorted(DATA.glob("*/*/*.jsonl")):
        text = path.read_bytes()
        ids = dict.fromkeys(_HEX_ID.findall(text), b"hex") | dict.fromkeys(_OTHER_ID.findall(text), b"text")
        pattern = b"|".join(re.escape(value) for value in sorted(ids, key=len, reverse=True))
        found.append((re.split(b"(" + pattern + b")", text) if ids else [text], ids))
    return found


def copies(size: int) -> Iterator[bytes]:
    """Recorded files with fresh ids, until they are `size` bytes."""
    chance = random.Random(7)
    recorded = templates()
    written = 0
    while written < size:
        parts, ids = chance.choice(recorded)
        fresh = {
            value: b"%0*x" % (len(value), chance.getrandbits(4 * len(value)) | 1)
            if kind == b"hex"
            else b"%s-%016x" % (value[:24], chance.getrandbits(64))
            for value, kind in ids.items()
        }
        text = b"".join(fresh.get(part, part) for part in parts)
        written += len(text)
        yield text


def write_json(path: Path, texts: Iterable[bytes]) -> int:
    """Write OTLP/JSON lines; how many spans they are."""
    spans = 0
    with path.open("wb") as file:
        for text in texts:
            file.write(text)
            spans += text.count(b'"traceId"')
    return spans


def write_protobuf(json_path: Path, path: Path) -> None:
    """Write the same as length-prefixed protobuf."""
    import base64
    import json

    from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    def base64_ids(document: object) -> None:
        todo = [document]
        while todo:
            node = todo.pop()
            if isinstance(node, dict):
                for key, value in node.items():
                    if key in ("traceId", "spanId", "parentSpanId"):
                        node[key] = base64.b64encode(bytes.fromhex(value)).decode()
                    else:
                        todo.append(value)
            elif isinstance(node, list):
                todo.extend(node)

    with json_path.open("rb") as lines, path.open("wb") as file:
        for line in lines:
            document = json.loads(line)
            base64_ids(document)
            message = ParseDict(document, TracesData(), ignore_unknown_fields=True).SerializeToString()
            file.write(len(message).to_bytes(4, "big") + message)


def used(code: str, *arguments: str | Path) -> Used:
    """Run Python code in a process of its own, on its own arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    meter = "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    wrapped = f"import sys\ntry:\n    exec({code!r})\nexcept SystemExit: pass{meter}"
    done = subprocess.run(
        [sys.executable, "-c", wrapped, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Used(cpu, int(done.stderr.split()[-1]) // 1024)


def least(code: str, *arguments: str | Path, idle: str, runs: int = 3) -> float:
    """The least CPU time of several runs, less what a process takes that does nothing."""
    return min(used(code, *arguments).cpu for _ in range(runs)) - min(used(idle).cpu for _ in range(runs))


def ratios(folder: Path, what: str, texts: Iterable[bytes]) -> None:
    """Print spans a second of `scan` and of bare parsing."""
    plain, packed = folder / "traces.jsonl", folder / "traces.pb"
    spans = write_json(plain, texts)
    write_protobuf(plain, packed)
    scan = ("scan", "--format", "jsonl")
    idle_scan = "import genai_processor.cli.app"
    sizes = [path.stat().st_size / 1e6 for path in (plain, packed)]
    print(f"\n{what}: {spans:,} spans, {sizes[0]:.0f} MB of JSON, {sizes[1]:.0f} MB of protobuf\n")
    print("| What | CPU s | spans/s | × bare |\n| --- | --- | --- | --- |")
    for name, bare, path in (("JSON", _BARE_JSON, plain), ("protobuf", _BARE_PROTOBUF, packed)):
        preload = "import orjson" if name == "JSON" else "import opentelemetry.proto.trace.v1.trace_pb2"
        base = least(bare, path, idle=preload)
        cost = least(_SCAN, *scan, path, idle=idle_scan)
        print(f"| parsing {name} | {base:.2f} | {spans / base:,.0f} | 1 |")
        print(f"| scanning {name} | {cost:.2f} | {spans / cost:,.0f} | {cost / base:.1f} |")


def memory(folder: Path, megabytes: int) -> None:
    """Print the peak memory of a scan."""
    path = folder / "large.jsonl"
    spans = write_json(path, copies(megabytes * 1_000_000))
    peak = used(_SCAN, "scan", "--format", "jsonl", path).peak
    print(f"peak memory on {megabytes:,} MB ({spans:,} spans, every trace and conversation distinct): {peak} MB")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=200, help="megabytes of JSON")
    parser.add_argument("--memory", action="store_true", help="measure the peak memory, too")
    parser.add_argument("--memory-size", type=int, default=1_000, help="megabytes of JSON for that")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ratios(Path(folder), "recorded traces", copies(options.size * 1_000_000))
        ratios(Path(folder), "a service", service.lines(options.size * 1_000_000))
        if options.memory:
            memory(Path(folder), options.memory_size)


if __name__ == "__main__":
    main()
