# SPDX-License-Identifier: Apache-2.0
"""The stamp that a recording puts on an inference's span, so that a replay knows what stood there, whatever became of it.

It says, in order, of which parts input and output were made: for each its role, kind, digest, call id and tool, and nothing
of what it said. Histories repeat, so an input names the earlier list that it begins with and has only its new slots.

A digest of a short text that is easy to guess can be found by trying, unless it is keyed. What a stamp says is never
trusted: a list that is put together from stamps counts only if it has the digest that its stamp says.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final, NamedTuple

from genai_processor.replay.parts import Part, PartKind, PartList, part_list

VERSION: Final = "1"
"""Of how lists are read and digests made. It goes up when `digests`, `lists` or `messages` come to read a list otherwise."""

REQUEST: Final = "request"
"""The source of a list that a hook saw."""
RESPONSE: Final = "response"
CONVERSATION: Final = "conversation"

MAX_SLOTS: Final = 512
"""More slots than these are not written on one span."""

_SIZE: Final = 16


class Base(NamedTuple):
    """A list that another one begins with.

    Attributes:
        inputs: The digest of an inference's input.
        output: The digest of the output that follows it, or b"" if none does.
    """

    inputs: bytes
    output: bytes = b""


class StampedList(NamedTuple):
    """What a stamp says of one list. All digests are as written: keyed, if the stamp is.

    Attributes:
        source: Where it was read.
        digest: 16 bytes over all its parts.
        length: How many parts it has.
        base: What it begins with, or None.
        slots: The parts after that, their values missing; None where they were left out.
        changed: The span still has the list at its source, and it is another one.
    """

    source: str
    digest: bytes
    length: int
    base: Base | None
    slots: tuple[Part, ...] | None
    changed: bool = False


class Stamp(NamedTuple):
    """What a recording stamped on a span.

    Attributes:
        inputs: The input, or None if it was not known.
        output: The output, likewise.
        system: Digest of the system instructions, or b"".
        tools: Digest of the tool definitions, or b"".
        key: What its digests are keyed with, or b"".
        continues: `response` or `conversation` if the provider kept what came before; else "".
        problem: Why it cannot be read; it says nothing then. Else "".
    """

    inputs: StampedList | None = None
    output: StampedList | None = None
    system: bytes = b""
    tools: bytes = b""
    key: bytes = b""
    continues: str = ""
    problem: str = ""


def key_of(secret: str | None) -> bytes:
    """The key that a secret makes; b"" for none."""
    return b"" if secret is None else hashlib.sha256(secret.encode(errors="surrogateescape")).digest()


def keyed(digest: bytes, key: bytes) -> bytes:
    """A digest as it is written: the digest itself, unless there is a key."""
    return hmac.digest(key, digest, "sha256")[:_SIZE] if key else digest


def name_of_key(key: bytes) -> str:
    """By what a stamp says which key its digests are keyed with: it does not tell the key."""
    return hmac.digest(key, b"genai replay key", "sha256")[:4].hex()


def whole_list(inputs: PartList, output: Iterable[Part]) -> PartList:
    """An input and the output that follows it, the calls counted on: as the next input of the run begins."""
    calls = inputs.calls
    said: list[Part] = []
    for part in output:
        if part.kind is PartKind.CALL:
            part, calls = part._replace(position=calls), calls + 1
        said.append(part)
    return part_list(said, inputs)
