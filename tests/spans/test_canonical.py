# SPDX-License-Identifier: Apache-2.0
"""One text for one value: equal arguments compare equal, whatever wrote them, and no two others do."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import math
import random
import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
import rfc8785

from genai_processor.spans.canonical import canonical, canonical_text, digest

EDGE = 2**53
EXAMPLES: list[Any] = [
    {"\U00010000": 1, "\ue000": 2},
    [EDGE + 1, float(EDGE)],
    [float("nan"), math.inf, -math.inf, -0.0],
    {"a": "\ud800"},
    [1e16, float(EDGE), float(EDGE) - 1, 123456789012345680.0, 1e15 + 0.5, 1e-4, 9.9e-5],
    [2**60, 5.0, -0.0],
]
SCALARS: list[Callable[[random.Random], Any]] = [
    lambda r: r.choice([None, True, False]),
    lambda r: r.randint(-1_000, 1_000),
    lambda r: r.choice([-1, 1]) * (EDGE + r.randint(-3, 3)),
    lambda r: r.choice([-1, 1]) * r.getrandbits(r.randint(1, 90)),
    lambda r: struct.unpack("d", r.randbytes(8))[0],
    lambda r: r.uniform(-1, 1) * 10.0 ** r.randint(-25, 25),
    lambda r: float(round(r.uniform(-1, 1) * 10 ** r.randint(1, 20))),
    lambda r: round(r.uniform(-1_000, 1_000), 2),
    lambda r: r.choice([-0.0, 1e16, 1e21, 1e-7, 5e-324, float(EDGE - 1), float(EDGE), float(EDGE + 2), math.nan]),
    lambda r: letters(r),
    lambda r: r.choice(["\ud800", "\udfff\ud800", '"\\/\b\f\n\r\t\x00\x1f\x7f', "</script>", "\\u0041", "1", ""]),
]


def letters(r: random.Random) -> str:
    return "".join(r.choice('abcAB12 /\\"\n\x00é\u20ac\ue000\uffee\U0001f600') for _ in range(r.randint(0, 5)))


def made(r: random.Random, depth: int = 3) -> Any:
    """Any JSON value, the odd ones often."""
    kind = r.randrange(4) if depth else 3
    if kind == 0:
        return [made(r, depth - 1) for _ in range(r.randint(0, 4))]
    if kind == 1:
        return {letters(r): made(r, depth - 1) for _ in range(r.randint(0, 4))}
    return r.choice(SCALARS)(r)


def many(seed: int, count: int) -> list[Any]:
    r = random.Random(seed)
    return [made(r) for _ in range(count)]


def reference(value: Any) -> bytes | None:
    """What RFC 8785 says, or None where it has no answer."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError):
        return None


def same(one: Any, other: Any) -> bool:
    """Equality of JSON: 1.0 is 1, `true` is not, NaN is NaN; beyond 2**53 a float is rounded, an integer is not."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        exact = isinstance(one, int) is isinstance(other, int) or abs(one) < EDGE
        return (one == other and exact) or (one != one and other != other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


@pytest.mark.parametrize("value", EXAMPLES)
def test_values_at_the_edge_have_one_form(value: Any) -> None:
    check_form(value)


@pytest.mark.parametrize("seed", range(4))
def test_text_and_value_have_one_form_which_is_the_rfcs(seed: int) -> None:
    for value in many(seed, 1_500):
        check_form(value)


def check_form(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, indent=1)):
        form = canonical_text(text)
        assert form == canonical(json.loads(text)), text
        expected = reference(json.loads(text))
        assert form == expected if expected is not None else form.startswith(b"py:"), text


@pytest.mark.parametrize("seed", range(4))
def test_only_equal_values_have_equal_forms(seed: int) -> None:
    """Values of one form are equal; a value and its copy with something else in it have two."""
    by_form: dict[bytes, Any] = {}
    for value in many(seed, 1_500):
        known = by_form.setdefault(canonical(value), value)
        assert same(known, value)
        assert canonical(copy.deepcopy(value)) == canonical(value)
        assert canonical([value]) != canonical([value, value])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (EDGE, EDGE + 1),
        (2**64, 2**64 + 1),
        ([1, 2], [12]),
        ({"a": None}, {}),
        ("1", 1),
        (True, 1),
        (False, 0),
        (math.nan, None),
        (math.inf, -math.inf),
        ("\ud800", "\udfff"),
        ([], {}),
        ("", None),
        ({"a": [1]}, {"a": [[1]]}),
    ],
)
def test_values_that_look_alike_stay_apart(one: Any, other: Any) -> None:
    assert canonical(one) != canonical(other)
    assert canonical_text(json.dumps(one)) != canonical_text(json.dumps(other))


@pytest.mark.parametrize(
    ("one", "other"), [(1.0, 1), (-0.0, 0), ([2**60, 5.0], [2**60, 5]), ([math.nan, -0.0], [math.nan, 0])]
)
def test_a_number_is_one_number_however_it_is_written(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)
    assert canonical_text(json.dumps(one)) == canonical_text(json.dumps(other))


def test_the_order_of_keys_is_no_matter() -> None:
    value = {"b": 1, "a": 2, "\ue000": 3, "\U00010000": 4, "é": {"y": 1, "x": 2}}
    backwards = {"é": {"x": 2, "y": 1}, **dict(reversed(value.items()))}
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
