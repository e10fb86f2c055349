# SPDX-License-Identifier: Apache-2.0
"""Recorded runs of any shape, for properties that must hold of all of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from genai_processor.replay import Reason
from genai_processor.spans.records import Link, Span
from support.runs import Message, ask, calls, result, says, user
from support.spans import WITHOUT_IDS, agent, span, tool

IDS = ("call_", "xk29lmq")
"""How call ids begin. In one agent each is given once, unless they are used again; every agent gives the same."""
NAMES = [{"gen_ai.agent.name": "a"}, {"gen_ai.agent.name": "b"}, {}]
CONVERSATION = {"gen_ai.conversation.id": "conv-7"}
SAYS_WHAT_IS_MISSING = (
    "gen_ai.request.previous_response.id",
    "gen_ai.conversation.compacted",
    "gen_ai.conversation.id",
    "session.id",
    "llm.invocation_parameters",
)
"""Marks that something is missing, or that other spans have it. Without them nobody can know, so these are not values that a
recording could lose."""

CONTRADICTIONS = frozenset({Reason.CYCLE, Reason.CONFLICTING_COPIES})
"""Refusals for what a record says, not for what it lacks: with less of it, it may contradict itself no longer."""


@st.composite
def runs(draw: st.DrawFn, ids_again: bool = False, without_ids: bool = False) -> list[Span]:
    """The spans of one run or of two of one conversation.

    They have turns of one to three calls, sub-agents, retrievals, failures, windows, summaries and deltas, and attributes
    that are lost or doubled.

    Args:
        draw: Draws them.
        ids_again: Every turn of an agent gives its calls the same few ids.
        without_ids: Tools' spans are of an instrumentation that writes none.
    """
    spans: list[Span] = []
    numbers = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2, unique=True))
    named = len(numbers) > 1 or draw(st.booleans())
    history: list[Message] = []
    for number in numbers:
        _grow(draw, f"{number:032x}", None, spans, 0, history, named, ids_again)
    if draw(st.booleans()):
        spans[draw(st.integers(0, len(spans) - 1))] = _without(draw, spans[draw(st.integers(0, len(spans) - 1))])
    if without_ids:
        spans = [_without_id(one) for one in spans]
    return [one for at, one in enumerate(spans) if one.span_id not in {other.span_id for other in spans[:at]}]


def _without_id(one: Span) -> Span:
    if one.attributes.get("gen_ai.operation.name") != "execute_tool":
        return one
    kept = {name: value for name, value in one.attributes.items() if name != "gen_ai.tool.call.id"}
    return one._replace(scope=WITHOUT_IDS, attributes=kept)


def _without(draw: st.DrawFn, one: Span) -> Span:
    key = draw(st.sampled_from(sorted(one.attributes)))
    return one._replace(attributes={name: value for name, value in one.attributes.items() if name != key})


def _grow(
    draw: st.DrawFn,
    trace: str,
    parent: Span | None,
    spans: list[Span],
    depth: int,
    history: list[Message],
    named: bool,
    ids_again: bool,
) -> str:
    """Add an agent's run, which goes on from a history; what it answered."""
    around = agent(parent=parent, trace=trace, attributes=draw(st.sampled_from(NAMES)))
    spans.append(around)
    more: dict[str, Any] = {"parent": around, "trace": trace, "attributes": CONVERSATION if named else {}}
    new: list[Message] = [user(draw(st.sampled_from(["hi", "ok", "search"])))]
    if draw(st.integers(0, 4)) == 0:
        text = draw(st.sampled_from(["the fee is 3 %", "no fee"]))
        found = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": json.dumps([{"content": text}])}
        spans.append(span("retrieval", attributes=found, parent=around, trace=trace))
        new.insert(0, user(text))
    history.extend(new)
    for _ in range(draw(st.integers(0, 2))):
        turn = 0 if ids_again else len(history)
        ids = [f"{draw(st.sampled_from(IDS))}{turn}{at}" for at in range(draw(st.integers(1, 3)))]
        wanted = [(one, draw(st.sampled_from(["search", "refund"])), {"q": draw(st.integers(1, 2))}) for one in ids]
        spans.append(ask(_sent(draw, history, new), calls(*wanted), **more))
        new = []
        for call_id, name, arguments in wanted:
            value = draw(st.sampled_from(["ok", "true", "r1"]))
            options: dict[str, Any] = {"parent": around, "trace": trace, "args": json.dumps(arguments)}
            options["id"] = call_id if draw(st.booleans()) else None
            if draw(st.integers(0, 4)) == 0:
                options["error"] = "ValueError"
            elif draw(st.integers(0, 4)):
                options["result"] = value
            ran = tool(name, **options)
            spans.append(ran)
            if depth < 1 and draw(st.integers(0, 3)) == 0:
                value = _grow(draw, trace, ran, spans, depth + 1, [], named, ids_again)
            new.append(result(call_id, value))
        history.append(calls(*wanted))
        new = draw(st.permutations(new))
        history.extend(new)
    answer = draw(st.sampled_from(["ok", "true", "done"]))
    if draw(st.integers(0, 5)) == 0:
        more["links"] = [Link(trace, draw(st.sampled_from(spans)).span_id, {})]
    spans.append(ask(_sent(draw, history, new), says(answer), **more))
    history.append(says(answer))
    return answer


def _sent(draw: st.DrawFn, history: list[Message], new: list[Message]) -> list[Message]:
    """What is sent of a history: mostly all of it."""
    how = draw(st.sampled_from(["whole"] * 6 + ["delta", "window", "summary", "edited"]))
    if how == "delta":
        return list(new)
    if how == "window":
        return history[draw(st.integers(0, len(history) - 1)) :]
    if how == "summary":
        return [user("in short"), *history[draw(st.integers(0, len(history) - 1)) :]]
    if how == "edited":
        return [user("as I said") if draw(st.integers(0, 3)) == 0 else one for one in history]
    return list(history)
