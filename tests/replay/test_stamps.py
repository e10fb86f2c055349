# SPDX-License-Identifier: Apache-2.0
"""The stamp itself: what is written is read, it holds no content, and its version stands for what its digests are of."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stamps import stamp_of, stamped

from genai_processor.replay.digests import part_digest
from genai_processor.replay.parts import Part, PartKind, Role, part_list
from genai_processor.replay.stamp_reading import read_stamp
from genai_processor.replay.stamp_writing import written
from genai_processor.replay.stamps import VERSION, key_of, keyed
from genai_processor.spans.otlp import read_spans

CORPUS = Path(__file__).parent.parent / "data" / "corpus"

PINNED = (
    "google-adk__native",
    "langchain__genai",
    "langchain__traceloop",
    "llama-index__openinference",
    "openai-agents__genai-official",
    "pydantic-ai__native-v5",
    "strands-agents__native",
)

names = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@st.composite
def lists(draw: st.DrawFn) -> list[Part]:
    found = []
    for _ in range(draw(st.integers(0, 5))):
        role, kind = draw(st.sampled_from(Role)), draw(st.sampled_from(PartKind))
        value = draw(st.text(max_size=5))
        position = draw(st.none() | st.integers(-1, 9))
        found.append(Part(role, kind, draw(names), part_digest(role, kind, None, value), position, draw(names), value))
    return found


@settings(max_examples=300, deadline=None)
@given(lists(), lists(), st.none() | st.text(min_size=1, max_size=9), st.booleans())
def test_what_is_written_is_read(read: list[Part], said: list[Part], secret: str | None, continues: bool) -> None:
    key = key_of(secret)
    inputs, output = part_list(read), part_list(said)
    attributes = written(
        inputs,
        output,
        key=key,
        input_source="a",
        output_source="b",
        system=b"s" * 16,
        continues="response" if continues else "",
    )
    stamp = read_stamp(attributes, key)
    assert stamp is not None
    assert stamp.problem == ""
    assert stamp.inputs is not None
    assert stamp.output is not None
    for found, parts, digest in ((stamp.inputs, read, inputs.digest), (stamp.output, said, output.digest)):
        assert found.digest == keyed(digest, key)
        assert found.slots == tuple(
            part._replace(digest=keyed(part.digest, key), value=None, missing=True) for part in parts
        )
    assert (stamp.system, stamp.tools) == (keyed(b"s" * 16, key), b"")
    assert stamp.continues == ("response" if continues else "")


@pytest.mark.parametrize("name", ["x" * 300, ""])
def test_an_id_that_would_be_cut_is_left_out(name: str) -> None:
    part = Part(Role.ASSISTANT, PartKind.CALL, "search", b"d" * 16, 0, name, None)
    stamp = read_stamp(written(part_list([part]), None, key=b""))
    assert stamp is not None
    assert stamp.inputs is not None
    assert stamp.inputs.slots is not None
    assert (stamp.inputs.slots[0].call_id, stamp.inputs.slots[0].tool) == (None, "search")


def test_a_key_is_not_told_and_another_one_is_known_from_it() -> None:
    attributes = written(part_list([]), None, key=key_of("one"))
    assert "one" not in str(attributes)
    assert read_stamp(attributes, key_of("one")) != read_stamp(attributes, key_of("two"))
    assert "keyed" in (read_stamp(attributes, key_of("two")) or _none()).problem


def _none() -> Any:
    raise AssertionError


@pytest.mark.parametrize("folder", ["pydantic-ai__native-v5", "langchain__openinference", "openai-agents__genai-official"])
def test_a_stamp_holds_no_word_of_what_was_said(folder: str) -> None:
    for path in sorted((CORPUS / folder).glob("*.jsonl")):
        spans = stamped(read_spans(path, on_error=lambda error: pytest.fail(str(error))))
        for span in spans:
            for name, value in stamp_of(span).items():
                texts = value if isinstance(value, list) else [str(value)]
                for text in texts:
                    words = {word for word in text.split() if not _is_hex(word)}
                    assert not any(word in ("o1", "500", "amount_cents", "order_id", "refunded") for word in words), name


def _is_hex(word: str) -> bool:
    return len(word) == 32 and set(word) <= set("0123456789abcdef")


def test_what_a_version_says_of_recorded_lists_does_not_change() -> None:
    """If this fails, spans that were stamped before are read otherwise now: raise `VERSION`, then put the new value here."""
    digest = hashlib.sha256(VERSION.encode())
    for path in sorted(path for folder in PINNED for path in (CORPUS / folder).glob("s0*.jsonl")):
        for span in stamped(read_spans(path, on_error=lambda error: pytest.fail(str(error)))):
            for name in ("genai.replay.input.digest", "genai.replay.output.digest"):
                digest.update(str(stamp_of(span).get(name)).encode())
    assert (VERSION, digest.hexdigest()[:16]) == ("1", "a76ec5d39aa75b82")
