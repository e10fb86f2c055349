# SPDX-License-Identifier: Apache-2.0
"""Recordings that have lost something: spans, values, whole lists, events, and what a value holds inside."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from genai_processor.spans.records import Span
from support.random_runs import SAYS_WHAT_IS_MISSING

_INSIDE = frozenset({"id", "name", "arguments", "args", "response", "result", "content", "call_id", "tool_call_id"})


def without(one: Span, *keys: str) -> Span:
    """A span without some of its attributes."""
    return one._replace(attributes={name: value for name, value in one.attributes.items() if name not in keys})


def poorer(one: Span, rng: random.Random) -> Span | None:
    """A span without one of its values: an attribute, all attributes of one list, or its events. None if it has none."""
    keys = [key for key in one.attributes if key not in SAYS_WHAT_IS_MISSING]
    if one.events and (not keys or rng.random() < 0.15):
        return one._replace(events=())
    if not keys:
        return None
    key = rng.choice(keys)
    start = re.split(r"\.\d+\.", key)[0]
    if rng.random() < 0.3:
        return without(one, *[name for name in keys if name == key or name.startswith(f"{start}.")])
    return without(one, key)


def lose(spans: list[Span], rng: random.Random) -> list[Span]:
    """A recording without some of its spans and values, perhaps also without one that all its spans have."""
    left = list(spans)
    rng.shuffle(left)
    del left[max(1, len(left) - rng.choice([0, 0, 1, 1, 2, 3])) :]
    for _ in range(rng.choice([0, 1, 2, 3, 5])):
        at = rng.randrange(len(left))
        left[at] = _hollow(left[at], rng) if rng.random() < 0.2 else poorer(left[at], rng) or left[at]
    if rng.random() < 0.3:
        kinds = sorted({_kind(key) for one in left for key in one.attributes if key not in SAYS_WHAT_IS_MISSING})
        if kinds:
            kind, kept = rng.choice(kinds), rng.random() * 0.7
            for at, one in enumerate(left):
                left[at] = without(one, *[key for key in one.attributes if _kind(key) == kind and rng.random() > kept])
    return left


def _kind(key: str) -> str:
    return re.sub(r"\d+", "#", key)


def _hollow(one: Span, rng: random.Random) -> Span:
    """A span one of whose values has lost something inside."""
    for key in rng.sample(sorted(one.attributes), len(one.attributes)):
        try:
            parsed = json.loads(one.attributes[key])
        except (TypeError, ValueError):
            continue
        places = list(_places(parsed))
        if places:
            holder, name = rng.choice(places)
            del holder[name]
            return one._replace(attributes={**one.attributes, key: json.dumps(parsed)})
    return one


def _places(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        yield from [(value, key) for key in value if key in _INSIDE]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _places(inner)
