# SPDX-License-Identifier: Apache-2.0
"""What makes two calls one action: the tool, and a digest of its arguments.

A processor computes the same digest from what spans record, so both find one entry. Arguments that have no lasting form,
such as an open file, have no digest: a call with such counts as possibly equal to every other of its tool.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections.abc import Mapping, Set
from typing import Any, Final

from genai_processor.spans.arguments import Arguments, ArgumentsState, fingerprint
from genai_processor.spans.canonical import canonical
from genai_processor.spans.values import loads

_DEEPEST: Final = 100
_TEXTS: Final = (decimal.Decimal, uuid.UUID, pathlib.PurePath, datetime.timedelta)
_DATES: Final = (datetime.datetime, datetime.date, datetime.time)


class _Formless(TypeError):
    """A value has no form that another run would recognise."""


def action_digest(arguments: Any) -> str | None:
    """Return the digest of a call's arguments.

    Args:
        arguments: A mapping, JSON text, a model or dataclass with the arguments as fields, or whatever else a key function
            returns. None for not known.

    Returns:
        SHA-256 of the canonical form, as hex; None where there is none.
    """
    if arguments is None:
        return None
    try:
        if isinstance(arguments, str):
            text = str.strip(arguments)
            parsed = loads(text) if text else {}
            arguments = parsed if parsed is not None else text
        return fingerprint(Arguments(ArgumentsState.COMPLETE, _plain(arguments, 0)))
    except Exception:  # noqa: BLE001 - arguments may be objects of any class, whose own code is run here
        return None


def _plain(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise _Formless(f"nested more than {_DEEPEST} deep")
    if isinstance(value, enum.Enum):
        return _plain(value.value, depth + 1)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        plain = {_key(key): _plain(item, depth + 1) for key, item in value.items()}
        if len(plain) < len(value):
            raise _Formless("two keys with one name")
        return plain
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, Set):
        return sorted((_plain(item, depth + 1) for item in value), key=canonical)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, _DATES):
        return value.isoformat()
    if isinstance(value, _TEXTS):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {spec.name: _plain(getattr(value, spec.name), depth + 1) for spec in dataclasses.fields(value)}
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):  # a pydantic model
        return _plain(dump(), depth + 1)
    raise _Formless(type(value).__name__)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, (bool, int, float)) or key is None:
        return repr(key)
    raise _Formless(type(key).__name__)
