# SPDX-License-Identifier: Apache-2.0
"""What planning a replay costs beside merely parsing the same file, and how that grows.

    python -m benchmarks.replay [--spans N ...] [--turns N]

Made-up runs of agents: each has so many turns, and each turn repeats the whole conversation, as the requests of agents do;
results are a few hundred characters long, and each inference has the instructions and the tools that it was given.
The last rows are a chain and a fan-in of 100,000. Each measurement is a process of its own. Where networkx is installed, it
builds the same graph, for comparison.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

_PARSE = "import sys, orjson\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)"
_READ = """
import gc, sys
gc.freeze(); gc.disable()
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
print(len(plan.nodes), sum(len(decision.edges) for decision in plan.decisions.values()))
"""
_NETWORKX = """
import sys
import networkx
nodes, edges = map(int, sys.argv[2].split(','))
graph = networkx.DiGraph()
graph.add_nodes_from(range(nodes))
graph.add_edges_from(((at * 7919) % (1 + at % nodes), 1 + at % nodes) for at in range(edges))
list(networkx.topological_generations(networkx.DiGraph((a, b) for a, b in graph.edges if a < b)))
"""


_TERMS = "delivery within five working days, returns for thirty days, payment on receipt of the invoice; ask for the rest"
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


def used(code: str, *arguments: str) -> Used:
    """Run code in a process of its own."""
    script = (
        "import resource\n"
        + code
        + (
            "\nused = resource.getrusage(resource.RUSAGE_SELF)"
            "\nprint(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)"
        )
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    cpu, peak = done.stderr.strip().splitlines()[-1].split()
    return Used(float(cpu), int(peak) * 1024, done.stdout.strip())


def _attributes(**values: Any) -> list[dict[str, Any]]:
    return [{"key": key.replace("__", "."), "value": {"stringValue": value}} for key, value in values.items()]


def _span(trace: str, number: int, parent: int | None, name: str, **values: Any) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent is not None else "",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000000000000001",
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
    with path.open("w") as out:
        for spans in groups:
            for span in spans:
                count += 1
                scope = [{"scope": {"name": "demo"}, "spans": [span]}]
                out.write(json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": scope}]}) + "\n")
    return count


def measure(name: str, path: Path, spans: int) -> None:
    """Print one row."""
    bare, read, plan = used(_PARSE, str(path)), used(_READ, str(path)), used(_PLAN, str(path))
    nodes, edges = map(int, plan.said.split())
    per_span = (plan.peak - read.peak) / spans
    print(
        f"{name:>12} {spans:>9,} {path.stat().st_size / 1e6:>8.0f} {bare.cpu:>8.2f} {read.cpu:>8.2f} {plan.cpu:>8.2f} "
        f"{(plan.cpu - bare.cpu) / bare.cpu:>8.2f} {1e6 * plan.cpu / spans:>8.1f} {per_span:>8.0f} {edges:>10,}"
    )
    try:
        graph = used(_NETWORKX, str(path), f"{nodes},{edges}")
    except subprocess.CalledProcessError:
        return
    print(f"{'networkx':>12} {'':>9} {'':>8} {'':>8} {'':>8} {graph.cpu:>8.2f}   the same number of nodes and edges, sorted")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, nargs="*", default=[10_000, 50_000], help="how many spans")
    parser.add_argument("--turns", type=int, default=20, help="turns of a run")
    parser.add_argument("--deep", type=int, default=100_000, help="how long the chain is, and how wide the fan-in")
    options = parser.parse_args()
    print("planning a replay; times in seconds of CPU, each in a process of its own, start-up included")
    head = ("", "spans", "MB", "orjson", "read", "plan", "on top", "µs/span", "B/span", "edges")
    print("{:>12} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}".format(*head))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.jsonl"
        for spans in options.spans:
            measure("runs", path, write(path, runs(spans, options.turns)))
        if options.deep:
            measure("chain", path, write(path, chain(options.deep)))
            measure("fan-in", path, write(path, fan_in(options.deep)))


if __name__ == "__main__":
    main()
