# SPDX-License-Identifier: Apache-2.0
"""Values of OTLP/JSON: `AnyValue`, lists of `KeyValue`, and the scalars of proto3's JSON mapping.

https://protobuf.dev/programming-guides/json/
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable
from typing import Any

# What reading raises when a value is of another shape than expected.
UNFIT = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


class MalformedError(ValueError):
    """What is wrong with a piece of a document, in words for the person who has the file."""


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Decode a list of `KeyValue`. Of a name that is there twice, the last value counts.

    Raises:
        MalformedError: It is not one, or a value in it is malformed.
    """
    try:
        return usual_attributes(pairs)
    except UNFIT:
        pass
    if pairs is None:
        return {}
    if type(pairs) is not list:
        raise MalformedError(f"attributes are {named(pairs)}, not a list")
    attributes = {}
    for pair in pairs:
        if type(pair) is not dict or type(pair.get("key")) is not str:
            raise MalformedError("an attribute is not an object with a key")
        try:
            attributes[pair["key"]] = decoded(pair.get("value"))
        except UNFIT as error:
            raise MalformedError(f"attribute {pair['key']!r}: {error}") from None
    return attributes


def usual_attributes(pairs: Any) -> dict[str, Any]:
    """`attributes_of` for a list as exporters write it; anything else raises one of `UNFIT`."""
    attributes = {}
    for pair in pairs:
        value = pair["value"]
        # In recorded traces nine values in ten are strings, then integers, then arrays of strings.
        if "stringValue" in value:
            attributes[pair["key"]] = value["stringValue"]
        elif "intValue" in value:
            attributes[pair["key"]] = int(value["intValue"])
        else:
            attributes[pair["key"]] = decoded(value)
    "".join(attributes)  # the cheapest proof that every key is a string
    return attributes


def decoded(value: Any) -> Any:
    """The Python value of an `AnyValue`; None for an empty one and for a type that is not known.

    Without recursion: however deep a value is nested, it cannot exhaust the stack of whoever called.

    Raises:
        MalformedError: It is not one.
    """
    if type(value) is dict and "arrayValue" in value:
        try:
            return [item["stringValue"] for item in value["arrayValue"]["values"]]
        except UNFIT:
            pass
    root: list[Any] = [None]
    todo: list[tuple[Any, Any, Any]] = [(root, 0, value)]
    while todo:
        into, at, value = todo.pop()
        if value is None:
            continue
        if type(value) is not dict:
            raise MalformedError(f"a value is {named(value)}, not an object")
        for type_name, content in value.items():
            if (scalar := _SCALARS.get(type_name)) is not None:
                into[at] = None if content is None else scalar(content)
            elif type_name in ("arrayValue", "array_value"):
                items = _values(content)
                into[at] = array = [None] * len(items)
                todo.extend((array, index, item) for index, item in enumerate(items))
            elif type_name in ("kvlistValue", "kvlist_value"):
                into[at] = mapping = dict.fromkeys(_key(pair) for pair in _values(content))
                todo.extend((mapping, pair["key"], pair.get("value")) for pair in reversed(_values(content)))
    return root[0]


def _values(content: Any) -> list[Any]:
    values = None if content is None else content.get("values") if type(content) is dict else content
    if values is None:
        return []
    if type(values) is not list:
        raise MalformedError(f"values are {named(values)}, not a list")
    return values


def _key(pair: Any) -> str:
    if type(pair) is not dict or type(pair.get("key")) is not str:
        raise MalformedError("an entry of a kvlistValue is not an object with a key")
    key: str = pair["key"]
    return key


def _string(content: Any) -> str:
    if type(content) is not str:
        raise MalformedError(f"stringValue is {named(content)}")
    return content


def _boolean(content: Any) -> bool:
    if type(content) is not bool:
        raise MalformedError(f"boolValue is {named(content)}")
    return content


def _double(content: Any) -> float:
    if type(content) is bool:
        raise MalformedError("doubleValue is a boolean")
    return float(content)  # also "NaN", "Infinity" and "-Infinity"


def base64_decoded(content: Any) -> bytes:
    """The bytes of a base64 text, standard or URL-safe, padded or not.

    Raises:
        MalformedError: It is not one.
    """
    if type(content) is not str:
        raise MalformedError(f"bytesValue is {named(content)}")
    standard = content.translate(_STANDARD).rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except ValueError:
        raise MalformedError("not base64") from None


def integer(content: Any) -> int:
    """A 64-bit integer, which the JSON mapping writes as a string and some write as a number.

    Raises:
        MalformedError: It is neither.
    """
    if type(content) is str or (type(content) in (int, float) and content == int(content)):
        try:
            return int(content)
        except ValueError:
            pass
    raise MalformedError(f"{shown(content)} is not an integer")


_STANDARD = str.maketrans("-_", "+/")
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "stringValue": _string,
    "intValue": integer,
    "boolValue": _boolean,
    "doubleValue": _double,
    "bytesValue": base64_decoded,
}
_SCALARS |= {re.sub("V", "_v", name): scalar for name, scalar in _SCALARS.items()}


@functools.cache
def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda upper: "_" + upper[0].lower(), name)


def field(message: dict[str, Any], name: str) -> Any:
    """The field `name` in camel case, or else in snake case, as proto3's JSON mapping allows; None if absent."""
    value = message.get(name)
    return message.get(_snake_case(name)) if value is None else value


def text(message: dict[str, Any], name: str) -> str:
    """A string field; "" if absent.

    Raises:
        MalformedError: It is something else.
    """
    value = field(message, name)
    if value is None:
        return ""
    if type(value) is not str:
        raise MalformedError(f"{name} is {named(value)}, not a string")
    return value


def named(value: Any) -> str:
    """What a JSON value is, for a message."""
    return _NAMES.get(type(value), "something else")


def shown(value: Any) -> str:
    """A JSON value itself, if it is short enough for a message, or else what it is."""
    return repr(value) if isinstance(value, (str, int, float)) and len(repr(value)) <= 40 else named(value)


_NAMES = {
    dict: "an object",
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}
