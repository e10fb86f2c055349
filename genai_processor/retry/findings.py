# SPDX-License-Identifier: Apache-2.0
"""What a scan found that may still grow, scope by scope, in bounded memory.

The scope that was quiet for longest is closed first: what was found in it is handed out as it stands. Nothing is lost by
that; a group of duplicates may come in two pieces, which begin with the same span.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from genai_processor.retry.duplicates import DuplicateKey, Repetition

_MAX_GROUP = 1_000


class DuplicateGroup:
    """Executions of one effect.

    Attributes:
        key: By what they were recognised.
        value: The call id, or the tool's name.
        suspected: It may as well be meant.
        origin: Where the first of them was read from ("" if nobody said).
    """

    __slots__ = ("_span_ids", "key", "origin", "suspected", "value")

    def __init__(self, first: str, key: DuplicateKey, value: str, suspected: bool, origin: str = "") -> None:
        self._span_ids = {first: None}
        self.key = key
        self.value = value
        self.suspected = suspected
        self.origin = origin

    @property
    def span_ids(self) -> list[str]:
        """The executions, in the order in which they were found."""
        return list(self._span_ids)

    @property
    def full(self) -> bool:
        """Whether it is long enough to be handed out."""
        return len(self._span_ids) >= _MAX_GROUP

    def add(self, *span_ids: str) -> int:
        """Add executions, each once; how many were new."""
        before = len(self._span_ids)
        self._span_ids.update(dict.fromkeys(span_ids))
        return len(self._span_ids) - before


@dataclass(frozen=True, slots=True)
class UnobservedCall:
    """A proposed call that no span shows to have run. It may have run all the same.

    Attributes:
        trace_id: The trace in which it was proposed.
        proposed_by: The span that proposed it.
        tool: The tool's name, if it has one.
        call_id: Its id, if it has one.
        origin: Where the trace was read from ("" if nobody said).
    """

    trace_id: str
    proposed_by: str
    tool: str | None
    call_id: str | None
    origin: str = ""


Finding = DuplicateGroup | UnobservedCall


class _Scope:
    __slots__ = ("groups", "origins", "seen", "size", "unobserved")

    def __init__(self) -> None:
        self.groups: dict[Hashable, DuplicateGroup] = {}
        self.unobserved: dict[Hashable, UnobservedCall] = {}
        self.seen: set[str] = set()
        self.origins: dict[str, str] = {}
        self.size = 0


class Findings:
    """What was found so far.

    Args:
        max_scopes: How many scopes are open.
        max_size: How many ids and findings are kept, over all open scopes.
    """

    def __init__(self, max_scopes: int = 20_000, max_size: int = 200_000) -> None:
        self._max_scopes = max_scopes
        self._max_size = max_size
        self._size = 0
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._settled: list[Finding] = []

    def executed(self, scope: str, call_id: str | None, span_id: str, origin: str) -> None:
        """A call was seen: whoever proposed it, it is observed."""
        found = self._open(scope)
        if call_id is not None:
            if call_id not in found.seen:
                found.seen.add(call_id)
                self._grow(found)
            found.unobserved.pop(call_id, None)
        if origin:
            found.origins[span_id] = origin
            self._grow(found)

    def unobserved(self, scope: str, call: UnobservedCall) -> None:
        """No call was seen so far for a proposal."""
        found = self._open(scope)
        if call.call_id is None:
            found.unobserved[object()] = call
        elif call.call_id not in found.seen and call.call_id not in found.unobserved:
            found.unobserved[call.call_id] = call
        self._grow(found)

    def repeated(self, scope: str, found: Repetition, span_id: str, origin: str) -> None:
        """An execution repeats earlier ones."""
        held = self._open(scope)
        key = (found.first, found.suspected)
        group = held.groups.get(key)
        if group is None:
            first_origin = held.origins.get(found.first, origin)
            group = held.groups[key] = DuplicateGroup(found.first, found.key, found.value, found.suspected, first_origin)
            self._grow(held)
        self._grow(held, group.add(*found.members, span_id))
        if group.full:
            self._settled.append(held.groups.pop(key))

    def group(self, group: DuplicateGroup) -> None:
        """A group that is complete."""
        self._settled.append(group)

    def settled(self) -> Iterator[Finding]:
        """What cannot grow any more, each finding once."""
        while self._scopes and (len(self._scopes) > self._max_scopes or self._size > self._max_size):
            self._close(self._scopes.popitem(last=False)[1])
        if self._settled:
            yield from self._settled
            self._settled.clear()

    def rest(self) -> Iterator[Finding]:
        """Everything that is left: duplicates, then unobserved calls."""
        yield from self.settled()
        for scope in self._scopes.values():
            yield from scope.groups.values()
        for scope in self._scopes.values():
            yield from scope.unobserved.values()
        self._scopes.clear()
        self._size = 0

    def _open(self, scope: str) -> _Scope:
        found = self._scopes.get(scope)
        if found is None:
            found = self._scopes[scope] = _Scope()
        else:
            self._scopes.move_to_end(scope)
        return found

    def _grow(self, scope: _Scope, by: int = 1) -> None:
        scope.size += by
        self._size += by

    def _close(self, scope: _Scope) -> None:
        self._size -= scope.size
        self._settled.extend(scope.groups.values())
        self._settled.extend(scope.unobserved.values())
