# SPDX-License-Identifier: Apache-2.0
"""Tokens that tell whether two spans come from one resource, whoever recorded them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ResourceToken = frozenset[tuple[str, str]]


def resource_token(attributes: Mapping[str, Any]) -> ResourceToken:
    """A token that is equal for equal resource attributes, in whatever order and from whatever source."""
    return frozenset((name, repr(_plain(value))) for name, value in attributes.items())


def _plain(value: Any) -> Any:
    """`value` with the SDK's tuples as the lists that OTLP makes of them."""
    return list(value) if isinstance(value, tuple) else value
