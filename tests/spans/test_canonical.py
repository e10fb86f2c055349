# SPDX-License-Identifier: Apache-2.0
"""One text for one value: equal arguments compare equal, whatever wrote them, and no two others do."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genai_processor.spans.canonical import canonical, canonical_text, digest

EDGE = 2**53
integers = st.integers() | st.integers(EDGE - 3, EDGE + 3) | st.integers(-EDGE - 3, -EDGE + 3) | st.integers(10**17)
floats = st.floats() | st.sampled_from(
    [-0.0, 1e16, 1e21, 1e-7, 5e-324, 1.5, float(EDGE - 1), float(EDGE), float(EDGE + 2), -float(EDGE), 1e308]
)
texts = st.text(max_size=8) | st.sampled_from(
    [
        "\ud800",
        "\udfff\ud800",
        "\U0001f600",
        "\u20ac",
        "\uffee",
        "é",
        '"\\/\b\f\n\r\t\x00\x1f\x7f',
        "</script>",
        "u0041",
    ]
)
keys = texts | st.sampled_from(["a", "b", "A", "1", "10", "2", "", "\ue000", "\U00010000"])
values = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
plain = st.recursive(
    st.none() | st.booleans() | integers | st.text('ab\\/"\n', max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=4),
    max_leaves=8,
)


def reference(value: Any) -> bytes | None:
    """What RFC 8785 says, or None where it has no answer."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError):
        return None


def same(one: Any, other: Any) -> bool:
    """Equality as JSON sees it: 1.0 is 1, `true` is not, NaN is NaN."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


@settings(max_examples=2_500, deadline=None)
@given(values, st.booleans(), st.sampled_from([None, 1]))
@example({"\U00010000": 1, "\ue000": 2}, False, None)
@example([9007199254740993, 9007199254740992.0], True, None)
@example([float("nan"), math.inf, -math.inf, -0.0], True, None)
@example({"a": "\ud800"}, True, None)
@example([1e16, float(EDGE), float(EDGE) - 1, 123456789012345680.0], True, None)
def test_text_and_value_have_one_form_which_is_the_rfcs(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    form = canonical_text(text)
    assert form == canonical(json.loads(text))
    expected = reference(json.loads(text))
    if expected is not None:
        assert form == expected
    else:
        assert form.startswith(b"py:")


@settings(max_examples=1_500, deadline=None)
@given(plain)
def test_plain_text_takes_the_short_cut_to_the_same_form(value: Any) -> None:
    text = json.dumps(value)
    assert canonical_text(text) == canonical(json.loads(text))


@settings(max_examples=2_000, deadline=None)
@given(values, values)
@example(2**53, 2**53 + 1)
@example(2**64, float(2**64))
@example([1, 2], [12])
@example({"a": None}, {})
@example("1", 1)
@example(True, 1)
@example(float("nan"), None)
@example("\ud800", "\udfff")
def test_only_equal_values_have_equal_forms(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) is same(one, other)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(keys, integers, min_size=2, max_size=5))
def test_the_order_of_keys_is_no_matter(value: dict[str, int]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical(value) == canonical(backwards)
    assert canonical_text(json.dumps(value)) == canonical_text(json.dumps(backwards))


@pytest.mark.parametrize("beyond", [EDGE, 2**64, 10**25])
def test_amounts_that_a_double_would_round_together_stay_apart(beyond: int) -> None:
    texts = [f'{{"amount_cents": {amount}}}' for amount in (beyond, beyond + 1)]
    assert canonical_text(texts[0]) != canonical_text(texts[1])


def test_escapes_and_spaces_are_no_matter() -> None:
    assert canonical_text('{"b": "\\u00e9", "a":\t[1.0, 1e2]}') == canonical_text('{"a":[1,100],"b":"é"}')


def test_the_last_of_two_equal_keys_counts_in_every_form() -> None:
    assert canonical_text('{"a":1,"a":2}') == canonical_text('{"a":2}') == canonical({"a": 2})


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", '{"a": 1}x', '{"é": 1', "[1,]"])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        canonical_text(text)


def test_mappings_and_sequences_of_any_kind_count_by_what_they_hold() -> None:
    assert canonical(MappingProxyType({"a": (1, 2)})) == canonical({"a": [1, 2]})


def test_what_json_has_no_word_for_still_has_a_form() -> None:
    assert canonical({"a": b"x"}) != canonical({"a": b"y"})
    assert canonical({1: "a"}) == canonical({1: "a"})
    assert canonical({1, 2}) != canonical({1, 3})


def test_nesting_beyond_every_stack_is_no_crash() -> None:
    deep: Any = "[" * 100_000 + "]" * 100_000
    with pytest.raises(RecursionError):
        json.loads(deep)
    with pytest.raises((ValueError, RecursionError)):
        canonical_text(deep)


def test_a_keyed_digest_needs_the_key() -> None:
    assert digest(b"x") == hashlib.sha256(b"x").hexdigest()
    assert digest(b"x", b"key") == hmac.new(b"key", b"x", hashlib.sha256).hexdigest()
    assert digest(b"x", b"key") != digest(b"x", b"other")
