# SPDX-License-Identifier: Apache-2.0
"""Parts of messages, and ordered lists of them that share their beginnings."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload


class Role(enum.StrEnum):
    """Whose part it is, whatever word a framework writes for it: a tool's result is `tool`, a call `assistant`."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class PartKind(enum.StrEnum):
    """What a part is."""

    TEXT = "text"
    CALL = "call"
    """A proposed tool call; its value is the arguments."""
    RESULT = "result"
    """A tool's result as a model reads it; its value is as recorded, its digest is of it without known wrappers."""
    DOCUMENT = "document"
    """A retrieved document, or one to be ranked."""
    REASONING = "reasoning"
    OTHER = "other"
    """A file, an image, a built-in tool of the provider: whatever else was recorded, as it was."""


class Part(NamedTuple):
    """One slot of an ordered list: a part of a message, an argument set, a document.

    Attributes:
        role: Whose part it is.
        kind: What it is.
        tool: For a call or a result, the tool's name, if it is recorded or follows from the call; else None.
        digest: 16 bytes over role, kind, tool and canonical value (`digests.part_digest`), but not over `position`: an
            output's part and the same part in a later input have one digest. A result's leaves out the tool, which many do
            not record.
        position: For a call, how many calls stand before it in the list. For a result, the position of the call that it
            answers; -1 where the list holds no such call. None for everything else. It stands for the call id, which a run
            mints anew.
        call_id: The id as recorded, for a call or a result; never part of a digest.
        value: The recorded value (text, or what JSON text says), or None if `plan` was told to keep none.
        missing: The value is not recorded: the part is there, what it said is not (or a marker stands in its place).
    """

    role: Role
    kind: PartKind
    tool: str | None
    digest: bytes
    position: int | None = None
    call_id: str | None = None
    value: Any = None
    missing: bool = False


class PartList(Sequence[Part]):
    """An ordered list of parts that shares its beginning with the list that it extends: histories repeat, memory does not.

    Attributes:
        prefix: The list with which it begins, or None.
        tail: The parts after that.
        marks: For each part of the tail, a number over all parts up to it: equal beginnings have equal marks. It is good for
            looking up, and another one in each process.
        mark: The last of these.
        calls: How many of all its parts are calls.
        digest: 16 bytes over all parts, in order and with their positions (`digests.part_list`). Lists are equal if it is.
        hasher: What makes the digest of a list that goes on from here, or None.
    """

    __slots__ = ("_length", "calls", "digest", "hasher", "mark", "marks", "prefix", "tail")

    def __init__(
        self,
        prefix: PartList | None,
        tail: tuple[Part, ...],
        marks: tuple[int, ...],
        mark: int,
        calls: int,
        digest: bytes,
        hasher: Any = None,
    ) -> None:
        self.prefix = prefix
        self.tail = tail
        self.marks = marks
        self.mark = mark
        self.calls = calls
        self.digest = digest
        self.hasher = hasher
        self._length: int = len(tail) + (prefix._length if prefix is not None else 0)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Part]:
        for found in reversed(list(self.lists())):
            yield from found.tail

    def __reversed__(self) -> Iterator[Part]:
        for found in self.lists():
            yield from reversed(found.tail)

    def lists(self) -> Iterator[PartList]:
        """This list and those with which it begins, the longest first."""
        found: PartList | None = self
        while found is not None:
            yield found
            found = found.prefix

    def since(self, start: int) -> tuple[Part, ...]:
        """The parts from a position on, at the cost of those only."""
        tails: list[tuple[Part, ...]] = []
        for found in self.lists():
            if found._length <= start:
                break
            begin = found._length - len(found.tail)
            tails.append(found.tail[start - begin :] if begin < start else found.tail)
        return tails[0] if len(tails) == 1 else tuple([part for tail in reversed(tails) for part in tail])

    @overload
    def __getitem__(self, index: int) -> Part: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Part, ...]: ...

    def __getitem__(self, index: int | slice) -> Part | tuple[Part, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        at = index + self._length if index < 0 else index
        if 0 <= at < self._length:
            for found in self.lists():
                begin = found._length - len(found.tail)
                if at >= begin:
                    return found.tail[at - begin]
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartList) and self._length == other._length and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PartList({list(self)!r})"
