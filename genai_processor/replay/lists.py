# SPDX-License-Identifier: Apache-2.0
"""From recorded texts to ordered lists of parts, each history only as far as it is new.

A model's input usually begins with the whole input before it. Where the recorded text begins with the earlier text, byte for
byte (but for its closing bracket), only what follows is parsed, and the lists share their beginning. What comes out is the
same as if every text had been parsed whole, so the order in which spans arrive changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from sys import intern
from typing import Any, NamedTuple

import orjson

from genai_processor.replay.digests import part_digest
from genai_processor.replay.items import Gap, Item, Unreadable
from genai_processor.replay.messages import items_of
from genai_processor.replay.parts import EMPTY, Part, PartKind, PartList, Role
from genai_processor.replay.records import OrderEvidence, State
from genai_processor.spans.values import has_marker, is_withheld, loads

_CALL, _RESULT, _TEXT = PartKind.CALL, PartKind.RESULT, PartKind.TEXT
_WHOLE, _WITHHELD, _REDACTED, _CUT, _UNREADABLE = (
    State.WHOLE,
    State.WITHHELD,
    State.REDACTED,
    State.CUT,
    State.UNREADABLE,
)


class ReadList(NamedTuple):
    """One list as one source records it.

    Attributes:
        state: Whether it is whole.
        parts: Its parts, as far as they could be read.
        order: By what its order is known.
        loose: A result in it names a call that the list has under another id.
        unanswered: Results before whose place there is no call that they could answer: there are more of them than calls, or
            the call of their id comes later.
        results: How many of its parts are results.
        answer: If it is one text, the digest of a tool's result that says the same; else b"".
    """

    state: State
    parts: PartList
    order: OrderEvidence
    loose: bool = False
    unanswered: int = 0
    results: int = 0
    answer: bytes = b""

    @property
    def is_known(self) -> bool:
        """Whether all its parts are known, be it by their digests only."""
        return self.state is _WHOLE or self.order is OrderEvidence.STAMP


class _Known(NamedTuple):
    text: str
    found: ReadList


_new = tuple.__new__  # cheaper than the named tuple's own
_NOTHING = object()
_TEXTS = 4
_TRACES = 512


class ListReader:
    """Reads lists, and remembers the last ones of each trace.

    Args:
        keep_values: Keep what parts say, not only their digests.
        length_limit: The attribute value length limit of the SDK, 0 if it had none, None if nobody knows.
    """

    def __init__(self, *, keep_values: bool, length_limit: int | None) -> None:
        self._keep = keep_values
        self._limit = length_limit or 0
        self._texts: OrderedDict[str, list[_Known]] = OrderedDict()

    def is_cut(self, value: str) -> bool:
        """Whether a text is as long as the length limit."""
        return 0 < self._limit <= len(value)

    def history(self, trace_id: str, text: str) -> ReadList:
        """A list that one JSON text holds, sharing what it can with the trace's earlier ones."""
        known = self._texts.get(trace_id)
        if known is None:
            known = self._texts[trace_id] = []
            if len(self._texts) > _TRACES:
                self._texts.popitem(last=False)
        before = best = None
        for before in known:
            length = len(before.text)
            if length < len(text) and text[length - 1] == "," and text.startswith(before.text[:-1]):
                if best is None or length > len(best.text):
                    best = before
            elif before.text == text:
                return before.found
        found = self._tail(text, best) if best is not None else self.text(text)
        if found.state is _WHOLE and text[:1] == "[" and text[-1:] == "]" and text != "[]":
            if best is not None:
                known.remove(best)  # who extends the shorter one from now on is another branch, and rare
            known.append(_Known(text, found))
            if len(known) > _TEXTS:
                known.pop(0)
        return found

    def _tail(self, text: str, before: _Known) -> ReadList:
        tail = "[" + text[len(before.text) :]
        try:
            items = items_of(orjson.loads(tail))
        except (ValueError, RecursionError):
            return self.text(text)
        if any(item.missing for item in items) or has_marker(tail):
            return self.text(text)
        return self.of_items(items, OrderEvidence.ARRAY, before.found)

    def text(self, text: str) -> ReadList:
        """A list that one JSON text holds."""
        if is_withheld(text):
            return ReadList(_REDACTED, EMPTY, OrderEvidence.NOT_RECORDED)
        parsed = _parsed(text)
        if parsed is _NOTHING:
            cut = self.is_cut(text) or _looks_cut(text)
            marked = has_marker(text)
            return ReadList(_REDACTED if marked else _CUT if cut else _UNREADABLE, EMPTY, OrderEvidence.NOT_RECORDED)
        return self.structure(parsed, OrderEvidence.ARRAY, marked=has_marker(text))

    def structure(self, structure: Any, order: OrderEvidence, *, marked: bool = False) -> ReadList:
        """A list that a parsed structure holds.

        Args:
            structure: JSON's values, or folded attributes.
            order: By what its order is known.
            marked: A redaction or truncation marker stands in its text.
        """
        try:
            items = items_of(structure)
        except Gap:
            return ReadList(_CUT, EMPTY, OrderEvidence.NOT_RECORDED)
        except (Unreadable, RecursionError):
            return ReadList(_UNREADABLE, EMPTY, OrderEvidence.NOT_RECORDED)
        found = self.of_items(items, order)
        return found._replace(state=_REDACTED) if marked else found

    def of_items(self, items: Sequence[Item], order: OrderEvidence, before: ReadList | None = None) -> ReadList:
        """A list of items that were read, after another one or not."""
        if before is None:
            prefix, loose, unanswered, results, calls = None, False, 0, 0, 0
        else:
            prefix, loose, unanswered, results = before.parts, before.loose, before.unanswered, before.results
            calls = prefix.calls
        parts: list[Part] = []
        missing = marked = cut = False
        keep = self._keep
        known: dict[str, tuple[int, str | None]] = {}
        for role, kind, tool, call_id, value, is_missing in items:
            position = None
            call_id, tool = once(call_id), once(tool)
            if kind is _CALL:
                position = calls
                calls += 1
                if call_id is not None:
                    known[call_id] = (position, tool)
            elif kind is _RESULT:
                found = known.get(call_id) if call_id is not None else _NO_CALL
                if found is None:
                    found = _call_before(call_id, prefix) if prefix is not None else _NO_CALL
                position = found[0]
                tool = tool or found[1]
                results += 1
                if results - calls > unanswered:
                    unanswered = results - calls
                if position == -1:
                    loose = True
            if is_missing:
                missing = True
            elif type(value) is str:
                if is_withheld(value):
                    marked = is_missing = True
                elif self._limit and self.is_cut(value):
                    cut = True
            digest = part_digest(role, kind, tool, value)
            parts.append(_new(Part, (role, kind, tool, digest, position, call_id, value if keep else None, is_missing)))
        made = PartList(prefix, tuple(parts), calls)
        if loose:
            unanswered += answered_too_early(made)
        state = _REDACTED if marked else _CUT if cut else _WITHHELD if missing or not len(made) else _WHOLE
        return _new(ReadList, (state, made, order, loose, unanswered, results, _answer(items)))


def _answer(items: Sequence[Item]) -> bytes:
    """The digest of a tool's result that says the same as a list's only text, b"" for any other list."""
    if len(items) != 1 or items[0].kind is not _TEXT or not isinstance(items[0].value, str):
        return b""
    return part_digest(Role.TOOL, _RESULT, None, items[0].value)


def once(text: str | None) -> str | None:
    """The text, kept once however often it is said: ids and tools stand in an answer, on spans, and in what is read next."""
    return intern(text) if type(text) is str else text


_NO_CALL: tuple[int, str | None] = (-1, None)


def _call_before(call_id: str | None, prefix: PartList) -> tuple[int, str | None]:
    """Position and tool of the last call of an id; -1 for none."""
    for part in reversed(prefix):
        if part.call_id == call_id and part.kind is _CALL:
            return part.position or 0, part.tool
    return _NO_CALL


def answered_too_early(parts: PartList) -> int:
    """How many calls of a list come after their results."""
    answered: set[str] = set()
    count = 0
    for part in parts:
        if part.kind is _RESULT and part.position == -1 and part.call_id is not None:
            answered.add(part.call_id)
        elif part.kind is _CALL and part.call_id in answered:
            count += 1
    return count


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except (ValueError, RecursionError):
        parsed = loads(text)
        return _NOTHING if parsed is None else parsed


def _looks_cut(text: str) -> bool:
    """JSON that ends before it is closed. Nobody but telemetry writes half a list."""
    start = text.lstrip()[:1]
    end = text.rstrip()[-1:]
    return (start == "[" and end != "]") or (start == "{" and end != "}")


def best(lists: Iterable[ReadList]) -> ReadList | None:
    """The list that is whole, else the first; None for none. That another source is there never makes a list worse."""
    found = None
    for item in lists:
        if item.state is _WHOLE:
            return item
        if found is None:
            found = item
    return found
