# SPDX-License-Identifier: Apache-2.0
"""A tagged copy of an ended span.

The SDK hands one span object to every processor, so a processor must not write to it, and offers no way to make a
second one that keeps the counts of what was dropped. `tagged_copy` makes one: a new object of the span's class, with
the same fields, whose attributes are a copy with a dict of their own. Every exporter finds the tags there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import ReadableSpan


def tagged_copy(span: ReadableSpan, tags: Mapping[str, Any]) -> ReadableSpan | None:
    """Copy a span and add attributes to the copy.

    Tags stand after the span's own attributes and replace those of the same name. The limits on count and length do
    not apply to them: a tag never evicts an attribute of the user's, and what was dropped stays counted as dropped.

    Args:
        span: An ended span. It is left as it is.
        tags: Attribute names to values that OpenTelemetry allows; the caller vouches for them, nothing is cleaned.

    Returns:
        The copy, or None if the span or its attributes are of a make that cannot be copied without a guess.
    """
    fields = _fields(span)
    if fields is None or "_attributes" not in fields:
        return None
    attributes = _with_tags(fields["_attributes"], tags)
    if attributes is None:
        return None
    copy: ReadableSpan | None = _twin(span, fields, "_attributes", attributes)
    return copy


def _with_tags(attributes: Any, tags: Mapping[str, Any]) -> Any:
    """Copy what a span holds as its attributes, or return None if it is of no known kind."""
    if isinstance(attributes, BoundedAttributes):
        fields = _fields(attributes)
        values = None if fields is None else fields.get("_dict")
        if fields is None or not isinstance(values, dict):
            return None
        return _twin(attributes, fields, "_dict", {**values, **tags})
    # Some processors put a plain dict in the place of the SDK's container.
    if attributes is None or isinstance(attributes, dict):
        return {**(attributes or {}), **tags}
    return None


def _fields(thing: Any) -> dict[str, Any] | None:
    """Return the fields of an object, if its `__dict__` is all that it has."""
    cls: Any = type(thing)
    return vars(thing) if _keeps_all_in_dict(cls) else None


@lru_cache(maxsize=64)
def _keeps_all_in_dict(cls: Hashable) -> bool:
    return isinstance(cls, type) and cls.__dictoffset__ != 0 and not any(vars(base).get("__slots__") for base in cls.__mro__)


def _twin(thing: Any, fields: dict[str, Any], name: str, value: Any) -> Any:
    """Make an object of the same class with these fields but for one, without running its constructor."""
    try:
        twin = object.__new__(type(thing))
    except TypeError:  # a class with a layout in C, such as a proxy
        return None
    own = fields.copy()
    own[name] = value
    # Cheaper than to fill the one that a new object has; past whatever its class does when an attribute is set.
    object.__setattr__(twin, "__dict__", own)
    return twin
