# SPDX-License-Identifier: Apache-2.0
"""One text for one value: what makes two recorded argument sets comparable.

The form is RFC 8785 (JSON Canonicalization Scheme) wherever that scheme has an answer. Where it has none (integers beyond
2**53, NaN, lone surrogates) the form is Python's JSON with sorted keys behind a mark, so that such values still compare
exactly instead of being rounded into one another.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson
import rfc8785

_EXACT_INTEGER = 2**53
_BEYOND = b"py:"  # no canonical JSON text starts with this


_MAX_DEPTH = 100  # well below what the recursion of the libraries needs, whoever calls


class _Beyond(ValueError):
    """A short cut has no answer for this value."""


def _number(text: str) -> orjson.Fragment:
    value = float(text)
    if value.is_integer() and abs(value) < _EXACT_INTEGER:
        return orjson.Fragment(str(int(value)))
    if 1e-4 <= abs(value) < _EXACT_INTEGER:  # here Python's shortest form is ECMAScript's, which the RFC asks for
        return orjson.Fragment(repr(value))
    return orjson.Fragment(rfc8785.dumps(value))


def _no_constant(name: str) -> NoReturn:
    raise _Beyond(name)


_NUMBERS_BY_HAND = json.JSONDecoder(parse_float=_number, parse_constant=_no_constant)
_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_DIGITS_AS_ZERO = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))


def canonical(value: Any) -> bytes:
    """The canonical form of a JSON-like value.

    Args:
        value: What `json.loads` gives, mappings and sequences of any kind included.

    Returns:
        RFC 8785 bytes, or a marked exact form where the RFC has none. Equal values give equal bytes, unequal ones do not.

    Raises:
        ValueError: The value is nested too deep. It has no other form instead: which one would depend on who calls.
        RecursionError: The caller has left too little of the stack.
    """
    text = written(value)
    return (_short_cut(text) if text is not None else None) or _long_way(value)


def _long_way(value: Any) -> bytes:
    plain = _plain(value)
    try:
        return rfc8785.dumps(plain)
    except (rfc8785.CanonicalizationError, UnicodeError):
        return _BEYOND + json.dumps(plain, sort_keys=True, separators=(",", ":"), default=repr).encode("ascii")


_JSON_TYPES = frozenset({str, int, bool, type(None)})
_MOST_ITEMS = 100  # and so no more levels than this: what is larger takes the long way


def written(value: Any) -> str | None:
    """A small object of strings, booleans, integers and such objects or lists as JSON text, in the order that it has.

    None for everything else: whatever orjson writes in another way than `_plain` and the RFC's library understand it, or
    would not read as it was.
    """
    if type(value) is not dict:
        return None
    todo: list[Any] = [value]
    for item in todo:  # which grows
        kind = type(item)
        if kind is dict:
            todo.extend(item)
            todo.extend(item.values())
        elif kind is list:
            todo.extend(item)
        elif kind not in _JSON_TYPES:
            return None
        if len(todo) > _MOST_ITEMS:
            return None
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, a key that is no string
        return None


def canonical_text(text: str) -> bytes:
    """The canonical form of a JSON text.

    Raises:
        ValueError: The text is no JSON, or is nested too deep.
        RecursionError: It is nested deeper yet, or the caller has left too little of the stack.
    """
    return _short_cut(text) or _long_way(json.loads(text))


def _short_cut(text: str) -> bytes | None:
    r"""The canonical form of a JSON text where a short cut is sound, else None: the RFC's own library is slower.

    orjson sorts by code point, which for ASCII without escapes of the `\u` kind is the RFC's order by UTF-16 unit, and it
    writes numbers as the RFC does but for exponents and for floats without a fraction (`1.0`). Where its output has
    either, or looks as if, the numbers are written by hand. Integers beyond 64 bits turn into floats with an exponent,
    so they never take the first cut; integers beyond 53 bits take neither.
    """
    if text.isascii() and "\\u" not in text:
        try:
            short = orjson.dumps(orjson.loads(text), option=_OPTIONS)
        except (ValueError, TypeError):
            pass
        else:
            numbers = short.translate(_DIGITS_AS_ZERO)
            if not (b"0e" in numbers or b".0," in short or b".0}" in short or b".0]" in short or short.endswith(b".0")):
                return short
            try:
                return orjson.dumps(_NUMBERS_BY_HAND.decode(text), option=_OPTIONS)
            except (ValueError, TypeError, RecursionError, rfc8785.CanonicalizationError):
                pass
    return None


def digest(form: bytes, key: bytes | None = None) -> str:
    """SHA-256 of a canonical form in hex, HMAC-keyed if a key is given (low-entropy arguments can be guessed otherwise)."""
    if key:
        return hmac.new(key, form, hashlib.sha256).hexdigest()
    return hashlib.sha256(form).hexdigest()


def _plain(value: Any) -> Any:
    """The value in JSON's own types. Without recursion."""
    root: list[Any] = [None]
    todo: list[tuple[Any, Any, Any, int]] = [(root, 0, value, 0)]
    while todo:
        into, at, value, depth = todo.pop()
        if not isinstance(value, (Mapping, list, tuple)):
            into[at] = _plain_scalar(value)
            continue
        if depth == _MAX_DEPTH:
            raise ValueError(f"nested more than {_MAX_DEPTH} deep")
        made: Any
        pairs: list[tuple[Any, Any]]
        if isinstance(value, Mapping):
            pairs = [(key if isinstance(key, str) else repr(key), item) for key, item in value.items()]
            made = dict.fromkeys(key for key, _ in pairs)
        else:
            made, pairs = [None] * len(value), list(enumerate(value))
        into[at] = made
        todo.extend([(made, key, item, depth + 1) for key, item in reversed(pairs)])
    return root[0]


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_INTEGER:
        return int(value)  # 5.0 is 5 beside a number that the RFC has no answer for, too
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return repr(value)
