# SPDX-License-Identifier: Apache-2.0
"""Recorded traces, replayed through the SDK into a witness: it may be stricter than a scan of them, and is never laxer.

Where it is, it had to be: the scan read what came later, or from elsewhere. Each such call is listed with that.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.replay import Replay, interleaved, remote_parents, steps
from support.spans import Read

from genai_processor.retry.assessed import AssessedCall
from genai_processor.retry.policy import Policy
from genai_processor.retry.verdict import Verdict
from genai_processor.spans.live import from_readable
from genai_processor.spans.otlp import read_spans
from genai_processor.spans.records import Span

DATA = Path(__file__).parents[1] / "data"
POLICIES = {
    "read_only": Policy(read_only=("search_docs", "get_rate")),
    "idempotent": Policy(idempotent=("*",)),
}

LATER = "an enclosing span failed and nothing else in it did"
"""What stands around a call fails after the call has come back."""
GONE = "ended after its parent"
"""Nobody waited for the call any more: what stood around it had ended before it came back."""
UNSEEN_BEGINNING = {"langchain__langsmith/s09b_timeout_thread_commits_later": (GONE,)}
"""A span that says only at its end that it shows a call is not watched from its beginning."""

KNOWN = {
    "vercel-ai6__native/s09b_abort_tool_commits_later": (LATER,),
    "vercel-ai7__native/s09b_abort_tool_commits_later": (LATER,),
}
"""Where what is stamped is laxer than what a scan says, and the scan's evidence."""


class Recording(NamedTuple):
    """One recorded run."""

    name: str
    spans: list[Span]
    remote: set[str]
    calls: list[Mapping[str, Any]]


@cache
def recordings() -> dict[str, Recording]:
    found = {}
    for truth in sorted(DATA.glob("*/*/truth.json")):
        for entry in json.loads(truth.read_text(encoding="utf-8")):
            path = truth.parent / entry["file"]
            name = f"{truth.parent.name}/{entry['scenario']}"
            spans = list(read_spans(path, on_error=pytest.fail))
            found[name] = Recording(name, spans, remote_parents(path), entry["tool_calls"])
    return found


@cache
def scanned(name: str, policy: str) -> list[AssessedCall]:
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in recordings()[name].spans:
        traces[span.trace_id].append(span)
    return [row.call for row in Read(*traces.values(), policy=POLICIES[policy], length_limit=0).rows]


@cache
def replayed(name: str, policy: str, early: bool = True) -> Replay:
    recording = recordings()[name]
    return Replay(steps(recording.spans), policy=POLICIES[policy], remote=recording.remote, early=early)


def laxness(verdict: Verdict) -> int:
    """How much a verdict allows: nothing, to go on, or to try again."""
    return 0 if verdict.quarantined else 2 if verdict.retryable else 1


def test_what_is_replayed_is_what_was_recorded() -> None:
    def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}

    def shape(span: Span) -> Span:
        return span._replace(
            attributes=plain(span.attributes),
            events=tuple((event.name, plain(event.attributes)) for event in span.events),
            links=tuple((link.span_id, plain(link.attributes)) for link in span.links),
            resource=None,
        )

    for name, recording in recordings().items():
        ended = {span.span_id: span for span in recording.spans if span.end_ns is not None}
        assert len(ended) == len(replayed(name, "read_only").ended), name
        for made in map(from_readable, replayed(name, "read_only").ended):
            assert shape(made) == shape(ended[made.span_id]), name


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("early", [True, False], ids=["attributes from the start", "attributes at the end"])
def test_what_is_stamped_is_never_laxer_than_what_a_scan_says(policy: str, early: bool) -> None:
    laxer: dict[str, tuple[str, ...]] = {}
    for name in recordings():
        stamped = replayed(name, policy, early).stamped
        for call in scanned(name, policy):
            if call.node.span.end_ns is None:
                continue
            live = stamped[call.node.span.span_id].verdict
            if laxness(live) > laxness(call.verdict):
                assert (live.verdict, live.reason) == ("no_retry_needed", "succeeded"), (name, live)
                laxer[name] = call.verdict.evidence
    known = KNOWN if early else KNOWN | UNSEEN_BEGINNING
    assert {name: known.get(name) for name in laxer} == laxer
    if policy == "read_only":
        assert laxer.keys() == known.keys(), "a case that is no longer one"


@pytest.mark.parametrize("early", [True, False], ids=["attributes from the start", "attributes at the end"])
def test_no_call_whose_effect_landed_may_be_tried_again(early: bool) -> None:
    found = []
    for name, recording in recordings().items():
        stamped = replayed(name, "read_only", early).stamped
        rows: dict[str | None, list[Verdict]] = defaultdict(list)
        for call in sorted(scanned(name, "read_only"), key=lambda call: call.node.span.start_ns or 0):
            if call.node.span.span_id in stamped:
                rows[call.verdict.tool].append(stamped[call.node.span.span_id].verdict)
        for truth in recording.calls:
            if rows[truth["tool"]]:
                verdict = rows[truth["tool"]].pop(0)
                if truth["side_effect_committed"] and verdict.retryable:
                    found.append((name, truth["outcome"], verdict))
    assert found == []


def assert_no_laxer(replay: Replay, names: Iterable[str], policy: str) -> None:
    """Every verdict is at most as lax as in the recorded order."""
    for name in names:
        for span_id, before in replayed(name, policy).stamped.items():
            now = replay.stamped[span_id].verdict
            if GONE in before.verdict.evidence:
                continue  # which it is not, if the parent's own end comes late
            assert laxness(now) <= laxness(before.verdict), (name, before.verdict, now)


def eventful() -> list[str]:
    """Recordings with an order that can be changed."""
    return [name for name, recording in recordings().items() if len(recording.spans) > 2]


names = st.deferred(lambda: st.sampled_from(eventful()))
seeds = st.integers(0, 2**32)
policies = st.sampled_from(list(POLICIES))


@settings(max_examples=200, deadline=None)
@given(names, names, seeds, policies)
def test_another_run_at_the_same_time_makes_none_laxer(one: str, two: str, seed: int, policy: str) -> None:
    assume(one != two)
    first, second = recordings()[one], recordings()[two]
    assume(not {span.span_id for span in first.spans} & {span.span_id for span in second.spans})
    played = interleaved(steps(first.spans), steps(second.spans), random.Random(seed))
    replay = Replay(played, policy=POLICIES[policy], remote=first.remote | second.remote)
    assert_no_laxer(replay, (one, two), policy)


@settings(max_examples=200, deadline=None)
@given(names, seeds, policies)
def test_ends_that_come_late_make_none_laxer(name: str, seed: int, policy: str) -> None:
    recording = recordings()[name]
    played = steps(recording.spans, random.Random(seed))
    replay = Replay(played, policy=POLICIES[policy], remote=recording.remote)
    assert_no_laxer(replay, (name,), policy)
