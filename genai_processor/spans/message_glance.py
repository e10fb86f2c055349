# SPDX-License-Identifier: Apache-2.0
"""What can be told of messages without parsing them: most name no call of another trace and tell of no failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from genai_processor.spans.records import Event


class Glance(NamedTuple):
    """What can be told of messages without parsing them.

    Attributes:
        ids: Every text that may be a call's id, and others.
        failure: They may tell that a call failed.
    """

    ids: set[str]
    failure: bool


_ID = re.compile(r'd\\*"\s*:\s*\\*"([^"\\]*)')  # the value of whatever key ends in d, escaped or not


def glance_at(attributes: Mapping[str, Any], keys: Iterable[str], events: Iterable[Event]) -> Glance | None:
    """Look at messages without parsing them; None if they have to be.

    Args:
        attributes: A span's attributes.
        keys: Where its messages are; a trailing "." asks for flattened ones.
        events: The span's events.
    """
    texts: list[str] = []
    ids: set[str] = set()
    names = "\n".join(attributes)
    for key in keys:
        if key[-1] == ".":
            if key in names:
                flat = {name: value for name, value in attributes.items() if name.startswith(key)}
                if not _gather(flat, texts, ids):
                    return None
        elif (value := attributes.get(key)) is not None:
            if type(value) is str and not _names_an_id(key):
                texts.append(value)
            elif not _gather({key: value}, texts, ids):
                return None
    for event in events:
        if event.name.startswith("gen_ai.") and not _gather(event.attributes, texts, ids):
            return None
    failure = False
    for content in texts:
        failure = failure or "rror" in content
        if 'd"' in content or "d\\" in content:  # a search for a word is faster than one for a pattern
            ids.update(_ID.findall(content))
    return Glance(ids, failure)


def _names_an_id(key: str) -> bool:
    """Whether an attribute of this name may hold a call's id by itself (`tool_call_id`), as a key inside of a text may."""
    return key[-1:] == "d"


def _gather(attributes: Mapping[str, Any], texts: list[str], ids: set[str]) -> bool:
    """Collect texts, and ids that are attributes of their own; False if something is no text."""
    for key, value in attributes.items():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(item, str):
                if item is not None and not isinstance(item, (int, float)):
                    return False
                texts.append(key)  # is_error: True
                continue
            if _names_an_id(key):
                ids.add(item)
            texts.append(item)
    return True
