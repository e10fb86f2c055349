# SPDX-License-Identifier: Apache-2.0
"""The incident of replays that end well and answer something else, rebuilt.

    python -m benchmarks.replay_incident [--replays N] [--seed N]

A planner proposes three retrievals, which run side by side; their results are put into the synthesis' prompt in the order
in which they came back; the synthesis reads that prompt by position. Between record and replay the index is compacted with a
chance of 1 in 11: the third retrieval then ranks its chunks otherwise, and the three come back in another order. Each way
to replay gets the same draws. Exits with 1 if the product lets one divergence through, finds one at another node, or raises
a false alarm.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, NamedTuple

from genai_processor.errors import ReplayDivergence
from genai_processor.replay import Declared, Node, NodeRun, Outcome, Part, Plan, plan, replay
from genai_processor.replay.asked import Recompute
from genai_processor.spans.otlp_json import JsonSpans
from genai_processor.spans.records import Span

TRACE = "5a" * 16
PLANNER, SYNTHESIS = f"{TRACE}:{'01' * 8}", f"{TRACE}:{'0f' * 8}"
RETRIEVALS = tuple(f"{TRACE}:{n + 2:02x}" + f"{n + 2:02x}" * 7 for n in range(3))
QUESTION = "How do the three regions compare?"
QUERIES = ("north", "middle", "south")
ANSWERS = 8


class World(NamedTuple):
    """What one replay meets.

    Attributes:
        compacted: The index has been compacted since the record was made.
        starts: The retrievals in the order in which their recorded spans started, as the clocks have it.
        completed: The retrievals in the order in which they come back now.
        ranks: The third retrieval's chunks as they rank now.
    """

    compacted: bool
    starts: tuple[int, ...]
    completed: tuple[int, ...] = (0, 1, 2)
    ranks: tuple[int, ...] = (0, 1, 2, 3)

    def search(self, query: str) -> str:
        """Ask the live index."""
        return json.dumps([f"{query} chunk {rank}" for rank in (self.ranks if query == QUERIES[2] else (0, 1, 2, 3))])


class Came(NamedTuple):
    """What came of one replay.

    Attributes:
        prompt: What the synthesis was given, in order; None if nothing was.
        answer: What the run answered; None if it was stopped.
        alarm: Where the replay says that it diverged.
    """

    prompt: tuple[str, ...] | None
    answer: str | None
    alarm: tuple[str | None, str] | None = None


def synthesize(prompt: Sequence[str]) -> str:
    """A model that reads by position; on some permutations it says the same all the same."""
    read = hashlib.sha256(json.dumps(prompt).encode()).digest()
    return f"plan {read[0] % ANSWERS}"


# -- the record ----------------------------------------------------------------------------------------------------------


def recorded() -> tuple[list[Span], tuple[str, ...]]:
    """The recorded run's spans, and the results in the order in which its synthesis got them."""
    before = World(False, (0, 1, 2))
    results = [before.search(query) for query in QUERIES]
    calls = [
        {"type": "tool_call", "id": f"call_{n}", "name": "search", "arguments": {"query": query}}
        for n, query in enumerate(QUERIES)
    ]
    answers = [{"type": "tool_call_response", "id": f"call_{n}", "response": results[n]} for n in before.completed]
    question, proposals = _message("user", {"type": "text", "content": QUESTION}), _message("assistant", *calls)
    answer = _message("assistant", {"type": "text", "content": synthesize([results[n] for n in before.completed])})
    spans = [_span("0e" * 8, None, "invoke_agent", {})]
    spans.append(_chat(PLANNER, [question], proposals))
    for key, call, result in zip(RETRIEVALS, calls, results, strict=True):
        said = {"name": "search", "call.id": call["id"], "call.arguments": call["arguments"], "call.result": result}
        spans.append(
            _span(key[-16:], "0e" * 8, "execute_tool", {f"gen_ai.tool.{name}": value for name, value in said.items()})
        )
    spans.append(_chat(SYNTHESIS, [question, proposals, _message("tool", *answers)], answer))
    document = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "agent"}, "spans": spans}]}]}
    return JsonSpans(sys.exit).read(document), tuple(results[n] for n in before.completed)


def _message(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": parts}


def _chat(key: str, given: list[Any], made: Any) -> dict[str, Any]:
    return _span(key[-16:], "0e" * 8, "chat", {"gen_ai.input.messages": given, "gen_ai.output.messages": [made]})


def _span(span_id: str, parent: str | None, operation: str, said: dict[str, Any]) -> dict[str, Any]:
    values = {"gen_ai.operation.name": operation, **said}
    attributes = [
        {"key": key, "value": {"stringValue": value if isinstance(value, str) else json.dumps(value)}}
        for key, value in values.items()
    ]
    ids = {"traceId": TRACE, "spanId": span_id, **({"parentSpanId": parent} if parent else {})}
    return {**ids, "name": operation, "startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": attributes}


SPANS, PROMPT = recorded()
PLAN = plan(SPANS)
WRONGLY = plan(SPANS, declared=Declared(deterministic=("search",)))
"""The same with the retrievals declared read-only and deterministic, which they are not."""
ANSWER = synthesize(PROMPT)


# -- ways to replay that compare nothing, or the wrong thing ----------------------------------------------------------------


def tree_walk(world: World) -> Came:
    """Run it all again, children of a span in the order in which they come back."""
    prompt = tuple(world.search(QUERIES[n]) for n in world.completed)
    return Came(prompt, synthesize(prompt))


def by_start(world: World) -> Came:
    """Run it all again, results in the order in which the recorded spans started."""
    prompt = tuple(world.search(QUERIES[n]) for n in world.starts)
    return Came(prompt, synthesize(prompt))


def by_start_recorded(world: World) -> Came:
    """Results from the record, in the order in which the recorded spans started."""
    prompt = tuple(_result(RETRIEVALS[n]) for n in world.starts)
    return Came(prompt, synthesize(prompt))


def first_in_first_out(world: World) -> Came:
    """Recorded answers handed out in their recorded order to calls as they arrive; the prompt is in the calls' order."""
    handed = dict(zip(world.completed, PROMPT, strict=True))
    prompt = tuple(handed[n] for n in range(3))
    return Came(prompt, synthesize(prompt))


def outputs_only(world: World) -> Came:
    """Everything injected and every output compared, in an application that orders the list as results come back."""
    prompt = tuple(_result(RETRIEVALS[n]) for n in world.completed)
    outputs = [(_outcome(key).digest, _outcome(key).digest) for key in (PLANNER, *RETRIEVALS, SYNTHESIS)]
    alarm = None if all(one == other for one, other in outputs) else (None, "output")
    return Came(prompt, ANSWER, alarm)


def raw_ids(world: World) -> Came:
    """Outputs compared with their call ids as they are, which a planner mints anew."""
    minted = [f"call_{random.getrandbits(64):x}" for _ in QUERIES]
    return Came(None, None, (PLANNER, "output")) if minted != [f"call_{n}" for n in range(3)] else Came(PROMPT, ANSWER)


def _outcome(key: str) -> Outcome:
    return PLAN.node(key).outcome


def _result(key: str) -> str:
    return str(_outcome(key).parts[0].value)


# -- the product -----------------------------------------------------------------------------------------------------------


def hermetic(world: World) -> Came:
    """The plan as it is: all of it from the record."""
    return _replayed(PLAN, runs=False)


def on_recorded_input(world: World) -> Came:
    """Retrieval from the record; the synthesis runs on its recorded prompt."""
    return _replayed(PLAN)


def declared_deterministic(world: World) -> Came:
    """Retrieval is wrongly declared deterministic, and so runs on the live index, its three calls side by side."""
    return _replayed(WRONGLY, search=lambda run: world.search(run.arguments["query"]))


def live_order(world: World) -> Came:
    """Results come from the record, but the application orders the list as they come back."""
    return _replayed(PLAN, world=world)


def live_order_injected(world: World) -> Came:
    """The same, and the synthesis is not even run."""
    return _replayed(PLAN, world=world, runs=False)


def _replayed(how: Plan, *, search: Recompute | None = None, world: World | None = None, runs: bool = True) -> Came:
    """Replay a plan, and see what its synthesis is given.

    Args:
        how: The plan.
        search: Runs in place of the retrievals.
        world: The application orders the synthesis' list as results come back here.
        runs: The synthesis is run; else its recorded output is taken.
    """
    given: list[tuple[str, ...]] = []

    def read(run: NodeRun) -> str:
        given.append(tuple(str(part.value) for part in run.parts[4:]))
        return synthesize(given[-1])

    def arrange(node: Node, parts: tuple[Part, ...]) -> list[Part]:
        results = {part.position: part for part in parts[4:]}
        return [*parts[:4], *(results[n] for n in world.completed)] if world is not None else list(parts)

    functions: dict[str, Recompute] = {} if search is None else {"search": search}
    if runs:
        functions[SYNTHESIS] = read
    try:
        result = replay(how, functions, arrange=None if world is None else {SYNTHESIS: arrange})
    except ReplayDivergence as error:
        return Came(given[0] if given else None, None, (error.node, error.where))
    if not given:  # it was not run: what it would have been given
        given.append(tuple(_result(RETRIEVALS[n]) for n in (world.completed if world is not None else (0, 1, 2))))
    return Came(given[0], str(result.outcomes[SYNTHESIS].parts[0].value))


class Row(NamedTuple):
    """A way to replay.

    Attributes:
        name: What it is called in the table.
        run: Replays once.
        expected: Of the product: where it has to find the divergence of a compacted index; None if nothing diverges.
        product: It is one of the product's.
    """

    name: str
    run: Callable[[World], Came]
    expected: tuple[str, str] | None = None
    product: bool = False


ROWS = (
    Row("naive tree walk, live index", tree_walk),
    Row("start-time order, live index", by_start),
    Row("start-time order, results from the record", by_start_recorded),
    Row("first in, first out answers", first_in_first_out),
    Row("output digests only, list ordered live", outputs_only),
    Row("product: all from the record", hermetic, product=True),
    Row("product: synthesis on its recorded input", on_recorded_input, product=True),
    Row("product: retrieval wrongly deterministic", declared_deterministic, (RETRIEVALS[2], "output"), True),
    Row("product: list ordered live, synthesis run", live_order, (SYNTHESIS, "input"), True),
    Row("product: list ordered live, synthesis injected", live_order_injected, (SYNTHESIS, "input"), True),
    Row("digests over raw call ids, planner run anew", raw_ids),
)


def draw(rng: random.Random) -> World:
    """What one replay meets, at random."""
    starts = tuple(rng.sample(range(3), 3))
    if rng.random() >= 1 / 11:
        return World(False, starts)
    completed = rng.choice([order for order in permutations(range(3)) if order != (0, 1, 2)])
    return World(True, starts, completed, rng.choice([ranks for ranks in permutations(range(4)) if ranks != (0, 1, 2, 3)]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replays", type=int, default=11_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    worlds = [draw(rng) for _ in range(options.replays)]
    drawn = sum(world.compacted for world in worlds)
    print(f"{options.replays:,} replays of one recorded run; the index was compacted in {drawn:,}\n")
    print(f"{'':46}  unnoticed  same answer   noticed    at its   false   seconds")
    print(f"{'':46}             all the same             node    alarms")
    wrong = [row.name for row in ROWS if not report(row, worlds)]
    if wrong:
        sys.exit(f"The product did not do what it has to: {', '.join(wrong)}")


def report(row: Row, worlds: list[World]) -> bool:
    """Replay in every world, and print a line; returns whether that is what the product has to do."""
    begin = time.perf_counter()
    count: Counter[str] = Counter()
    for world in worlds:
        came = row.run(world)
        other = came.prompt is not None and (came.prompt != PROMPT or came.answer != ANSWER)
        count["unnoticed"] += other and came.alarm is None
        count["same"] += other and came.alarm is None and came.answer == ANSWER
        count["noticed"] += came.alarm is not None
        count["located"] += came.alarm is not None and came.alarm == row.expected and world.compacted
        count["false"] += came.alarm is not None and not world.compacted
    took = time.perf_counter() - begin
    print(
        f"{row.name:46} {count['unnoticed']:10,} {count['same']:12,} {count['noticed']:9,} {count['located']:9,}"
        f" {count['false']:7,} {took:9.1f}",
        flush=True,
    )
    due = sum(world.compacted for world in worlds) if row.expected is not None else 0
    right = not count["unnoticed"] and not count["false"] and count["noticed"] == count["located"] == due
    return right or not row.product


if __name__ == "__main__":
    main()
