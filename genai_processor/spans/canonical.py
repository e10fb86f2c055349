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


class _Beyond(ValueError):
    """RFC 8785 or the fast form has no answer for this value."""


def _number(text: str) -> orjson.Fragment:
    value = float(text)
    if value.is_integer() and abs(value) < _EXACT_INTEGER:
        return orjson.Fragment(str(int(value)))
    if 1e-4 <= abs(value) < _EXACT_INTEGER:  # here Python's shortest form is ECMAScript's, which the RFC asks for
        return orjson.Fragment(repr(value))
    return orjson.Fragment(rfc8785.dumps(value))


def _no_constant(name: str) -> NoReturn:
    raise _Beyond(name)


_FAST = json.JSONDecoder(parse_float=_number, parse_constant=_no_constant)
_FAST_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


def canonical(value: Any) -> bytes:
    """The canonical form of a JSON-like value.

    Args:
        value: What `json.loads` gives, mappings and sequences of any kind included.

    Returns:
        RFC 8785 bytes, or a marked exact form where the RFC has none. Equal values give equal bytes, unequal ones do not.
    """
    plain = _plain(value)
    try:
        return rfc8785.dumps(plain)
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError):
        return _BEYOND + json.dumps(plain, sort_keys=True, separators=(",", ":"), default=repr).encode("ascii")


def canonical_text(text: str) -> bytes:
    """The canonical form of a JSON text, by a short cut where one is sound.

    ASCII without escapes of the `\\u` kind sorts the same way by code point (orjson) as by UTF-16 unit (the RFC), so the
    standard decoder and orjson's encoder give RFC 8785's bytes at a tenth of its cost.

    Raises:
        ValueError: The text is no JSON.
    """
    if text.isascii() and "\\u" not in text:
        try:
            return orjson.dumps(_FAST.decode(text), option=_FAST_OPTIONS)
        except (_Beyond, TypeError, RecursionError, rfc8785.CanonicalizationError):
            pass
    return canonical(json.loads(text))


def digest(form: bytes, key: bytes | None = None) -> str:
    """SHA-256 of a canonical form in hex, HMAC-keyed if a key is given (low-entropy arguments can be guessed otherwise)."""
    if key:
        return hmac.new(key, form, hashlib.sha256).hexdigest()
    return hashlib.sha256(form).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_INTEGER:
        return int(value)  # 5.0 is 5 beside a number that the RFC has no answer for, too
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return repr(value)
