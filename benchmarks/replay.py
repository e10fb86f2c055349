# SPDX-License-Identifier: Apache-2.0
"""What planning a replay costs beside merely parsing the same file, and how that grows.

    python -m benchmarks.replay [--spans N ...] [--turns N] [--deep N]

Made-up runs of agents: each has so many turns, and each turn repeats the whole conversation, as the requests of agents do;
results are a hundred characters long, and each inference has the instructions and the tools that it was given.
The last rows are a chain and a fan-in of 100,000. Each measurement is a process of its own. Where networkx is installed, it
builds the same graph from numbered nodes and sorts it, for comparison. The file of 1,000,000 spans takes about 4.6 GB.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson

_PARSE = "import sys, orjson\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)"
_PROTOBUF = """
import sys
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
with open(sys.argv[1], 'rb') as file:
    while size := file.read(4):
        TracesData.FromString(file.read(int.from_bytes(size, 'big')))
"""
_READ = """
import gc, sys
gc.disable()
from genai_processor.spans.otlp import read_spans
for span in read_spans(sys.argv[1], on_error=print): pass
"""
_PLAN = """
import sys
from genai_processor.replay import Planner
from genai_processor.spans.otlp import read_spans
planner = Planner(keep_values=False)
planner.add_all(read_spans(sys.argv[1], on_error=print))
plan = planner.plan()
report()
from array import array
from genai_processor.replay import EdgeKind
numbers = {node.key: at for at, node in enumerate(plan.nodes)}
edges = [edge for decision in plan.decisions.values() for edge in decision.edges if edge.kind is not EdgeKind.RETURN]
with open(sys.argv[2], 'wb') as file:
    array('q', [number for edge in edges for number in (numbers[edge.producer], numbers[edge.consumer])]).tofile(file)
print(len(plan.nodes), len(edges))
"""
_NETWORKX = """
import sys
from array import array
import networkx
ends = array('q')
ends.frombytes(open(sys.argv[1], 'rb').read())
graph = networkx.DiGraph()
graph.add_nodes_from(range(int(sys.argv[2])))
graph.add_edges_from(zip(ends[::2], ends[1::2]))
order = list(networkx.topological_sort(graph))
"""
_IDLE = {
    _PARSE: "import orjson",
    _PROTOBUF: "from opentelemetry.proto.trace.v1.trace_pb2 import TracesData",
    _READ: "from genai_processor.spans.otlp import read_spans",
    _PLAN: "from genai_processor.replay import Planner\nfrom genai_processor.spans.otlp import read_spans",
    _NETWORKX: "import networkx",
}
"""What each takes before it begins, which is left out."""
_SMALL = 200_000
"""Up to so many spans the least of three runs counts, and protobuf is parsed, too."""


_START = 1_790_000_000_000_000_000
_INSTRUCTIONS = json.dumps([{"type": "text", "content": "You compare offers. Name the cheapest, and say why. " * 20}])
_DEFINITIONS = json.dumps(
    [
        {
            "type": "function",
            "name": f"{verb}_offers",
            "description": f"To {verb} the offers of all sellers that fit a query, cheapest first.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["query"],
            },
        }
        for verb in ("search", "compare", "rank", "reserve", "cancel")
    ]
)


class Used(NamedTuple):
    """What a child process used."""

    cpu: float
    peak: int
    said: str


_METER = """
import resource, sys
def report():
    if not reported:
        reported.append(True)
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
reported = []
"""


def used(code: str, *arguments: object) -> Used:
    """Run code in a process of its own; it may say itself by `report()` when it is done."""
    script = f"{_METER}\n{code}\nreport()"
    done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=True)
    cpu, peak = done.stderr.strip().splitlines()[-1].split()
    return Used(float(cpu), int(peak) * 1024, done.stdout.strip())


def least(code: str, *arguments: object, runs: int) -> Used:
    """The least CPU time of several runs, less what the process takes before it begins."""
    idle = min(used(_IDLE[code]).cpu for _ in range(3))
    best = min([used(code, *arguments) for _ in range(runs)], key=lambda one: one.cpu)
    return best._replace(cpu=best.cpu - idle)


def _attributes(**values: Any) -> list[dict[str, Any]]:
    return [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in values.items()]


def _span(trace: str, number: int, parent: int | None, name: str, **values: Any) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent is not None else "",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(_START),
        "endTimeUnixNano": str(_START + 1),
        "status": {},
        "attributes": _attributes(**values),
    }


def runs(spans: int, turns: int) -> Iterator[list[dict[str, Any]]]:
    """The spans of one run after another, about so many in all."""
    rng = random.Random(1)
    made = 0
    while made < spans:
        trace = f"{made + 1:032x}"
        run = list(_run(trace, turns, rng))
        made += len(run)
        yield run


def _run(trace: str, turns: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    number = 2
    history: list[dict[str, Any]] = [
        {"role": "user", "parts": [{"type": "text", "content": f"compare the offers of {rng.randrange(10**9)} and sum up"}]}
    ]
    for turn in range(turns):
        last = turn == turns - 1
        calls = [] if last else [f"call_{rng.getrandbits(64):016x}" for _ in range(1 + turn % 2)]
        parts: list[dict[str, Any]] = [
            {"type": "tool_call", "id": call, "name": "search_offers", "arguments": {"query": f"offer {call}", "limit": 5}}
            for call in calls
        ] or [{"type": "text", "content": "here is what I found in the offers that you asked for"}]
        said = {"role": "assistant", "parts": parts}
        yield _span(
            trace,
            number,
            1,
            "chat demo-model",
            gen_ai__operation__name="chat",
            gen_ai__request__model="demo-model",
            gen_ai__system_instructions=_INSTRUCTIONS,
            gen_ai__tool__definitions=_DEFINITIONS,
            gen_ai__input__messages=json.dumps(history),
            gen_ai__output__messages=json.dumps([{**said, "finish_reason": "stop" if last else "tool_calls"}]),
        )
        number += 1
        history.append(said)
        for call in calls:
            result = (
                f"three offers for {call}: the first at {rng.randrange(1000)}, the others later, see the list that follows"
            )
            yield _span(
                trace,
                number,
                1,
                "execute_tool search_offers",
                gen_ai__operation__name="execute_tool",
                gen_ai__tool__name="search_offers",
                gen_ai__tool__call__id=call,
                gen_ai__tool__call__arguments=json.dumps({"query": f"offer {call}", "limit": 5}),
                gen_ai__tool__call__result=result,
            )
            number += 1
            history.append({"role": "tool", "parts": [{"type": "tool_call_response", "id": call, "response": result}]})
    yield _span(trace, 1, None, "invoke_agent demo", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="demo")


def chain(length: int) -> Iterator[list[dict[str, Any]]]:
    """Agents inside of agents: each tool call's only content is another agent."""
    trace = f"{1:032x}"
    for at in range(length):
        span = _span(
            trace,
            2 + at,
            1 + at if at else None,
            "execute_tool step",
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name=f"step_{at}",
            gen_ai__tool__call__id=f"call_{at}",
            gen_ai__tool__call__arguments="{}",
            gen_ai__tool__call__result=f'"{at}"',
        )
        if at:
            span["links"] = [{"traceId": trace, "spanId": f"{1 + at:016x}"}]
        yield [span]


def fan_in(width: int) -> Iterator[list[dict[str, Any]]]:
    """So many calls in one turn, and one prompt that holds all of their results."""
    trace = f"{1:032x}"
    calls = [f"call_{at:08x}x" for at in range(width)]
    user = {"role": "user", "parts": [{"type": "text", "content": "all at once"}]}
    said = {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": call, "name": "search", "arguments": {"q": call}} for call in calls],
    }
    results = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": call, "response": call}]} for call in calls]
    names = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "demo-model"}
    yield [
        _span(
            trace,
            1,
            None,
            "chat",
            **names,
            gen_ai__input__messages=json.dumps([user]),
            gen_ai__output__messages=json.dumps([said]),
        )
    ]
    for at, call in enumerate(calls):
        yield [
            _span(
                trace,
                3 + at,
                None,
                "execute_tool search",
                gen_ai__operation__name="execute_tool",
                gen_ai__tool__name="search",
                gen_ai__tool__call__id=call,
                gen_ai__tool__call__arguments=json.dumps({"q": call}),
                gen_ai__tool__call__result=call,
            )
        ]
    yield [
        _span(
            trace,
            2,
            None,
            "chat",
            **names,
            gen_ai__input__messages=json.dumps([user, said, *results]),
            gen_ai__output__messages='[{"role": "assistant", "parts": [{"type": "text", "content": "done"}]}]',
        )
    ]


def write(path: Path, groups: Iterable[list[dict[str, Any]]]) -> int:
    """Write runs as OTLP/JSON lines; how many spans they are."""
    count = 0
    with path.open("wb") as out:
        for spans in groups:
            for span in spans:
                count += 1
                scope = [{"scope": {"name": "demo"}, "spans": [span]}]
                out.write(orjson.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": scope}]}) + b"\n")
    return count


def write_protobuf(json_path: Path, path: Path) -> None:
    """Write the same as length-prefixed protobuf."""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    with json_path.open("rb") as lines, path.open("wb") as out:
        for line in lines:
            document = TracesData()
            scope = document.resource_spans.add().scope_spans.add()
            scope.scope.name = "demo"
            for span in orjson.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]:
                made = scope.spans.add(name=span["name"], kind=span["kind"])
                made.trace_id, made.span_id = bytes.fromhex(span["traceId"]), bytes.fromhex(span["spanId"])
                made.parent_span_id = bytes.fromhex(span["parentSpanId"])
                made.start_time_unix_nano, made.end_time_unix_nano = _START, _START + 1
                for link in span.get("links", ()):
                    made.links.add(trace_id=bytes.fromhex(link["traceId"]), span_id=bytes.fromhex(link["spanId"]))
                for attribute in span["attributes"]:
                    made.attributes.add(key=attribute["key"]).value.string_value = attribute["value"]["stringValue"]
            content = document.SerializeToString()
            out.write(len(content).to_bytes(4, "big") + content)


_HEAD = ("", "spans", "MB", "orjson", "protobuf", "read", "plan", "on top", "µs/span", "B/span", "edges", "networkx")
_ROW = "{:>7} {:>9} {:>6} {:>7} {:>8} {:>7} {:>7} {:>7} {:>8} {:>7} {:>9} {:>9}"


def measure(name: str, path: Path, spans: int) -> None:
    """Print one row."""
    runs = 3 if spans <= _SMALL else 1
    bare, read = least(_PARSE, path, runs=runs), least(_READ, path, runs=runs)
    graph = path.with_suffix(".edges")
    plan = least(_PLAN, path, graph, runs=runs)
    nodes, edges = map(int, plan.said.split())
    protobuf = networkx = ""
    if runs > 1:
        packed = path.with_suffix(".pb")
        write_protobuf(path, packed)
        protobuf = f"{least(_PROTOBUF, packed, runs=runs).cpu:.2f}"
    if find_spec("networkx") is not None:
        networkx = f"{least(_NETWORKX, graph, nodes, runs=1).cpu:.2f}"
    row = (
        name,
        f"{spans:,}",
        f"{path.stat().st_size / 1e6:.0f}",
        f"{bare.cpu:.2f}",
        protobuf,
        f"{read.cpu:.2f}",
        f"{plan.cpu:.2f}",
        f"{(plan.cpu - bare.cpu) / bare.cpu:.2f}",
        f"{1e6 * plan.cpu / spans:.1f}",
        f"{(plan.peak - read.peak) / spans:.0f}",
        f"{edges:,}",
        networkx,
    )
    print(_ROW.format(*row), flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, nargs="*", default=[10_000, 100_000, 1_000_000], help="how many spans")
    parser.add_argument("--turns", type=int, default=20, help="turns of a run")
    parser.add_argument("--deep", type=int, default=100_000, help="length of the chain, width of the fan-in; 0: neither")
    options = parser.parse_args()
    print("Seconds of CPU, each in a process of its own, less what it takes to start.")
    print(
        "on top: (plan - orjson) / orjson; B/span: what planning holds beyond reading; networkx: the same graph, sorted.\n"
    )
    print(_ROW.format(*_HEAD), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.jsonl"
        for spans in options.spans:
            measure("runs", path, write(path, runs(spans, options.turns)))
        if options.deep:
            measure("chain", path, write(path, chain(options.deep)))
            measure("fan-in", path, write(path, fan_in(options.deep)))


if __name__ == "__main__":
    main()
