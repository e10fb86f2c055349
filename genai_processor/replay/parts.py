# SPDX-License-Identifier: Apache-2.0
"""Parts of messages, and ordered lists of them that share their beginnings."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
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


_CALL = PartKind.CALL
_START = hashlib.blake2b(b"genai replay list 1", digest_size=16)
_START_MARK = 0


class PartList(Sequence[Part]):
    """An ordered list of parts that shares its beginning with the list that it extends: histories repeat, memory does not.

    Attributes:
        prefix: The list with which it begins, or None.
        tail: The parts after that.
        calls: How many of all its parts are calls.
    """

    __slots__ = ("_digest", "_hasher", "_length", "_marks", "calls", "prefix", "tail")

    def __init__(self, prefix: PartList | None, tail: tuple[Part, ...], calls: int) -> None:
        self.prefix = prefix
        self.tail = tail
        self.calls = calls
        self._length: int = len(tail) if prefix is None else prefix._length + len(tail)
        self._digest: bytes | None = None
        self._hasher: Any = None
        self._marks: tuple[int, ...] | None = None

    # Most lists are never compared with others, so what is only good for that is made when somebody asks; what lists share,
    # once.

    @property
    def digest(self) -> bytes:
        """16 bytes over all parts, in order and with their positions. Lists are equal if it is."""
        if self._digest is None:
            self._digest = self._hashed().digest()
        return self._digest

    def _hashed(self) -> Any:
        path: list[PartList] = []
        found: PartList | None = self
        while found is not None and found._hasher is None:
            path.append(found)
            found = found.prefix
        hasher = found._hasher if found is not None else _START
        for one in reversed(path):
            hasher = hasher.copy()
            hasher.update(b"".join([place(part) for part in one.tail]))
            if one is not self:
                one._hasher = hasher
        return hasher

    @property
    def marks(self) -> tuple[int, ...]:
        """For each part of the tail, a number over all parts up to it: equal beginnings have equal marks.

        It is good for looking up, and another one in each process.
        """
        if self._marks is None:
            path: list[PartList] = [self]
            found = self.prefix
            while found is not None and found._marks is None:
                path.append(found)
                found = found.prefix
            mark = found.mark if found is not None else _START_MARK
            for one in reversed(path):
                marks = []
                for part in one.tail:
                    mark = hash((mark, part.digest, part.position))
                    marks.append(mark)
                one._marks = tuple(marks)
        assert self._marks is not None
        return self._marks

    @property
    def mark(self) -> int:
        """The last mark."""
        if self.tail:
            return self.marks[-1]
        return self.prefix.mark if self.prefix is not None else _START_MARK

    def mark_after(self, more: PartList) -> int:
        """The mark of a list that goes on with the parts of another one, its calls counted on."""
        mark, calls = self.mark, self.calls
        for part in more:
            at = part.position
            if part.kind is _CALL:
                at = calls
                calls += 1
            mark = hash((mark, part.digest, at))
        return mark

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Part]:
        if self.prefix is None:
            return iter(self.tail)
        return chain.from_iterable([found.tail for found in reversed(list(self.lists()))])

    def __reversed__(self) -> Iterator[Part]:
        return chain.from_iterable(reversed(found.tail) for found in self.lists())

    def lists(self) -> Iterator[PartList]:
        """This list and those with which it begins, the longest first."""
        found: PartList | None = self
        while found is not None:
            yield found
            found = found.prefix

    def begins_with(self, other: PartList) -> bool:
        """Whether another list is one of these."""
        for found in self.lists():
            if found is other:
                return True
            if found._length < other._length:
                return False
        return False

    def since(self, start: int) -> tuple[Part, ...]:
        """The parts from a position on, at the cost of those only."""
        begin = self._length - len(self.tail)
        if start >= begin:
            return self.tail[start - begin :]
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
        if self.prefix is None:
            return self.tail[index]
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


def place(part: Part) -> bytes:
    """What a part adds to the digest of its list."""
    at = part.position
    return part.digest if at is None else part.digest + b"%d" % at


def part_list(parts: Iterable[Part], prefix: PartList | None = None) -> PartList:
    """An ordered list, its positions as they stand in the parts.

    Args:
        parts: The parts after `prefix`.
        prefix: The list that it extends.
    """
    tail = tuple(parts)
    calls = prefix.calls if prefix is not None else 0
    for part in tail:
        if part.kind is _CALL and part.position is not None:
            calls += 1
    return PartList(prefix, tail, calls)


EMPTY = part_list(())
"""The list without parts."""
