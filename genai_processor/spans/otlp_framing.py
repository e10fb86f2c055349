# SPDX-License-Identifier: Apache-2.0
"""How messages follow each other in a binary file: which framing it is, and the messages one by one.

The collector's file exporter puts 4-byte lengths in front of its messages, whatever they are (protobuf, or anything
that it compressed). The specification's file exporter delimits protobuf with varints. A single `TracesData` needs no
framing: its own `ResourceSpans` fields are read as messages, so that the whole is never held.

https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/#protobuf-file-requirements
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import IO, NamedTuple

from genai_processor.spans.files import CHUNK, ZSTD

_RESOURCE_SPANS_TAG = 0x0A
_TAGS_IN_RESOURCE_SPANS = b"\x0a\x12\x1a"
# JSON text holds no other control characters; protobuf cannot do without them.
_NOT_TEXT = frozenset(range(0x20)) - frozenset(b"\t\n\r")


class Framing(enum.Enum):
    """What stands in front of each message."""

    LENGTH = "4-byte big-endian length"
    VARINT = "varint length"
    FIELD = "the field tag and length of ResourceSpans in a TracesData"


class Message(NamedTuple):
    """One message of a file.

    Attributes:
        number: Its place in the file, from 1.
        content: Its bytes; empty if they could not be had.
        fault: Why they could not be had, and where; None if they could.
    """

    number: int
    content: bytes
    fault: str | None = None


def framing_of(head: bytes) -> Framing | None:
    """The framing of a file that begins with `head`; None if it is text."""
    size = int.from_bytes(head[:4], "big")
    # Text does not begin with these bytes, and messages of 128 MiB do not occur.
    if len(head) >= 4 and head[0] < 0x08:
        content = head[4:]
        if not size or content.startswith((ZSTD, b"{")) or _is_traces_data(content):
            return Framing.LENGTH
    if _is_traces_data(head):
        return Framing.FIELD
    _, length = _varint(head, 0)
    return Framing.VARINT if length and _is_traces_data(head[length:]) else None


def messages(stream: IO[bytes], framing: Framing, limit: int) -> Iterator[Message]:
    """The messages of `stream`. One of more than `limit` bytes is passed over without being held."""
    offset = 0
    number = 0
    while prefix := _prefix(stream, framing):
        number += 1
        where = f"message {number} at byte {offset}"
        size = _size(prefix, framing)
        if size is None:
            yield Message(number, b"", f"{where}: no length and no message there; the rest of the file cannot be read")
            return
        offset += len(prefix) + size
        if size <= limit:
            content = stream.read(size)
            missing = size - len(content)
            fault = None
        else:
            content = b""
            missing = _pass_over(stream, size)
            fault = f"{where}: {size} bytes, more than the limit of {limit}; raise the limit to read it"
        if missing:
            fault = f"{where}: {size} bytes announced, but the file ends {missing} bytes earlier"
        yield Message(number, b"" if fault else content, fault)


def _prefix(stream: IO[bytes], framing: Framing) -> bytes:
    if framing is Framing.LENGTH:
        return stream.read(4)
    prefix = stream.read(1) if framing is Framing.FIELD else b""
    while len(prefix) < 6 and (byte := stream.read(1)):
        prefix += byte
        if byte[0] < 0x80:
            break
    return prefix


def _size(prefix: bytes, framing: Framing) -> int | None:
    if framing is Framing.LENGTH:
        return int.from_bytes(prefix, "big") if len(prefix) == 4 else None
    at = 1 if framing is Framing.FIELD else 0
    if at and prefix[0] != _RESOURCE_SPANS_TAG:
        return None
    size, length = _varint(prefix, at)
    return size if length else None


def _pass_over(stream: IO[bytes], size: int) -> int:
    """Read `size` bytes without holding them; how many of them are missing."""
    while size and (data := stream.read(min(size, CHUNK))):
        size -= len(data)
    return size


def _is_traces_data(head: bytes) -> bool:
    """Whether a `TracesData` begins here, as far as one can see."""
    if head[:1] != bytes((_RESOURCE_SPANS_TAG,)) or _NOT_TEXT.isdisjoint(head):
        return False
    size, length = _varint(head, 1)
    return bool(length) and (not size or head[1 + length : 2 + length] in _TAGS_IN_RESOURCE_SPANS)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The base-128 number at `at`, and of how many bytes it is: 0 if there is none."""
    value = 0
    for index, byte in enumerate(data[at : at + 5]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, index + 1
    return 0, 0
