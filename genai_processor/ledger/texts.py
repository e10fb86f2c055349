# SPDX-License-Identifier: Apache-2.0
"""Texts as a store can hold them: the rules have to compare requests with entries as they were written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from genai_processor.ledger.requests import Claim, Sighting

_Call = TypeVar("_Call", Sighting, Claim)


def as_utf8(text: str) -> str:
    """Return a text with an escape in place of whatever UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def storable(text: str) -> str:
    """Return the same without the NUL character either, which a database may refuse."""
    return as_utf8(text).replace("\0", "\\x00") if not text.isascii() or "\0" in text else text


def storable_call(call: _Call, storable: Callable[[str], str] = storable) -> _Call:
    """Return a request as it will be written."""
    values = call if isinstance(call, Sighting) else _values(call)
    texts = "".join([value for value in values if isinstance(value, str)])
    if storable(texts) == texts:
        return call
    written: list[Any] = [storable(value) if isinstance(value, str) else value for value in values]
    return type(call)(*written)


_values = attrgetter(*(spec.name for spec in fields(Claim)))
