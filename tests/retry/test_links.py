# SPDX-License-Identifier: Apache-2.0
"""Which scope proposed a call: arguments are compared by what they are, whatever their text looks like."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.spans import ARGS, ID, Read, chat, tool

from genai_processor.retry.links import Links
from genai_processor.spans.arguments import fingerprint, read_arguments
from genai_processor.spans.records import Proposal

VALUE = json.loads(ARGS)
LONG = {"order_id": "o" * 2_000}
MARKS = ("\0json:", "\0sha256:", "unread", "py:", "\0")
"""What a text that is kept was once told apart by, and what looks like it."""

DIGESTS = [fingerprint(read_arguments(value)) or "" for value in (VALUE, LONG)]
MARKED = [mark + rest for mark in MARKS for rest in ("", "oops", ARGS, *DIGESTS)]
ARGUMENTS = [None, VALUE, ARGS, LONG, json.dumps(LONG), {}, "", [1], "{", "{" * 2_000, *DIGESTS, *MARKED]


def linked(proposed: Any, read: Any) -> bool:
    links = Links()
    links.add(Proposal(ID, "pay", proposed), "scope")
    return links.scope_of(Proposal(ID, "pay", read)) == "scope"


def equal(one: Any, other: Any) -> bool:
    return one == other or fingerprint(read_arguments(one)) == fingerprint(read_arguments(other))


@pytest.mark.parametrize("proposed", ARGUMENTS, ids=lambda value: repr(value)[:24])
def test_arguments_are_compared_by_what_they_are(proposed: Any) -> None:
    for read in ARGUMENTS:
        assert linked(proposed, read) == equal(proposed, read), read


TEXTS = st.builds("{}{}".format, st.sampled_from(["", *MARKS]), st.one_of(st.text(max_size=8), st.sampled_from(DIGESTS)))
JSON = st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none()), max_size=3)


@given(st.one_of(TEXTS, JSON, JSON.map(json.dumps)), st.one_of(TEXTS, JSON, JSON.map(json.dumps)))
def test_whatever_they_are(proposed: Any, read: Any) -> None:
    assert linked(proposed, read) == equal(proposed, read)


def test_a_text_that_begins_with_a_mark_ends_no_scan() -> None:
    for one, other in itertools.product(MARKED, repeat=2):
        first = [chat((ID, "pay", one), trace="1" * 32), tool("pay", id=ID, args=one, trace="1" * 32)]
        second = [chat((ID, "pay", other), trace="2" * 32), tool("pay", id=ID, args=other, trace="2" * 32)]
        assert len(Read(first, second).rows) == 2
