# SPDX-License-Identifier: Apache-2.0
"""Options of a ledger in its URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from genai_processor.errors import LedgerURLError

Options: TypeAlias = Mapping[str, Callable[[str], Any]]
"""By name, what reads the value, and raises a `ValueError` for one that it does not take."""


def positive(text: str) -> float:
    """Read a positive number."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


def yes_or_no(text: str) -> bool:
    """Read true or false."""
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def word(text: str) -> str:
    """Read a name of letters, digits and ``_``, ``-``, ``.``, of up to 60 of them."""
    if (
        not 0 < len(text) <= 60
        or not text.replace("_", "a").replace("-", "a").replace(".", "a").isalnum()
        or not text.isascii()
    ):
        raise ValueError(text)
    return text


def place_of_server(url: str) -> str:
    """Return a URL without name, password and options: what messages call a server.

    Raises:
        LedgerURLError: It cannot be told where the password ends, so that some of it might be shown, or taken for the host.
    """
    parts = urlsplit(url)
    first_option = parts.query.partition("&")[0].partition("=")[0]
    if parts.fragment or "@" in parts.path + first_option:
        raise LedgerURLError(
            f"ledger URL {parts.scheme}:… has a '/', '?' or '#' where its name and password are, or a '#' somewhere else; "
            "write %2F, %3F or %23 for it"
        )
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def split_options(url: str, options: Options) -> tuple[str, dict[str, Any]]:
    """Take some options out of a URL, whose others are a driver's.

    Returns:
        The URL without them, and their values.

    Raises:
        LedgerURLError: A value is not one that its option takes. The message repeats nothing else of the URL, which may
            hold a password.
    """
    parts = urlsplit(url)
    values: dict[str, Any] = {}
    others: list[str] = []  # as they are: drivers do not agree on what a "+" means
    for option in filter(None, parts.query.split("&")):
        name, _, value = map(unquote, option.partition("="))
        if name not in options:
            others.append(option)
            continue
        try:
            values[name] = options[name](value)
        except ValueError:
            raise LedgerURLError(
                f"ledger URL {parts.scheme}:…: option {name}={value} is not understood; max_age_days and timeout_seconds "
                "take positive numbers, create takes true or false, and names are of letters, digits, '_', '-' and '.'"
            ) from None
    return urlunsplit(parts._replace(query="&".join(others))), values
