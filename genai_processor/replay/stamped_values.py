# SPDX-License-Identifier: Apache-2.0
"""The recorded values of one world by their digests, as stamps have these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from genai_processor.replay.containers import container_lists
from genai_processor.replay.lookup import Op
from genai_processor.replay.parts import EMPTY, Part, PartKind, PartList
from genai_processor.replay.records import Operation
from genai_processor.replay.stamps import keyed
from genai_processor.replay.tree import Draft

_CALL = PartKind.CALL


class Values:
    """Looked up only when somebody asks: first on the spans of models and tools, then on those of the agents around them.

    Args:
        ops: The operations of the world, by key.
        holders: Its containers.
    """

    def __init__(self, ops: Sequence[Op], holders: Sequence[Draft]) -> None:
        self._ops = ops
        self._holders = holders
        self._own: dict[bytes, dict[bytes, Part]] = {}
        self._around: dict[bytes, dict[bytes, Part]] = {}

    def _value(self, slot: Part, key: bytes) -> Part | None:
        """A recorded part that says what a slot said."""
        values = self._own.get(key)
        if values is None:
            values = self._own[key] = {}
            for parts in _parts_of(self._ops):
                _add(values, parts, key)
        found = values.get(slot.digest)
        if found is None:
            around = self._around.get(key)
            if around is None:
                around = self._around[key] = {}
                _add(around, _parts_around(self._holders), key)
            found = around.get(slot.digest)
        return found

    def slots(self, slots: Iterable[Part], key: bytes) -> tuple[list[Part], bool]:
        """Slots with their values, and whether any is missing."""
        found: list[Part] = []
        missing = False
        for slot in slots:
            part = self._value(slot, key)
            if part is None or (part.role, part.kind) != (slot.role, slot.kind):
                missing = True
                found.append(slot)
            else:
                tool = slot.tool or (part.tool if slot.kind is _CALL else None)
                found.append(slot._replace(tool=tool, digest=part.digest, value=part.value, missing=False))
        return found, missing


def _add(values: dict[bytes, Part], parts: Iterable[Part], key: bytes) -> None:
    """Add parts under their digests. Of several ways to say the same the first is taken, whichever span came first."""
    added: dict[bytes, Part] = {}
    for part in parts:
        if part.missing:
            continue
        known = added.setdefault(part.digest, part)
        if known is not part and known.value != part.value and repr(part.value) < repr(known.value):
            added[part.digest] = part
    for part in added.values():
        values.setdefault(keyed(part.digest, key), part)


def _parts_of(ops: Iterable[Op]) -> Iterator[Iterator[Part]]:
    """Every recorded part: first as models read it, then as they said it, then as tools and others have it."""
    inferences = [op for op in ops if op.operation is Operation.INFERENCE]
    others = [op for op in ops if op.operation is not Operation.INFERENCE]
    yield _each(op.inputs.parts for op in inferences if op.inputs is not None)
    yield _each(op.outcome.parts for op in inferences)
    yield _each(parts for op in others for parts in (op.inputs.parts if op.inputs is not None else EMPTY, op.outcome.parts))


def _each(lists: Iterable[PartList]) -> Iterator[Part]:
    """The parts of lists, those of a shared beginning once."""
    seen: set[int] = set()
    for parts in lists:
        for one in parts.lists():
            if id(one) in seen:
                break
            seen.add(id(one))
            yield from one.tail


def _parts_around(holders: Iterable[Draft]) -> Iterator[Part]:
    """What agents' own spans say."""
    for holder in holders:
        if holder.shown.texts:
            for read in container_lists(holder.shown.texts):
                if read is not None:
                    yield from read.parts
