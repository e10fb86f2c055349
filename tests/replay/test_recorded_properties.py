# SPDX-License-Identifier: Apache-2.0
"""The properties of plans and replays on what real frameworks recorded: every dialect of tests/data, content on and off."""

from __future__ import annotations

import asyncio
import collections
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.losses import lose, poorer
from support.random_runs import CONTRADICTIONS, SAYS_WHAT_IS_MISSING
from support.runs import told

from genai_processor.replay import Choice, Declared, NodeRun, Plan, Planner, ReplayBoundary, areplay, plan, replay, resume
from genai_processor.replay.results import Done
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.records import Span

DATA = Path(__file__).parent.parent / "data"
FOLDERS = sorted({path.parent for path in DATA.glob("*/*/*.jsonl")})
RANK = {Choice.REFUSE: 0, Choice.INJECT: 1, Choice.RECOMPUTE: 2}
ALL = Declared(deterministic=("*",), recompute=("*",))
TOOLS = Declared(deterministic=("*",))
LOSSES = 6
"""How often each recording loses something."""
INPUTS = ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages", "input.value", "events", "traceloop.entity.input")
"""Where dialects record what went in; also as the beginning of indexed attributes."""

by_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}/{path.name}")


def recorded(path: Path) -> list[Span]:
    return list(read_spans(path, on_error=lambda error: pytest.fail(str(error))))


def recordings(folder: Path) -> Iterator[tuple[str, list[Span]]]:
    for path in sorted(folder.glob("*.jsonl")):
        yield path.stem, recorded(path)


def _own_choice(found: Plan, one: Span) -> Choice | None:
    node = found.node_of(one.span_id, one.trace_id)
    return found.decisions[node.key].choice if node is not None else None


def _poorer(one: Span, keys: set[str]) -> Span:
    return one._replace(attributes={key: value for key, value in one.attributes.items() if key not in keys})


def _never_raised(spans: list[Span], at: int, less: Span, before: Plan, what: str, declared: Declared = ALL) -> None:
    after = plan([*spans[:at], less, *spans[at + 1 :]], declared=declared)
    was, is_now = _own_choice(before, less), _own_choice(after, less)
    if was is not None and is_now is not None:
        assert RANK[is_now] <= RANK[was], f"without {what} of {less.name} ({less.span_id}): {was} became {is_now}"


@by_folder
def test_removing_any_value_of_a_recorded_node_never_raises_its_decision(folder: Path) -> None:
    """Each attribute of each kind of span: of attributes that are alike, on spans that are alike, two are enough."""
    looked_at: collections.Counter[tuple[str, str]] = collections.Counter()
    for name, spans in recordings(folder):
        before = plan(spans, declared=ALL)
        for at, one in enumerate(spans):
            for key in one.attributes:
                kind = (one.name, re.sub(r"\d+", "#", key))
                looked_at[kind] += 1
                if looked_at[kind] <= 2 and key not in SAYS_WHAT_IS_MISSING:
                    _never_raised(spans, at, _poorer(one, {key}), before, f"{name}: {key}")


@by_folder
def test_nor_does_it_where_spans_and_other_values_are_lost_too(folder: Path) -> None:
    """Not all that may be lost together can be tried: some of it, by a seed."""
    for name, spans in recordings(folder):
        for seed in range(LOSSES):
            rng = random.Random(f"{name} {seed}")
            left = lose(spans, rng)
            declared = rng.choice([ALL, Declared(), TOOLS])
            before = plan(left, declared=declared)
            for at in rng.sample(range(len(left)), min(3, len(left))):
                less = poorer(left[at], rng)
                node = before.node_of(left[at].span_id, left[at].trace_id)
                if less is not None and node is not None and CONTRADICTIONS.isdisjoint(before.decisions[node.key].reasons):
                    _never_raised(left, at, less, before, f"{name}, {seed}: a value", declared)


@by_folder
def test_a_recorded_order_never_lowers_a_decision(folder: Path) -> None:
    """That is, without it no decision is higher."""
    for name, spans in recordings(folder):
        before = plan(spans, declared=ALL)
        for at, one in enumerate(spans):
            for start in INPUTS:
                keys = {key for key in one.attributes if key == start or key.startswith(f"{start}.")}
                if keys:
                    _never_raised(spans, at, _poorer(one, keys), before, f"{name}: {start}")
            if one.events:
                _never_raised(spans, at, one._replace(events=()), before, f"{name}: events")


@by_folder
def test_clocks_and_copies_and_the_order_of_recorded_spans_change_nothing(folder: Path) -> None:
    for name, spans in recordings(folder):
        rng = random.Random(name)
        again = [*spans, *rng.sample(spans, len(spans) // 2)]
        rng.shuffle(again)
        again = [one._replace(start_ns=rng.choice([None, rng.randrange(10**9)]), end_ns=None) for one in again]
        first = [one._replace(end_ns=None, start_ns=None) for one in spans]
        assert told(plan(again, declared=ALL)) == told(plan(first, declared=ALL)) == told(plan(spans, declared=ALL))


def _documents(path: Path) -> Iterator[bytes]:
    """The spans of a file, each as a line of its own."""
    for line in path.read_text(encoding="utf-8").splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    yield json.dumps({"resourceSpans": [{**resource, "scopeSpans": [{**scope, "spans": [span]}]}]}).encode()


@by_folder
def test_the_files_that_recorded_spans_are_in_change_nothing(folder: Path, tmp_path: Path) -> None:
    for path in sorted(folder.glob("*.jsonl")):
        rng = random.Random(path.stem)
        files: list[list[bytes]] = [[], [], []]
        for line in _documents(path):
            for file in rng.sample(files, rng.choice([1, 1, 2])):
                file.insert(rng.randint(0, len(file)), line)
        planner = Planner(ALL)
        for number, file in enumerate([*files, files[0]]):
            part = tmp_path / f"{number}.jsonl"
            part.write_bytes(b"\n".join(file))
            planner.add_all(recorded(part))
        assert told(planner.plan()) == told(plan(recorded(path), declared=ALL))


def _as_recorded(run: NodeRun) -> Any:
    return run.node.outcome


async def _later_as_recorded(run: NodeRun) -> Any:
    await asyncio.sleep(0)
    return run.node.outcome


@by_folder
def test_a_recording_against_itself_never_diverges(folder: Path) -> None:
    for _, spans in recordings(folder):
        for declared in (Declared(), ALL):
            found = plan(spans, declared=declared)
            for unverified in (False, True):
                results = [replay(found, function, allow_unverified=unverified) for function in (None, _as_recorded)]
                results.append(asyncio.run(areplay(found, _later_as_recorded, allow_unverified=unverified)))
                assert results[1].nodes == results[2].nodes
                for result in results:
                    assert set(result.nodes) == {node.key for node in found.nodes}
                    for key, outcome in result.outcomes.items():
                        assert outcome.digest == found.node(key).outcome.digest


def _depends_on(found: Plan, key: str) -> set[str]:
    """A node and all that it depends on."""
    known, todo = set[str](), [key]
    while todo:
        if (at := todo.pop()) not in known:
            known.add(at)
            todo += [edge.producer for edge in (*found.decisions[at].edges, *found.edges_into(at))]
    return known


@by_folder
def test_resuming_from_any_node_comes_to_the_same_as_the_whole_replay(folder: Path) -> None:
    for name, spans in recordings(folder):
        made = plan(spans, declared=ALL)
        whole = replay(made, _as_recorded, workers=1)
        for node in made.nodes:
            within = {key: whole.outcomes[key] for key in _depends_on(made, node.key) if key in whole.outcomes}
            again = resume(ReplayBoundary(made, within), _as_recorded, workers=1)
            assert again.outcomes == whole.outcomes, f"{name} from {node.key}"
            assert {key for key, done in again.nodes.items() if done is Done.RESUMED} == set(within)
