# SPDX-License-Identifier: Apache-2.0
"""Texts as a store can hold them: the rules have to compare requests with entries as they were written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from genai_processor.ledger.requests import Claim, Sighting

_Call = TypeVar("_Call", Sighting, Claim)


def as_utf8(text: str) -> str:
    """Return a text with an escape in place of whatever UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def storable(text: str) -> str:
    """Return the same without the NUL character either, which a database may refuse."""
    return as_utf8(text).replace("\0", "\\x00") if not text.isascii() or "\0" in text else text


def storable_call(call: _Call, storable: Callable[[str], str] = storable) -> _Call:
    """Return a request as it will be written."""
    named = call._asdict() if isinstance(call, Sighting) else {spec.name: getattr(call, spec.name) for spec in fields(call)}
    texts = "".join([value for value in named.values() if isinstance(value, str)])
    if storable(texts) == texts:
        return call
    changed: dict[str, Any] = {name: storable(value) if isinstance(value, str) else value for name, value in named.items()}
    return type(call)(**changed)
